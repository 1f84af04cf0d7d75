"""The k-anonymity of an LDP TrieHH run, and the words that it can find."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pandas as pd

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh.parameters import LdpTrieHHParameters
from federated_hh.privacy.local import anonymity, ldp_triehh_detection
from federated_hh.privacy.triehh import wanted_detection as detection
from federated_hh.randomizers import arguments

_ANONYMITY_COLUMNS = [
    field.name for field in dataclasses.fields(anonymity.AnonymityResult)
]


# Other contribution bounds to compare with.
_BOUNDS = (1, 2, 5, 10, 20, 50)


def _own_law(
    algorithm: ldp_triehh.LdpTrieHH, bound: int | None = None
) -> ldp_triehh_detection.LdpTrieHHDetection:
    parameters = algorithm.parameters
    if bound is not None:
        parameters = dataclasses.replace(parameters, contribution_bound=bound)
    return parameters.detection(
        algorithm.population.num_clients,
        algorithm.alphabet,
        algorithm.population.reported_share(parameters.contribution_bound),
    )


def for_longer_words(
    algorithm: ldp_triehh.LdpTrieHH, counting_clients: int, characters: int
) -> detection.Alternative:
    """Returns the setting that finds longer words, of the same clients.

    Args:
        algorithm: The algorithm that was run.
        counting_clients: Clients that the counting task has to have.
        characters: The characters of the longest word.
    """
    own = _own_law(algorithm)
    parameters = dataclasses.replace(algorithm.parameters, max_depth=characters)
    cohort = (own.num_clients - counting_clients) // parameters.levels
    name = f"--max_depth={characters}"
    if cohort < parameters.cohort_size:
        name += f" with --cohort_size={cohort}"
        if cohort < 1:
            return detection.Alternative(name, None)
        parameters = dataclasses.replace(parameters, cohort_size=cohort)
    law = dataclasses.replace(own, settings=parameters)
    return detection.Alternative(name, law)


def what_is_found(algorithm: ldp_triehh.LdpTrieHH) -> list[dict[str, Any]]:
    """Returns the words that a run can find, and settings that find more.

    Args:
        algorithm: The algorithm. Of its population counts only the number of clients,
            and the share of their distinct words that clients can report on.

    Returns:
        See `detection.rows`.
    """
    parameters, own = algorithm.parameters, _own_law(algorithm)

    def with_epsilon(epsilon: float) -> Callable[[int], tuple[float, float]]:
        return dataclasses.replace(parameters, epsilon=epsilon).probabilities

    largest = arguments.MAX_EPSILON
    found = ldp_triehh_detection.alternatives(
        own,
        epsilon=parameters.epsilon,
        with_epsilon=with_epsilon if parameters.epsilon + 2 <= largest else None,
    )
    return detection.rows([*found, *_smaller_bound(algorithm, own)])


def _smaller_bound(
    algorithm: ldp_triehh.LdpTrieHH, own: ldp_triehh_detection.LdpTrieHHDetection
) -> list[detection.Alternative]:
    """Returns the smaller contribution bound that finds the rarest words, if any does.

    Each report adds noise, that of "no item" as well, so that a bound above what most
    clients hold costs accuracy, and epsilon.
    """
    characters = min(detection.USUAL_CHARACTERS, own.max_characters)
    likely = max(detection.PROBABILITIES)
    given = algorithm.parameters.contribution_bound
    laws = {bound: _own_law(algorithm, bound) for bound in _BOUNDS if bound < given}
    laws[given] = own
    needed = {
        bound: law.holders_needed(likely, characters) or math.inf
        for bound, law in laws.items()
    }
    best = min(needed, key=lambda bound: (needed[bound], -bound))
    if best == given:
        return []
    name = f"--contribution_bound={best}, at less epsilon per client"
    return [detection.Alternative(name, laws[best])]


def anonymity_of(
    parameters: LdpTrieHHParameters,
    alphabet: alphabet_lib.Alphabet,
    levels: pd.DataFrame,
    alpha: float,
) -> tuple[pd.DataFrame, str]:
    """Evaluates approximate k-anonymity (Sun et al. 2024, Definition 3 and Lemma 1).

    Args:
        parameters: The parameters of the run.
        alphabet: The alphabet of the run.
        levels: A row a level of each repeat, with repeat, level and candidates.
        alpha: In (0, 1).

    Returns:
        A row for each evaluation, and what to know about them, as Markdown. No rows
        where there is nothing to evaluate.
    """
    if math.isinf(parameters.epsilon):
        return pd.DataFrame(columns=_ANONYMITY_COLUMNS), (
            "Not evaluated: without local privacy a prefix is kept by its true votes."
        )
    if not parameters.is_subset_selection:
        return pd.DataFrame(columns=_ANONYMITY_COLUMNS), (
            "Not evaluated: the evaluation is for Subset Selection only."
        )
    results, remarks = [], []
    full: dict[str, Any] = {
        "alphabet_size": alphabet.num_symbols,
        "kept_prefixes": parameters.max_prefixes,
        "local_epsilon": parameters.epsilon,
        "num_reports": parameters.reports_per_level,
    }
    try:
        level = anonymity.VotingLevel(**full)
        results.append(level.direct(alpha))
        results.insert(0, level.lemma_1(alpha))
    except ValueError as error:
        remarks.append(f"Lemma 1 does not apply: {error}.")
    first = _first_full_level(parameters, alphabet)
    candidates = levels["candidates"][levels["level"] >= first]
    if len(candidates):
        try:
            smallest = anonymity.VotingLevel(
                **full, live_prefixes=int(candidates.min()) // alphabet.num_symbols
            )
            passes = parameters.num_passes
            repeats = levels["repeat"].nunique()
            result = smallest.direct(alpha, passes, repeats)
            name = (
                f"as run: s = {smallest.domain_size:,}, {passes} "
                f"{'pass' if passes == 1 else 'passes'}"
                + (f" in each of {repeats} repeats" if repeats > 1 else "")
                + " (others hold no item)"
            )
            results.append(dataclasses.replace(result, name=name))
        except ValueError as error:
            remarks.append(f"The run itself has no k: {error}.")
    text = (
        f"A word that at most k users hold is found with probability at most "
        f"{1 - alpha:.4g} (alpha = {alpha:g}). `k` is the largest that an evaluation "
        "gives, empty where not even a word that nobody holds passes; the two "
        "probabilities are those of a word that nobody holds, and that k hold. The "
        "first evaluations are, as the paper's, of one level with s = eta_max |X| + 1 "
        "items, once. Lemma 1 takes two items off every report to hold for all data; "
        "the direct evaluation is of the one data set in which all other reports hold "
        "'no item'. None is a proof to the last digit: the vote counts of different "
        "candidates are taken as independent, which they are up to the fixed size of "
        "a report. The last evaluation is the direct one of the run: at its level with "
        "the fewest candidates, for prefixes that end as words leave the trie, with a "
        "word's chances in all passes of all repeats; its holders take part in every "
        "repeat, and are spread over its cohorts as makes it most likely. Ties, which "
        "are kept, are counted. "
        f"Words of fewer than {first} characters are not covered: they come out of "
        "levels that keep most of their candidates."
    )
    return (
        pd.DataFrame(
            [dataclasses.asdict(result) for result in results],
            columns=_ANONYMITY_COLUMNS,
        ),
        " ".join([*remarks, text] if results else remarks),
    )


def _first_full_level(
    parameters: LdpTrieHHParameters, alphabet: alphabet_lib.Alphabet
) -> int:
    """Returns the first level that the level before it may give eta_max prefixes."""
    level, prefixes = 1, alphabet.size
    while prefixes < parameters.max_prefixes and level < parameters.max_depth:
        level, prefixes = level + 1, prefixes * alphabet.size
    return level
