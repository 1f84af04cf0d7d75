"""The exact law of TrieHH on small populations: the oracle of the tests."""

import fractions
import itertools
import math
from collections.abc import Mapping, Sequence

from federated_hh.privacy.triehh import guarantees as triehh

Law = dict[tuple, fractions.Fraction]


def round_outcomes(holders: dict[str, int], others: int, cohort: int, threshold: int):
    """Enumerates which prefixes of one round reach the threshold.

    Args:
        holders: Prefix to number of users who would vote for it.
        others: Users who would not vote.
        cohort: Users drawn, uniformly without replacement.
        threshold: Votes needed.

    Returns:
        Frozen set of kept prefixes to exact probability.
    """
    total = math.comb(sum(holders.values()) + others, cohort)
    law: dict[frozenset, fractions.Fraction] = {}
    names = sorted(holders)
    for votes in itertools.product(
        *(range(min(holders[name], cohort) + 1) for name in names)
    ):
        silent = cohort - sum(votes)
        if not 0 <= silent <= others:
            continue
        ways = math.comb(others, silent)
        for name, count in zip(names, votes, strict=True):
            ways *= math.comb(holders[name], count)
        kept = frozenset(
            name for name, count in zip(names, votes, strict=True) if count >= threshold
        )
        law[kept] = law.get(kept, 0) + fractions.Fraction(ways, total)
    return law


def round_law(words, mixed, kept, level, parameters):
    """The law of a round where one user draws from `mixed` (None: votes nothing)."""
    law: dict[frozenset, fractions.Fraction] = {}
    for draw, probability in mixed.items():
        holders: dict[str, int] = {}
        for word, count in itertools.chain(words.items(), [(draw, 1)]):
            if word is None or len(word) < level or not count:
                continue
            if level == 1 or word[: level - 1] in kept:
                prefix = word[:level]
                holders[prefix] = holders.get(prefix, 0) + count
        others = parameters.population_size - sum(holders.values())
        outcomes = round_outcomes(
            holders, others, parameters.cohort_size, parameters.threshold
        )
        for outcome, chance in outcomes.items():
            law[outcome] = law.get(outcome, 0) + probability * chance
    return law


def trie_law(words, mixed, parameters, level=1, kept=frozenset()):
    """The exact law of the final trie: tuple of kept sets, level by level."""
    if level > parameters.max_length:
        return {(): fractions.Fraction(1)}
    law: dict[tuple, fractions.Fraction] = {}
    for now, chance in round_law(words, mixed, kept, level, parameters).items():
        if not now:
            law[(now,)] = law.get((now,), 0) + chance
            continue
        for rest, later in trie_law(words, mixed, parameters, level + 1, now).items():
            law[(now, *rest)] = law.get((now, *rest), 0) + chance * later
    return law


def brute_force_law(
    words: Sequence[str | None], parameters: triehh.TrieHHParameters
) -> Law:
    """The law of `trie_law`, by running Algorithms 1 and 2 on every cohort.

    Args:
        words: Each user's word, or None.
        parameters: The run's parameters.
    """
    cohorts = list(itertools.combinations(range(len(words)), parameters.cohort_size))

    def run(level: int, kept: frozenset) -> Law:
        if level > parameters.max_length:
            return {(): fractions.Fraction(1)}
        law: Law = {}
        for cohort in cohorts:
            votes: dict[str, int] = {}
            for user in cohort:
                word = words[user]
                if word is None or len(word) < level:
                    continue
                if level > 1 and word[: level - 1] not in kept:
                    continue
                votes[word[:level]] = votes.get(word[:level], 0) + 1
            now = frozenset(p for p, v in votes.items() if v >= parameters.threshold)
            later = run(level + 1, now) if now else {(): fractions.Fraction(1)}
            for rest, chance in later.items():
                law[(now, *rest)] = law.get((now, *rest), 0) + chance / len(cohorts)
        return law

    return run(1, frozenset())


def redrawing_law(
    users: Sequence[Mapping[str | None, fractions.Fraction]],
    parameters: triehh.TrieHHParameters,
    level: int = 1,
    kept: frozenset = frozenset(),
) -> Law:
    """The law of the trie where all users draw a word again in each round.

    Args:
        users: Each user's probabilities by word; None for a user without votes.
        parameters: The run's parameters.
        level: Number of the first unfinished round.
        kept: The prefixes that the round before it kept.
    """
    if level > parameters.max_length:
        return {(): fractions.Fraction(1)}
    draws: dict[tuple[str, ...], fractions.Fraction] = {(): fractions.Fraction(1)}
    for user in users:
        grown: dict[tuple[str, ...], fractions.Fraction] = {}
        for votes, chance in draws.items():
            for word, share in user.items():
                now = votes
                if (
                    word
                    and len(word) >= level
                    and (level == 1 or word[: level - 1] in kept)
                ):
                    now = tuple(sorted((*votes, word[:level])))
                grown[now] = grown.get(now, 0) + chance * share
        draws = grown
    law: Law = {}
    for votes, drawn in draws.items():
        outcomes = round_outcomes(
            {prefix: votes.count(prefix) for prefix in votes},
            len(users) - len(votes),
            parameters.cohort_size,
            parameters.threshold,
        )
        for now, chance in outcomes.items():
            later = {(): fractions.Fraction(1)}
            if now:
                later = redrawing_law(users, parameters, level + 1, now)
            for rest, last in later.items():
                out = (now, *rest)
                law[out] = law.get(out, 0) + drawn * chance * last
    return law


def exact_delta(factor: fractions.Fraction, law: Law, other: Law) -> fractions.Fraction:
    """The smallest delta with P(S) <= factor Q(S) + delta for all S, exactly."""
    zero = fractions.Fraction(0)
    return sum(
        (
            max(zero, chance - factor * other.get(out, zero))
            for out, chance in law.items()
        ),
        zero,
    )
