"""TrieHH: heavy hitters with differential privacy from sampling and thresholds alone.

Zhu et al. 2020, "Federated Heavy Hitters Discovery with Differential Privacy",
Algorithms 1 and 2 (a word a client) and 3 (several). In each round a fresh cohort
votes for one-character extensions of the prefixes learned so far, at most one vote a
client; the server sees the sum of the votes and keeps what has at least `threshold`.

All that is random, cohorts and drawn words, is the mechanism, and comes from the noise
key: no public seed has anything to decide here.

    process = build_triehh_process(population, parameters, alphabet, noise_key=key)
    state, cohorts = process.initialize(), process.cohorts()
    with runtime.tff_worker():
        while not state.finished:
            output = process.next(state, cohorts.cohort(state.round_number))
            state = output.state
    print(state.trie.words())
"""

import collections
import dataclasses
import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from federated_hh import alphabet as alphabet_lib
from federated_hh import selection as selection_lib
from federated_hh import trie as trie_lib
from federated_hh.triehh_state import TrieHHOutput, TrieHHState
from privacy import triehh as triehh_privacy
from randomness import seeds
from simulation import client_words, participation, round_metrics

# TFF costs about a millisecond a client value, and a block of devices is one.
_DEFAULT_NUM_BLOCKS = 16
# Each block's votes are a vector over all candidates, 8 bytes each.
_MAX_CANDIDATES = 1 << 27
_NOISE_KEYS = 1 << 128


class TrieHHProcess:
    """TrieHH as an iterative process; see `build_triehh_process`."""

    def __init__(
        self,
        population: client_words.ClientWords,
        parameters: triehh_privacy.TrieHHParameters,
        alphabet: alphabet_lib.Alphabet,
        word_selection: selection_lib.WordSelection,
        noise_key: int,
        num_blocks: int,
    ):
        self.population = population
        self.parameters = parameters
        self.alphabet = alphabet
        self.word_selection = word_selection
        self._noise_key = noise_key
        # Runs of one key that differ in anything that their votes depend on sample
        # independently. With the cohorts in common, what thresholds t and t + 1 keep
        # would tell exact votes, and the costs of two runs would not add up.
        self._configuration = repr(
            (
                parameters,
                word_selection,
                alphabet.fingerprint,
                population.fingerprint,
            )
        )
        self._num_blocks = min(num_blocks, parameters.cohort_size)
        length = parameters.max_length
        self._codes_path = population.derived_column(
            f"codes_{length}_{alphabet.fingerprint}",
            lambda: alphabet.encode(population.words, length),
        )
        self._rounds: dict[int, Callable[..., np.ndarray]] = {}

    def initialize(self, stream: int = 0) -> TrieHHState:
        """Returns the state before the first round: an empty trie."""
        return TrieHHState(trie_lib.PrefixTrie(self.alphabet), stream=stream)

    def cohorts(self, stream: int = 0) -> participation.UniformCohorts:
        """Returns the cohorts that the guarantee asks for.

        Args:
            stream: The repeat, as in `initialize`.
        """
        return participation.UniformCohorts(
            self.population.num_clients,
            self.parameters.cohort_size,
            self._noise_key,
            (self._configuration, stream),
        )

    def next(self, state: TrieHHState, cohort: np.ndarray) -> TrieHHOutput:
        """Runs a round.

        Needs a TFF execution context that can run secure sums, such as
        `simulation.runtime.tff_worker()`.

        Args:
            state: The state after the last round; not finished.
            cohort: The clients that take part: int64, shape [cohort_size], distinct
                indices into the population. The guarantee needs a uniform sample
                without replacement, drawn anew each round; `cohorts` has them.

        Returns:
            The next state, and metrics.

        Raises:
            ValueError: If the run is finished, or the cohort is not one.
        """
        if state.finished:
            raise ValueError("the run is finished; initialize() begins another")
        self._check_cohort(cohort)
        start = time.perf_counter()
        output = self.update(state, self.collect_votes(state, cohort))
        seconds = time.perf_counter() - start
        metrics = round_metrics.RoundMetrics(
            output.metrics.released, {**output.metrics.simulator, "seconds": seconds}
        )
        return TrieHHOutput(output.state, metrics)

    def collect_votes(self, state: TrieHHState, cohort: np.ndarray) -> np.ndarray:
        """Returns the sum of a cohort's votes, by one TFF computation.

        Args:
            state: The state that the clients are told about.
            cohort: As in `next`.

        Returns:
            int64, shape [state.trie.num_candidates].
        """
        return self.sum_of_votes(state, self._blocks(cohort))

    def sum_of_votes(
        self, state: TrieHHState, blocks: Sequence[collections.OrderedDict]
    ) -> np.ndarray:
        """Returns the sum of the votes of devices that are in blocks already.

        Args:
            state: The state that the clients are told about.
            blocks: Each with `clients`, int64 of shape [at most the cohort size
                through the number of blocks, rounded up], and `first_place`, the
                place in the cohort of the first of them.

        Returns:
            int64, shape [state.trie.num_candidates].
        """
        frontier = len(state.trie.frontier())
        # Room in powers of two, so that few rounds need another TFF computation.
        capacity = 1 << max(0, frontier - 1).bit_length()
        if capacity not in self._rounds:
            self._rounds[capacity] = self._build_round(capacity)
        transitions, first_frontier = state.trie.transitions()
        message = collections.OrderedDict(
            transitions=transitions,
            first_frontier=np.int32(first_frontier),
            level=np.int32(state.trie.depth + 1),
            seed=seeds.stateless_seed(
                self._noise_key,
                "word selection",
                self._configuration,
                state.stream,
                state.round_number,
            ),
        )
        votes = self._rounds[capacity](message, list(blocks))
        return votes[: state.trie.num_candidates]

    def update(self, state: TrieHHState, votes: np.ndarray) -> TrieHHOutput:
        """Returns what the server makes of the votes: Algorithm 2's last line.

        Args:
            state: The state that the clients were told about.
            votes: The sum of their votes: int64, shape [state.trie.num_candidates].
        """
        kept = np.flatnonzero(votes >= self.parameters.threshold)
        round_number = state.round_number + 1
        # Algorithm 1 ends when the trie stays as it is.
        finished = kept.size == 0 or round_number == self.parameters.max_length
        trie = state.trie.extend(kept, votes[kept]) if kept.size else state.trie
        metrics = round_metrics.RoundMetrics(
            released={
                "round": round_number,
                "candidates": state.trie.num_candidates,
                "prefixes_kept": int(kept.size),
                "words_completed": len(trie.words()),
            },
            simulator={
                "votes_received": int(votes.sum()),
                "candidates_with_votes": int(np.count_nonzero(votes)),
            },
        )
        state = dataclasses.replace(
            state, trie=trie, round_number=round_number, finished=finished
        )
        return TrieHHOutput(state, metrics)

    def _check_cohort(self, cohort: np.ndarray) -> None:
        size = self.parameters.cohort_size
        if cohort.shape != (size,):
            raise ValueError(
                f"cohort has the shape {cohort.shape}; the parameters say [{size}]"
            )
        ordered = np.sort(cohort)
        if np.any(ordered[1:] == ordered[:-1]):
            raise ValueError("cohort has a client twice")
        if ordered[0] < 0 or ordered[-1] >= self.population.num_clients:
            raise ValueError(
                f"cohort has clients from {ordered[0]} to {ordered[-1]}; they have to "
                f"be in [0, {self.population.num_clients})"
            )

    def _blocks(self, cohort: np.ndarray) -> list[collections.OrderedDict]:
        size = math.ceil(len(cohort) / self._num_blocks)
        return [
            collections.OrderedDict(
                clients=cohort[first : first + size], first_place=first
            )
            for first in range(0, len(cohort), size)
        ]

    def _build_round(self, capacity: int) -> Callable[..., np.ndarray]:
        """Returns the TFF computation of a round for a frontier of up to `capacity`."""
        num_candidates = capacity * self.alphabet.num_symbols
        if num_candidates >= _MAX_CANDIDATES:
            raise ValueError(
                f"{capacity:,} prefixes and {self.alphabet.num_symbols:,} symbols make "
                f"{num_candidates:,} candidates; less than {_MAX_CANDIDATES:,} are "
                "possible: use a larger threshold or a smaller alphabet"
            )
        most_votes = math.ceil(self.parameters.cohort_size / self._num_blocks)
        block_type = tff.to_type(
            collections.OrderedDict(
                clients=tff.TensorType(np.int64, [None]), first_place=np.int64
            )
        )
        message_type = tff.to_type(
            collections.OrderedDict(
                transitions=tff.TensorType(np.int32, [None, self.alphabet.size]),
                first_frontier=np.int32,
                level=np.int32,
                seed=tff.TensorType(np.int32, [2]),
            )
        )

        @tff.tensorflow.computation(message_type, block_type)
        def client_votes(message, block):
            candidates = self._candidates_of_block(message, block)
            # Segments below 0 are dropped: a device without a vote.
            votes = tf.math.unsorted_segment_sum(
                tf.ones_like(candidates, tf.int64), candidates, num_candidates
            )
            return tf.ensure_shape(votes, [num_candidates])

        @tff.federated_computation(
            tff.FederatedType(message_type, tff.SERVER),
            tff.FederatedType(block_type, tff.CLIENTS),
        )
        def sum_of_votes(message, blocks):
            votes = tff.federated_map(
                client_votes, (tff.federated_broadcast(message), blocks)
            )
            return tff.federated_secure_sum(votes, most_votes)

        return sum_of_votes

    def _candidates_of_block(self, message, block) -> tf.Tensor:
        """Returns each device's candidate, or -1: int32, shape [block].

        The body of the client computation. Every device is treated on its own: it
        picks a word, walks the trie along it, and votes for the next symbol if the
        walk ends at a frontier node (Algorithm 2).
        """
        mapped = selection_lib.MappedPopulation(self.population)
        bits = selection_lib.random_bits(
            message["seed"], block["first_place"], tf.size(block["clients"])
        )
        words = mapped.select(self.word_selection, block["clients"], bits)
        codes = tf.raw_ops.ImmutableConst(
            dtype=tf.dtypes.as_dtype(alphabet_lib.CODE_DTYPE),
            shape=[self.population.num_words, self.parameters.max_length],
            memory_region_name=self._codes_path,
        )
        symbols = tf.cast(tf.gather(codes, tf.maximum(words, 0)), tf.int32)
        size = self.alphabet.size
        table = tf.reshape(message["transitions"], [-1])

        def step(position, nodes):
            symbol = symbols[:, position]
            goes_on = (nodes >= 0) & (symbol < size)
            place = tf.where(goes_on, nodes * size + symbol, 0)
            return position + 1, tf.where(goes_on, tf.gather(table, place), -1)

        start = tf.where(words >= 0, 0, -1)
        last = message["level"] - 1
        _, nodes = tf.while_loop(
            lambda position, _: position < last, step, [tf.constant(0), start]
        )
        symbol = symbols[:, last]
        votes = (nodes >= 0) & (symbol <= self.alphabet.end)
        candidate = (nodes - message["first_frontier"]) * self.alphabet.num_symbols
        return tf.where(votes, candidate + symbol, -1)


def build_triehh_process(
    population: client_words.ClientWords,
    parameters: triehh_privacy.TrieHHParameters,
    alphabet: alphabet_lib.Alphabet,
    *,
    word_selection: selection_lib.WordSelection = (
        selection_lib.WordSelection.MOST_FREQUENT
    ),
    noise_key: int,
    num_blocks: int = _DEFAULT_NUM_BLOCKS,
) -> TrieHHProcess:
    """Returns TrieHH over a population.

    Words of `parameters.max_length` or more characters vote with their first
    characters and are never completed: the end symbol is one of the symbols that
    `max_length` counts, so that there are at most `max_length` rounds.

    Args:
        population: The clients.
        parameters: Threshold, cohort size and maximum length, and with them the
            guarantee.
        alphabet: Has all characters of the population's words.
        word_selection: The single-word or the multi-word setting.
        noise_key: The run's secret, in [0, 2^128): cohorts and drawn words are a
            function of it, of the parameters and of the population.
        num_blocks: Into how many client values a cohort is cut. The result does not
            depend on it.

    Returns:
        A process with `initialize()` and `next(state, cohort)`, in the manner of
        `tff.templates.IterativeProcess`. States are plain values on the coordinator;
        what clients do and the secure sum of a round are one TFF computation.

    Raises:
        ValueError: If the parameters are for another number of clients, a word has a
            character outside the alphabet, or an argument is outside its range.
    """
    if parameters.population_size != population.num_clients:
        raise ValueError(
            f"parameters are for {parameters.population_size:,} clients, the "
            f"population has {population.num_clients:,}"
        )
    if num_blocks < 1:
        raise ValueError(f"num_blocks is {num_blocks}; it has to be at least 1")
    if not 0 <= noise_key < _NOISE_KEYS:
        raise ValueError("noise_key is outside its range; it has to be in [0, 2^128)")
    return TrieHHProcess(
        population, parameters, alphabet, word_selection, noise_key, num_blocks
    )
