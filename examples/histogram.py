"""Histogram of a known list of words: one round of local reports.

scripts/run algorithm --algorithm=examples.histogram:Histogram \
    --words=the,of,and --epsilon=2
"""

import dataclasses

import numpy as np
import pandas as pd

from federated_hh.heavy_hitters import word_questions
from federated_hh.options.fields import option
from federated_hh.randomizers import by_name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the histogram."""

    words: str = option("the,of,and,to,you", "The known words, with commas between.")
    epsilon: float = option(2.0, "Local epsilon of a report.", above=0, most=20)
    cohort_size: int = option(1000, "Devices that are asked.", least=1, most=2**31 - 1)
    randomizer: str = option("k_ary", "A local randomizer, by name or module:Class.")


@dataclasses.dataclass(frozen=True)
class State:
    """Estimated holders of each word, float64 [words]; None before the round."""

    estimates: np.ndarray | None = None


class Histogram(word_questions.WordQuestions[State]):
    """Every device reports its most frequent word, or that it is none of the list."""

    Options = Options

    def __init__(self, options, clients):
        self.known = [word for word in dict.fromkeys(options.words.split(",")) if word]
        super().__init__(
            clients,
            by_name.randomizer(options.randomizer),
            options.epsilon,
            cohort_size=options.cohort_size,
            num_items=len(self.known),
        )

    def describe(self):
        return super().describe() | {"words": self.known}

    def initialize(self, repeat):
        return State()

    def items(self, state, words):
        place = {word: place for place, word in enumerate(self.known)}
        is_asked = state.estimates is not None
        return None if is_asked else [place.get(word, -1) for word in words]

    def learn(self, state, estimates):
        return State(estimates), {}

    def results(self, state):
        reports = self.plan.sampler.cohort_size
        noise = np.sqrt(self.randomizer.variance(np.zeros(1), reports)[0])
        table = pd.DataFrame({"word": self.known, "estimate": state.estimates})
        return {"words": table[table["estimate"] > 3 * noise]}
