"""OptPrefixTree's first version: a tree of prefixes whose steps adapt, in one file.

Chadha et al. 2023. Each round asks other clients which extension of a known prefix
their most frequent word begins with. The fewer prefixes there are, the more characters
the next round adds, at the same number of candidates.

scripts/run algorithm --algorithm=examples.prefix_tree:PrefixTree --num_clients=200000
"""

import dataclasses

import numpy as np
import pandas as pd

from federated_hh.heavy_hitters import word_questions
from federated_hh.options.fields import option
from federated_hh.randomizers import subset_selection


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the tree."""

    letters: str = option("abcdefghijklmnopqrstuvwxyz'", "The letters of words.")
    epsilon: float = option(8.0, "Local epsilon of a report.", above=0, most=20)
    cohort_size: int = option(1000, "Clients of a round.", least=1, most=2**31 - 1)
    num_rounds: int = option(6, "The most rounds.", least=1, most=100)
    max_candidates: int = option(20_000, "Candidates of a round.", least=2, most=10**7)


@dataclasses.dataclass(frozen=True)
class State:
    """The prefixes that may grow, of one length, and the words found so far."""

    prefixes: tuple[str, ...] = ("",)
    found: tuple[tuple[str, float], ...] = ()
    rounds: int = 0


class PrefixTree(word_questions.WordQuestions[State]):
    """Prefixes that stand out from the noise grow; where words end, they are found."""

    Options = Options

    def __init__(self, options, clients):
        self.options = options
        # A word's end is the last symbol.
        self.symbols = {letter: i for i, letter in enumerate(options.letters)}
        self.end = len(self.symbols)
        super().__init__(
            clients,
            subset_selection.SubsetSelection,
            options.epsilon,
            cohort_size=options.cohort_size,
            num_items=options.max_candidates,
            num_rounds=options.num_rounds,
        )

    def describe(self):
        return super().describe() | {"letters": self.options.letters}

    def initialize(self, repeat):
        return State()

    def segment(self, state):
        """Returns how many symbols the next round adds."""
        base, length = self.end + 1, 1
        while len(state.prefixes) * base ** (length + 1) <= self.num_items:
            length += 1
        return length

    def items(self, state, words):
        place = {prefix: i for i, prefix in enumerate(state.prefixes)}
        if not place or state.rounds == self.options.num_rounds:
            return None
        depth, length = len(state.prefixes[0]), self.segment(state)
        items = []
        for word in words:
            item = place.get(word[:depth], -1)
            rest = word[depth : depth + length]
            if item >= 0 and all(letter in self.symbols for letter in rest):
                codes = [self.symbols[letter] for letter in rest]
                for code in codes + [self.end] * (length - len(codes)):
                    item = item * (self.end + 1) + code
                items.append(item if item < self.num_items else -1)
            else:
                items.append(-1)
        return items

    def learn(self, state, estimates):
        reports = self.plan.sampler.cohort_size
        noise = np.sqrt(self.randomizer.variance(np.zeros(1), reports)[0])
        length, letters = self.segment(state), self.options.letters
        prefixes, found = [], list(state.found)
        for item in np.flatnonzero(estimates > 4 * noise):
            parent, codes = int(item), list[int]()
            for _ in range(length):
                parent, code = divmod(parent, self.end + 1)
                codes.insert(0, code)
            text = "".join(letters[code] for code in codes if code < self.end)
            # Where letters follow an end, or nobody's prefix grows, it is noise.
            if parent < len(state.prefixes) and codes == sorted(codes, key=self._ends):
                text = state.prefixes[parent] + text
                if self.end not in codes:
                    prefixes.append(text)
                elif text:
                    found.append((text, float(estimates[item])))
        most = self.num_items // (self.end + 1)
        metrics = {"characters": length, "prefixes": len(prefixes[:most])}
        after = State(tuple(prefixes[:most]), tuple(found), state.rounds + 1)
        return after, metrics

    def _ends(self, code):
        return code == self.end

    def results(self, state):
        table = pd.DataFrame(list(state.found), columns=["word", "estimate"])
        return {"heavy_hitters": table.sort_values("estimate", ascending=False)}
