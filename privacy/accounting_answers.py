"""The answers of the command line: rows of quantity, value and what it rests on."""

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from privacy import (
    argument_checks,
    correlated_answers,
    detectable_answers,
    neighbours,
    shuffling,
    triehh_solver,
    triehh_statement,
    triehh_theorem1,
)
from privacy import triehh as triehh_accounting
from privacy.shuffling import Method, Randomizer, Reports

# Of each numeric flag: the largest value, and why.
LIMITS: dict[str, tuple[float, str]] = {
    "noise_multiplier": (1e9, "the guarantee is as good as perfect long before"),
    "num_rounds": (1e9, "no training has as many"),
    "max_participation": (1e9, "no training has as many rounds"),
    "min_separation": (1e9, "no training has as many rounds"),
    "restart_first": (1e9, "no training has as many rounds"),
    "restart_period": (1e9, "no training has as many rounds"),
    "buffers": (4, "a fifth is of no use"),
    "count_stddev": (1e12, "beyond it the count is of no use, and costs nothing"),
    "group_size": (1e6, "nobody has as many devices"),
    "delta": (1, "it is a probability"),
    "epsilon": (1e3, "it would guarantee nothing"),
    "local_epsilon": (100, "a report tells all long before"),
    "num_reports": (
        1e12,
        "100 for each human; beyond it binomial laws lose their digits and need more "
        "memory than there is",
    ),
    "domain_size": (2**31 - 1, "items are numbered with 31 bits"),
    "honest_fraction": (1, "it is a share"),
    "population": (1e12, "100 for each human"),
    "max_length": (1e6, "no word has as many symbols"),
    "threshold": (1e12, "it cannot be above the population"),
    "cohort_size": (1e12, "it cannot be above the population"),
    "discovery_rate": (
        0.999999,
        "1 word in a million is missed at it, and the search would take long beyond",
    ),
    "alphabet_size": (2**21, "Unicode has fewer characters"),
    "kept_prefixes": (2**31 - 1, "candidates are numbered with 31 bits"),
    "alpha": (1, "it is a probability"),
    "contribution_bound": (1e6, "nobody holds more items"),
    "max_depth": (1000, "no word has as many characters"),
    "num_passes": (1000, "every pass takes clients of its own for every level"),
    "min_standard_errors": (1000, "no estimate stands out as far from the noise"),
    "reported_share": (1, "it is a probability"),
    "competing_prefixes": (2**31 - 1, "candidates are numbered with 31 bits"),
    "word_length": (1e6, "no word has as many characters"),
}

# The smallest value, and why, of those flags that are not merely above 0.
LOWEST: dict[str, tuple[float, str]] = {
    "noise_multiplier": (1e-3, "with less, rho is above 500,000: no guarantee"),
}

# Restarts beyond these are as many trees.
_MOST_TREES = 10**6
_SHOWN_TREES = 20

RANDOMIZERS = [randomizer.value for randomizer in Randomizer]
TRIEHH_PARAMETERS = ["tight", "corollary1"]

Rows = list[dict[str, Any]]


def dp_ftrl(
    *,
    noise_multiplier: float,
    num_rounds: int,
    min_separation: int,
    delta: float,
    max_participation: int | None = None,
    restart_first: int | None = None,
    restart_period: int | None = None,
    count_stddev: float | None = None,
    group_size: int = 1,
) -> Rows:
    """Answers for a DP-FTRL run.

    Args:
        noise_multiplier: z, of the accounting.
        num_rounds: T.
        min_separation: MinS, rounds strictly between.
        delta: In (0, 1).
        max_participation: MaxP; None for what MinS allows.
        restart_first: First round after which a tree restarts; None for no restart.
        restart_period: Rounds between restarts; None for only one.
        count_stddev: sigma_b of clip estimation; None for a fixed clip norm.
        group_size: Devices of a user.

    Returns:
        S2, zCDP, the epsilons by all conversions, and z_delta.

    Raises:
        ValueError: An argument is outside its range.
    """
    from privacy import conversions, noise_calibration, tree_aggregation

    restarts = restart_rounds(num_rounds, restart_first, restart_period)
    argument_checks.integer("group_size", group_size, 1)
    run = tree_aggregation.TreeAggregation(
        noise_multiplier=noise_multiplier,
        num_rounds=num_rounds,
        min_separation=min_separation,
        max_participation=max_participation,
        restart_rounds=restarts,
    )
    unit = neighbours.Adjacency.ZERO_OUT.value
    rows = [
        row("max participation (MaxP)", run.max_participation, unit),
        row("rounds of each tree", abridged(run.tree_lengths), ""),
        row("squared sensitivity (S2)", run.square_sum, "exact worst case"),
        row("zCDP (rho)", run.rho, unit),
    ]
    for conversion in conversions.ZcdpConversion:
        rows.append(
            row(
                f"epsilon at delta = {delta:g}",
                conversions.zcdp_to_epsilon(run.rho, delta, conversion),
                f"{unit}; {conversion.value}",
            )
        )
    if group_size > 1:
        rho = conversions.group_zcdp(run.rho, group_size)
        who = f"user with {group_size} devices"
        rows.append(row("zCDP (rho)", rho, who))
        epsilon = conversions.zcdp_to_epsilon(rho, delta)
        rows.append(row(f"epsilon at delta = {delta:g}", epsilon, who))
    if count_stddev is not None:
        split = noise_calibration.delta_noise_multiplier(noise_multiplier, count_stddev)
        rows.append(
            row("noise multiplier of the deltas", split, "Xu et al. 2023, Theorem 1")
        )
    return rows


def shuffle(
    *,
    randomizer: str,
    local_epsilon: float,
    num_reports: int,
    delta: float,
    domain_size: int | None = None,
    honest_fraction: float = 1.0,
) -> Rows:
    """Answers for shuffled or summed reports.

    Args:
        randomizer: A value of `shuffling.Randomizer`.
        local_epsilon: Its local epsilon.
        num_reports: Reports.
        delta: In (0, 1).
        domain_size: Items of a report.
        honest_fraction: Share of honest reports.

    Returns:
        The best bound first, then each bound that is proved for the randomizer.

    Raises:
        ValueError: An argument is outside its range.
    """
    reports = Reports(
        randomizer=Randomizer(randomizer),
        local_epsilon=local_epsilon,
        domain_size=domain_size,
    )
    rows = []
    for method in (None, *reports.methods):
        try:
            found = shuffling.amplify(
                reports,
                num_reports=num_reports,
                delta=delta,
                method=method,
                honest_fraction=honest_fraction,
            )
        except ValueError as error:
            if method is not Method.EQUATION_1:
                raise
            rows.append(row(f"by {method.name.lower()}", "-", str(error)))
            continue
        if method is None:
            neighbours_are = found.adjacency.value
            basis = "; ".join([found.bound, neighbours_are, *found.assumptions])
            rows.append(row(f"epsilon at delta = {delta:g}", found.epsilon, basis))
        else:
            rows.append(row(f"by {method.name.lower()}", found.epsilon, found.bound))
    return rows


def triehh(
    *,
    population: int,
    max_length: int,
    epsilon: float | None = None,
    delta: float | None = None,
    threshold: int | None = None,
    cohort_size: int | None = None,
    parameters: str | None = None,
    discovery_rate: float | None = None,
    redraws_each_round: bool = False,
    detectable: bool = False,
    word_length: int | None = None,
    plot: str | None = None,
) -> Rows:
    """Answers for a TrieHH run: parameters for a guarantee, or the other way round.

    Args:
        population: n.
        max_length: L, end symbol included.
        epsilon: Wanted epsilon; with delta.
        delta: Wanted delta; with epsilon, to find threshold and cohort size for.
        threshold: theta; with cohort_size, and either epsilon or delta, to find the
            other.
        cohort_size: m; with threshold.
        parameters: How they are found for epsilon: "tight" or "corollary1".
        discovery_rate: What "tight" finds the rarest words at; 0.9 if not set.
        redraws_each_round: Whether users draw a new word in every round.
        detectable: Whether to answer which words can be found, in place of the
            guarantee.
        word_length: Characters of the words; with detectable.
        plot: File for a plot over n; with detectable.

    Returns:
        theta, m, gamma, the holders that a word needs, and the guarantee by each
        bound; or see `detectable_answers.of_triehh`.

    Raises:
        ValueError: An argument is missing or outside its range.
    """
    if not detectable and (word_length is not None or plot is not None):
        raise ValueError("--word_length and --plot are for --detectable")
    wanted = (epsilon is not None, delta is not None)
    request: dict[str, Any] = {}
    solve = None
    if threshold is not None and cohort_size is not None and sum(wanted) == 1:
        if parameters is not None:
            raise ValueError("parameters needs epsilon and delta, to find them for")
        chosen = triehh_accounting.TrieHHParameters(
            population, cohort_size, threshold, max_length
        )
    elif all(wanted) and threshold is None and cohort_size is None:
        request = {
            "population_size": population,
            "max_length": max_length,
            "epsilon": epsilon,
            "delta": delta,
            "redraws_each_round": redraws_each_round,
        }
        solve = functools.partial(_solve_triehh, parameters or "tight", discovery_rate)
        chosen = solve(**request)
    else:
        raise ValueError(
            "triehh needs either epsilon and delta, or threshold and cohort_size and "
            "one of the two"
        )
    if detectable:
        return detectable_answers.of_triehh(
            chosen,
            solve,
            request,
            redraws_each_round=redraws_each_round,
            word_length=word_length,
            discovery_rate=discovery_rate,
            plot=plot,
        )
    rate = 0.9 if discovery_rate is None else discovery_rate
    needed = triehh_accounting.holders_needed(chosen, rate)
    return [
        row("threshold (theta)", chosen.threshold, ""),
        row("cohort size (m)", chosen.cohort_size, ""),
        row("gamma", chosen.gamma, "m / sqrt(n)"),
        row(
            f"holders for a discovery rate of {rate:g}",
            "not possible" if needed is None else needed,
            "Zhu et al. 2020, Proposition 1",
        ),
        *_triehh_guarantees(chosen, epsilon, delta, redraws_each_round),
    ]


def _solve_triehh(parameters: str, discovery_rate: float | None, **request):
    if parameters == "tight":
        if discovery_rate is not None:
            request["discovery_rate"] = discovery_rate
        return triehh_solver.solve_parameters(**request)
    if parameters != "corollary1":
        raise ValueError(
            f"parameters must be one of {TRIEHH_PARAMETERS}, got {parameters!r}"
        )
    del request["redraws_each_round"]  # Corollary 2: the same delta
    return triehh_theorem1.solve_parameters(**request)


def _triehh_guarantees(
    parameters, epsilon: float | None, delta: float | None, redraws: bool
) -> Rows:
    who = f"{neighbours.Adjacency.EMPTIED.value}, one-sided (from D to D' only)"
    found = parameters.guarantee(
        delta=delta,
        epsilon=epsilon if delta is None else None,
        redraws_each_round=redraws,
    )
    pairs = [(triehh_statement.bound_name(found), found[:2])]
    violated = triehh_theorem1.violated_condition(parameters)
    theorem_1 = "Zhu et al. 2020, " + ("Corollary 2" if redraws else "Theorem 1")
    if violated is None:
        pairs.append((theorem_1, triehh_theorem1.guarantee(parameters)))
    rows = []
    for name, (epsilon, reached) in pairs:
        rows.append(row("epsilon", epsilon, f"{name}; {who}"))
        rows.append(row("delta", reached, f"{name}; {who}"))
    if violated is not None:
        rows.append(row("epsilon", "-", f"{theorem_1} does not apply: {violated}"))
    return rows


def k_anonymity(
    *,
    local_epsilon: float,
    num_reports: int,
    alphabet_size: int,
    kept_prefixes: int,
    alpha: float,
) -> Rows:
    """Answers for the approximate k-anonymity of LDP TrieHH.

    Args:
        local_epsilon: Of Subset Selection.
        num_reports: N B, reports of a level.
        alphabet_size: |X|.
        kept_prefixes: eta_max.
        alpha: In (0, 1).

    Returns:
        k by Lemma 1 as printed and by direct evaluation.

    Raises:
        ValueError: An argument is outside its range.
    """
    from privacy import anonymity

    level = anonymity.VotingLevel(
        alphabet_size=alphabet_size,
        kept_prefixes=kept_prefixes,
        local_epsilon=local_epsilon,
        num_reports=num_reports,
    )
    rows = []
    for result in (level.lemma_1(alpha), level.direct(alpha)):
        at = "0" if result.k is None else str(result.k)
        rows.append(
            row(
                "largest k",
                "none" if result.k is None else result.k,
                f"{result.name}; kept with probability {result.kept_probability:.4g} "
                f"at k = {at}; mean threshold {result.expected_threshold:.6g} votes; "
                + ("for all data sets" if result.all_data_sets else "of one data set")
                + "; counts taken as independent",
            )
        )
    return rows


def cohort_size(
    *,
    randomizer: str,
    local_epsilon: float,
    epsilon: float,
    delta: float,
    domain_size: int | None = None,
    honest_fraction: float = 1.0,
) -> Rows:
    """Answers how many reports a wanted central guarantee needs.

    Args:
        randomizer: A value of `shuffling.Randomizer`.
        local_epsilon: Its local epsilon.
        epsilon: Wanted central epsilon.
        delta: Wanted central delta.
        domain_size: Items of a report.
        honest_fraction: Share of honest reports.

    Returns:
        The smallest cohort by the best bound, and by each that is proved.

    Raises:
        ValueError: An argument is outside its range.
    """
    reports = Reports(
        randomizer=Randomizer(randomizer),
        local_epsilon=local_epsilon,
        domain_size=domain_size,
    )
    found = {
        method: shuffling.minimum_reports(
            reports,
            epsilon=epsilon,
            delta=delta,
            method=method,
            honest_fraction=honest_fraction,
        )
        for method in reports.methods
    }
    # The closed form is no choice of `amplify`, being never the best.
    best = min(size for m, size in found.items() if m is not Method.EQUATION_1)
    return [
        row("smallest cohort (best)", best, "best proved bound"),
        *(row("smallest cohort", size, m.value) for m, size in found.items()),
    ]


def call(answer: Callable[..., Rows], name: str, values: dict[str, Any]) -> Rows:
    """Calls an answer with the flags that were set.

    Args:
        answer: One of this module's.
        name: The mechanism, for messages.
        values: Flag name to value, of the flags that were set.

    Returns:
        The answer's rows.

    Raises:
        ValueError: A flag is missing, or is none of this mechanism's.
    """
    known = inspect.signature(answer).parameters
    for flag in values:
        if flag not in known:
            raise ValueError(f"--{flag} is no flag of --mechanism={name}")
        most, reason = LIMITS.get(flag, (math.inf, ""))
        if isinstance(values[flag], int | float) and values[flag] > most:
            raise ValueError(
                f"{flag} must be at most {most:.8g}, got {values[flag]} ({reason})"
            )
        least, reason = LOWEST.get(flag, (-math.inf, ""))
        if isinstance(values[flag], int | float) and values[flag] < least:
            raise ValueError(
                f"{flag} must be at least {least:g}, got {values[flag]} ({reason})"
            )
    for flag, parameter in known.items():
        if parameter.default is parameter.empty and flag not in values:
            raise ValueError(f"--{flag} is needed for --mechanism={name}")
    return answer(**values)


def restart_rounds(
    num_rounds: int, first: int | None, period: int | None
) -> tuple[int, ...]:
    """Returns the restarts that flags ask for; none where `first` is None.

    Raises:
        ValueError: An argument is outside its range, or restarts are too many.
    """
    from privacy import tree_aggregation

    if first is None:
        if period is not None:
            raise ValueError("restart_period needs restart_first")
        return ()
    period = num_rounds if period is None else period
    if period > 0 and num_rounds / period > _MOST_TREES:
        raise ValueError(
            f"restart_period must be at least {-(-num_rounds // _MOST_TREES)} for "
            f"num_rounds = {num_rounds}, got {period}: at most {_MOST_TREES} trees"
        )
    return tree_aggregation.restart_schedule(num_rounds, first, period)


def abridged(lengths: Sequence[int]) -> str:
    """Returns the first of many lengths, as text."""
    shown = ", ".join(map(str, lengths[:_SHOWN_TREES]))
    more = len(lengths) - _SHOWN_TREES
    return f"{shown}, and {more} more" if more > 0 else shown


def row(quantity: str, value: Any, basis: str) -> dict[str, Any]:
    """Returns a row of an answer."""
    return {"quantity": quantity, "value": value, "basis": basis}


# By mechanism.
ANSWERS: dict[str, Callable[..., Rows]] = {
    "dp_ftrl": dp_ftrl,
    "blt": correlated_answers.blt,
    "tree_against_blt": correlated_answers.tree_against_blt,
    "shuffle": shuffle,
    "triehh": triehh,
    "ldp_triehh": detectable_answers.ldp_triehh,
    "k_anonymity": k_anonymity,
    "cohort_size": cohort_size,
}
# All flags that an answer may take.
ARGUMENTS = sorted(
    {n for answer in ANSWERS.values() for n in inspect.signature(answer).parameters}
)
