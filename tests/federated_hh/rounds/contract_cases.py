"""The algorithms that the engine's contract is tested with.

A case makes an algorithm over data "a" or "b", with a plan "a" or "b"; the algorithm
ends after a few rounds, of which no two ask the same, or after one.
"""

import atexit
import contextlib
import dataclasses
import functools
import os
import shutil
import tempfile
from collections.abc import Callable

import numpy as np
import pandas as pd
import tensorflow as tf

from examples import median_length
from federated_hh.heavy_hitters import alphabet, selection
from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh import parameters as ldp_triehh_parameters
from federated_hh.heavy_hitters.opt_prefix_tree import algorithm as opt_prefix_tree
from federated_hh.heavy_hitters.opt_prefix_tree import (
    options as opt_prefix_tree_options,
)
from federated_hh.heavy_hitters.set_union import algorithm as set_union
from federated_hh.heavy_hitters.sfp import algorithm as sfp
from federated_hh.heavy_hitters.sfp import options as sfp_options
from federated_hh.heavy_hitters.triehh import algorithm as triehh
from federated_hh.populations.columns import client_text, client_words
from federated_hh.populations.options import population_options
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.dp_ftrl import (
    blt,
    correlated_noise,
    model_updates,
    rotated_updates,
    update_noise,
)
from federated_hh.privacy.dp_ftrl import plan as training_plan
from federated_hh.privacy.local import device_policy
from federated_hh.privacy.sets import adaptive_gaussian, weighted_gaussian
from federated_hh.privacy.sets import plan as sets_plan
from federated_hh.privacy.triehh import guarantees as triehh_privacy
from federated_hh.privacy.triehh import plan as triehh_plan
from federated_hh.randomness import identities
from federated_hh.rounds import algorithm, run, samplers, timers
from federated_hh.statistics.analyses import distribution, ngrams
from federated_hh.statistics.devices import fleet, vector_fleet
from federated_hh.statistics.two_servers import aggregator
from tests.federated_hh.statistics import cases as statistics_cases
from tests.federated_hh.statistics.two_servers import cases as server_cases
from tests.training import training_test_case
from training.federated import (
    client_update,
    dp_ftrl,
    model_average,
    rotated_sums,
    server_optimizers,
)
from training.text import examples


@dataclasses.dataclass(frozen=True)
class Case:
    """An algorithm to test.

    Attributes:
        make: Makes it: of a folder for its data, which data, and which plan.
        observers: Its observers.
        repeats: Number of repeats.
        save_every: Rounds between checkpoints.
        delta: One at which there is a guarantee.
    """

    make: Callable[[str, str, str], algorithm.Algorithm]
    observers: tuple[run.Observer, ...] = ()
    repeats: int = 2
    save_every: int = 1
    delta: float = 1e-3


@dataclasses.dataclass(frozen=True)
class TallyState:
    """Votes so far: int64 [3], and rounds."""

    votes: np.ndarray
    rounds: int


@identities.identity("tests.rounds.contract_cases.Tally")
class Tally(algorithm.Algorithm[TallyState, np.ndarray]):
    """Counts random votes of each cohort; NumPy alone, so that runs are quick."""

    max_rounds = 5

    def __init__(self, data: str, plan: str):
        self.plan = plan_lib.Plan(
            sampler=samplers.UniformCohorts(40, 20),
            contribution=triehh_plan.OneVote(redraws_each_round=True),
            mechanism=triehh_plan.Threshold({"a": 5, "b": 6}[plan], 5),
        )
        self.data = data

    def describe(self):
        return {"data": self.data}

    def initialize(self, repeat):
        return TallyState(np.zeros(3, np.int64), 0)

    def next_query(self, state):
        if state.rounds == self.max_rounds:
            return None
        return algorithm.Query(self.ask, {"candidates": 3})

    def ask(self, cohort, stream):
        votes = stream.generator("votes").integers(0, 3, len(cohort))
        return np.bincount(votes, minlength=3)

    def update(self, state, released):
        votes = state.votes.copy()
        votes[released.candidates] += released.votes
        return TallyState(votes, state.rounds + 1), {"kept": len(released.candidates)}

    def results(self, state):
        return {"votes": pd.DataFrame({"candidate": [0, 1, 2], "votes": state.votes})}

    def worker(self):
        return contextlib.nullcontext()


@dataclasses.dataclass(frozen=True)
class SumsState:
    """The releases so far: float32 [size]; rounds; and the clip norm in force."""

    total: np.ndarray
    rounds: int
    clip_norm: float


@identities.identity("tests.rounds.contract_cases.Sums")
class Sums(algorithm.Algorithm[SumsState, model_updates.UpdateSum]):
    """Sums random updates, with correlated noise in two blocks; NumPy alone."""

    max_rounds = 5
    size = 4

    def __init__(self, data: str, plan: str):
        self.plan = training_plan.plan_of(
            timers.Timers(
                num_clients=12,
                cohort_size=4,
                num_rounds=self.max_rounds,
                timer_hours=0,
            ),
            self.mechanism({"a": 0.5, "b": 0.6}[plan]),
        )
        self.data = data

    def mechanism(self, noise_multiplier):
        return correlated_noise.BltNoise(
            num_rounds=5,
            clip_norm=0.5,
            noise_multiplier=noise_multiplier,
            adaptive_clip=update_noise.AdaptiveClip(count_stddev=2.0),
            restart_rounds=(2,),
            matrix=blt.Blt((0.05, 0.4), (0.1, 0.3)),
        )

    def describe(self):
        return {"data": self.data}

    def initialize(self, repeat):
        zeros = np.zeros(self.size, np.float32)
        return SumsState(zeros, 0, self.plan.mechanism.clip_norm)

    def next_query(self, state):
        if state.rounds == self.max_rounds:
            return None
        return algorithm.Query(self.ask, {"clip_norm": state.clip_norm})

    def ask(self, cohort, stream):
        of_round = stream.generator("updates")
        total = of_round.integers(-(2**32), 2**32, self.size)
        return model_updates.UpdateSum({"w": total}, len(cohort), 1, 0)

    def update(self, state, released):
        total = state.total + released.total["w"]
        return SumsState(total, state.rounds + 1, released.clip_norm), {}

    def results(self, state):
        return {"total": pd.DataFrame({"total": state.total[:4]})}

    def worker(self):
        return contextlib.nullcontext()


@identities.identity("tests.rounds.contract_cases.LongSums")
class LongSums(Sums):
    """Sums random updates of 131,072 numbers, whose tree of noise waits on disk."""

    max_rounds = 6
    size = 1 << 17

    def mechanism(self, noise_multiplier):
        return update_noise.TreeNoise(
            num_rounds=6, clip_norm=0.5, noise_multiplier=noise_multiplier
        )


@identities.identity("tests.rounds.contract_cases.Rotated")
class Rotated(Sums):
    """Sums random updates by Algorithm 2, in this process; with a tree's noise."""

    def __init__(self, data: str, plan: str):
        super().__init__(data, plan)
        self.plan = training_plan.plan_of(
            self.plan.sampler,
            update_noise.TreeNoise(num_rounds=5, clip_norm=0.5, noise_multiplier=0.5),
            rotated_updates.RotatedUpdate(
                clip_norm=0.5,
                scale={"a": 9.0, "b": 9.5}[plan],
                num_values=4,
                num_clients=4,
            ),
        )

    def ask(self, cohort, stream):
        encoding = rotated_sums.RotatedSums(self.plan.contribution)
        message = encoding.message(stream)
        told = encoding.told({n: tf.constant(part) for n, part in message.items()})
        total = encoding.begin([])
        for place in range(len(cohort)):
            delta = tf.constant(stream.generator("update", place).normal(size=4))
            of_client = {**told, "place": tf.constant(place, tf.int64)}
            total = encoding.add(total, [delta], tf.norm(delta), of_client)
        sent = encoding.sent(total, tf.constant(len(cohort)))
        sums = {"num_below": 1, "num_non_finite": 0, **sent}
        return encoding.update_sum(sums, {"w": (4,)}, 4, 4, message)


def _triehh(folder: str, data: str, plan: str) -> triehh.TrieHH:
    words = ["ab"] * 30 + ["abc" if data == "a" else "bca"] * 20 + ["c"] * 10
    population = client_words.ClientWords.from_rows(
        os.path.join(folder, "words"),
        [(str(i), [(word, 1), ("ba", 2)]) for i, word in enumerate(words)],
    )
    threshold = {"a": 5, "b": 6}[plan]
    parameters = triehh_privacy.TrieHHParameters(60, 30, threshold, 4)
    by_frequency = selection.WordSelection.BY_FREQUENCY
    plan = triehh.plan_of(parameters, by_frequency)
    return triehh.TrieHH(population, plan, alphabet.Alphabet("abc"))


def _ldp_triehh(folder: str, data: str, plan: str) -> ldp_triehh.LdpTrieHH:
    words = ["ab"] * 30 + ["ac" if data == "a" else "bc"] * 20 + ["c"] * 10
    population = client_words.ClientWords.from_rows(
        os.path.join(folder, "words"),
        [(str(i), [(word, 1), ("ba", 2)]) for i, word in enumerate(words)],
    )
    parameters = ldp_triehh_parameters.LdpTrieHHParameters(
        cohort_size=15,
        max_depth=2,
        max_prefixes=4,
        contribution_bound=2,
        epsilon={"a": 3.0, "b": 4.0}[plan],
        num_passes=2,
    )
    return ldp_triehh.LdpTrieHH(population, parameters, alphabet.Alphabet("abc"))


def _sfp(folder: str, data: str, plan: str) -> sfp.SequenceFragmentPuzzle:
    words = ["ab"] * 30 + ["ac" if data == "a" else "bc"] * 20 + ["c"] * 10
    population = client_words.ClientWords.from_rows(
        os.path.join(folder, "words"),
        [(str(i), [(word, 2), ("ba", 1)]) for i, word in enumerate(words)],
    )
    options = sfp_options.SfpOptions(
        epsilon={"a": 5.0, "b": 6.0}[plan],
        threshold=3,
        max_length=4,
        num_word_hashes=4,
        num_hashes=8,
        num_cells=16,
        cohort_size=50,
    )
    return sfp.SequenceFragmentPuzzle(population, options, alphabet.Alphabet("abc"))


def _opt_prefix_tree(
    folder: str, data: str, plan: str
) -> opt_prefix_tree.OptPrefixTree:
    words = ["ab"] * 30 + ["ac" if data == "a" else "bc"] * 20 + ["cca"] * 10
    population = client_words.ClientWords.from_rows(
        os.path.join(folder, "words"),
        [(str(i), [(word, 2), ("ba", 1)]) for i, word in enumerate(words)],
    )
    options = opt_prefix_tree_options.OptPrefixTreeOptions(
        epsilon={"a": 5.0, "b": 6.0}[plan],
        max_depth=3,
        max_candidates=20,
        num_rounds=2,
        num_passes=2,
    )
    return opt_prefix_tree.OptPrefixTree(population, options, alphabet.Alphabet("abc"))


def _set_union(
    folder: str,
    data: str,
    plan: str,
    kind: type[weighted_gaussian.WeightedGaussian] = weighted_gaussian.WeightedGaussian,
) -> set_union.SetUnion:
    words = ["ab"] * 40 + ["ac" if data == "a" else "bc"] * 20 + ["c"] * 9
    population = client_words.ClientWords.from_rows(
        os.path.join(folder, "words"),
        [(str(i), [(word, 1), ("ba", 2), ("каша", 1)]) for i, word in enumerate(words)],
    )
    passes = weighted_gaussian.solve(
        {"a": 3.0, "b": 4.0}[plan],
        1e-3,
        contribution_bound=2,
        shares=[1, 3],
        kind=kind,
    )
    sampler = samplers.Everybody(population.num_clients)
    return set_union.SetUnion(population, sets_plan.plan_of(sampler, passes))


def _training(folder: str, data: str, plan: str) -> dp_ftrl.DpFtrl:
    clients = training_test_case.random_clients(9, seed={"a": 1, "b": 2}[data])
    text = client_text.ClientText.from_rows(
        os.path.join(folder, "text"),
        [(str(i), sentences) for i, sentences in enumerate(clients)],
    )
    model = training_test_case.bigram_model()
    rounds = client_update.FederatedRounds(
        model,
        examples.MappedText(text, examples.ClientLimits(5, 4, 2)),
        client_update.LocalTraining(0.5),
        num_blocks=2,
    )
    # A tree of two rounds, and one of two whose clip norm is another.
    mechanism = update_noise.TreeNoise(
        num_rounds=4,
        clip_norm=0.5,
        noise_multiplier={"a": 0.5, "b": 0.6}[plan],
        adaptive_clip=update_noise.AdaptiveClip(count_stddev=2.0),
        restart_rounds=(1,),
    )
    sampler = timers.Timers(num_clients=9, cohort_size=3, num_rounds=4, timer_hours=1)
    training = training_plan.plan_of(sampler, mechanism)
    return dp_ftrl.DpFtrl(
        rounds,
        training,
        model.initial_weights(1),
        # It remembers most: two moments, and the steps that were taken.
        optimizer=server_optimizers.Adam(0.1),
        average=model_average.ModelAverage(0.8),
    )


def _median_length(folder: str, data: str, plan: str) -> median_length.MedianLength:
    del folder
    return median_length.MedianLength.of(
        median_length.Options(epsilon={"a": 1.0, "b": 2.0}[plan], cohort_size=20),
        population_options.PopulationOptions(
            num_clients=200, seed={"a": 1, "b": 2}[data]
        ),
        _prepared(),
        1,
    )


@functools.cache
def _prepared() -> str:
    """Returns a directory for populations that take seconds to prepare."""
    folder = tempfile.mkdtemp(prefix="contract_cases_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _statistics(data: str, plan: str, aggregation: str) -> ngrams.NGrams:
    # Everybody is asked every query, so that devices have budgets to remember.
    limits = device_policy.Limits(
        aggregate_epsilon=6.0, reports=2, local_epsilon={"a": 3.0, "b": 2.0}[plan]
    )
    approval = statistics_cases.approval(
        limits=limits, fields={"ngrams": limits}, delta=1e-3
    )
    stored = statistics_cases.stored(200, seed={"a": 1, "b": 2}[data])
    drop_out = 0.0
    devices: fleet.Fleet = vector_fleet.VectorFleet(approval, stored)
    if aggregation == aggregator.TwoServers.name:
        drop_out = 0.1
        servers = aggregator.TwoServers(server_cases.LocalPair(), drop_out=drop_out)
        devices = fleet.DeviceFleet(approval, stored, servers)
    return ngrams.NGrams(
        devices,
        approval,
        samplers.UniformCohorts(200, 200),
        tokens=stored.words,
        length=3,
        is_interactive=True,
        max_prefixes=3,
        false_positives=50.0,
        epsilon=3.0,
        aggregation=aggregation,
        fingerprint=data,
        drop_out=drop_out,
    )


def _distribution(folder: str, data: str, plan: str) -> distribution.Distribution:
    # No device is asked twice.
    del folder
    limits = device_policy.Limits(
        aggregate_epsilon=6.0, reports=1, local_epsilon={"a": 3.0, "b": 2.0}[plan]
    )
    approval = statistics_cases.approval(
        limits=limits, fields={"seconds": limits}, delta=1e-3
    )
    stored = statistics_cases.stored(200, seed={"a": 1, "b": 2}[data])
    return distribution.Distribution(
        vector_fleet.VectorFleet(approval, stored),
        approval,
        samplers.DisjointCohorts(200, 50),
        buckets=distribution.Buckets(
            largest=4.0, first=4, parts=2, split_stderrs=0.1, most=20
        ),
        max_queries=4,
        epsilon=6.0,
        aggregation="secure_sum",
        fingerprint=data,
    )


CASES = {
    "tally": Case(lambda folder, data, plan: Tally(data, plan), delta=0.9),
    "tally_saved_seldom": Case(
        lambda folder, data, plan: Tally(data, plan), save_every=3, delta=0.9
    ),
    "triehh": Case(_triehh, (triehh.vote_metrics,), delta=0.9),
    "ldp_triehh": Case(_ldp_triehh),
    "median_length": Case(_median_length),
    "opt_prefix_tree": Case(_opt_prefix_tree),
    "sfp": Case(_sfp, repeats=4),
    "set_union": Case(_set_union, (set_union.sent_metrics,)),
    "set_union_adaptive": Case(
        functools.partial(_set_union, kind=adaptive_gaussian.AdaptiveGaussian),
        (set_union.sent_metrics,),
    ),
    # The third query is refused by all.
    "statistics": Case(
        lambda folder, data, plan: _statistics(data, plan, "secure_sum"), save_every=2
    ),
    "statistics_two_servers": Case(
        lambda folder, data, plan: _statistics(data, plan, "two_servers"), save_every=2
    ),
    "distribution": Case(_distribution),
    "sums": Case(lambda folder, data, plan: Sums(data, plan), save_every=3),
    "long_sums": Case(lambda folder, data, plan: LongSums(data, plan), save_every=2),
    "rotated": Case(
        lambda folder, data, plan: Rotated(data, plan),
        (dp_ftrl.update_metrics,),
        save_every=3,
    ),
    "training": Case(_training, (dp_ftrl.update_metrics,)),
}
