"""Popular n-grams of words: by growing a prefix tree, and all at once.

The interactive analysis asks first for words, then for words after the popular ones,
then for words after the popular pairs (McMillan et al. 2022, section 1). The static
one asks once for the n-grams of all words.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from federated_hh.randomness import identities
from federated_hh.statistics.analyses import analysis
from federated_hh.statistics.recipes import contents
from federated_hh.statistics.recipes import recipe as recipe_lib


@dataclasses.dataclass(frozen=True)
class Found:
    """N-grams that a level found, the most frequent first.

    Attributes:
        grams: The words of each, separated by blanks.
        estimates: float64 [n-grams]: estimated number of reports of each.
        stderrs: float64 [n-grams].
        reports: Number of reports.
    """

    grams: tuple[str, ...]
    estimates: np.ndarray
    stderrs: np.ndarray
    reports: int


_NOTHING = Found((), np.zeros(0), np.zeros(0), 0)


@dataclasses.dataclass(frozen=True)
class State(analysis.Asked):
    """The state of the analysis.

    Attributes:
        levels: Results of the queries, in order.
    """

    levels: tuple[Found, ...] = ()


@identities.identity("federated_hh.interactive.ngrams.NGrams")
class NGrams(analysis.Analysis[State]):
    """Finds n-grams that are frequent enough to be told from the noise."""

    state_type = State

    def __init__(
        self,
        *args: Any,
        tokens: tuple[str, ...],
        length: int,
        is_interactive: bool,
        max_prefixes: int,
        false_positives: float,
        epsilon: float,
        **options: Any,
    ):
        """Makes the plan.

        Args:
            *args: See `Analysis`.
            tokens: The known words.
            length: Words of an n-gram, at least 1.
            is_interactive: Whether to grow a tree; else all is asked at once.
            max_prefixes: The most n-grams that the next query goes on from.
            false_positives: Mean number of n-grams that a query finds and nobody has,
                at most.
            epsilon: The epsilon of the aggregates of all queries that one device
                answers.
            **options: See `Analysis`.
        """
        queries = length if is_interactive else 1
        super().__init__(*args, max_queries=queries, **options)
        self.tokens, self.length = tokens, length
        self.is_interactive = is_interactive
        self._max_prefixes = max_prefixes
        self._false_positives = false_positives
        self._epsilon = epsilon

    @property
    def lengths(self) -> range:
        """The lengths of the n-grams that queries ask about."""
        return range(1 if self.is_interactive else self.length, self.length + 1)

    def describe(self) -> dict[str, Any]:
        """Returns all that a sum depends on besides the plan."""
        return super().describe() | {
            "tokens": list(self.tokens),
            "length": self.length,
            "is_interactive": self.is_interactive,
            "max_prefixes": self._max_prefixes,
            "false_positives": self._false_positives,
            "epsilon": self._epsilon,
        }

    def recipe(self, state: State) -> recipe_lib.Recipe | None:
        """Returns the next level's, or the only one."""
        if state.queries == self.max_rounds:
            return None
        if not self.is_interactive:
            paths = tuple(itertools.product(self.tokens, repeat=self.length - 1))
        elif state.levels:
            grams = state.levels[-1].grams[: self._max_prefixes]
            paths = tuple(tuple(gram.split()) for gram in grams)
        else:
            paths = ((),)
        if not paths:
            return None
        return self._ask(state, contents.PrefixTree(paths, self.tokens))

    def _ask(self, state: State, tree: contents.PrefixTree) -> recipe_lib.Recipe:
        """Returns the recipe about the n-grams of a tree."""
        return self.make_recipe(state, {"ngrams": tree}, self._epsilon)

    def learn(
        self,
        state: State,
        recipe: recipe_lib.Recipe,
        estimates: analysis.Estimates | None,
    ) -> tuple[State, Mapping[str, float | int]]:
        """Keeps the n-grams that stand out of the noise."""
        found = _NOTHING
        if estimates is not None:
            found = self._standing_out(recipe, estimates)
        state = dataclasses.replace(state, levels=(*state.levels, found))
        return state, {"found": len(found.grams)}

    def _standing_out(
        self, recipe: recipe_lib.Recipe, estimates: analysis.Estimates
    ) -> Found:
        tree = recipe.content.types["ngrams"]
        assert isinstance(tree, contents.PrefixTree)
        cells = known_cells(tree)
        chance = min(0.5, self._false_positives / len(cells))
        least = self.least_estimate(recipe, estimates.reports, chance)
        kept = cells[estimates.counts[cells] > least]
        kept = kept[np.argsort(-estimates.counts[kept], kind="stable")]
        return Found(
            tuple(" ".join(tree.path(cell)) for cell in kept.tolist()),
            estimates.counts[kept],
            estimates.stderrs[kept],
            estimates.reports,
        )

    def results(self, state: State) -> Mapping[str, pd.DataFrame]:
        """Returns the n-grams found, a row each."""
        tables = [
            pd.DataFrame(
                {
                    "words": np.full(len(found.grams), self.lengths[0] + i, np.int64),
                    "ngram": np.array(found.grams, object),
                    "estimate": found.estimates,
                    "stderr": found.stderrs,
                    "share": found.estimates / max(found.reports, 1),
                }
            )
            for i, found in enumerate(state.levels or (_NOTHING,))
        ]
        return {"ngrams": pd.concat(tables, ignore_index=True)}


def known_cells(tree: contents.PrefixTree) -> np.ndarray:
    """Returns the cells of n-grams of known words: int64.

    Neither the end of a sentence nor an unknown word is a word that goes on.
    """
    cells = np.arange(1, tree.num_cells)
    return cells[(cells - 1) % tree.branches >= 2]
