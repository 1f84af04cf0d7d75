"""Popular n-grams joined with their owners' ages (McMillan et al. 2022, figure 4).

The interactive analysis grows a tree of n-grams as `ngrams` does, but asks the last
query about each pair of an age's bucket and an n-gram of the tree: the recipe of
figure 4. The static one asks once for the pairs of all ages and all n-grams.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pandas as pd

from federated_hh.randomness import identities
from federated_hh.statistics.analyses import analysis, ngrams
from federated_hh.statistics.recipes import contents, events
from federated_hh.statistics.recipes import recipe as recipe_lib

# Of the figure.
AGES = contents.BucketedType((20, 30, 40, 50, 60, 70, 80))


def ages_of(stored: events.NGramEvents) -> tuple[np.ndarray, list[str]]:
    """Returns the age's bucket of each device, int64 [devices], and their names."""
    buckets = np.searchsorted(AGES.boundaries, stored.ages, side="right")
    return buckets, [AGES.name(cell) for cell in range(AGES.num_cells)]


@dataclasses.dataclass(frozen=True)
class Pairs:
    """The n-grams of which at least one pair with an age was found.

    Attributes:
        grams: The words of each, separated by blanks; the most frequent first.
        counts: float64 [n-grams, ages]: estimated number of reports of each pair.
        stderrs: float64 [n-grams, ages].
        is_found: bool [n-grams, ages]: which pairs stand out of the noise.
        reports: Number of reports.
    """

    grams: tuple[str, ...]
    counts: np.ndarray
    stderrs: np.ndarray
    is_found: np.ndarray
    reports: int


@dataclasses.dataclass(frozen=True)
class State(ngrams.State):
    """The state of the analysis.

    Attributes:
        pairs: Pairs of the last query; None before it, or without enough reports.
    """

    pairs: Pairs | None = None


@identities.identity("federated_hh.interactive.joint.Joint")
class Joint(ngrams.NGrams):
    """Finds pairs of an age and an n-gram that stand out of the noise."""

    state_type = State

    @property
    def lengths(self) -> range:
        """The lengths of the n-grams that queries ask about without an age."""
        return range(1, self.length) if self.is_interactive else range(0)

    def _ask(self, state: ngrams.State, tree: contents.PrefixTree) -> recipe_lib.Recipe:
        if state.queries < len(self.lengths):
            return super()._ask(state, tree)
        return self.make_recipe(state, {"age": AGES, "ngrams": tree}, self._epsilon)

    def learn(
        self,
        state: ngrams.State,
        recipe: recipe_lib.Recipe,
        estimates: analysis.Estimates | None,
    ) -> tuple[ngrams.State, Mapping[str, float | int]]:
        """Keeps the n-grams, or at last the pairs, that stand out of the noise."""
        if "age" not in recipe.content.types:
            return super().learn(state, recipe, estimates)
        pairs = None
        if estimates is not None:
            pairs = self._pairs(recipe, estimates)
        found = 0 if pairs is None else int(pairs.is_found.sum())
        assert isinstance(state, State)
        return dataclasses.replace(state, pairs=pairs), {"found": found}

    def _pairs(self, recipe: recipe_lib.Recipe, estimates: analysis.Estimates) -> Pairs:
        tree = recipe.content.types["ngrams"]
        assert isinstance(tree, contents.PrefixTree)
        shape = (AGES.num_cells, tree.num_cells)
        known = ngrams.known_cells(tree)
        counts, stderrs = (
            values.reshape(shape).T[known]
            for values in (estimates.counts, estimates.stderrs)
        )
        chance = min(0.5, self._false_positives / counts.size)
        is_found = counts > self.least_estimate(recipe, estimates.reports, chance)
        rows = np.flatnonzero(is_found.any(axis=1))
        order = np.argsort(-counts[rows].sum(axis=1), kind="stable")
        rows = rows[order]
        return Pairs(
            tuple(" ".join(tree.path(cell)) for cell in known[rows].tolist()),
            counts[rows],
            stderrs[rows],
            is_found[rows],
            estimates.reports,
        )

    def results(self, state: ngrams.State) -> Mapping[str, pd.DataFrame]:
        """Returns the found pairs.

        Returns:
            ngrams: see `NGrams`, of all queries but the last, if any; pairs: of each
            n-gram with a pair found a row an age: ngram, age, estimate, stderr, share
            (of the reports), found (whether the pair itself stands out).
        """
        assert isinstance(state, State)
        pairs = state.pairs
        empty = np.zeros((0, AGES.num_cells))
        pairs = pairs or Pairs((), empty, empty, empty.astype(bool), 0)
        ages = [AGES.name(cell) for cell in range(AGES.num_cells)]
        return {
            **(super().results(state) if self.lengths else {}),
            "pairs": pd.DataFrame(
                {
                    "ngram": np.repeat(np.array(pairs.grams, object), len(ages)),
                    "age": np.array(ages * len(pairs.grams), object),
                    "estimate": pairs.counts.reshape(-1),
                    "stderr": pairs.stderrs.reshape(-1),
                    "share": pairs.counts.reshape(-1) / max(pairs.reports, 1),
                    "found": pairs.is_found.reshape(-1),
                }
            ),
        }
