"""The privacy statement of a TrieHH run."""

import dataclasses
import math
from typing import Any

from federated_hh.options import checks
from federated_hh.privacy import realised, rounding, statement
from federated_hh.privacy.guarantee import Adjacency, Guarantee
from federated_hh.privacy.triehh import guarantees as triehh
from federated_hh.privacy.triehh.guarantees import TrieHHParameters

BOUND = "the curve of the rounds (docs/triehh_privacy.md)"

_ASSUMPTIONS = (
    "Every round draws its cohort uniformly without replacement from the whole "
    "population, afresh and independently of the data and of earlier cohorts.",
    "The population size is known. If only some clients are reachable, the guarantee "
    "is computed for their number.",
    "The server is honest: it uses the votes of a round only to find the prefixes "
    "that reach the threshold, and keeps and shows nothing else of them.",
    "A client's vote depends on its own data and on earlier releases, not on other "
    "clients' data.",
    "The simulation draws cohorts and words from the run's noise key, and sampling "
    "protects nobody from those who know it: keep it secret if results on real data "
    "are shared. Runs with other parameters or another population draw other cohorts "
    "from the same key. Its generators (PCG64, Philox) are assumed to be random to all "
    "without the key; they are not cryptographic.",
)

_ANY_VOTES_ARE = (
    "A client without data votes for nothing, and a round's question depends on the "
    "candidates that earlier rounds kept, not on their vote counts."
)
_POPULATION_IS_PUBLIC = (
    "Clients without a word were left out of the population. Its size n, and the "
    "threshold and cohort size that follow from n, are therefore assumed to be public: "
    "whether a client has any word at all is not protected."
)

_NOT_COUNTED = (
    "Vote counts: the guarantee covers the prefixes that reach the threshold, not "
    "their vote counts or a round's total.",
    statement.SIMULATOR_KNOWLEDGE,
    "Choices made by looking at the data (thresholds, population, alphabet, number "
    "of runs) and other analyses of the same clients.",
    "Further runs on the same population: their rounds compose with these "
    "(run_accounting --compose).",
)

_ACCOUNTING = (
    "Let k clients hold what the client votes for, and q_k = P(Hypergeometric(n, k, m) "
    "= theta). From D to D', a round's hockey-stick curve is at most the largest q_k "
    "(1 - alpha (1 - theta / k)) of all k; below alpha = 1 it is a line. Rounds, and "
    "runs on the same clients, compose as products of the pair that has this curve, "
    "rounded upward at every step (docs/triehh_privacy.md has the proof). This holds "
    "for clients with one word, for clients who draw a word in every round, and for "
    "votes for anything. The other direction has no epsilon: it fails for some small "
    "populations. At alpha = 1 the curve is the total variation distance, which has no "
    "direction."
)


def triehh_statement(
    parameters: TrieHHParameters,
    *,
    delta: float,
    redraws_each_round: bool,
    extends_prefixes: bool = True,
    rounds: realised.RealisedRounds | None = None,
    num_runs: int = 1,
    population_has_empty_users: bool = True,
) -> statement.PrivacyStatement:
    """Makes the privacy statement of one TrieHH run, or of several.

    Args:
        parameters: The runs' parameters.
        delta: Delta that a run's epsilon is stated for, in (0, 1).
        redraws_each_round: Whether users who hold several words draw again in every
            round (Algorithm 3 of Zhu et al. 2020).
        extends_prefixes: True for TrieHH. Else it is any algorithm with one vote
            a user and round, and the statement is of that.
        rounds: The rounds that ran, which make the statement realised; None for a
            planned one. The numbers are the same: when a run ends depends on the data,
            so that a short one costs no less.
        num_runs: Number of planned runs with these parameters on the population;
            with `rounds` it follows from them. Where there are several, what they
            cost together is stated too.
        population_has_empty_users: Whether users without a word are counted in n, as
            the adjacency has it. Where they were left out, the statement says that n
            is taken to be public.

    Returns:
        The statement; without a guarantee, and with the reason, where no epsilon has
        the delta. The first guarantees are of all runs together, the last ones of one;
        each has an epsilon from D to D', and the total variation distance for both
        directions. Theorem 1 of Zhu et al. 2020 is named beside them where it applies.

    Raises:
        ValueError: An argument is outside its range, or `rounds` are not of these
            parameters.
    """
    checks.probability(delta=delta)
    checks.integer(num_runs=num_runs, least=1)
    if rounds is not None:
        _check_rounds(rounds, parameters)
        num_runs = rounds.num_repeats
    guarantees, reason = _guarantees(
        parameters, delta, redraws_each_round, extends_prefixes, num_runs
    )
    assumptions: tuple[str, ...] = _ASSUMPTIONS
    if not extends_prefixes:
        assumptions += (_ANY_VOTES_ARE,)
    if not population_has_empty_users:
        assumptions += (_POPULATION_IS_PUBLIC,)
    return statement.PrivacyStatement(
        setting=(
            "Central DP without added noise: sampling and thresholding protect the "
            "output, and the server is trusted to apply the threshold."
        ),
        protected=(
            "All words of a client, in one run of TrieHH"
            if extends_prefixes
            else "All data of a client, in one run"
        )
        + (f", and in {num_runs} runs together." if num_runs > 1 else "."),
        adjacency=Adjacency.EMPTIED,
        mechanism="TrieHH (Zhu et al. 2020, Algorithms 1 to 3)"
        if extends_prefixes
        else "One vote a client, and a threshold (docs/triehh_privacy.md)",
        mechanism_output=(
            "The trie of prefixes that reached the threshold after every round, and "
            "with it the words found; without vote counts."
            if extends_prefixes
            else "The candidates that reached the threshold in every round, without "
            "vote counts."
        ),
        guarantees=guarantees,
        no_guarantee_reason=reason,
        parameters={
            "population_size (n)": parameters.population_size,
            "cohort_size (m)": parameters.cohort_size,
            "gamma": parameters.gamma,
            "threshold (theta)": parameters.threshold,
            "max_length (L)": parameters.max_length,
            "delta asked for": delta,
            "redraws_each_round": "yes" if redraws_each_round else "no",
            "extends_prefixes": "yes" if extends_prefixes else "no",
            "users_without_words": "counted"
            if population_has_empty_users
            else "left out",
            "runs": num_runs,
        },
        accounting=_ACCOUNTING,
        assumptions=assumptions,
        not_counted=_NOT_COUNTED,
        realised=None if rounds is None else rounds.summary(),
        num_repeats=num_runs,
    )


def recomputed(stated: statement.PrivacyStatement) -> tuple[Guarantee, ...]:
    """Returns the guarantees that follow from a statement's parameters.

    Args:
        stated: A statement of `triehh_statement`.

    Raises:
        KeyError: A parameter is missing.
        ValueError: A parameter is out of range.
    """
    found: dict[str, Any] = dict(stated.parameters)
    guarantees, _ = _guarantees(
        TrieHHParameters(
            found["population_size (n)"],
            found["cohort_size (m)"],
            found["threshold (theta)"],
            found["max_length (L)"],
        ),
        checks.probability(**{"delta asked for": found["delta asked for"]}),
        found["redraws_each_round"] == "yes",
        found["extends_prefixes"] == "yes",
        checks.integer(runs=found["runs"], least=1),
    )
    return guarantees


def _check_rounds(rounds: realised.RealisedRounds, parameters: TrieHHParameters):
    for found in rounds.rounds:
        if found.clients != parameters.cohort_size:
            raise ValueError(
                f"rounds has {found.clients} clients in round {found.number} of repeat "
                f"{found.repeat}; cohort_size is {parameters.cohort_size}"
            )
        if found.number > parameters.max_length:
            raise ValueError(
                f"rounds has a round {found.number} in repeat {found.repeat}; "
                f"max_length is {parameters.max_length}"
            )


def _guarantees(
    parameters: TrieHHParameters,
    delta: float,
    redraws: bool,
    extends_prefixes: bool,
    num_runs: int,
) -> tuple[tuple[Guarantee, ...], str | None]:
    """Returns the guarantees, or none and the reason."""
    guarantees = []
    try:
        if num_runs > 1:
            # First, as all of them are released.
            together = min(num_runs * delta, math.nextafter(1.0, 0.0))
            guarantees += _of_runs(parameters, together, num_runs)
        guarantees += [
            dataclasses.replace(each, of_one_repeat=num_runs > 1)
            for each in _of_runs(parameters, delta, 1)
        ]
    except ValueError as error:
        return (), f"{error}."
    if extends_prefixes and triehh.theorem1_violation(parameters) is None:
        epsilon, larger = triehh.theorem1(parameters)
        paper = Guarantee(
            epsilon=epsilon,
            delta=larger,
            bound="Zhu et al. 2020, " + ("Corollary 2" if redraws else "Theorem 1"),
            is_upper_bound=True,
            one_sided=True,
            adjacency=Adjacency.EMPTIED,
            of_one_repeat=num_runs > 1,
            is_comparison=True,
        )
        guarantees.append(paper)
    return tuple(guarantees), None


def chance_of_being_right(distance: float) -> str:
    """Returns an observer's chance to tell two equally likely data sets apart.

    Args:
        distance: The total variation distance of their outputs, in [0, 1].
    """
    return f"{rounding.rounded_up(50 * (1 + distance))}%"


def _of_runs(
    parameters: TrieHHParameters, delta: float, num_runs: int
) -> list[Guarantee]:
    """Returns the total guarantees of some runs: one direction, and both."""
    rounds = parameters.voting_rounds(num_runs)
    together = (f"For all {num_runs} repeats together.",) if num_runs > 1 else ()
    one_sided = Guarantee(
        epsilon=rounds.epsilon(delta),
        delta=delta,
        bound=BOUND,
        is_upper_bound=True,
        one_sided=True,
        adjacency=Adjacency.EMPTIED,
        assumptions=together,
        voting=rounds,
    )
    distance = rounds.delta(0.0)
    right = chance_of_being_right(distance)
    both = dataclasses.replace(
        one_sided,
        epsilon=0.0,
        delta=distance,
        bound=f"{BOUND} at alpha = 1: total variation, both directions; a guess "
        f"about the client is right with probability at most {right}",
        one_sided=False,
        voting=None,
    )
    return [one_sided, both]
