"""Answers of the command line: which words can be found, before any run."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy.accounting import detection_plot
from federated_hh.privacy.accounting.answer_rows import Rows
from federated_hh.privacy.local import ldp_triehh_detection, ldp_triehh_settings
from federated_hh.privacy.triehh import detection as triehh_detection
from federated_hh.privacy.triehh import guarantees as triehh
from federated_hh.privacy.triehh import wanted_detection as detection

RANDOMIZERS = ["subset_selection", "k_ary", "asymmetric_one_hot", "symmetric_one_hot"]

# Populations of a plot: from a hundredth of the given one to a hundred times it.
_PLOTTED = tuple(np.geomspace(0.01, 100, 13))


def ldp_triehh(
    *,
    detectable: bool,
    population: int,
    local_epsilon: float,
    contribution_bound: int = 60,
    max_depth: int = 15,
    kept_prefixes: int = 10_000,
    alphabet_size: int = 101,
    cohort_size: int | None = None,
    num_passes: int = 1,
    randomizer: str = "subset_selection",
    min_standard_errors: float = 3.0,
    reported_share: float = 1.0,
    competing_prefixes: int = 0,
    word_length: int | None = None,
    discovery_rate: float | None = None,
    plot: str | None = None,
) -> Rows:
    """Answers which words an LDP TrieHH run can find.

    Args:
        detectable: True: what else there is to know has mechanisms of its own.
        population: n.
        local_epsilon: The local epsilon of a report.
        contribution_bound: B, reports of a client.
        max_depth: D.
        kept_prefixes: eta_max.
        alphabet_size: |X|, the end of a word counted.
        cohort_size: N; None for the largest that n allows.
        num_passes: Passes of D levels.
        randomizer: One of `RANDOMIZERS`.
        min_standard_errors: The least standard errors of the cut.
        reported_share: How likely a holder reports on the word.
        competing_prefixes: That have more votes at every level in any case.
        word_length: Characters; None for 6 and for the longest word.
        discovery_rate: How surely it is to be found; None for 0.5 and 0.9.
        plot: File for a plot over n, if any.

    Returns:
        See `detection.rows`; as given, and in settings that find more. The basis is
        that of all rows.

    Raises:
        ValueError: An argument is outside its range.
    """
    if not detectable:
        raise ValueError(
            "--mechanism=ldp_triehh answers --detectable; for its guarantee ask "
            "--mechanism=shuffle, for anonymity --mechanism=k_anonymity"
        )
    checks.integer(alphabet_size=alphabet_size, least=2)
    checks.integer(competing_prefixes=competing_prefixes, least=0)
    if competing_prefixes >= kept_prefixes:
        raise ValueError(
            f"competing_prefixes is {competing_prefixes:,}; it has to be below "
            f"kept_prefixes, which is {kept_prefixes:,}: they take all places"
        )
    levels = max_depth * num_passes
    if cohort_size is None:
        cohort_size = population // levels
    if cohort_size < 1:
        raise ValueError(
            f"population is {population}; it has to be at least {levels}, a client for "
            "each level"
        )

    def of_epsilon(epsilon: float):
        return ldp_triehh_detection.probabilities_of(randomizer, epsilon)

    own = ldp_triehh_detection.LdpTrieHHDetection(
        settings=ldp_triehh_settings.LdpTrieHHSettings(
            cohort_size=cohort_size,
            contribution_bound=contribution_bound,
            max_depth=max_depth,
            max_prefixes=kept_prefixes,
            num_passes=num_passes,
            min_standard_errors=min_standard_errors,
        ),
        num_clients=population,
        num_characters=alphabet_size - 1,
        probabilities=of_epsilon(local_epsilon),
        reported_share=reported_share,
        competing=competing_prefixes,
    )
    settings = ldp_triehh_detection.alternatives(
        own, epsilon=local_epsilon, with_epsilon=of_epsilon
    )

    def at_size(size: int) -> detection.Detection | None:
        return ldp_triehh_detection.at_population(own, size)

    title = f"LDP TrieHH, local epsilon {local_epsilon:g}"
    return _answer(settings, at_size, title, word_length, discovery_rate, plot)


def of_triehh(
    chosen: triehh.TrieHHParameters,
    solve: Callable[..., triehh.TrieHHParameters] | None,
    request: dict[str, Any],
    *,
    redraws_each_round: bool,
    word_length: int | None,
    discovery_rate: float | None,
    plot: str | None,
) -> Rows:
    """Answers which words a TrieHH run can find.

    Args:
        chosen: Its parameters.
        solve: See `triehh_detection.alternatives`.
        request: See `triehh_detection.alternatives`.
        redraws_each_round: Whether users draw a new word in every round.
        word_length: See `ldp_triehh`.
        discovery_rate: See `ldp_triehh`.
        plot: See `ldp_triehh`; needs `solve`.

    Returns:
        See `ldp_triehh`.

    Raises:
        ValueError: An argument is outside its range, or there is nothing to plot.
    """
    own = triehh_detection.TrieHHDetection(chosen, redraws_each_round)
    settings = triehh_detection.alternatives(own, solve, request)
    if plot is not None and solve is None:
        raise ValueError(
            "--plot needs --epsilon and --delta: threshold and cohort_size are of one "
            "population"
        )
    at_size = functools.partial(_triehh_at, solve, request, redraws_each_round)
    title = "TrieHH" + (f", epsilon {request['epsilon']:g}" if request else "")
    return _answer(settings, at_size, title, word_length, discovery_rate, plot)


def _triehh_at(solve, request, redraws: bool, size: int) -> detection.Detection | None:
    try:
        found = solve(**triehh_detection.at_population(request, size))
    except ValueError:
        return None
    return triehh_detection.TrieHHDetection(found, redraws)


def _answer(
    settings: list[detection.Alternative],
    at_size: Callable[[int], detection.Detection | None],
    title: str,
    word_length: int | None,
    discovery_rate: float | None,
    plot: str | None,
) -> Rows:
    rates = detection.PROBABILITIES if discovery_rate is None else (discovery_rate,)
    own = settings[0].detection
    assert own is not None  # the setting itself
    if own.max_characters < 1:
        raise ValueError("words of one symbol, their end, are none: nothing is found")
    if word_length is not None and word_length > own.max_characters:
        raise ValueError(
            f"word_length is {word_length}; it has to be at most {own.max_characters}, "
            "the longest word that is found"
        )
    table = detection.rows(settings, rates, word_length)
    if plot is not None:
        sizes = [max(2, round(own.population_size * factor)) for factor in _PLOTTED]
        found = [detection.Alternative("", at_size(size)) for size in sizes]
        known = [a for a in found if a.detection is not None]
        if not known:
            raise ValueError("nothing is found at any population: there is no plot")
        points = detection.rows(known, rates, word_length)
        detection_plot.write(plot, points, own.population_size, title)
    answer = [
        {
            **{name: "-" if value is None else value for name, value in row.items()},
            "basis": "",
        }
        for row in table
    ]
    answer[0]["basis"] = "; ".join(own.assumptions)
    return answer
