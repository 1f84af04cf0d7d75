"""The devices and the analysis of a run of interactive statistics, from its options."""

import dataclasses

import pandas as pd

from federated_hh import statistics_options
from federated_hh.interactive import (
    aggregation,
    analysis,
    device,
    events,
    fleet,
    ngrams,
    vector_fleet,
    verification,
)
from federated_hh.interactive.two_servers import aggregator as two_servers
from privacy import device_policy, shuffling
from privacy import plan as plan_lib
from rounds import samplers
from simulation import client_text
from simulation import vocabulary as vocabulary_lib

_ANALYSIS = "org.example.insights.keyboard-ngrams"


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What a run has before its first query.

    Attributes:
        algorithm: The analysis.
        stored: What the devices store.
    """

    algorithm: ngrams.NGrams
    stored: events.NGramEvents

    def check_device(self, number: int) -> None:
        """Raises `ValueError` where there is no such device."""
        if number >= self.stored.num_devices:
            raise ValueError(
                f"--show_device_log is {number}; it has to be below the "
                f"{self.stored.num_devices:,} devices"
            )

    def device_log(self, number: int) -> pd.DataFrame:
        """Returns what a device shows its owner, a row a query."""
        devices = self.algorithm.devices
        if not isinstance(devices, fleet.DeviceFleet):
            raise ValueError("vectorised devices keep no log")
        return devices.devices.log.of(number)


def approval_of(options: statistics_options.StatisticsOptions) -> device.Approval:
    """Returns what ships with every device."""
    limits = device_policy.Limits(
        aggregate_epsilon=options.epsilon,
        reports=1 if options.cohorts == "disjoint" else options.num_queries,
        local_epsilon=options.local_epsilon,
    )
    composition = device_policy.Composition(options.composition)
    is_basic = composition is device_policy.Composition.BASIC
    order = None
    if composition is device_policy.Composition.RENYI:
        order = device_policy.renyi_order(options.epsilon, options.delta)
    return device.Approval(
        device_policy.Policy(
            analysis=_ANALYSIS,
            limits=limits,
            fields={"ngrams": limits},
            randomizer=shuffling.Randomizer(f"{options.randomizer}_one_hot"),
            delta=options.delta,
            composition=composition,
            slack=None if is_basic else options.delta,
            order=order,
        ),
        verification.QueryClass(events.STREAM, frozenset(["ngrams"])),
    )


def prepare(
    options: statistics_options.StatisticsOptions,
    text: client_text.ClientText,
    vocabulary: vocabulary_lib.Vocabulary,
    seed: int,
) -> Prepared:
    """Prepares a run.

    Args:
        options: Of the analysis.
        text: What the devices' owners typed.
        vocabulary: That the text is in: the known words.
        seed: Of the synthetic ages.

    Raises:
        ValueError: If there are too few devices.
    """
    stored = events.NGramEvents.of(text, vocabulary, options.ngram_words, seed)
    approval = approval_of(options)
    devices: fleet.Fleet
    if options.devices == "real":
        aggregator: aggregation.Aggregator = aggregation.SecureSum()
        if options.aggregation == two_servers.TwoServers.name:
            aggregator = two_servers.TwoServers(drop_out=options.drop_out)
        devices = fleet.DeviceFleet(approval, stored, aggregator)
    else:
        devices = vector_fleet.VectorFleet(approval, stored)
    num, queries = stored.num_devices, options.num_queries
    sampler: plan_lib.Sampler
    if options.cohorts == "disjoint":
        if num < queries:
            raise ValueError(f"{num:,} devices cannot be cut into {queries} cohorts")
        sampler = samplers.DisjointCohorts(num, num // queries)
    else:
        sampler = samplers.UniformCohorts(num, num)
    algorithm = ngrams.NGrams(
        devices,
        approval,
        sampler,
        tokens=vocabulary.words,
        length=options.ngram_words,
        is_interactive=options.strategy == "interactive",
        max_prefixes=options.max_prefixes,
        false_positives=options.false_positives,
        epsilon=analysis.query_epsilon(
            approval.policy,
            1 if options.cohorts == "disjoint" else queries,
            analysis.reports_expected(sampler.cohort_size, options.drop_out),
        ),
        aggregation=options.aggregation,
        fingerprint=text.fingerprint,
        drop_out=options.drop_out,
    )
    return Prepared(algorithm, stored)


def summary(
    algorithm: ngrams.NGrams, options: statistics_options.StatisticsOptions
) -> str:
    """Returns what a run is about to do, in a sentence."""
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
