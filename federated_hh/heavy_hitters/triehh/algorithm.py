"""TrieHH: heavy hitters with differential privacy from sampling and thresholds alone.

Zhu et al. 2020, "Federated Heavy Hitters Discovery with Differential Privacy",
Algorithms 1 and 2 (a word a client) and 3 (several). In each round a fresh cohort votes
for one-character extensions of the prefixes learned so far, at most one vote per
client; the mechanism releases candidates with at least `threshold` votes.

    algorithm = TrieHH(population, plan_of(parameters, word_selection), alphabet)
    outcome = run.run(algorithm, directory, seed=1, observers=[vote_metrics])
    print(outcome.states[0].trie.words())

All randomness, of cohorts and drawn words, belongs to the mechanism and comes from the
noise key; a public seed has no influence here.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import tensorflow as tf

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import selection as selection_lib
from federated_hh.heavy_hitters import trie as trie_lib
from federated_hh.populations.columns import generated_words
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.triehh import guarantees as triehh_privacy
from federated_hh.privacy.triehh import plan as triehh_plan
from federated_hh.randomness import identities, streams
from federated_hh.rounds import algorithm, block_round, client_bytes, run, samplers
from federated_hh.runtime import compiled

if TYPE_CHECKING:  # most runs have no masks
    from federated_hh.rounds import masked_sums

# TFF costs 5 ms a call and 0.6 ms a client value, and a block of devices is one.
_LEAST_BLOCKS = 16
# With fewer clients, a block would cost more than it saves.
_LEAST_CLIENTS = {
    selection_lib.WordSelection.MOST_FREQUENT: 1 << 14,
    selection_lib.WordSelection.BY_FREQUENCY: 1 << 12,
}
# A draw by frequency makes arrays of all words of a block, which are to stay in the
# processor's cache.
_CLIENTS_PER_BLOCK = {
    selection_lib.WordSelection.MOST_FREQUENT: 1 << 16,
    selection_lib.WordSelection.BY_FREQUENCY: 1 << 12,
}
# Each block's votes are a vector over all candidates, 8 bytes each. The worker keeps
# those of all blocks until it adds them up.
_MAX_CANDIDATES = 1 << 27
_MOST_VOTES_KEPT = 1 << 26


@dataclasses.dataclass(frozen=True)
class TrieHHState:
    """The server's state between rounds.

    Attributes:
        trie: Trie of the learned prefixes.
        round_number: Rounds done.
        finished: Whether the last round added no prefix, or was the last allowed.
    """

    trie: trie_lib.PrefixTrie
    round_number: int = 0
    finished: bool = False


def plan_of(
    parameters: triehh_privacy.TrieHHParameters,
    word_selection: selection_lib.WordSelection,
    *,
    population_has_empty_users: bool = True,
) -> plan_lib.Plan[Any, triehh_plan.OneVote, triehh_plan.Threshold]:
    """Returns the plan of TrieHH.

    Args:
        parameters: Threshold, cohort size and maximum length.
        word_selection: The single-word or the multi-word setting.
        population_has_empty_users: Whether users without a word are in the population.
    """
    redraws = word_selection is selection_lib.WordSelection.BY_FREQUENCY
    return plan_lib.Plan(
        sampler=samplers.UniformCohorts(
            parameters.population_size, parameters.cohort_size
        ),
        contribution=triehh_plan.OneVote(
            redraws, population_has_empty_users, extends_prefixes=True
        ),
        mechanism=triehh_plan.Threshold(parameters.threshold, parameters.max_length),
    )


def vote_metrics(observed: run.Observed[TrieHHState]) -> dict[str, int]:
    """Observes the number of votes, and of candidates with votes."""
    return {
        "votes_received": int(observed.total.sum()),
        "candidates_with_votes": int(np.count_nonzero(observed.total)),
    }


@identities.identity("federated_hh.triehh.TrieHH")
class TrieHH(algorithm.Algorithm[TrieHHState, np.ndarray]):
    """TrieHH over a population.

    Words of `max_length` or more characters vote with their first characters and are
    never completed: the end symbol is one of the symbols that `max_length` counts, so
    that there are at most `max_length` rounds.
    """

    def __init__(
        self,
        population: generated_words.Words,
        plan: plan_lib.Plan[Any, triehh_plan.OneVote, triehh_plan.Threshold],
        alphabet: alphabet_lib.Alphabet,
        num_blocks: int | None = None,
        masking: "masked_sums.MaskedSums | None" = None,
    ):
        """Prepares the population.

        Args:
            population: The clients.
            plan: Plan, from `plan_of`.
            alphabet: Has all characters of the population's words.
            num_blocks: Number of client values per cohort; by default a fast one. The
                result does not depend on it.
            masking: Masks of the votes; None for an ideal sum.

        Raises:
            ValueError: If the plan is for another number of clients, a word has a
                character outside the alphabet, an argument is outside its range, or
                votes for so many candidates cannot be masked.
        """
        self.population = population
        self.plan = plan
        self.parameters = triehh_plan.parameters_of(plan)
        self.alphabet = alphabet
        self.max_rounds = self.parameters.max_length
        self.word_selection = (
            selection_lib.WordSelection.BY_FREQUENCY
            if plan.contribution.redraws_each_round
            else selection_lib.WordSelection.MOST_FREQUENT
        )
        if self.parameters.population_size != population.num_clients:
            raise ValueError(
                f"parameters are for {self.parameters.population_size:,} clients, and "
                f"the population has {population.num_clients:,}; make them for this "
                "population"
            )
        self._num_blocks = num_blocks
        self._block_size(alphabet.num_symbols)  # refuses impossible settings
        self._masking = masking
        if masking is not None:
            most = self._capacity(self._most_prefixes()) * alphabet.num_symbols
            masking.check(self.parameters.cohort_size, most, 1)
        length = self.max_rounds
        self._codes_path = population.derived_column(
            f"codes_{length}_{alphabet.fingerprint}",
            lambda: alphabet.encode(population.words, length),
        )
        self._votes = functools.cache(self._build_votes)

    def describe(self) -> Mapping[str, Any]:
        """Returns everything that a sum of votes depends on besides the plan."""
        return {
            "population": self.population.fingerprint,
            "alphabet": self.alphabet.fingerprint,
            **(self._masking.describe() if self._masking else {}),
        }

    def initialize(self, repeat: int) -> TrieHHState:
        """Returns the state before the first round: an empty trie."""
        del repeat
        return TrieHHState(trie_lib.PrefixTrie(self.alphabet))

    def next_query(self, state: TrieHHState) -> algorithm.Query[np.ndarray] | None:
        """Returns the question for votes on the trie's candidates."""
        if state.finished:
            return None
        return algorithm.Query(
            functools.partial(self._collect, state),
            {"candidates": state.trie.num_candidates},
            functools.partial(self._client_bytes, state),
        )

    def update(
        self, state: TrieHHState, released: triehh_plan.Kept
    ) -> tuple[TrieHHState, Mapping[str, float | int]]:
        """Extends the trie by candidates with enough votes: Algorithm 2's last line."""
        kept = len(released.candidates)
        trie = state.trie
        if kept:
            trie = trie.extend(released.candidates, released.votes)
        round_number = state.round_number + 1
        # Algorithm 1 ends when the trie does not change.
        finished = not kept or round_number == self.max_rounds
        metrics = {
            "candidates": state.trie.num_candidates,
            "prefixes_kept": kept,
            "words_completed": len(state.trie.words()),
        }
        return TrieHHState(trie, round_number, finished), metrics

    def results(self, state: TrieHHState) -> Mapping[str, pd.DataFrame]:
        """Returns the words found, by the rounds that completed them; no votes."""
        words = state.trie.words()
        columns = {
            "word": np.array([word.text for word in words], object),
            "round": np.array([word.level for word in words], np.int64),
        }
        return {"heavy_hitters": pd.DataFrame(columns)}

    def progress(self, row: Mapping[str, float | int]) -> str:
        """Returns the log line of a round."""
        if not row["candidates"]:
            return f"no prefix to extend; {row['words_completed']:,} words so far"
        voted = ""
        if "votes_received" in row:
            voted = f"{row['votes_received']:,} clients voted; "
        return (
            f"{voted}{row['prefixes_kept']:,} of {row['candidates']:,} prefixes have "
            f"{self.parameters.threshold:,} votes or more; "
            f"{row['words_completed']:,} words so far"
        )

    def _collect(
        self, state: TrieHHState, cohort: np.ndarray, stream: streams.Stream
    ) -> np.ndarray:
        """Returns the sum of a cohort's votes: int64 [candidates]."""
        capacity = self._capacity(len(state.trie.frontier()))
        transitions, first_frontier = state.trie.transitions()
        rows = compiled.room(len(transitions)) - len(transitions)
        transitions = np.pad(transitions, [(0, rows), (0, 0)], constant_values=-1)
        message = collections.OrderedDict(
            transitions=transitions,
            first_frontier=np.int32(first_frontier),
            level=np.int32(state.trie.depth + 1),
            # Of the round and not of a block: a device's word does not depend on how
            # the cohort is cut.
            seed=stream.stateless_seed("word selection"),
        )
        sums = self._votes(capacity)(message, cohort, stream)
        return sums["votes"][: state.trie.num_candidates]

    def _client_bytes(self, state: TrieHHState) -> client_bytes.ClientBytes:
        """Returns a client's bytes: the prefixes that may grow, and a vector of votes.

        A walk that ends elsewhere in the trie ends without a vote, so a client needs
        these prefixes alone.
        """
        asked = self.alphabet.num_bytes(state.trie.frontier())
        if self._masking is not None:
            return self._masking.client_bytes(asked)
        clients = self.parameters.cohort_size
        votes = client_bytes.of_vector(state.trie.num_candidates, 1, clients)
        return client_bytes.ClientBytes(asked, votes)

    def _capacity(self, prefixes: int) -> int:
        """Returns room in a power of two: few rounds need another TFF computation.

        Under masks there is room for the prefixes alone, as clients send all of it.
        """
        if self._masking is not None:
            return max(1, prefixes)
        return 1 << max(0, prefixes - 1).bit_length()

    def _block_size(self, num_candidates: int) -> int:
        """Returns the most clients of a block."""
        clients, blocks = self.parameters.cohort_size, self._num_blocks
        if blocks is None:
            blocks = math.ceil(clients / _CLIENTS_PER_BLOCK[self.word_selection])
            blocks = min(blocks, _MOST_VOTES_KEPT // num_candidates)
            fewest = _LEAST_CLIENTS[self.word_selection]
            if isinstance(self.population, generated_words.GeneratedWords):
                # Their words are drawn first.
                fewest = _LEAST_CLIENTS[selection_lib.WordSelection.BY_FREQUENCY]
            least = min(_LEAST_BLOCKS, math.ceil(clients / fewest))
            blocks = max(blocks, least)
        return block_round.block_size_of(clients, blocks)

    def _most_prefixes(self) -> int:
        """Returns the largest number of prefixes of a round."""
        parameters = self.parameters
        # Each has enough votes, one per client.
        by_votes = max(1, parameters.cohort_size // parameters.threshold)
        return min(by_votes, self.alphabet.size ** (parameters.max_length - 1))

    def _build_votes(self, capacity: int) -> block_round.BlockRound:
        """Returns the votes of a round for a frontier of up to `capacity`."""
        num_candidates = capacity * self.alphabet.num_symbols
        if num_candidates >= _MAX_CANDIDATES:
            raise ValueError(
                f"{capacity:,} prefixes and {self.alphabet.num_symbols:,} symbols "
                f"make {num_candidates:,} candidates; fewer than {_MAX_CANDIDATES:,} "
                "are possible. Use a larger threshold or a smaller alphabet"
            )

        block_size = self._block_size(num_candidates)

        def votes_of_symbols(message, symbols, start):
            candidates = self._candidates(message, symbols, start)
            # Segments below 0 are dropped: a device without a vote.
            votes = tf.math.unsorted_segment_sum(
                tf.ones_like(candidates, tf.int64), candidates, num_candidates
            )
            return tf.ensure_shape(votes, [num_candidates])

        def votes_of_block(message, block):
            with compiled.reading():
                symbols, start = self._symbols_of_block(message, block)
                symbols = compiled.padded(symbols, block_size)
                start = compiled.padded(start, block_size, -1)
            votes = compiled.compiled(votes_of_symbols)
            return {"votes": votes(dict(message.items()), symbols, start)}

        return block_round.BlockRound(
            votes_of_block,
            {"votes": 1},
            block_size=block_size,
            growing=frozenset(["transitions"]),
            masking=self._masking,
        )

    def _mapped(self) -> Any:
        """Returns the words that clients vote with, as the worker reads them."""
        if isinstance(self.population, generated_words.GeneratedWords):
            # Few runs have generated clients, and other runs load none of this.
            from federated_hh.heavy_hitters import generated_clients

            return generated_clients.GeneratedPopulation(self.population)
        return selection_lib.MappedPopulation(self.population)

    def _symbols_of_block(self, message, block) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the word that each device picks.

        Returns:
            The word's symbols: int32, shape [block, max_length]. Where its walk along
            the trie starts: 0, or -1 for a device without a word: int32, shape [block].
        """
        mapped = self._mapped()
        bits = selection_lib.random_bits(
            message["seed"], block["first_place"], tf.size(block["clients"])
        )
        words = mapped.select(self.word_selection, block["clients"], bits)
        codes = tf.raw_ops.ImmutableConst(
            dtype=tf.dtypes.as_dtype(alphabet_lib.CODE_DTYPE),
            shape=[self.population.num_words, self.max_rounds],
            memory_region_name=self._codes_path,
        )
        symbols = tf.cast(tf.gather(codes, tf.maximum(words, 0)), tf.int32)
        return symbols, tf.where(words >= 0, 0, -1)

    def _candidates(self, message, symbols: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
        """Returns each device's candidate, or -1: int32, shape [block].

        Each device is handled separately: it walks the trie along its word, and votes
        for the next symbol if the walk ends at a frontier node (Algorithm 2).
        """
        size = self.alphabet.size
        table = tf.reshape(message["transitions"], [-1])

        def step(position, nodes):
            symbol = symbols[:, position]
            goes_on = (nodes >= 0) & (symbol < size)
            place = tf.where(goes_on, nodes * size + symbol, 0)
            return position + 1, tf.where(goes_on, tf.gather(table, place), -1)

        last = message["level"] - 1
        _, nodes = tf.while_loop(
            lambda position, _: position < last, step, [tf.constant(0), start]
        )
        symbol = symbols[:, last]
        votes = (nodes >= 0) & (symbol <= self.alphabet.end)
        candidate = (nodes - message["first_frontier"]) * self.alphabet.num_symbols
        return tf.where(votes, candidate + symbol, -1)
