"""The answers of the command line: rows of quantity, value and what it rests on."""

import inspect
from collections.abc import Callable
from typing import Any

from federated_hh.options import checks
from federated_hh.privacy import neighbours
from federated_hh.privacy.accounting import (
    answer_rows,
    correlated_answers,
    detectable_answers,
    triehh_answers,
)
from federated_hh.privacy.accounting.answer_rows import Rows, row
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.privacy.shuffle.amplification import Method, Randomizer, Reports


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
    from federated_hh.privacy import conversions
    from federated_hh.privacy.dp_ftrl import noise_calibration, tree_aggregation

    restarts = answer_rows.restart_rounds(num_rounds, restart_first, restart_period)
    checks.integer(group_size=group_size, least=1)
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
        row("rounds of each tree", answer_rows.abridged(run.tree_lengths), ""),
        row("squared sensitivity (S2)", run.square_sum, "exact worst case"),
        *answer_rows.zcdp(run.rho, delta, unit),
    ]
    if group_size > 1:
        rho = conversions.group_zcdp(run.rho, group_size)
        rows += answer_rows.best_zcdp(rho, delta, f"user with {group_size} devices")
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
        local_epsilon: The local epsilon of Subset Selection.
        num_reports: N B, reports of a level.
        alphabet_size: |X|.
        kept_prefixes: eta_max.
        alpha: In (0, 1).

    Returns:
        k by Lemma 1 as printed and by direct evaluation.

    Raises:
        ValueError: An argument is outside its range.
    """
    from federated_hh.privacy.local import anonymity

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
    for flag, parameter in known.items():
        if parameter.default is parameter.empty and flag not in values:
            raise ValueError(f"--{flag} is needed for --mechanism={name}")
    return answer(**values)


# By mechanism.
ANSWERS: dict[str, Callable[..., Rows]] = {
    "dp_ftrl": dp_ftrl,
    "blt": correlated_answers.blt,
    "tree_against_blt": correlated_answers.tree_against_blt,
    "shuffle": shuffle,
    "triehh": triehh_answers.triehh,
    "ldp_triehh": detectable_answers.ldp_triehh,
    "k_anonymity": k_anonymity,
    "cohort_size": cohort_size,
}
