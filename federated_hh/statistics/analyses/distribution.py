"""The distribution of a real number, by buckets that follow it, and by a fixed grid.

The interactive analysis begins with a few wide buckets and splits those with large
counts, query by query (McMillan et al. 2022, section 1). The static one asks once about
a fine grid.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from federated_hh.randomness import identities
from federated_hh.statistics.analyses import analysis, nested_histograms
from federated_hh.statistics.devices import device
from federated_hh.statistics.recipes import contents
from federated_hh.statistics.recipes import recipe as recipe_lib

QUANTILES = np.arange(1, 20) / 20


@dataclasses.dataclass(frozen=True)
class State(analysis.Asked):
    """The state of the analysis.

    Attributes:
        histograms: Histograms of the queries, in order; none of a query with too small
            a cohort.
    """

    histograms: tuple[nested_histograms.Histogram, ...] = ()


@identities.identity("Buckets", "largest first parts split_stderrs most")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Buckets:
    """The buckets of a query.

    Attributes:
        largest: Start of the last bucket; the first starts at 0.
        first: Equal buckets of the first query in between.
        parts: Number of equal parts of a bucket that is split.
        split_stderrs: A bucket is split where each of its parts, if they were equal,
            were at least so many standard errors of an empty bucket.
        most: The most buckets of a query.
    """

    largest: float
    first: int
    parts: int
    split_stderrs: float
    most: int

    def begin(self) -> np.ndarray:
        """Returns the boundaries of the first query: float64."""
        return np.linspace(0, self.largest, self.first + 1)

    def refine(self, histogram: nested_histograms.Histogram) -> np.ndarray:
        """Returns boundaries that split the buckets with large counts.

        Args:
            histogram: The counts of the boundaries that are there.
        """
        boundaries = histogram.boundaries
        shares = histogram.shares[1:-1]
        least = self.split_stderrs * histogram.empty_stderr * self.parts
        room = max(0, (self.most - len(shares)) // (self.parts - 1))
        order = np.argsort(-shares, kind="stable")[:room]
        chosen = order[shares[order] >= least]
        inner = np.arange(1, self.parts) / self.parts
        widths = np.diff(boundaries)[chosen, np.newaxis]
        added = boundaries[chosen, np.newaxis] + inner * widths
        # Where floating point has no number between, there is nothing to split.
        return np.unique(np.append(boundaries, added))


@identities.identity("federated_hh.interactive.distribution.Distribution")
class Distribution(analysis.Analysis[State]):
    """Estimates how the seconds between words are distributed."""

    state_type = State

    def __init__(
        self,
        *args: Any,
        buckets: Buckets,
        max_queries: int,
        epsilon: float,
        **options: Any,
    ):
        """Makes the plan.

        Args:
            *args: See `Analysis`.
            buckets: Buckets of the queries; with one query, a fixed grid of the first.
            max_queries: See `Analysis`.
            epsilon: The epsilon of the aggregate of each query.
            **options: See `Analysis`.
        """
        super().__init__(*args, max_queries=max_queries, **options)
        self.buckets = buckets
        self._epsilon = epsilon

    def describe(self) -> dict[str, Any]:
        """Returns all that a sum depends on besides the plan."""
        return super().describe() | {
            "buckets": identities.settings(self.buckets),
            "epsilon": self._epsilon,
        }

    def recipe(self, state: State) -> recipe_lib.Recipe | None:
        """Returns the next buckets' recipe; none after a cohort that was too small."""
        if state.queries == self.max_rounds or state.queries > len(state.histograms):
            return None
        boundaries = (
            self.buckets.refine(state.histograms[-1])
            if state.histograms
            else self.buckets.begin()
        )
        kind = contents.BucketedType(tuple(boundaries.tolist()))
        return self.make_recipe(state, {"seconds": kind}, self._epsilon)

    def learn(
        self,
        state: State,
        recipe: recipe_lib.Recipe,
        estimates: analysis.Estimates | None,
    ) -> tuple[State, Mapping[str, float | int]]:
        """Keeps the shares of the buckets."""
        if estimates is None:
            return state, {"buckets": 0}
        kind = recipe.content.types["seconds"]
        assert isinstance(kind, contents.BucketedType)
        randomizer = device.randomizer_of(self.approval.policy, recipe)
        # Of no report, and of all of them.
        empty, full = randomizer.variance(
            np.array([0, estimates.reports]), estimates.reports
        )
        histogram = nested_histograms.Histogram(
            np.array(kind.boundaries),
            estimates.counts / estimates.reports,
            estimates.reports,
            float(empty) / estimates.reports,
            float(full) / estimates.reports,
        )
        state = dataclasses.replace(state, histograms=(*state.histograms, histogram))
        return state, {"buckets": len(kind.boundaries) - 1}

    def results(self, state: State) -> Mapping[str, pd.DataFrame]:
        """Returns the estimated distribution.

        Returns:
            buckets: a row a bucket of the last query: from_seconds, to_seconds, share
            and its stderr, share_below its upper end and the stderr of that; quantiles:
            share, seconds, stderr. Both by all queries.
        """
        buckets: dict[str, Any] = dict.fromkeys(_BUCKET_COLUMNS, ())
        quantiles: dict[str, Any] = dict.fromkeys(("share", "seconds", "stderr"), ())
        if state.histograms:
            found = nested_histograms.combine(state.histograms)
            edges = [-np.inf, *found.boundaries, np.inf]
            of_buckets = (
                edges[:-1],
                edges[1:],
                found.shares,
                found.share_stderrs,
                np.append(found.below, 1.0),
                np.append(found.stderrs, 0.0),
            )
            buckets = dict(zip(buckets, of_buckets, strict=True))
            of_quantiles = (QUANTILES, *found.quantiles(QUANTILES))
            quantiles = dict(zip(quantiles, of_quantiles, strict=True))
        return {"buckets": pd.DataFrame(buckets), "quantiles": pd.DataFrame(quantiles)}


_BUCKET_COLUMNS = (
    "from_seconds",
    "to_seconds",
    "share",
    "stderr",
    "share_below_end",
    "stderr_below_end",
)
