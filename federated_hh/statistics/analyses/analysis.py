"""An analysis: recipes that depend on earlier answers, as rounds of the loop.

A subclass gives the next recipe, and learns from its estimates.
"""

import abc
import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from scipy import stats

from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.local import (
    device_policy,
    device_reports_plan,
    query_sizing,
)
from federated_hh.randomness import identities
from federated_hh.rounds import algorithm, client_bytes
from federated_hh.statistics.devices import device, fleet
from federated_hh.statistics.recipes import contents, events
from federated_hh.statistics.recipes import recipe as recipe_lib

S = TypeVar("S", bound="Asked")
# Metrics of every query.
_QUERY_METRICS = frozenset(
    ("cells", "reports", "minimum_cohort", "local_epsilon", "aggregate_epsilon")
)


@dataclasses.dataclass(frozen=True)
class Asked:
    """The state that every analysis has.

    Attributes:
        recipes: Those that every device was asked, as JSON; none where each device is
            asked once.
        queries: Number of queries so far.
    """

    recipes: tuple[str, ...] = ()
    queries: int = 0


@dataclasses.dataclass(frozen=True)
class Estimates:
    """The estimates of a query.

    Attributes:
        counts: float64 [cells], without bias: number of reports with each cell.
        stderrs: float64 [cells]: their standard errors (McMillan et al. 2022, Theorems
            A.2 and C.2).
        reports: Number of reports.
    """

    counts: np.ndarray
    stderrs: np.ndarray
    reports: int


class Analysis(algorithm.Algorithm[S, device_reports_plan.Batch]):
    """Asks a fleet of devices one recipe after another.

    Attributes:
        state_type: Class of the states; its defaults are the state before any answer.
    """

    state_type: type[S]

    def __init__(
        self,
        devices: fleet.Fleet,
        approval: device.Approval,
        sampler: plan_lib.Sampler[Any],
        *,
        max_queries: int,
        aggregation: str,
        fingerprint: str,
        drop_out: float = 0.0,
    ):
        """Makes the plan.

        Args:
            devices: Devices of the cohort.
            approval: Approval that ships with each device.
            sampler: Sampler of a query's devices: disjoint cohorts, or everybody.
            max_queries: The most queries, at least 1.
            aggregation: Aggregator of reports.
            fingerprint: The fingerprint of the devices' data.
            drop_out: The share of the devices that will be gone before their reports
                are summed, in [0, 1).
        """
        self.devices = devices
        self.approval = approval
        self.max_rounds = max_queries
        self.plan = plan_lib.Plan(
            sampler=sampler,
            contribution=device_reports_plan.DeviceReports(
                policy=approval.policy,
                max_queries=max_queries,
                aggregation=aggregation,
            ),
            mechanism=device_reports_plan.MinimumCohort(),
        )
        self._fingerprint, self._drop_out = fingerprint, drop_out

    def initialize(self, repeat: int) -> S:
        """Returns the state before any answer."""
        del repeat
        return self.state_type()

    @abc.abstractmethod
    def recipe(self, state: S) -> recipe_lib.Recipe | None:
        """Returns the next recipe; None where there is none left."""

    @abc.abstractmethod
    def learn(
        self, state: S, recipe: recipe_lib.Recipe, estimates: Estimates | None
    ) -> tuple[S, Mapping[str, float | int]]:
        """Returns the next state but for `Asked`, and metrics.

        Args:
            state: State that `recipe` was called with.
            recipe: Recipe of the answer.
            estimates: None where there were too few reports.
        """

    def describe(self) -> dict[str, Any]:
        """Returns all that a sum depends on besides the plan; a subclass adds to it."""
        found: dict[str, Any] = {
            "population": self._fingerprint,
            "devices": identities.label_of(type(self.devices)),
        }
        return found | ({"drop_out": self._drop_out} if self._drop_out else {})

    def make_recipe(
        self, state: Asked, types: Mapping[str, contents.DataType], epsilon: float
    ) -> recipe_lib.Recipe:
        """Returns a recipe with the largest allowed epsilon of a report.

        Args:
            state: State before it is asked.
            types: Types of the fields that it selects, by field.
            epsilon: The epsilon of the aggregate, in whole millionths.
        """
        policy = self.approval.policy
        fields = (policy.fields[name] for name in types)
        limit = min(limits.local_epsilon for limits in (policy.limits, *fields))
        local_units, minimum = query_sizing.report_budget(
            policy.randomizer,
            policy.delta,
            limit,
            epsilon,
            query_sizing.reports_expected(
                self.plan.sampler.cohort_size, self._drop_out
            ),
        )
        return recipe_lib.Recipe(
            identifier=f"{50001 + state.queries}",
            version=policy.versions[0],
            analysis=policy.analysis,
            query=f"select {', '.join(types)} from {events.STREAM.name}",
            cohorts=(),
            content=contents.Content(types),
            local_units=local_units,
            aggregate_units=device_policy.units_of(epsilon, "epsilon"),
            minimum_cohort=minimum,
        )

    def next_query(self, state: S) -> algorithm.Query[device_reports_plan.Batch] | None:
        """Returns the next recipe, on its way to a cohort."""
        recipe = self.recipe(state)
        if recipe is None:
            return None
        return algorithm.Query(
            lambda cohort, stream: self.devices.ask(
                recipe, cohort, state.recipes, stream
            ),
            {
                device_reports_plan.CELLS: recipe.content.num_cells,
                device_reports_plan.LOCAL_UNITS: recipe.local_units,
                device_reports_plan.AGGREGATE_UNITS: recipe.aggregate_units,
                device_reports_plan.MINIMUM_COHORT: recipe.minimum_cohort,
            },
            lambda: self._client_bytes(recipe),
        )

    def _client_bytes(self, recipe: recipe_lib.Recipe) -> client_bytes.ClientBytes:
        """Returns the bytes of a device that answers: the recipe, and its report."""
        sent = self.devices.client_bytes(recipe, self.plan.sampler.cohort_size)
        asked = len(recipe.to_json().encode())
        return dataclasses.replace(sent, download=asked + sent.download)

    def update(
        self, state: S, released: device_reports_plan.Aggregate
    ) -> tuple[S, Mapping[str, float | int]]:
        """Returns the result of `learn` for the sum of reports."""
        recipe = self.recipe(state)
        if recipe is None:
            raise ValueError("update was called with a state that asks nothing")
        state, metrics = self.learn(state, recipe, self._estimates(recipe, released))
        asked = state.recipes
        if self.plan.sampler.sampling is not plan_lib.Sampling.DISJOINT:
            asked = (*asked, recipe.to_json())
        state = dataclasses.replace(state, recipes=asked, queries=state.queries + 1)
        return state, {
            "cells": recipe.content.num_cells,
            "reports": released.reports,
            "minimum_cohort": recipe.minimum_cohort,
            "local_epsilon": recipe.local_epsilon,
            "aggregate_epsilon": recipe.aggregate_epsilon,
            **metrics,
        }

    def progress(self, row: Mapping[str, float | int]) -> str:
        """Returns the log line of a query."""
        others = {
            name: value for name, value in row.items() if name not in _QUERY_METRICS
        }
        return (
            f"{row['cells']:,} cells, {row['reports']:,} reports (at least "
            f"{row['minimum_cohort']:,} needed), local epsilon "
            f"{row['local_epsilon']:.4g}, aggregate epsilon "
            f"{row['aggregate_epsilon']:.4g}; {super().progress(others)}"
        )

    def least_estimate(
        self, recipe: recipe_lib.Recipe, reports: int, chance: float
    ) -> float:
        """Returns the estimate above which a cell stands out of the noise.

        Args:
            recipe: The query's.
            reports: Number of reports.
            chance: With which a cell that nobody has may be above it: the ones of such
                a cell are binomial, whose tail is not that of a normal law.
        """
        randomizer = device.randomizer_of(self.approval.policy, recipe)
        ones = stats.binom.isf(chance, reports, float(randomizer.other_probability))
        return float(randomizer.estimate(np.array([int(ones)]), reports)[0])

    def worker(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the context that the devices need."""
        return self.devices.worker()

    def _estimates(self, recipe, released) -> Estimates | None:
        if released.counts is None:
            return None
        randomizer = device.randomizer_of(self.approval.policy, recipe)
        counts = randomizer.estimate(released.counts, released.reports)
        variances = randomizer.variance(
            counts.clip(0, released.reports), released.reports
        )
        return Estimates(counts, np.sqrt(variances), released.reports)
