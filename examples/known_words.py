"""Finds the frequent ones of 1,000 known words: one round of k-ary response.

It is in the comparison of docs/results/zhu_2020.md by its name alone:

scripts/run reproduce --study=zhu_figure4 \
    --algorithm=examples.known_words:KnownWords
"""

import dataclasses

import numpy as np
import pandas as pd

from federated_hh.heavy_hitters import word_questions
from federated_hh.populations.languages import languages
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.randomizers import k_ary


@dataclasses.dataclass(frozen=True)
class State:
    """The words found; None before the round."""

    words: tuple[str, ...] | None = None


class KnownWords(word_questions.WordQuestions[State]):
    """Every device reports its most frequent word, or that it is none of the list."""

    def __init__(self, clients, epsilon):
        english = languages.words()
        self.known = sorted(english, key=english.__getitem__, reverse=True)[:1000]
        super().__init__(
            clients,
            k_ary.KAryRandomizedResponse,
            epsilon,
            cohort_size=clients.num_clients,
            num_items=len(self.known),
        )

    @classmethod
    def for_task(cls, task):
        local = shuffling.largest_local_epsilon(
            shuffling.Randomizer.ARBITRARY,
            epsilon=task.epsilon,
            delta=task.delta,
            num_reports=task.clients.num_clients,
        )
        return cls(task.clients, local)

    def initialize(self, repeat):
        return State()

    def items(self, state, words):
        place = {word: place for place, word in enumerate(self.known)}
        asked = state.words is not None
        return None if asked else [place.get(word, -1) for word in words]

    def learn(self, state, estimates):
        reports = self.plan.sampler.cohort_size
        noise = np.sqrt(self.randomizer.variance(np.zeros(1), reports)[0])
        found = np.flatnonzero(estimates > 4 * noise)
        return State(tuple(self.known[i] for i in found)), {"words_found": len(found)}

    def results(self, state):
        return {"heavy_hitters": pd.DataFrame({"word": state.words}, dtype=object)}
