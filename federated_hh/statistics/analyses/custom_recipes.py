"""Custom recipes of an analyst, asked unchanged, one after the other."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from federated_hh.privacy.local import device_reports_plan
from federated_hh.randomness import identities
from federated_hh.rounds import algorithm
from federated_hh.statistics.analyses import analysis
from federated_hh.statistics.devices import device
from federated_hh.statistics.recipes import recipe as recipe_lib

NOTHING = "no device answered"
TOO_FEW = "the aggregation keeps the sum of fewer reports than the minimum cohort"


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer to a recipe.

    Attributes:
        told: Why nothing, as far as an analyst may know; empty where there is a sum.
        counts: float64 [cells]: the estimates; empty without a sum.
        stderrs: float64 [cells], or empty.
        reports: Number of reports.
    """

    told: str
    counts: np.ndarray
    stderrs: np.ndarray
    reports: int


@dataclasses.dataclass(frozen=True)
class State(analysis.Asked):
    """The state of the analysis.

    Attributes:
        answers: One a recipe that was asked.
    """

    answers: tuple[Answer, ...] = ()


@identities.identity("federated_hh.interactive.own_recipes.OwnRecipes")
class CustomRecipes(analysis.Analysis[State]):
    """Asks given recipes, which devices may refuse."""

    state_type = State

    def __init__(
        self, *args: Any, recipes: Sequence[recipe_lib.Recipe], **options: Any
    ):
        """Makes the plan.

        Args:
            *args: See `Analysis`.
            recipes: In order; at least one.
            **options: See `Analysis`.
        """
        super().__init__(*args, max_queries=len(recipes), **options)
        self.recipes = tuple(recipes)

    def describe(self) -> dict[str, Any]:
        """Returns all that a sum depends on besides the plan."""
        recipes = [recipe.to_json() for recipe in self.recipes]
        return super().describe() | {"recipes": recipes}

    def recipe(self, state: State) -> recipe_lib.Recipe | None:
        """Returns the next."""
        is_over = state.queries == len(self.recipes)
        return None if is_over else self.recipes[state.queries]

    def next_query(self, state: State) -> algorithm.Query[Any] | None:
        """Returns the next recipe, which costs nothing where devices refuse it."""
        query = super().next_query(state)
        if query is None or self._refusal(state, self.recipes[state.queries]) is None:
            return query
        nothing = (device_reports_plan.LOCAL_UNITS, device_reports_plan.AGGREGATE_UNITS)
        return dataclasses.replace(
            query, facts={**query.facts, **dict.fromkeys(nothing, 0)}
        )

    def _refusal(self, state: State, recipe: recipe_lib.Recipe) -> str | None:
        """Returns the reason of the devices' refusal; None where they answer."""
        earlier = map(recipe_lib.Recipe.parse, state.recipes)
        return device.told(self.approval, recipe, earlier)

    def learn(
        self,
        state: State,
        recipe: recipe_lib.Recipe,
        estimates: analysis.Estimates | None,
    ) -> tuple[State, Mapping[str, float | int]]:
        """Keeps the estimates, or the reason of their absence that may be told."""
        if estimates is None:
            refusal = self._refusal(state, recipe)
            told = TOO_FEW if refusal is None else f"{NOTHING}: {refusal}"
            answer = Answer(told, np.zeros(0), np.zeros(0), 0)
        else:
            answer = Answer("", estimates.counts, estimates.stderrs, estimates.reports)
        return dataclasses.replace(state, answers=(*state.answers, answer)), {}

    def results(self, state: State) -> Mapping[str, pd.DataFrame]:
        """Returns the histograms.

        Returns:
            recipes: a row a recipe: number, recipe, cells, aggregate_epsilon,
            local_epsilon, minimum_cohort, reports (of a released sum), outcome; and of
            each with a sum `histogram_NUMBER`: cell, a column a field with the cell's
            name in it, estimate, stderr, share.
        """
        rows = []
        tables: dict[str, pd.DataFrame] = {}
        for number, (recipe, answer) in enumerate(
            zip(self.recipes, state.answers, strict=False), start=1
        ):
            rows.append(
                {
                    "number": number,
                    "recipe": recipe.identifier,
                    "cells": recipe.content.num_cells,
                    "aggregate_epsilon": recipe.aggregate_epsilon,
                    "local_epsilon": recipe.local_epsilon,
                    "minimum_cohort": recipe.minimum_cohort,
                    "reports": answer.reports,
                    "outcome": answer.told or "answered",
                }
            )
            if not answer.told:
                tables[f"histogram_{number}"] = _histogram(recipe, answer)
        return {"recipes": pd.DataFrame(rows), **tables}

    def complaints(self, state: State) -> list[tuple[int, str]]:
        """Returns the recipes without an answer, from 0, with the reasons told."""
        return [(i, found.told) for i, found in enumerate(state.answers) if found.told]


def _histogram(recipe: recipe_lib.Recipe, answer: Answer) -> pd.DataFrame:
    content = recipe.content
    # Each field's names are those of its cells, over and over.
    names, repeats = {}, content.num_cells
    for field, kind in content.types.items():
        repeats //= kind.num_cells
        of_field = np.array([kind.name(c) for c in range(kind.num_cells)], object)
        names[field] = np.resize(np.repeat(of_field, repeats), content.num_cells)
    return pd.DataFrame(
        {
            "cell": np.arange(content.num_cells),
            **names,
            "estimate": answer.counts,
            "stderr": answer.stderrs,
            "share": answer.counts / answer.reports,
        }
    )
