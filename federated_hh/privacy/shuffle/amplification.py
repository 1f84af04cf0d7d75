"""Amplification by shuffling and by aggregation: the best bound that is proved.

n reports, each made with an epsilon_0-LDP randomizer, are shuffled or added up before
anybody sees them. How much smaller than epsilon_0 the central epsilon is depends on
what is known of the randomizer, so every function takes it, and every answer names the
theorem that gave it. Adjacency is replacement throughout: one report's item is
exchanged for another. A user who sends several reports is protected report by report;
`conversions` has composition and group privacy.
"""

import dataclasses
import enum
import math
from collections.abc import Sequence

from federated_hh.options import checks
from federated_hh.privacy import searches
from federated_hh.privacy.guarantee import Adjacency, Guarantee
from federated_hh.privacy.shuffle import (
    blanket,
    clones,
    closed_forms,
    renyi_aggregation,
)
from federated_hh.randomness import identities

# No cohort is sought beyond this.
LARGEST_COHORT = 10**12


@identities.identity("Randomizer")
class Randomizer(enum.Enum):
    """Local randomizers for which bounds are known.

    ARBITRARY is any epsilon_0-LDP randomizer (replacement). ASYMMETRIC_ONE_HOT and
    SYMMETRIC_ONE_HOT are Algorithms 1 and 3 of McMillan et al. 2022, seen through the
    sum; the local epsilon of the symmetric one is for deletion, as there, and counts
    twice for replacement. K_ARY is k-ary randomized response, SUBSET_SELECTION
    Algorithm 1 of Sun et al. 2024.
    """

    ARBITRARY = "arbitrary"
    ASYMMETRIC_ONE_HOT = "asymmetric_one_hot"
    SYMMETRIC_ONE_HOT = "symmetric_one_hot"
    K_ARY = "k_ary"
    SUBSET_SELECTION = "subset_selection"


class Method(enum.Enum):
    """Ways to bound the amplification; the value is the name in statements."""

    EQUATION_1 = "closed form, equation (1) of McMillan et al. 2022"
    CLONES_2021 = "clones, Feldman et al. 2021 Theorem 3.1, exact sum"
    CLONES_2022 = (
        "stronger clones, Feldman et al. 2022 Theorem 3.2, exact sum (with its "
        "erratum: the decomposition is shown for this randomizer)"
    )
    BLANKET = "privacy blanket, Balle et al. 2019 Lemma 5.3, exact sum"
    RENYI = "Renyi route, McMillan et al. 2022 Theorem C.3, proved rho"


# The 2022 pair and its closed form are proved on the condition in `clones`: for the
# one-hot encodings on the two coordinates that a replacement touches (the others are
# independent of it), and for k-ary randomized response.
_APPLICABLE = {
    Randomizer.ARBITRARY: (Method.CLONES_2021,),
    Randomizer.ASYMMETRIC_ONE_HOT: (Method.CLONES_2022, Method.EQUATION_1),
    Randomizer.SYMMETRIC_ONE_HOT: (
        Method.RENYI,
        Method.CLONES_2022,
        Method.EQUATION_1,
    ),
    Randomizer.K_ARY: (Method.BLANKET, Method.CLONES_2022, Method.EQUATION_1),
    Randomizer.SUBSET_SELECTION: (Method.BLANKET, Method.CLONES_2021),
}

_NEEDS_SUM = (Randomizer.ASYMMETRIC_ONE_HOT, Randomizer.SYMMETRIC_ONE_HOT)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reports:
    """A randomizer with its parameters.

    Attributes:
        randomizer: Name of the randomizer.
        local_epsilon: Its local epsilon, in (0, 100]; for SYMMETRIC_ONE_HOT that for
            deletion.
        domain_size: Items a report is about, the "no item" symbol included; needed
            for SUBSET_SELECTION, of use for K_ARY, else ignored.

    Raises:
        ValueError: A value is missing or outside its range.
    """

    randomizer: Randomizer
    local_epsilon: float
    domain_size: int | None = None

    def __post_init__(self):
        if not isinstance(self.randomizer, Randomizer):
            raise ValueError(
                f"randomizer is {self.randomizer}; it has to be a Randomizer"
            )
        checks.positive(
            local_epsilon=self.local_epsilon, most=clones.LARGEST_LOCAL_EPSILON
        )
        if self.domain_size is not None:
            checks.integer(domain_size=self.domain_size, least=2)
        elif self.randomizer is Randomizer.SUBSET_SELECTION:
            raise ValueError("domain_size is None; subset_selection needs it")

    @property
    def replacement_epsilon(self) -> float:
        """The local epsilon for replacement of the input."""
        twice = self.randomizer is Randomizer.SYMMETRIC_ONE_HOT
        return self.local_epsilon * (2 if twice else 1)

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that are proved for this randomizer, usually best first."""
        methods = _APPLICABLE[self.randomizer]
        if self.domain_size is None:
            methods = tuple(m for m in methods if m is not Method.BLANKET)
        return methods


def amplify(
    reports: Reports,
    *,
    num_reports: int,
    delta: float,
    method: Method | None = None,
    honest_fraction: float = 1.0,
) -> Guarantee:
    """Computes the central guarantee of shuffled or added-up reports.

    Args:
        reports: The randomizer with its parameters.
        num_reports: Reports n that are shuffled or summed, at least 2.
        delta: Wanted delta, in (0, 1).
        method: Bound to take; None for the smallest of those that are proved for
            the randomizer.
        honest_fraction: Share of the reports that follow the protocol, in (0, 1];
            the others count as known to the observer.

    Returns:
        The guarantee with the name of the theorem that gave it; the local epsilon
        itself where no bound is below it.

    Raises:
        ValueError: An argument is outside its range, or the method is not proved for
            the randomizer, or outside its validity range.
    """
    honest = _honest_reports(num_reports, honest_fraction)
    checks.probability(delta=delta)
    if method is None:
        candidates: list[Method] = [
            m for m in reports.methods if m is not Method.EQUATION_1
        ]
    elif method in reports.methods:
        candidates = [method]
    else:
        raise ValueError(
            f"method {method} is not proved for {reports.randomizer.value} reports "
            f"(domain_size {reports.domain_size}); proved are "
            f"{[m.name.lower() for m in reports.methods]}"
        )
    found = {m: _bound_epsilon(m, reports, honest, delta) for m in candidates}
    best = min(found, key=found.__getitem__)
    epsilon, bound = found[best], best.value
    if epsilon >= reports.replacement_epsilon:
        epsilon, bound = reports.replacement_epsilon, "local DP (no amplification)"
    assumptions = ["all reports are made by the same randomizer, independently"]
    if reports.randomizer in _NEEDS_SUM:
        assumptions.append("only the sum of the reports is seen")
    else:
        assumptions.append("only the shuffled reports, or their sum, are seen")
    if honest_fraction < 1:
        assumptions.append(
            f"at least {honest} of the {num_reports} reports are honest, the "
            "protected one among them"
        )
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        bound=bound,
        is_upper_bound=True,
        one_sided=False,
        adjacency=Adjacency.REPLACE_ONE_ITEM,
        assumptions=tuple(assumptions),
    )


def amplify_over_levels(
    local_epsilon: float,
    domain_sizes: Sequence[int],
    *,
    num_reports: int,
    delta: float,
    honest_fraction: float = 1.0,
) -> tuple[Guarantee, int]:
    """Computes the guarantee of a run of LDP TrieHH (Sun et al. 2024, Algorithm 2).

    Each item is reported on in one level only, so the run's guarantee for an item is
    that of the worst level. Small domains are the worst: the first levels.

    Args:
        local_epsilon: Local epsilon of Subset Selection.
        domain_sizes: Items of each level, the "no item" symbol included.
        num_reports: Reports of a level, N B; at least 2.
        delta: Wanted delta, in (0, 1).
        honest_fraction: Share of honest reports, in (0, 1].

    Returns:
        (guarantee, level): the largest over the levels, and which (from 1).

    Raises:
        ValueError: An argument is outside its range.
    """
    if not domain_sizes:
        raise ValueError("domain_sizes names no level; it has to name at least one")
    honest = _honest_reports(num_reports, honest_fraction)
    worst: tuple[Guarantee, int] | None = None
    for size in blanket.sizes_that_matter(local_epsilon, domain_sizes):
        if worst is not None:
            # Most levels need one delta to be seen not to be the worst.
            known = blanket.subset_selection(local_epsilon, size, honest)
            if known.delta(worst[0].epsilon) <= delta:
                continue
        found = amplify(
            Reports(
                randomizer=Randomizer.SUBSET_SELECTION,
                local_epsilon=local_epsilon,
                domain_size=size,
            ),
            num_reports=num_reports,
            delta=delta,
            honest_fraction=honest_fraction,
        )
        if worst is None or found.epsilon > worst[0].epsilon:
            worst = found, domain_sizes.index(size) + 1
    assert worst is not None
    return _in_one_level(worst[0]), worst[1]


def amplify_in_any_level(
    local_epsilon: float, *, num_reports: int, delta: float
) -> Guarantee:
    """Computes the guarantee of a run of LDP TrieHH with any local randomizer.

    Args:
        local_epsilon: The local epsilon of the randomizer, for replacement.
        num_reports: Reports of a level, N B; at least 2.
        delta: Wanted delta, in (0, 1).

    Returns:
        The guarantee of an item, whatever the domains of the levels.

    Raises:
        ValueError: An argument is outside its range.
    """
    reports = Reports(randomizer=Randomizer.ARBITRARY, local_epsilon=local_epsilon)
    return _in_one_level(amplify(reports, num_reports=num_reports, delta=delta))


def _in_one_level(guarantee: Guarantee) -> Guarantee:
    assumptions = (
        *guarantee.assumptions,
        "every item is reported on in one level only, with as many reports a client in "
        "each (padded with the 'no item' symbol)",
    )
    return dataclasses.replace(guarantee, assumptions=assumptions)


def minimum_reports(
    reports: Reports,
    *,
    epsilon: float,
    delta: float,
    method: Method | None = None,
    honest_fraction: float = 1.0,
) -> int:
    """Finds the smallest cohort whose aggregate has a wanted guarantee.

    Args:
        reports: The randomizer with its parameters.
        epsilon: Wanted central epsilon, above 0.
        delta: Wanted delta, in (0, 1).
        method: Method, as in `amplify`.
        honest_fraction: Share of honest reports, in (0, 1].

    Returns:
        The smallest number of reports for which `amplify` gives at most epsilon
        (bisection: more reports never give less privacy).

    Raises:
        ValueError: An argument is outside its range, the method is not proved for
            the randomizer, or no cohort up to 1e12 is enough.
    """
    epsilon = checks.positive(epsilon=epsilon)
    checks.fraction(honest_fraction=honest_fraction)

    def enough(count: int) -> bool:
        try:
            found = amplify(
                reports,
                num_reports=count,
                delta=delta,
                method=method,
                honest_fraction=honest_fraction,
            )
        except ValueError:
            # Too few for equation (1), or for two honest reports.
            return False
        return found.epsilon <= epsilon

    # Bad arguments are told apart from too small cohorts before the search.
    if method not in (None, *reports.methods):
        raise ValueError(f"method {method} is not proved for {reports.randomizer}")
    checks.probability(delta=delta)
    found = searches.first_true(enough, 2, LARGEST_COHORT)
    if found is None:
        raise ValueError(
            f"no cohort up to {LARGEST_COHORT:.0e} gives epsilon = {epsilon:g} at "
            f"delta = {delta:g} with local_epsilon = {reports.local_epsilon:g}"
        )
    return found


def largest_local_epsilon(
    randomizer: Randomizer,
    *,
    epsilon: float,
    delta: float,
    num_reports: int,
    domain_size: int | None = None,
) -> float:
    """Finds the largest local epsilon for a wanted central guarantee.

    Args:
        randomizer: The randomizer.
        epsilon: Wanted central epsilon, in (0, 100].
        delta: Wanted delta, in (0, 1).
        num_reports: Reports, at least 2.
        domain_size: Domain size, as in `Reports`.

    Returns:
        The local epsilon within 1e-6, rounded downwards.

    Raises:
        ValueError: An argument is outside its range.
    """
    epsilon = checks.positive(epsilon=epsilon, most=clones.LARGEST_LOCAL_EPSILON)

    def enough(local: float) -> bool:
        reports = Reports(
            randomizer=randomizer, local_epsilon=local, domain_size=domain_size
        )
        found = amplify(reports, num_reports=num_reports, delta=delta)
        return found.epsilon <= epsilon

    # Without any amplification, replacement costs the local epsilon once or twice.
    low = epsilon / 2 if randomizer is Randomizer.SYMMETRIC_ONE_HOT else epsilon
    high = low
    while enough(high):
        low = high
        if high == clones.LARGEST_LOCAL_EPSILON:
            return high
        high = min(1.5 * high, clones.LARGEST_LOCAL_EPSILON)
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low


def _honest_reports(num_reports: int, honest_fraction: float) -> int:
    count = checks.integer(num_reports=num_reports, least=2)
    share = checks.fraction(honest_fraction=honest_fraction)
    honest = count if share == 1 else math.floor(count * share)
    if honest < 2:
        raise ValueError(
            f"honest_fraction = {share:g} leaves {honest} of num_reports = {count} "
            "honest reports; at least 2 are needed"
        )
    return honest


def _bound_epsilon(
    method: Method, reports: Reports, num_reports: int, delta: float
) -> float:
    local = reports.replacement_epsilon
    if method is Method.EQUATION_1:
        return closed_forms.amplified_epsilon(local, num_reports, delta)
    if method is Method.RENYI:
        return renyi_aggregation.symmetric_one_hot_epsilon(
            reports.local_epsilon, num_reports, delta
        )[0]
    if method is Method.BLANKET:
        size = reports.domain_size
        if reports.randomizer is Randomizer.SUBSET_SELECTION:
            return blanket.subset_selection(local, size, num_reports).epsilon(delta)
        # k-ary randomized response is Subset Selection with one item a report.
        assert size is not None
        return blanket.SubsetSelectionBlanket(
            local, size, num_reports, subset_size=1
        ).epsilon(delta)
    stronger = method is Method.CLONES_2022
    return clones.ClonePair(local, num_reports, stronger=stronger).epsilon(delta)
