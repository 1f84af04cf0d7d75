"""The devices and the analysis of a run of interactive statistics, from its options."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pandas as pd

from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.columns import client_text
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.local import device_policy
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.rounds import samplers
from federated_hh.statistics import options as statistics_options
from federated_hh.statistics.analyses import (
    analysis,
    custom_recipes,
    distribution,
    joint,
    ngrams,
)
from federated_hh.statistics.devices import aggregation, device, fleet, vector_fleet
from federated_hh.statistics.recipes import events, verification
from federated_hh.statistics.recipes import recipe as recipe_lib
from federated_hh.statistics.two_servers import aggregator as two_servers

_IDENTIFIERS = {
    "ngrams": "org.example.insights.keyboard-ngrams",
    "joint": "org.example.insights.keyboard-ngrams-age",
    "distribution": "org.example.insights.keyboard-seconds",
}
# As in the paper's figure 4.
_COHORTS = ("locale",)
# Of a query of the interactive distribution.
_MOST_BUCKETS = 1000


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The parts of a run before its first query.

    Attributes:
        algorithm: The analysis.
        stored: Contents of the devices.
    """

    algorithm: analysis.Analysis[Any]
    stored: events.NGramEvents

    def check_device(self, number: int) -> None:
        """Raises `ValueError` where there is no such device."""
        if number >= self.stored.num_devices:
            raise ValueError(
                f"--show_device_log is {number}; it has to be below the "
                f"{self.stored.num_devices:,} devices"
            )

    def complaints(self, state: Any) -> list[tuple[int, str]]:
        """Returns the custom recipes without an answer, and the told reasons."""
        if isinstance(self.algorithm, custom_recipes.CustomRecipes):
            return self.algorithm.complaints(state)
        return []

    def device_log(self, number: int) -> pd.DataFrame:
        """Returns a device's log for its owner, a row a query."""
        devices = self.algorithm.devices
        if not isinstance(devices, fleet.DeviceFleet):
            raise ValueError("vectorised devices keep no log")
        return devices.devices.log.of(number)


def approval_of(options: statistics_options.StatisticsOptions) -> device.Approval:
    """Returns the approval that ships with every device."""
    limits = device_policy.Limits(
        aggregate_epsilon=options.epsilon,
        reports=1 if options.cohorts == "disjoint" else options.num_queries,
        local_epsilon=options.local_epsilon,
    )
    fields = {"seconds" if options.analysis == "distribution" else "ngrams": limits}
    if options.analysis == "joint":
        # More sensitive: only the last query may read it.
        fields["age"] = dataclasses.replace(limits, reports=1)
    composition = device_policy.Composition(options.composition)
    is_basic = composition is device_policy.Composition.BASIC
    order = None
    if composition is device_policy.Composition.RENYI:
        order = device_policy.renyi_order(options.epsilon, options.delta)
    return device.Approval(
        device_policy.Policy(
            analysis=_IDENTIFIERS[options.analysis],
            limits=limits,
            fields=fields,
            randomizer=shuffling.Randomizer(f"{options.randomizer}_one_hot"),
            delta=options.delta,
            composition=composition,
            slack=None if is_basic else options.delta,
            cohorts=_COHORTS,
            order=order,
        ),
        verification.QueryClass(events.STREAM, frozenset(fields)),
    )


def prepare(
    options: statistics_options.StatisticsOptions,
    text: client_text.ClientText,
    vocabulary: vocabulary_lib.Vocabulary,
    seed: int,
    recipes: Sequence[recipe_lib.Recipe] = (),
) -> Prepared:
    """Prepares a run.

    Args:
        options: The options of the analysis.
        text: Text that the devices' owners typed.
        vocabulary: Vocabulary of the text: the known words.
        seed: Seed of the events' synthetic parts.
        recipes: Custom recipes, if any.

    Raises:
        ValueError: If there are too few devices, or vectorised ones cannot answer a
            recipe.
    """
    stored = events.NGramEvents.of(text, vocabulary, options.ngram_words, seed)
    return Prepared(algorithm_of(options, stored, text.fingerprint, recipes), stored)


def algorithm_of(
    options: statistics_options.StatisticsOptions,
    stored: events.NGramEvents,
    fingerprint: str,
    recipes: Sequence[recipe_lib.Recipe] = (),
) -> analysis.Analysis[Any]:
    """Returns the analysis of devices that store some events.

    Args:
        options: The options of the analysis.
        stored: The events; the known words are those of their vocabulary.
        fingerprint: Fingerprint of the typed text.
        recipes: Custom recipes, if any.

    Raises:
        ValueError: See `prepare`.
    """
    approval = approval_of(options)
    devices: fleet.Fleet
    if options.devices == "real":
        aggregator: aggregation.Aggregator = aggregation.SecureSum()
        if options.aggregation == two_servers.TwoServers.name:
            aggregator = two_servers.TwoServers(drop_out=options.drop_out)
        devices = fleet.DeviceFleet(approval, stored, aggregator)
    else:
        devices = vector_fleet.VectorFleet(approval, stored)
    for recipe in recipes:
        if options.devices != "real" and device.told(approval, recipe) is None:
            vector_fleet.check_plain(recipe.query)
    num, queries = stored.num_devices, len(recipes) or options.num_queries
    sampler: plan_lib.Sampler
    if options.cohorts == "disjoint":
        if num < queries:
            raise ValueError(f"{num:,} devices cannot be cut into {queries} cohorts")
        sampler = samplers.DisjointCohorts(num, num // queries)
    else:
        sampler = samplers.UniformCohorts(num, num)
    common = (devices, approval, sampler)
    named: dict[str, Any] = {
        "aggregation": options.aggregation,
        "fingerprint": fingerprint,
        "drop_out": options.drop_out,
    }
    if recipes:
        return custom_recipes.CustomRecipes(*common, recipes=recipes, **named)
    epsilon = analysis.query_epsilon(
        approval.policy,
        1 if options.cohorts == "disjoint" else queries,
        analysis.reports_expected(sampler.cohort_size, options.drop_out),
    )
    if options.analysis == "distribution":
        return distribution.Distribution(
            *common,
            buckets=buckets_of(options),
            max_queries=queries,
            epsilon=epsilon,
            **named,
        )
    kind = joint.Joint if options.analysis == "joint" else ngrams.NGrams
    return kind(
        *common,
        tokens=stored.words,
        length=options.ngram_words,
        is_interactive=options.strategy == "interactive",
        max_prefixes=options.max_prefixes,
        false_positives=options.false_positives,
        epsilon=epsilon,
        **named,
    )


def buckets_of(options: statistics_options.StatisticsOptions) -> distribution.Buckets:
    """Returns the buckets of a distribution."""
    is_static = options.strategy == "static"
    return distribution.Buckets(
        largest=options.max_seconds,
        first=options.grid_buckets if is_static else options.first_buckets,
        parts=options.split_parts,
        split_stderrs=options.split_stderrs,
        most=_MOST_BUCKETS,
    )


def summary(
    algorithm: analysis.Analysis[Any], options: statistics_options.StatisticsOptions
) -> str:
    """Returns a run's plan, in a sentence."""
    first = algorithm.recipe(algorithm.initialize(0))
    if first is None:
        return "Nothing is asked."
    sampler = algorithm.plan.sampler
    return (
        f"{sampler.num_clients:,} devices, {sampler.cohort_size:,} asked a query; "
        f"at most {algorithm.max_rounds} queries with an aggregate epsilon of "
        f"{first.aggregate_epsilon:g} (delta {options.delta:g}), each of at least "
        f"{first.minimum_cohort:,} reports with a local epsilon of "
        f"{first.local_epsilon:.4g}. The first is about {first.content.num_cells:,} "
        "cells."
    )
