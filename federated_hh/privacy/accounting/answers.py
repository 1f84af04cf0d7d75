"""The answers of the command line: rows of quantity, value and basis, by mechanism."""

import dataclasses
from collections.abc import Callable

from federated_hh.privacy.accounting import arguments as of
from federated_hh.privacy.accounting import (
    dp_ftrl_answers,
    tree_against_blt,
    triehh_answers,
)
from federated_hh.privacy.accounting.arguments import Rows, row
from federated_hh.privacy.guarantee import Adjacency
from federated_hh.privacy.local import anonymity, device_policy, query_sizing
from federated_hh.privacy.sets import adaptive_gaussian, weighted_gaussian
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.privacy.shuffle.amplification import Method, Reports


def shuffle(
    *,
    randomizer: of.Randomizer,
    local_epsilon: of.LocalEpsilon,
    num_reports: of.NumReports,
    delta: of.Delta,
    domain_size: of.DomainSize | None = None,
    honest_fraction: of.HonestFraction = 1.0,
) -> Rows:
    """Answers for shuffled or summed reports: the best bound, then each proved one.

    Raises:
        ValueError: An argument is outside its range.
    """
    reports = _reports(randomizer, local_epsilon, domain_size)
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
            basis = "; ".join([found.bound, found.adjacency.value, *found.assumptions])
            rows.append(row(f"epsilon at delta = {delta:g}", found.epsilon, basis))
        else:
            rows.append(row(f"by {method.name.lower()}", found.epsilon, found.bound))
    return rows


def k_anonymity(
    *,
    local_epsilon: of.LocalEpsilon,
    num_reports: of.NumReports,
    alphabet_size: of.AlphabetSize,
    kept_prefixes: of.KeptPrefixes,
    alpha: of.Alpha,
) -> Rows:
    """Answers for the approximate k-anonymity of LDP TrieHH.

    Returns:
        k by Lemma 1 as printed and by direct evaluation.

    Raises:
        ValueError: An argument is outside its range.
    """
    level = anonymity.VotingLevel(
        alphabet_size=alphabet_size,
        kept_prefixes=kept_prefixes,
        local_epsilon=local_epsilon,
        num_reports=num_reports,
    )
    return [
        row(
            "largest k",
            "none" if found.k is None else found.k,
            f"{found.name}; kept with probability {found.kept_probability:.4g} "
            f"at k = {found.k or 0}; mean threshold {found.expected_threshold:.6g} "
            f"votes; {'for all' if found.all_data_sets else 'of one'} data set"
            f"{'s' if found.all_data_sets else ''}; counts taken as independent",
        )
        for found in (level.lemma_1(alpha), level.direct(alpha))
    ]


def cohort_size(
    *,
    randomizer: of.Randomizer,
    local_epsilon: of.LocalEpsilon,
    epsilon: of.Epsilon,
    delta: of.Delta,
    domain_size: of.DomainSize | None = None,
    honest_fraction: of.HonestFraction = 1.0,
) -> Rows:
    """Answers with the smallest cohort for a wanted central guarantee.

    Returns:
        The smallest cohort by the best bound, and by each proved one.

    Raises:
        ValueError: An argument is outside its range.
    """
    reports = _reports(randomizer, local_epsilon, domain_size)
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
    # `amplify` does not offer the closed form, because it is never the best.
    best = min(size for m, size in found.items() if m is not Method.EQUATION_1)
    return [
        row("smallest cohort (best)", best, "best proved bound"),
        *(row("smallest cohort", size, m.value) for m, size in found.items()),
    ]


def statistics(
    *,
    population: of.Population,
    epsilon: of.Epsilon = 1.0,
    delta: of.Delta = 1e-6,
    local_epsilon: of.LocalEpsilon = 6.0,
    num_queries: of.NumQueries = 3,
    cohorts: of.Cohorts = "auto",
    randomizer: of.Randomizer = "asymmetric_one_hot",
    min_standard_errors: of.MinStandardErrors | None = None,
    discovery_rate: of.DiscoveryRate = 0.9,
) -> Rows:
    """Answers with the number of clients that must share a value for a clear count.

    Returns:
        The holders that a value needs, the noise on a count, the cohort size of a
        query and its local epsilon, the guarantee, and which limit binds.

    Raises:
        ValueError: An argument is outside its range.
    """
    kind = shuffling.Randomizer(randomizer)
    limits = device_policy.Limits(
        aggregate_epsilon=epsilon, reports=1, local_epsilon=local_epsilon
    )
    setting = query_sizing.Setting(
        num_devices=population,
        queries=num_queries,
        is_everybody=cohorts == "everybody",
        epsilon=epsilon,
        policy=device_policy.Policy(
            analysis="",
            limits=limits,
            fields={"": limits},
            randomizer=kind,
            delta=delta,
        ),
        rate=discovery_rate,
    )
    if min_standard_errors is not None:
        setting = dataclasses.replace(setting, stderrs=min_standard_errors)
    if cohorts == "auto" and setting.is_better_by_everybody:
        setting = dataclasses.replace(setting, is_everybody=True)
    counts = setting.counts
    local, spent = counts.reports.replacement_epsilon, counts.spent
    total = setting.reports * spent.epsilon
    rows = [
        row(
            f"holders for a discovery rate of {discovery_rate:g}",
            "not possible" if setting.holders is None else setting.holders,
            f"among all clients; a count stands out at {setting.stderrs:.3g} "
            "standard errors of an empty cell; every holder reports it; normal "
            "approximation",
        ),
        row(
            "standard error of an empty cell",
            counts.standard_error,
            "of one query, in clients",
        ),
        row(
            "cohort size of a query",
            counts.cohort_size,
            f"each of {query_sizing.counted(num_queries)} goes to everybody"
            if setting.is_everybody
            else f"{num_queries} disjoint cohorts",
        ),
        row("local epsilon of a report", local, "replacement"),
        row(
            f"epsilon to quote at delta = {setting.delta:.4g}",
            total,
            f"{spent.adjacency.value}, of all queries: reports of a client: "
            f"{setting.reports}; {spent.bound}",
        ),
    ]
    if total < 0.99 * epsilon and local >= local_epsilon:
        why = f"local epsilon {local_epsilon:g} binds; give a larger --local_epsilon"
        rows.append(row(f"epsilon {epsilon:g} is not reached, spent", total, why))
    if better := setting.better_delta:
        name = f"delta above 1/n = {1 / population:.2g}"
        rows.append(row(name, setting.delta, f"--delta={better:g} would do"))
    return rows


def set_union(
    *,
    population: of.Population,
    epsilon: of.Epsilon,
    delta: of.Delta | None = None,
    contribution_bound: of.ContributionBound = 100,
    num_passes: of.NumPasses = 1,
    pass_growth: of.PassGrowth = 3.0,
    word_weights: of.WordWeights = "uniform",
    discovery_rate: of.DiscoveryRate = 0.9,
) -> Rows:
    """Answers with the noise, the thresholds and the holders that set union needs.

    Returns:
        The holders that a word needs, the noise multiplier and threshold of each pass,
        and the guarantees in both directions. delta is 1/n^2 if not given.

    Raises:
        ValueError: An argument is outside its range.
    """
    if word_weights == "adaptive" and not 2 <= num_passes <= 16:
        raise ValueError(
            f"num_passes is {num_passes}; with adaptive weights it is 2 to 16"
        )
    delta = delta or 1 / population**2
    shares = [pass_growth**number for number in range(num_passes)]
    kind = adaptive_gaussian.kind_of(word_weights)
    passes = weighted_gaussian.solve(epsilon, delta, contribution_bound, shares, kind)
    rows = []
    for words in sorted({contribution_bound, 1}, reverse=True):
        holders = passes.holders_needed(discovery_rate, words)
        rows.append(
            row(
                f"holders for a discovery rate of {discovery_rate:g}, {words} words",
                "not possible" if holders > population else holders,
                "in the pass that needs the fewest; each holder sends so many words",
            )
        )
    for number in range(num_passes):
        multiplier = passes.noise_multipliers[number]
        threshold = passes.thresholds[number] / passes.unit(number)
        name = f", pass {number + 1}" if num_passes > 1 else ""
        rows.append(row(f"noise multiplier{name}", multiplier, "over a client's norm"))
        rows.append(row(f"threshold{name}", threshold, "noisy weight of a word"))
    proof = "both directions; docs/set_union_privacy.md"
    for adjacency in (Adjacency.EMPTIED, Adjacency.REPLACE_CLIENT):
        is_replaced = adjacency is Adjacency.REPLACE_CLIENT
        found = passes.epsilon(delta, replaced=is_replaced).epsilon
        basis = f"{adjacency.value}, {proof}"
        rows.append(row(f"epsilon at delta = {delta:.4g}", found, basis))
    return rows


def _reports(name: str, local_epsilon: float, domain_size: int | None) -> Reports:
    return Reports(
        randomizer=shuffling.Randomizer(name),
        local_epsilon=local_epsilon,
        domain_size=domain_size,
    )


# By mechanism.
ANSWERS: dict[str, Callable[..., Rows]] = {
    "dp_ftrl": dp_ftrl_answers.dp_ftrl,
    "blt": dp_ftrl_answers.blt,
    "banded": dp_ftrl_answers.banded,
    "dp_fedavg": dp_ftrl_answers.dp_fedavg,
    "tree_against_blt": tree_against_blt.tree_against_blt,
    "shuffle": shuffle,
    "triehh": triehh_answers.triehh,
    "ldp_triehh": triehh_answers.ldp_triehh,
    "set_union": set_union,
    "statistics": statistics,
    "k_anonymity": k_anonymity,
    "cohort_size": cohort_size,
}

# Beginning of the quantity that --vary shows, where it is not the answer's first.
QUANTITIES = dict.fromkeys(
    ("triehh", "ldp_triehh", "set_union", "statistics"), "holders"
)
# Beginnings of those that a table over one argument has beside it.
BESIDE = {"ldp_triehh": ("central epsilon", "delta")}
