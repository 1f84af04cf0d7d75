"""The command line's answers on TrieHH and LDP TrieHH."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import guarantee
from federated_hh.privacy.accounting import arguments as of
from federated_hh.privacy.accounting import plots
from federated_hh.privacy.accounting.arguments import Rows, row
from federated_hh.privacy.local import (
    ldp_triehh_detection,
    ldp_triehh_settings,
    report_guarantees,
)
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.privacy.triehh import detection as triehh_detection
from federated_hh.privacy.triehh import guarantees as triehh_lib
from federated_hh.privacy.triehh import solver, theorem1
from federated_hh.privacy.triehh import statement as triehh_statement
from federated_hh.privacy.triehh import wanted_detection as detection

# Populations of a plot: from a hundredth of the given one to a hundred times it.
_PLOTTED = tuple(np.geomspace(0.01, 100, 13))
# Of a level, as in Sun et al. 2024; a run in which nothing can be found is refused.
_KEPT_PREFIXES = 10_000


def triehh(
    *,
    population: of.Population,
    max_length: of.MaxLength = 10,
    epsilon: of.Epsilon | None = None,
    delta: of.Delta | None = None,
    threshold: of.Threshold | None = None,
    cohort_size: of.CohortSize | None = None,
    parameters: of.Parameters | None = None,
    discovery_rate: of.DiscoveryRate | None = None,
    redraws_each_round: of.RedrawsEachRound = False,
    detectable: of.Detectable = False,
    word_length: of.WordLength | None = None,
    plot: of.Plot | None = None,
) -> Rows:
    """Answers for a TrieHH run: parameters for a guarantee, or the other way round.

    epsilon and delta give threshold and cohort size, the threshold for a cohort size if
    that is given. threshold, cohort_size and one of epsilon and delta give the other.

    Returns:
        theta, m, gamma, the holders that a word needs, and the guarantee by each
        bound; with detectable the words that can be found.

    Raises:
        ValueError: An argument is missing or outside its range.
    """
    if not detectable and (word_length is not None or plot is not None):
        raise ValueError("--word_length and --plot need --detectable")
    if delta is None and epsilon is not None and threshold is None:
        delta = 1 / population**2  # as `run_triehh` has it
    wanted = (epsilon is not None, delta is not None)
    request: dict[str, Any] = {}
    solve = None
    if threshold is not None and cohort_size is not None and sum(wanted) == 1:
        if parameters is not None:
            raise ValueError("--parameters needs --epsilon and --delta")
        if threshold > cohort_size:
            raise ValueError(
                f"threshold is {threshold}; it has to be at most {cohort_size}, "
                "cohort_size: no word can get more votes"
            )
        chosen = triehh_lib.TrieHHParameters(
            population, cohort_size, threshold, max_length
        )
    elif all(wanted) and threshold is None:
        request = {
            "population_size": population,
            "max_length": max_length,
            "epsilon": epsilon,
            "delta": delta,
        }
        if cohort_size is not None:
            request["cohort_size"] = cohort_size
        solve = functools.partial(_solve_triehh, parameters or "tight", discovery_rate)
        chosen = solve(**request)
    else:
        raise ValueError(
            "--mechanism=triehh needs --epsilon, such as --epsilon=4, with --delta "
            f"(1/n^2 if not set: {1 / population**2:.3g}); or --threshold and "
            "--cohort_size with one of the two"
        )
    if detectable:
        own = triehh_detection.TrieHHDetection(chosen, redraws_each_round)
        settings = triehh_detection.alternatives(own, solve, request)
        if plot is not None and solve is None:
            raise ValueError(
                "--plot needs --epsilon and --delta: --threshold and --cohort_size "
                "fit one population only"
            )
        at_size = functools.partial(_triehh_at, solve, request, redraws_each_round)
        title = "TrieHH" + (f", epsilon {epsilon:g}" if request else "")
        return _findable(settings, at_size, title, word_length, discovery_rate, plot)
    rate = 0.9 if discovery_rate is None else discovery_rate
    rows = [
        row("threshold (theta)", chosen.threshold, ""),
        row("cohort size (m)", chosen.cohort_size, ""),
        row("gamma", chosen.gamma, "m / sqrt(n)"),
        _holders(chosen, rate),
    ]
    if solve is not None and cohort_size is not None:
        best = solve(**{**request, "cohort_size": None})
        rows.append(_holders(best, rate, f", with cohorts of {best.cohort_size:,}"))
    return rows + _guarantees(chosen, epsilon, delta, redraws_each_round)


def ldp_triehh(
    *,
    population: of.Population,
    local_epsilon: of.LocalEpsilon,
    delta: of.Delta = 1e-10,
    contribution_bound: of.ContributionBound = 60,
    max_depth: of.MaxDepth = 15,
    kept_prefixes: of.KeptPrefixes | None = None,
    alphabet_size: of.AlphabetSize = 101,
    cohort_size: of.CohortSize | None = None,
    num_passes: of.NumPasses = 1,
    randomizer: of.Randomizer = "subset_selection",
    min_standard_errors: of.MinStandardErrors = 3.0,
    reported_share: of.ReportedShare = 1.0,
    competing_prefixes: of.CompetingPrefixes = 0,
    word_length: of.WordLength | None = None,
    discovery_rate: of.DiscoveryRate | None = None,
    detectable: of.Detectable = False,
    plot: of.Plot | None = None,
) -> Rows:
    """Answers which words an LDP TrieHH run can find.

    Returns:
        The holders that a word needs; with detectable the rows of `detection.rows`, as
        given and in settings that find more. The first row
        has the basis of all. By default cohorts and kept prefixes are those that a run
        chooses, words have 6 characters or the most that can be found, and are found
        with probability 0.5 and 0.9.

    Raises:
        ValueError: An argument is outside its range.
    """
    if plot is not None and not detectable:
        raise ValueError("--plot needs --detectable or --vary")
    checks.integer(alphabet_size=alphabet_size, least=2)
    if kept_prefixes is not None and competing_prefixes >= kept_prefixes:
        raise ValueError(
            f"competing_prefixes is {competing_prefixes:,}; it has to be below "
            f"kept_prefixes, which is {kept_prefixes:,}: they take all places"
        )
    levels = max_depth * num_passes
    if cohort_size is None:
        cohort_size = ldp_triehh_detection.sensible_cohort(population, levels)
    if population < levels:
        raise ValueError(
            f"population is {population}; it has to be at least {levels}, a client for "
            "each level"
        )
    own = ldp_triehh_detection.LdpTrieHHDetection(
        settings=ldp_triehh_settings.LdpTrieHHSettings(
            cohort_size=cohort_size,
            contribution_bound=contribution_bound,
            max_depth=max_depth,
            max_prefixes=kept_prefixes or _KEPT_PREFIXES,
            num_passes=num_passes,
            min_standard_errors=min_standard_errors,
        ),
        num_clients=population,
        num_characters=alphabet_size - 1,
        probabilities=ldp_triehh_detection.probabilities_of(randomizer, local_epsilon),
        reported_share=reported_share,
    )
    if kept_prefixes is None:
        places = ldp_triehh_detection.sensible_places(own)
        # With none, nothing is found at any number of places.
        own = ldp_triehh_detection.with_places(own, places or _KEPT_PREFIXES)
    own = dataclasses.replace(own, competing=competing_prefixes)
    if not detectable:
        rate = 0.9 if discovery_rate is None else discovery_rate
        return _ldp_holders(own, rate) + _ldp_guarantees(
            own.settings, alphabet_size - 1, randomizer, local_epsilon, delta
        )
    settings = ldp_triehh_detection.alternatives(
        own,
        epsilon=local_epsilon,
        with_epsilon=functools.partial(
            ldp_triehh_detection.probabilities_of, randomizer
        ),
    )
    at_size = functools.partial(ldp_triehh_detection.at_population, own)
    title = f"LDP TrieHH, local epsilon {local_epsilon:g}"
    return _findable(settings, at_size, title, word_length, discovery_rate, plot)


def _ldp_holders(own: ldp_triehh_detection.LdpTrieHHDetection, rate: float) -> Rows:
    """Returns the holders that a word of a usual and of the largest length needs."""
    basis = "; ".join(own.assumptions)
    rows = [
        row(
            f"holders for a discovery rate of {rate:g}, "
            f"{found['characters']} characters",
            "not possible" if found["holders"] is None else found["holders"],
            basis,
        )
        for found in detection.rows([detection.Alternative("", own)], (rate,), None)
    ]
    return [
        *rows,
        row(
            "cohort size of a level", own.settings.cohort_size, "of other clients each"
        ),
        row("kept prefixes of a level", own.settings.max_prefixes, "eta_max"),
    ]


def _ldp_guarantees(
    settings: ldp_triehh_settings.LdpTrieHHSettings,
    num_characters: int,
    name: str,
    local_epsilon: float,
    delta: float,
) -> Rows:
    """Returns the central guarantees by the bounds of a run's statement."""
    sizes = settings.usual_domains(num_characters)
    kind = shuffling.Randomizer(name)
    is_subset = kind is shuffling.Randomizer.SUBSET_SELECTION
    reports = shuffling.Reports(
        randomizer=kind, local_epsilon=local_epsilon, domain_size=sizes[0]
    )
    stated, _ = report_guarantees.guarantees(
        report_guarantees.ReportRounds(
            local_epsilon=reports.replacement_epsilon,
            cohort_size=settings.cohort_size,
            contribution_bound=settings.contribution_bound,
            domain_sizes=sizes,
            randomizer=None if is_subset else name,
        ),
        delta,
    )
    where = f"; levels of at least {min(sizes):,} items" if is_subset else ""
    central = [one for one in stated if one.delta and not one.is_comparison]
    rows = [
        row(
            f"central epsilon per {one.unit.value}, {one.adjacency.value}",
            one.epsilon,
            one.bound + where,
        )
        for one in central
    ]
    of_client = [one for one in central if one.unit is guarantee.Unit.CLIENT]
    if of_client:
        best = min(of_client, key=lambda one: one.epsilon)
        rows.append(
            row(
                "central epsilon to quote",
                best.epsilon,
                f"per client, {best.adjacency.value}: it covers all of a client's "
                f"{settings.contribution_bound} reports, an item's only one of them",
            )
        )
    return [*rows, row("delta", delta, "of each central epsilon, for one repeat")]


def _findable(
    settings: list[detection.Alternative],
    at_size: Callable[[int], detection.Detection | None],
    title: str,
    word_length: int | None,
    discovery_rate: float | None,
    plot: str | None,
) -> Rows:
    """Returns the words that settings find, and writes the plot over n."""
    rates = detection.PROBABILITIES if discovery_rate is None else (discovery_rate,)
    own = settings[0].detection
    assert own is not None  # the setting itself
    if own.max_characters < 1:
        raise ValueError(
            "max_length leaves room for the word end only, so nothing is found; "
            "raise it"
        )
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
            raise ValueError(
                "nothing is found at any population, so there is nothing to plot; "
                "raise epsilon or the word's frequency"
            )
        points = detection.rows(known, rates, word_length)
        plots.detection(plot, points, own.population_size, title)
    bases = ["; ".join(own.assumptions), *[""] * (len(table) - 1)]
    return [
        {name: "-" if value is None else value for name, value in found.items()}
        | {"basis": basis}
        for found, basis in zip(table, bases, strict=True)
    ]


def _triehh_at(solve, request, redraws: bool, size: int) -> detection.Detection | None:
    try:
        found = solve(**triehh_detection.at_population(request, size))
    except ValueError:
        return None
    return triehh_detection.TrieHHDetection(found, redraws)


def _holders(chosen, rate: float, where: str = "") -> dict[str, Any]:
    needed = solver.holders_needed(chosen, rate)
    return row(
        f"holders for a discovery rate of {rate:g}{where}",
        "not possible" if needed is None else needed,
        "Zhu et al. 2020, Proposition 1; a client holds the word it votes with",
    )


def _solve_triehh(parameters: str, discovery_rate: float | None, **request):
    if parameters == "tight":
        if discovery_rate is not None:
            request["discovery_rate"] = discovery_rate
        return solver.solve_parameters(**request)
    if "cohort_size" in request:
        raise ValueError(
            f"cohort_size is {request['cohort_size']}; --parameters=corollary1 chooses "
            "it: leave it out"
        )
    return theorem1.solve_parameters(**request)


def _guarantees(
    parameters, epsilon: float | None, delta: float | None, redraws: bool
) -> Rows:
    """Returns the curve's guarantee and the paper's, for the same parameters."""
    emptied = guarantee.Adjacency.EMPTIED.value
    who = f"{emptied}, one-sided (from D to D' only)"
    rounds, curve = parameters.voting_rounds(), triehh_statement.BOUND
    if delta is not None:
        epsilon = rounds.epsilon(delta)
    else:
        delta = rounds.delta(epsilon)
    distance = rounds.delta(0.0)
    right = triehh_statement.chance_of_being_right(distance)
    rows = [
        row("epsilon", epsilon, f"{curve}; {who}"),
        row("delta", delta, f"{curve}; {who}"),
        row(
            "total variation distance",
            distance,
            f"{curve}; {emptied}, both directions: who knows all other data is right "
            f"about one client with probability at most {right}",
        ),
    ]
    violated = triehh_lib.theorem1_violation(parameters)
    name = "Zhu et al. 2020, " + ("Corollary 2" if redraws else "Theorem 1")
    if violated is not None:
        covered = f"{name} does not cover these parameters, the curve above does"
        return [*rows, row("epsilon by the paper", "-", f"{covered}: {violated}")]
    epsilon, delta = triehh_lib.theorem1(parameters)
    rows.append(row("epsilon", epsilon, f"{name}; {who}"))
    return [*rows, row("delta", delta, f"{name}; {who}")]
