"""Base of the tests of LDP TrieHH: small runs, and Algorithm 2 in plain Python."""

import collections
import dataclasses
import math
import os
import tempfile

from absl.testing import parameterized
from hypothesis import strategies as st

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import contributions
from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh.parameters import LdpTrieHHParameters
from federated_hh.populations.columns import client_words
from federated_hh.randomness import noise_keys
from federated_hh.rounds import steps
from federated_hh.runtime import runtime

GREEDY = contributions.ItemSampler.GREEDY
RANDOM = contributions.ItemSampler.RANDOM
ABC = alphabet_lib.Alphabet("abc")
NINE = alphabet_lib.Alphabet("abcdefghi")

CLIENTS = st.lists(
    st.dictionaries(
        st.text(alphabet="abc", min_size=1, max_size=5), st.integers(1, 5), max_size=6
    ),
    min_size=12,
    max_size=40,
)


def reference_votes(clients, cohort, prefixes, level, known):
    """Algorithm 2, lines 11 to 17, without a bound and without noise.

    Args:
        clients: Each client's words.
        cohort: The clients that take part.
        prefixes: P_{level - 1}.
        level: The level, from 1; votes go to prefixes of level + 1 symbols.
        known: Words that are not voted for.

    Returns:
        The votes by prefix, a completed word with "$" at its end.
    """
    votes = collections.Counter()
    for client in cohort:
        spelled = [word + "$" for word in clients[client] if word not in known]
        votes.update(
            {
                word[: level + 1]
                for word in spelled
                if len(word) > level and word[:level] in prefixes
            }
        )
    return votes


def reference_kept(votes, max_prefixes):
    """Algorithm 2, lines 22 and 23, of the prefixes that somebody has."""
    threshold = sorted(votes.values(), reverse=True)[:max_prefixes]
    return {prefix for prefix, n in votes.items() if n >= threshold[-1]}


class LdpTrieHHTestCase(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enterClassContext(runtime.tff_worker())
        cls.scratch = cls.enterClassContext(tempfile.TemporaryDirectory())

    def population(self, clients):
        """Writes clients given as {word: count}."""
        parent = tempfile.mkdtemp(dir=self.scratch)
        return client_words.ClientWords.from_rows(
            os.path.join(parent, "population"),
            [(str(i), words.items()) for i, words in enumerate(clients)],
        )

    def algorithm(self, population, alphabet=ABC, **overrides):
        options = {"num_blocks": 3} | {
            name: overrides.pop(name)
            for name in ("num_blocks", "report_sampling", "aggregation")
            if name in overrides
        }
        parameters = {
            "cohort_size": population.num_clients,
            "max_depth": 1,
            "max_prefixes": 10,
            "contribution_bound": 8,
            "epsilon": math.inf,
            "sampler": GREEDY,
        } | overrides
        return ldp_triehh.LdpTrieHH(
            population, LdpTrieHHParameters(**parameters), alphabet, **options
        )


def steps_of(algorithm, seed=1, key=1):
    noise_key = noise_keys.NoiseKey(key, is_secret=False)
    return steps.Steps(algorithm, seed=seed, noise_key=noise_key)


def run(algorithm, seed=1, key=1):
    """Runs all levels; returns where it ends, and all metrics."""
    by_hand, levels = steps_of(algorithm, seed, key), []
    place = by_hand.begin()
    while (query := algorithm.next_query(place.state)) is not None:
        drawn = by_hand.draw(place)
        total = by_hand.ask(place, query, drawn.cohort)
        step = by_hand.update(place, query, drawn, total)
        place = step.progress
        levels.append(step.metrics)
    return place, levels


class Level:
    """A level that is run again and again, of the same clients."""

    def __init__(self, algorithm, state=None, cohort=None, key=1):
        self.by_hand = steps_of(algorithm, key=key)
        self.state = state or algorithm.initialize(0)
        self.query = algorithm.next_query(self.state)
        self.drawn = self.by_hand.draw(self.by_hand.begin())
        if cohort is not None:
            self.drawn = dataclasses.replace(self.drawn, cohort=cohort)

    def place(self, repeat):
        """Returns where a repeat begins: each has random numbers of its own."""
        return dataclasses.replace(self.by_hand.begin(repeat), state=self.state)

    def sums(self, repeat=0):
        """Returns what the clients' computations add up to."""
        return self.by_hand.ask(self.place(repeat), self.query, self.drawn.cohort)

    def release(self, sums, repeat=0):
        """Returns the votes that are released of that, and what they lead to."""
        return self.by_hand.update(self.place(repeat), self.query, self.drawn, sums)

    def votes(self, repeat=0):
        return self.release(self.sums(repeat), repeat).released


def names_of_candidates(trie):
    symbols = trie.alphabet.characters + "$"
    return [
        "".join(symbols[c] for c in codes) + symbol
        for codes in trie.frontier()
        for symbol in symbols
    ]


def prefixes_of(trie):
    symbols = trie.alphabet.characters + "$"
    return {"".join(symbols[c] for c in codes) for codes in trie.levels[-1].codes}
