"""How many devices type each word of a known list: one round of local reports.

scripts/run rounds.run_algorithm --algorithm=examples.histogram:Histogram \
    --words=the,of,and --epsilon=2
"""

import dataclasses

import numpy as np
import pandas as pd
import tensorflow as tf

from federated_hh import selection
from federated_hh.randomizers import by_name
from privacy import local_reports_plan, plan
from rounds import algorithm, block_round, samplers
from simulation import population
from simulation.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What the histogram is asked for."""

    words: str = option("the,of,and,to,you", "The known words, with commas between.")
    epsilon: float = option(2.0, "Local epsilon of a report.", above=0, most=20)
    clients: int = option(1000, "Devices that are asked.", least=1, most=2**31 - 1)
    randomizer: str = option("k_ary", "A local randomizer, by name or module:Class.")


@dataclasses.dataclass(frozen=True)
class State:
    """Reports that speak for each word: int64 [words]; None before the round."""

    reports: np.ndarray | None = None


class Histogram(algorithm.Algorithm[State, np.ndarray]):
    """Every device reports its most frequent word, or that it is none of the list."""

    Options, contents, max_rounds = Options, "words", 1

    def __init__(self, options, population_options, cache, seed):
        """Makes it; `Histogram.of` does for `run_algorithm`."""
        self.clients = population.prepare(population_options, cache)
        self.known = list(dict.fromkeys(options.words.split(",")))
        make = by_name.randomizer(options.randomizer)
        self.randomizer = make(options.epsilon, len(self.known) + 1)
        self.plan = plan.Plan(
            sampler=samplers.DisjointCohorts(self.clients.num_clients, options.clients),
            contribution=local_reports_plan.one_report(
                make,
                options.epsilon,
                replacement_epsilon=self.randomizer.guarantee.replacement_epsilon,
                num_items=len(self.known),
                num_rounds=1,
                population_has_empty_users=population_options.empty_clients == "keep",
                algorithm="A histogram of known words",
            ),
            mechanism=plan.NoNoise(),
        )
        self.votes = block_round.BlockRound(self.work, {"votes": 1}, block_size=25_000)

    of = classmethod(lambda cls, *made_of: cls(*made_of))

    def describe(self):
        return {"population": self.clients.fingerprint, "words": self.known}

    def work(self, message, block):
        mapped = selection.MappedPopulation(self.clients)
        most = selection.WordSelection.MOST_FREQUENT
        words = mapped.select(most, block["clients"], None)
        places = tf.gather(message["place_of_word"], tf.maximum(words, 0))
        places = tf.where(words >= 0, places, -1)  # below 0: of no known word
        ones = tf.ones_like(places, tf.int64)
        return {"votes": tf.math.unsorted_segment_sum(ones, places, len(self.known))}

    def initialize(self, repeat):
        return State()

    def next_query(self, state):
        known = {word: place for place, word in enumerate(self.known)}
        places = [known.get(word, -1) for word in self.clients.words.to_pylist()]
        message = {"place_of_word": np.array(places, np.int32)}
        facts = {"candidates": len(known), "reports": self.plan.sampler.cohort_size}
        if state.reports is not None:
            return None
        return algorithm.Query(
            lambda cohort, stream: self.votes(message, cohort, stream)["votes"], facts
        )

    def update(self, state, released):
        return State(released), {}

    def results(self, state):
        asked = self.plan.sampler.cohort_size
        estimates = self.randomizer.estimate(state.reports, asked)
        return {"words": pd.DataFrame({"word": self.known, "clients": estimates})}
