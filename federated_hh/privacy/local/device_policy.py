"""The policy of devices on an analysis (McMillan et al. 2022, table 1, section 4.3).

Epsilons are whole numbers of millionths, so that spending is summed exactly: no number
of small charges comes to less than it should.
"""

import dataclasses
import decimal
import enum
import fractions
import functools
import math
from collections.abc import Mapping

from federated_hh.options import checks
from federated_hh.privacy import binomial_grid
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.privacy.shuffle import renyi_aggregation
from federated_hh.randomness import identities

UNITS = 10**6
_MOST_EPSILON = 100
# Of a report, for replacement.
LARGEST_LOCAL_EPSILON = 40
# So that sums of squares of epsilons stay below 2^63.
_MOST_REPORTS = 900
_DIGITS = 50
# More reports never have less privacy, and bounds for more would be slow.
_LARGEST_COHORT = 10**9
# Of squares of epsilons, and of Renyi divergences.
_SQUARE_UNITS = UNITS**2
_LARGEST_ORDER = 10**6
# Up to here binomial laws are exact enough for sums of small divergences.
_MOST_SUMMED = 10**8
_RENYI = {
    shuffling.Randomizer.ASYMMETRIC_ONE_HOT: renyi_aggregation.asymmetric_one_hot_rho,
    shuffling.Randomizer.SYMMETRIC_ONE_HOT: renyi_aggregation.symmetric_one_hot_rho,
}


@identities.identity("Composition")
class Composition(enum.Enum):
    """Ways to compose the epsilons of reports; the values are names in policies.

    All hold where the analyst chooses each query after seeing all results before it:
    BASIC is the sum (Rogers et al. 2016, Theorem 3.2), ADVANCED the smaller of the sum
    and of sqrt(2 ln(1/delta') S) + S / 2 with S the sum of the squares (Whitehouse et
    al. 2023, Theorem 1), which spends delta' once. RENYI adds up the Renyi divergences
    of the sums of minimum cohorts, at one order that the policy fixes (the filters of
    Feldman and Zrnic 2021 and of Lecuyer 2021), and turns the total into epsilon at
    delta', which is all the delta that is spent.
    """

    BASIC = "basic"
    ADVANCED = "advanced"
    RENYI = "renyi"

    @property
    def theorem(self) -> str:
        """The theorem of the composition, as statements name it."""
        return _THEOREMS[self]


_THEOREMS = {
    Composition.BASIC: "basic composition, Rogers et al. 2016 Theorem 3.2",
    Composition.ADVANCED: "advanced composition, Whitehouse et al. 2023 Theorem 1",
    Composition.RENYI: (
        "Renyi filter, Feldman and Zrnic 2021, of the divergence of McMillan et al. "
        "2022 Theorem C.3, converted by Canonne et al. 2020 Proposition 12"
    ),
}


@identities.identity("Limits", "aggregate_epsilon reports local_epsilon")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of all spending: of an analysis, or of a data field.

    Attributes:
        aggregate_epsilon: The epsilon of all cohort aggregates together.
        reports: Largest number of reports.
        local_epsilon: The most of one report.
    """

    aggregate_epsilon: float
    reports: int
    local_epsilon: float

    def __post_init__(self):
        for name in ("aggregate_epsilon", "local_epsilon"):
            units_of(getattr(self, name), name)
        checks.integer(reports=self.reports, least=1, most=_MOST_REPORTS)


@dataclasses.dataclass(frozen=True)
class Spent:
    """The spent part of some limits.

    Attributes:
        units: The sum of the epsilons, in millionths.
        squares: The sum of their squares, in millionths of millionths.
        reports: Number of reports.
        divergence: The sum of their Renyi divergences, in millionths of millionths,
            where the composition is by Renyi.
    """

    units: int = 0
    squares: int = 0
    reports: int = 0
    divergence: int = 0

    def and_(self, cost: "Spent") -> "Spent":
        """Returns the spent amount after some more reports."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(cost), strict=True)
        return Spent(*(mine + theirs for mine, theirs in pairs))


@identities.identity(
    "Policy",
    "analysis limits fields randomizer delta composition slack order versions cohorts",
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """The policy that ships with a device for one analysis; no recipe can change it.

    Attributes:
        analysis: Its identifier.
        limits: The limits of the whole analysis.
        fields: The limits of each data field; others are not to be read.
        randomizer: Local randomizer of the reports.
        delta: The delta of the aggregate of one query, in (0, 1).
        composition: Composition of several queries' epsilons.
        slack: delta' of the advanced and the Renyi composition, in (0, 1/2). Beyond
            exp(-1/2) the advanced one would admit a single report above its limit.
        order: The order of the Renyi composition, at least 2.
        versions: The versions of recipes that the device understands.
        cohorts: Names of data that are not sensitive.
    """

    analysis: str
    limits: Limits
    fields: Mapping[str, Limits]
    randomizer: shuffling.Randomizer
    delta: float
    composition: Composition = Composition.BASIC
    slack: float | None = None
    order: int | None = None
    versions: tuple[str, ...] = ("1",)
    cohorts: tuple[str, ...] = ()

    def __post_init__(self):
        checks.probability(delta=self.delta)
        if (self.slack is None) != (self.composition is Composition.BASIC):
            raise ValueError(
                f"slack is {self.slack}; it has to be a number where composition is "
                f"advanced or renyi, and None where it is basic"
            )
        if self.slack is not None:
            checks.probability(slack=self.slack)
            if self.slack >= 0.5:
                raise ValueError(f"slack is {self.slack}; it has to be below 1/2")
        for limits in (self.limits, *self.fields.values()):
            if limits.local_epsilon > LARGEST_LOCAL_EPSILON:
                raise ValueError(
                    f"local_epsilon is {limits.local_epsilon:g}; it has to be at most "
                    f"{LARGEST_LOCAL_EPSILON}, because devices use 64-bit coins"
                )
        if not self.fields:
            raise ValueError("fields is empty; it has to name a data field")
        self._check_order()

    @property
    def terms(self) -> dict[str, str]:
        """The meaning, by name, of the spent amounts that devices keep."""
        return {
            "analysis": self.analysis,
            "randomizer": self.randomizer.value,
            "delta": repr(self.delta),
            "composition": self.composition.value,
            "slack": repr(self.slack),
            "order": repr(self.order),
        }

    @property
    def amplification(self) -> str:
        """The theorems of which a query's aggregate epsilon is the smallest bound."""
        methods = _reports(self.randomizer, UNITS).methods
        names = [m.value for m in methods if m is not shuffling.Method.EQUATION_1]
        return " or ".join(names)

    def _check_order(self) -> None:
        if (self.order is None) != (self.composition is not Composition.RENYI):
            raise ValueError(
                f"order is {self.order}; it has to be a number where composition is "
                "renyi, and None elsewhere"
            )
        if self.order is None:
            return
        checks.integer(order=self.order, least=2, most=_LARGEST_ORDER)
        if self.randomizer not in _RENYI:
            raise ValueError(
                f"composition is renyi; it has to be another one with randomizer "
                f"{self.randomizer.value}, as the Renyi divergence of sums of its "
                "reports has no proved bound here"
            )
        for limits in (self.limits, *self.fields.values()):
            if self._allowed_divergence(limits) <= 0:
                raise ValueError(
                    f"aggregate_epsilon is {limits.aggregate_epsilon:g}; it has to be "
                    f"above {float(self._conversion()):.6g} with order {self.order} "
                    f"and slack {self.slack:g}, or no report is ever allowed"
                )

    def cost(self, units: int, local_units: int, cohort: int) -> Spent:
        """Returns the cost of one report.

        Args:
            units: Its aggregate epsilon, in millionths, above 0.
            local_units: Its local epsilon, for replacement, in millionths.
            cohort: The fewest reports that are summed, at least 2.
        """
        divergence = 0
        if self.order is not None:
            divergence = _divergence(
                self.randomizer, self.order, local_units, min(cohort, _MOST_SUMMED)
            )
        return Spent(units, units**2, 1, divergence)

    def refusal(self, spent: Spent, limits: Limits, cost: Spent) -> str | None:
        """Returns why limits do not allow one more report, or None where they do.

        Args:
            spent: Before it.
            limits: The limits of the analysis, or of a field.
            cost: The cost of the report, from `cost`.
        """
        after = spent.and_(cost)
        if after.reports > limits.reports:
            return f"{spent.reports} of {limits.reports} reports are used"
        if self._is_within(after, limits):
            return None
        if self.order is not None:
            return (
                f"a divergence of {cost.divergence / _SQUARE_UNITS:.6g} on top of "
                f"{spent.divergence / _SQUARE_UNITS:.6g}, at order {self.order}, is "
                f"more than an epsilon of {limits.aggregate_epsilon:g} allows"
            )
        return (
            f"an epsilon of {cost.units / UNITS:g} on top of reports whose epsilons "
            f"sum up to {spent.units / UNITS:g} is more than the "
            f"{limits.aggregate_epsilon:g} allowed"
        )

    def _is_within(self, spent: Spent, limits: Limits) -> bool:
        if self.composition is Composition.RENYI:
            return spent.divergence <= self._allowed_divergence(limits)
        allowed = units_of(limits.aggregate_epsilon, "aggregate_epsilon")
        if spent.units <= allowed:
            return True
        if self.composition is Composition.BASIC:
            return False
        # In millionths: sqrt(2 ln(1/delta') S) <= allowed - S / 2, squared.
        left = fractions.Fraction(allowed) - fractions.Fraction(
            spent.squares, 2 * UNITS
        )
        return left >= 0 and 2 * _log_inverse(self.slack) * spent.squares <= left**2

    def _allowed_divergence(self, limits: Limits) -> int:
        """Returns the allowed Renyi divergence, rounded downwards."""
        epsilon = fractions.Fraction(repr(float(limits.aggregate_epsilon)))
        return math.floor((epsilon - self._conversion()) * _SQUARE_UNITS)

    def _conversion(self) -> fractions.Fraction:
        assert self.order is not None and self.slack is not None
        return _conversion(self.order, self.slack)

    def epsilon_of(self, composed: int) -> float:
        """Returns a composition's epsilon, rounded upwards.

        Args:
            composed: The sum of epsilons, in millionths; of the Renyi composition that
                of divergences, in millionths of millionths.
        """
        if self.composition is not Composition.RENYI:
            return composed / UNITS
        exact = fractions.Fraction(composed, _SQUARE_UNITS) + self._conversion()
        return max(0.0, math.nextafter(float(exact), math.inf))

    def total_delta(self, repeats: int = 1) -> float:
        """Returns delta of all that a device ever answers of some analyses like this.

        Args:
            repeats: Number of repeats.
        """
        one = fractions.Fraction(self.slack or 0)
        if self.composition is not Composition.RENYI:
            one += fractions.Fraction(self.delta) * self.limits.reports
        return min(1.0, math.nextafter(float(one * repeats), math.inf))

    def cohort_epsilon(self, local_units: int, cohort: int) -> float:
        """Returns epsilon of the sum of some reports, at `delta`.

        Args:
            local_units: Epsilon of a report, for replacement, in millionths.
            cohort: Number of reports, at least 2.
        """
        return _cohort_epsilon(
            self.randomizer, local_units, min(cohort, _LARGEST_COHORT), self.delta
        )


def units_of(epsilon: float, name: str) -> int:
    """Returns an epsilon in millionths.

    Args:
        epsilon: Above 0 and at most 100, with at most six digits behind the point.
        name: Name for the message.

    Raises:
        ValueError: If it is not so.
    """
    exact = decimal.Decimal(repr(float(epsilon))) * UNITS
    if not 0 < exact <= _MOST_EPSILON * UNITS or exact != exact.to_integral_value():
        raise ValueError(
            f"{name} is {epsilon!r}; it has to be above 0, at most {_MOST_EPSILON}, "
            "and a whole number of millionths"
        )
    return int(exact)


@functools.lru_cache(maxsize=1024)
def _cohort_epsilon(
    randomizer: shuffling.Randomizer, local_units: int, cohort: int, delta: float
) -> float:
    reports = _reports(randomizer, local_units)
    return shuffling.amplify(reports, num_reports=cohort, delta=delta).epsilon


def minimum_cohort(
    randomizer: shuffling.Randomizer,
    local_units: int,
    aggregate_units: int,
    delta: float,
) -> int:
    """Returns the fewest reports whose sum has an aggregate epsilon.

    Args:
        randomizer: Local randomizer of the reports.
        local_units: Epsilon of a report, for replacement, in millionths.
        aggregate_units: The epsilon of the sum, in millionths.
        delta: The delta of the sum.

    Raises:
        ValueError: If no cohort is large enough.
    """
    return shuffling.minimum_reports(
        _reports(randomizer, local_units), epsilon=aggregate_units / UNITS, delta=delta
    )


def _reports(randomizer: shuffling.Randomizer, local_units: int) -> shuffling.Reports:
    # For replacement, which is twice the symmetric encoding's own, for deletion.
    twice = randomizer is shuffling.Randomizer.SYMMETRIC_ONE_HOT
    local = local_units / UNITS / (2 if twice else 1)
    return shuffling.Reports(randomizer=randomizer, local_epsilon=local)


def renyi_order(epsilon: float, slack: float) -> int:
    """Returns an order for a budget: the best one where divergences grow linearly.

    They do, nearly, for sums of large cohorts: with a divergence of c alpha at order
    alpha, the largest c that epsilon allows is at alpha - 1 = beta with
    beta^2 epsilon = 2 beta ln(1/slack) + ln(1/slack), up to terms of the conversion
    that are smaller.

    Args:
        epsilon: The epsilon of the budget.
        slack: Its delta.
    """
    log = -math.log(slack)
    return max(2, 1 + round((log + math.sqrt(log * (log + epsilon))) / epsilon))


@functools.lru_cache(maxsize=1024)
def _divergence(
    randomizer: shuffling.Randomizer, order: int, local_units: int, cohort: int
) -> int:
    """Bounds a sum's Renyi divergence, in millionths of millionths."""
    reports = _reports(randomizer, local_units)
    rho = _RENYI[randomizer](float(order), reports.local_epsilon, cohort)
    # Error of the binomial laws below it.
    margin = 10 * binomial_grid.relative_error(cohort)
    return math.ceil((rho * (1 + margin) + margin) * _SQUARE_UNITS)


@functools.lru_cache(maxsize=64)
def _conversion(order: int, slack: float) -> fractions.Fraction:
    """Returns a number just above what epsilon is more than the Renyi divergence.

    ln(1 - 1/alpha) - ln(alpha delta') / (alpha - 1) (Canonne, Kamath, Steinke 2020,
    Proposition 12).
    """
    with decimal.localcontext(prec=_DIGITS):
        alpha, delta = decimal.Decimal(order), decimal.Decimal(slack)
        exact = (1 - 1 / alpha).ln() - (alpha.ln() + delta.ln()) / (alpha - 1)
    return fractions.Fraction(exact) + fractions.Fraction(1, 10**40)


@functools.lru_cache(maxsize=64)
def _log_inverse(slack: float) -> fractions.Fraction:
    """Returns a number just above ln(1 / slack)."""
    with decimal.localcontext(prec=_DIGITS):
        exact = -decimal.Decimal(slack).ln()
    return fractions.Fraction(exact) * (1 + fractions.Fraction(1, 10**40))
