"""What a device lets an analysis spend (McMillan et al. 2022, table 1, section 4.3).

Epsilons are whole numbers of millionths, so that what is spent is summed exactly: no
number of small charges comes to less than it should.
"""

import dataclasses
import decimal
import enum
import fractions
import functools
import math
from collections.abc import Mapping

from privacy import argument_checks, shuffling

UNITS = 10**6
_MOST_EPSILON = 100
# So that sums of squares of epsilons stay below 2^63.
_MOST_REPORTS = 900
_DIGITS = 50
# More reports never have less privacy, and bounds for more would be slow.
_LARGEST_COHORT = 10**9


class Composition(enum.Enum):
    """How the epsilons of several reports add up; the values are names in policies.

    Both hold where the analyst chooses each epsilon after seeing all results before it:
    BASIC is the sum (Rogers et al. 2016, Theorem 3.2), ADVANCED the smaller of the sum
    and of sqrt(2 ln(1/delta') S) + S / 2 with S the sum of the squares (Whitehouse et
    al. 2023, Theorem 1), which spends delta' once.
    """

    BASIC = "basic"
    ADVANCED = "advanced"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What may be spent altogether: of an analysis, or of a data field.

    Attributes:
        aggregate_epsilon: Of all cohort aggregates together.
        reports: How many there may be.
        local_epsilon: The most of one report.
    """

    aggregate_epsilon: float
    reports: int
    local_epsilon: float

    def __post_init__(self):
        for name in ("aggregate_epsilon", "local_epsilon"):
            units_of(getattr(self, name), name)
        argument_checks.integer("reports", self.reports, 1, _MOST_REPORTS)


@dataclasses.dataclass(frozen=True)
class Spent:
    """What is spent of some limits.

    Attributes:
        units: The sum of the epsilons, in millionths.
        squares: The sum of their squares, in millionths of millionths.
        reports: How many there were.
    """

    units: int = 0
    squares: int = 0
    reports: int = 0

    def and_(self, units: int) -> "Spent":
        """Returns what is spent with one more report of an epsilon in millionths."""
        return Spent(self.units + units, self.squares + units**2, self.reports + 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """What ships with a device for one analysis, and no recipe can change.

    Attributes:
        analysis: Its identifier.
        limits: Of the whole analysis.
        fields: The limits of each data field; others are not to be read.
        randomizer: What reports are made with.
        delta: Of the aggregate of one query, in (0, 1).
        composition: How the epsilons of several queries add up.
        slack: delta' of the advanced composition, in (0, 1).
        versions: Of recipes that the device understands.
        cohorts: Names of data that are not sensitive.
    """

    analysis: str
    limits: Limits
    fields: Mapping[str, Limits]
    randomizer: shuffling.Randomizer
    delta: float
    composition: Composition = Composition.BASIC
    slack: float | None = None
    versions: tuple[str, ...] = ("1",)
    cohorts: tuple[str, ...] = ()

    def __post_init__(self):
        argument_checks.probability("delta", self.delta)
        if (self.slack is None) != (self.composition is Composition.BASIC):
            raise ValueError(
                f"slack is {self.slack}; it has to be a number where composition is "
                f"advanced, and None where it is basic"
            )
        if self.slack is not None:
            argument_checks.probability("slack", self.slack)
        if not self.fields:
            raise ValueError("fields is empty; it has to name a data field")

    def refusal(self, spent: Spent, limits: Limits, units: int) -> str | None:
        """Returns why limits do not allow one more report, or None where they do.

        Args:
            spent: Before it.
            limits: Of the analysis, or of a field.
            units: The report's aggregate epsilon, in millionths, above 0.
        """
        after = spent.and_(units)
        if after.reports > limits.reports:
            return f"{spent.reports} of {limits.reports} reports are used"
        if not self._is_within(after, limits):
            return (
                f"an epsilon of {units / UNITS:g} on top of reports whose epsilons sum "
                f"up to {spent.units / UNITS:g} is more than the "
                f"{limits.aggregate_epsilon:g} allowed"
            )
        return None

    def _is_within(self, spent: Spent, limits: Limits) -> bool:
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

    def total_delta(self, repeats: int = 1) -> float:
        """Returns delta of all that a device ever answers of some analyses like this.

        Args:
            repeats: Of how many.
        """
        one = fractions.Fraction(self.delta) * self.limits.reports
        one += fractions.Fraction(self.slack or 0)
        return min(1.0, math.nextafter(float(one * repeats), math.inf))

    def cohort_epsilon(self, local_units: int, cohort: int) -> float:
        """Returns epsilon of the sum of some reports, at `delta`.

        Args:
            local_units: Epsilon of a report, for replacement, in millionths.
            cohort: How many reports there are, at least 2.
        """
        return _cohort_epsilon(
            self.randomizer, local_units, min(cohort, _LARGEST_COHORT), self.delta
        )


def units_of(epsilon: float, name: str) -> int:
    """Returns an epsilon in millionths.

    Args:
        epsilon: Above 0 and at most 100, with at most six digits behind the point.
        name: What it is, for the message.

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
        randomizer: What the reports are made with.
        local_units: Epsilon of a report, for replacement, in millionths.
        aggregate_units: Of the sum, in millionths.
        delta: Of the sum.

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


@functools.lru_cache(maxsize=64)
def _log_inverse(slack: float) -> fractions.Fraction:
    """Returns a number just above ln(1 / slack)."""
    with decimal.localcontext(prec=_DIGITS):
        exact = -decimal.Decimal(slack).ln()
    return fractions.Fraction(exact) * (1 + fractions.Fraction(1, 10**40))
