"""Length of the median client's most frequent word, by questions that adapt.

Each round asks other devices whether their word has more characters than a number, and
halves the interval of what the median can be; no device is ever asked twice.

scripts/run algorithm --algorithm=examples.median_length:MedianLength
"""

import dataclasses

import pandas as pd

from federated_hh.heavy_hitters import word_questions
from federated_hh.options.fields import option
from federated_hh.randomizers import k_ary


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the median."""

    epsilon: float = option(1.0, "Local epsilon of an answer.", above=0, most=20)
    cohort_size: int = option(2000, "Devices of a round.", least=1, most=2**31 - 1)
    longest: int = option(31, "No word is counted as longer.", least=2, most=1000)


@dataclasses.dataclass(frozen=True)
class State:
    """The median is above `low` and at most `high`."""

    low: int
    high: int

    @property
    def middle(self) -> int:
        return (self.low + self.high) // 2


class MedianLength(word_questions.WordQuestions[State]):
    """A binary search by randomized response."""

    Options = Options

    def __init__(self, options, clients):
        self.longest = options.longest
        super().__init__(
            clients,
            k_ary.KAryRandomizedResponse,
            options.epsilon,
            cohort_size=options.cohort_size,
            num_items=1,
            num_rounds=options.longest.bit_length(),
        )

    def describe(self):
        return super().describe() | {"longest": self.longest}

    def initialize(self, repeat):
        return State(0, self.longest)

    def items(self, state, words):
        if state.high - state.low <= 1:
            return None
        return [0 if len(word) > state.middle else -1 for word in words]

    def learn(self, state, estimates):
        share = float(estimates[0]) / self.plan.sampler.cohort_size
        upper, lower = State(state.middle, state.high), State(state.low, state.middle)
        metrics = {"more_than": state.middle, "share": share}
        return (upper if share > 0.5 else lower), metrics

    def results(self, state):
        return {"median": pd.DataFrame({"characters": [state.high]})}
