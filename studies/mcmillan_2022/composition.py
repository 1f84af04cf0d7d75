"""Queries that a device answers, by each way to compose (McMillan et al. 2022).

The paper checks budgets by basic composition (section 4.3), and says that advanced
composition or other accounting will do as well.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping

import pandas as pd

from federated_hh.options.fields import option
from federated_hh.privacy import conversions
from federated_hh.privacy.local import device_policy
from federated_hh.privacy.shuffle import clones, renyi_aggregation
from federated_hh.reports import plots
from studies import computed, pages, study, study_options

# Of all queries together.
EPSILON, DELTA = 1.0, 1e-6
_MOST_QUERIES = 10**6
_TITLE = "How many queries a budget of (1, 1e-6) admits"
_LINES = {
    "basic": ("basic", plots.MUTED),
    "advanced": ("advanced", plots.ORANGE),
    "renyi": ("Rényi", plots.BLUE),
}


@dataclasses.dataclass(frozen=True)
class Options(study_options.ComputedOptions):
    """Points of the curves."""

    cohorts_per_decade: int = option(
        2,
        "Cohort sizes from each power of ten to the next.",
        least=1,
        most=100,
    )

    @property
    def cohorts(self) -> tuple[int, ...]:
        """From 1,000 to 10 million."""
        return computed.powers_of_ten(10**3, 4, self.cohorts_per_decade)


def epsilon(encoding: str, local_epsilon: float, cohort: int, delta: float) -> float:
    """Returns epsilon of the sum of one query's reports.

    Args:
        encoding: asymmetric or symmetric.
        local_epsilon: Local epsilon of a report, for replacement.
        cohort: Reports of a query.
        delta: Delta of the sum.
    """
    if encoding == "asymmetric":
        return clones.ClonePair(local_epsilon, cohort, stronger=True).epsilon(delta)
    return renyi_aggregation.symmetric_one_hot_epsilon(
        local_epsilon / 2, cohort, delta
    )[0]


def divergence(encoding: str, local_epsilon: float, cohort: int, order: int) -> float:
    """Returns the Renyi divergence of the sum of one query's reports."""
    if encoding == "asymmetric":
        return renyi_aggregation.asymmetric_one_hot_rho(order, local_epsilon, cohort)
    return renyi_aggregation.symmetric_one_hot_rho(order, local_epsilon / 2, cohort)


def queries(encoding: str, local_epsilon: float, cohort: int) -> dict[str, int]:
    """Returns the numbers of queries with (EPSILON, DELTA) altogether, by composition.

    Args:
        encoding: asymmetric or symmetric.
        local_epsilon: Local epsilon of a report, for replacement.
        cohort: Reports of a query.
    """
    order = device_policy.renyi_order(EPSILON, DELTA)
    rho = divergence(encoding, local_epsilon, cohort, order)
    of_query = functools.partial(epsilon, encoding, local_epsilon, cohort)

    def basic(count: int) -> bool:
        return count * of_query(DELTA / count) <= EPSILON

    def advanced(count: int) -> bool:
        # Half of delta for the composition, the other half for the queries.
        squares = count * of_query(DELTA / 2 / count) ** 2
        spread = math.sqrt(-2 * math.log(DELTA / 2) * squares)
        return spread + squares / 2 <= EPSILON

    def renyi(count: int) -> bool:
        return conversions.renyi_to_epsilon(count * rho, order, DELTA) <= EPSILON

    return {"basic": _most(basic), "advanced": _most(advanced), "renyi": _most(renyi)}


def _most(is_within: Callable[[int], bool]) -> int:
    """Returns the most queries, 0 to _MOST_QUERIES, that are within a budget."""
    low, high = 0, 1
    while is_within(high):
        low, high = high, 4 * high
        if low >= _MOST_QUERIES:
            return _MOST_QUERIES
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_within(middle) else (low, middle)
    return low


def curves(
    options: Options, seed: int, encoding: str, local_epsilon: float
) -> computed.Rows:
    """Returns the points of an encoding's curves."""
    del seed
    return {
        "queries": [
            {
                "encoding": encoding,
                "local_epsilon": local_epsilon,
                "cohort": cohort,
                **queries(encoding, local_epsilon, cohort),
            }
            for cohort in options.cohorts
        ]
    }


def plot(admitted: pd.DataFrame) -> bytes:
    """Plots the queries admitted over the cohort's size; returns a PNG."""
    groups = list(admitted.groupby("setting", sort=False))
    titles = [f"Queries within (1, 1e-6): {name}" for name, _ in groups]
    figure, panels = plots.stacked(titles, "reports of a query")
    for axes, (_, group) in zip(panels, groups, strict=True):
        table = group.set_index("cohort")
        for column, (label, color) in _LINES.items():
            # None is admitted: nothing to show on a logarithmic axis.
            values = table[column].where(table[column] > 0)
            axes.plot(values, "o-", ms=3, color=color, label=label)
        axes.set(xscale="log", yscale="log")
    plots.legend(panels[0])
    return plots.png(figure)


def show(options: Options, found: Mapping[str, pd.DataFrame]) -> dict[str, bytes]:
    """Returns the files of results by name."""
    del options
    admitted = found["queries"]
    columns = {
        "encoding": "{encoding}",
        "local epsilon": "{local_epsilon:g}",
        "reports": "{cohort:,}",
        **{label: f"{{{name}:,}}" for name, (label, _) in _LINES.items()},
    }
    order = device_policy.renyi_order(EPSILON, DELTA)
    notes = pages.notes(
        "All queries together have epsilon 1 at delta 1e-6. Basic composition spends "
        "delta in equal parts on the queries; advanced spends half of it on the "
        f"composition; Rényi spends it once, at order {order}.",
        "A device's policy allows 900 reports at most, whatever its composition.",
    )
    return {
        "queries.csv": computed.csv(admitted),
        "queries.png": plot(admitted),
        study.PAGE: pages.page(
            _TITLE, pages.table(columns, admitted.to_dict("records")), notes
        ),
    }


prepare = computed.prepares(
    _TITLE,
    [
        computed.Setting(f"{encoding}, local epsilon {local:g}", (encoding, local))
        for encoding, local in itertools.product(
            ("asymmetric", "symmetric"), (3.0, 6.0)
        )
    ],
    curves,
    show,
)
