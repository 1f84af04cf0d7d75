"""How long the median device's most frequent word is, by questions that adapt.

Each round asks other devices whether their word has more characters than a number, and
halves the interval of what the median can be; no device is ever asked twice.

scripts/run rounds.run_algorithm --algorithm=examples.median_length:MedianLength
"""

import dataclasses

import numpy as np
import pandas as pd

from federated_hh.randomizers import k_ary
from privacy import local_reports_plan, plan
from rounds import algorithm, samplers
from simulation import population
from simulation.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What the median is asked for."""

    epsilon: float = option(1.0, "Local epsilon of an answer.", above=0, most=20)
    clients: int = option(2000, "Devices of a round.", least=1, most=2**31 - 1)
    longest: int = option(31, "No word is counted as longer.", least=2, most=1000)


@dataclasses.dataclass(frozen=True)
class State:
    """The median is above `low` and at most `high`."""

    low: int
    high: int


class MedianLength(algorithm.Algorithm[State, np.ndarray]):
    """A binary search by randomized response."""

    Options, contents = Options, "words"

    def __init__(self, options, population_options, cache, seed):
        """Makes it; `MedianLength.of` does for `run_algorithm`."""
        clients = population.prepare(population_options, cache)
        self.fingerprint, self.longest = clients.fingerprint, options.longest
        self.max_rounds = options.longest.bit_length()
        lengths = np.array([len(word) for word in clients.words.to_pylist()] + [0])
        has_word = np.diff(clients.row_splits) > 0
        first = np.minimum(clients.row_splits[:-1], len(clients.word_ids) - 1)
        self.lengths = lengths[np.where(has_word, clients.word_ids[first], -1)]
        self.randomizer = k_ary.KAryRandomizedResponse(options.epsilon, 2)
        self.plan = plan.Plan(
            sampler=samplers.DisjointCohorts(clients.num_clients, options.clients),
            contribution=local_reports_plan.one_report(
                k_ary.KAryRandomizedResponse,
                options.epsilon,
                replacement_epsilon=options.epsilon,
                num_items=1,
                num_rounds=options.longest.bit_length(),
                algorithm="A binary search for a median",
            ),
            mechanism=plan.NoNoise(),
        )

    of = classmethod(lambda cls, *made_of: cls(*made_of))

    def describe(self):
        return {"population": self.fingerprint, "longest": self.longest}

    def initialize(self, repeat):
        return State(0, self.longest)

    def next_query(self, state):
        if state.high - state.low <= 1:
            return None
        middle = (state.low + state.high) // 2
        facts = {"candidates": 1, "reports": self.plan.sampler.cohort_size}
        facts["more_than"] = middle
        return algorithm.Query(
            lambda cohort, stream: np.array([np.sum(self.lengths[cohort] > middle)]),
            facts,
        )

    def update(self, state, released):
        middle, asked = (state.low + state.high) // 2, self.plan.sampler.cohort_size
        share = float(self.randomizer.estimate(released, asked)[0]) / asked
        low, high = (middle, state.high) if share > 0.5 else (state.low, middle)
        return State(low, high), {"more_than": middle, "share": share}

    def results(self, state):
        return {"median": pd.DataFrame({"characters": [state.high]})}
