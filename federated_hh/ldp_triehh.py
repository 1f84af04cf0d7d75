"""LDP TrieHH: words found from reports that are private before they leave a device.

Sun et al. 2024, "Private federated discovery of out-of-vocabulary words for Gboard",
Algorithm 2, to the letter: the trie begins with the whole alphabet (P_0), so that
level i votes on prefixes of i + 1 symbols, and level D completes words of up to D
characters. A level has a cohort of its own, of N clients that never took part before.
Each client merges its words into the level's candidates, takes at most B of them, pads
them to B with "no item", and sends B Subset Selection reports over the candidates and
"no item". The server drops "no item", keeps the eta_max candidates with most votes (all
of those equal to the last), and takes kept candidates that end as words. A further
pass does it again without the words that earlier ones found.

    process = build_ldp_triehh_process(
        population, parameters, alphabet, seed=1, noise_key=secrets.randbits(128)
    )
    state = process.initialize()
    with runtime.tff_worker():
        while not state.finished:
            state = process.next(state, process.cohorts.cohort(state.levels_done)).state
    print(state.found)
"""

import collections
import dataclasses
import functools
import math
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from federated_hh import alphabet as alphabet_lib
from federated_hh import contributions
from federated_hh import trie as trie_lib
from federated_hh.ldp_triehh_parameters import (
    Aggregation,
    LdpTrieHHParameters,
    ReportSampling,
    check_num_candidates,
)
from federated_hh.ldp_triehh_state import FoundWord, LdpTrieHHState
from federated_hh.randomizers import local_randomizer
from randomness import seeds
from simulation import client_words, participation
from simulation.round_metrics import RoundMetrics

# Blocks of some 25,000 devices keep the arrays of a block near 100 MB. The votes of all
# blocks stay in the worker until they are summed, 8 MB a block for a million
# candidates: where blocks are many they are larger.
_DEVICES_PER_BLOCK = 25_000
_MANY_BLOCKS = 40
_MOST_DEVICES_PER_BLOCK = 100_000


@dataclasses.dataclass(frozen=True)
class LdpTrieHHOutput:
    """What a level gives: the next state, and metrics.

    Attributes:
        state: The next state.
        metrics: Released, as they follow from reports that are private already: the
            pass and level, clients, reports, candidates, votes that the last kept
            candidate has, prefixes kept, words found. The simulator's: the seconds of
            each stage.
    """

    state: LdpTrieHHState
    metrics: RoundMetrics


class LdpTrieHHProcess:
    """LDP TrieHH as an iterative process; see `build_ldp_triehh_process`."""

    def __init__(
        self,
        population: client_words.ClientWords,
        parameters: LdpTrieHHParameters,
        alphabet: alphabet_lib.Alphabet,
        seed: int,
        noise_key: int,
        report_sampling: ReportSampling,
        aggregation: Aggregation,
        num_blocks: int,
    ):
        self.population = population
        self.parameters = parameters
        self.alphabet = alphabet
        self.report_sampling = report_sampling
        self.aggregation = aggregation
        self._noise_key = noise_key
        self._block_size = math.ceil(parameters.clients_per_level / num_blocks)
        parameters.check_sizes(
            population.num_clients, alphabet, self._block_size, report_sampling
        )
        # Runs of one key that differ in anything that their votes depend on have
        # noise of their own: their difference would else be votes without noise.
        self._configuration = repr(
            (
                parameters,
                alphabet.fingerprint,
                report_sampling,
                num_blocks,
                population.fingerprint,
                seed,  # of the cohorts
            )
        )
        self.cohorts = participation.DisjointCohorts(
            population.num_clients,
            parameters.clients_per_level,
            parameters.max_depth * parameters.num_passes,
            seed,
        )
        self._spelled = contributions.SpelledPopulation(
            population, alphabet, parameters.max_depth + 1
        )
        words = population.words.take(self._spelled.places)
        self._place_of_word = {word: i for i, word in enumerate(words.to_pylist())}
        # Levels with as many candidates are the same computation.
        self._level = functools.lru_cache(maxsize=1)(self._build_level)

    def initialize(self) -> LdpTrieHHState:
        """Returns the state before the first level."""
        nobody = np.zeros(self.population.num_clients, bool)
        return LdpTrieHHState(self._first_trie(), nobody)

    def _first_trie(self) -> trie_lib.PrefixTrie:
        """Returns P_0: every character is a prefix, without a vote."""
        characters = np.arange(self.alphabet.size)
        return trie_lib.PrefixTrie(self.alphabet).extend(
            characters, np.zeros_like(characters)
        )

    def next(self, state: LdpTrieHHState, cohort: np.ndarray) -> LdpTrieHHOutput:
        """Runs a level.

        Needs a TFF execution context that can run secure sums, such as
        `simulation.runtime.tff_worker()`.

        Args:
            state: The state after the last level; not finished.
            cohort: The clients that take part: int64, shape [clients_per_level],
                indices into the population, none of whom took part before. The
                central guarantees need a uniform sample; `cohorts` has them.

        Returns:
            The next state, and metrics.

        Raises:
            ValueError: If the run is finished, or the cohort has another size.
            ClientTakesPartTwiceError: If a client took part before.
        """
        if state.finished:
            raise ValueError("the run is finished; initialize() begins another")
        if cohort.shape != (self.parameters.clients_per_level,):
            raise ValueError(
                f"cohort has the shape {cohort.shape}; the parameters say "
                f"[{self.parameters.clients_per_level}]"
            )
        participated = participation.mark_participants(state.participated, cohort)
        start = time.perf_counter()
        sums = self.collect(state, cohort)
        selected = time.perf_counter()
        votes = self.randomize_sum(state, sums)
        summed = time.perf_counter()
        output = self.update(state, votes)
        seconds = collections.OrderedDict(
            seconds_clients=selected - start,
            seconds_reports=summed - selected,
            seconds_server=time.perf_counter() - summed,
        )
        return LdpTrieHHOutput(
            dataclasses.replace(output.state, participated=participated),
            RoundMetrics(output.metrics.released, seconds),
        )

    def collect(self, state: LdpTrieHHState, cohort: np.ndarray) -> np.ndarray:
        """Runs a level's TFF computation: selection, randomization, secure sum.

        Args:
            state: The state that the clients are told about.
            cohort: As in `next`.

        Returns:
            int64, shape [state.trie.num_candidates]: the sum of the reports, or of
            the true items, as `report_sampling` says.
        """
        number = state.levels_done
        blocks = [
            collections.OrderedDict(
                clients=cohort[first : first + self._block_size],
                seed=seeds.stateless_seed(
                    self._noise_key, "block", self._configuration, number, index
                ),
            )
            for index, first in enumerate(range(0, len(cohort), self._block_size))
        ]
        computation = self._level(state.trie.num_candidates)
        return computation(self._message(state), blocks)

    def _message(self, state: LdpTrieHHState) -> np.ndarray:
        """Returns the learned prefixes, as the candidate of each distinct word.

        A device walks the trie along its words. A word is walked once here, not once
        for each device that has it, and devices look the result up.
        """
        candidates = state.trie.candidates_of(self._spelled.codes)
        known = [
            self._place_of_word[word.text]
            for word in state.found
            if word.pass_number < state.pass_number and word.text in self._place_of_word
        ]
        candidates[known] = -1
        return candidates.astype(np.int32)

    def _build_level(self, num_candidates: int) -> Callable[..., np.ndarray]:
        parameters = self.parameters
        bound = parameters.contribution_bound
        randomizer = None
        most = self._block_size
        if self.report_sampling is ReportSampling.PER_REPORT:
            randomizer = parameters.randomizer(num_candidates)
            most *= bound
        message_type = tff.TensorType(np.int32, [self.population.num_words])
        block_type = tff.to_type(
            collections.OrderedDict(
                clients=tff.TensorType(np.int64, [None]),
                seed=tff.TensorType(np.int32, [2]),
            )
        )

        @tff.tensorflow.computation(message_type, block_type)
        def client_votes(candidate_of_word, block):
            items = self._spelled.items_of_block(
                parameters.sampler,
                block["clients"],
                candidate_of_word,
                bound,
                local_randomizer.fold_in(block["seed"], 0),
            )
            if randomizer is None:
                votes = tf.math.bincount(
                    items, minlength=num_candidates, maxlength=num_candidates
                )
                votes = tf.cast(votes, tf.int64)
            else:
                padding = tf.size(block["clients"]) * bound - tf.size(items)
                items = tf.concat([items, tf.fill([padding], num_candidates)], axis=0)
                reports = randomizer.sum_per_report(
                    items, local_randomizer.fold_in(block["seed"], 1)
                )
                votes = reports[:num_candidates]
            return tf.ensure_shape(votes, [num_candidates])

        @tff.federated_computation(
            tff.FederatedType(message_type, tff.SERVER),
            tff.FederatedType(block_type, tff.CLIENTS),
        )
        def sum_of_votes(candidate_of_word, blocks):
            message = tff.federated_broadcast(candidate_of_word)
            votes = tff.federated_map(client_votes, (message, blocks))
            if self.aggregation is Aggregation.EPHEMERAL:
                return tff.federated_sum(votes)
            return tff.federated_secure_sum(votes, most)

        return sum_of_votes

    def randomize_sum(self, state: LdpTrieHHState, sums: np.ndarray) -> np.ndarray:
        """Returns the votes that the server sees.

        Where the clients of the simulation gave their true items, this draws the sum
        of their reports, which is all that the server's code gets to see.

        Args:
            state: The state that the clients were told about.
            sums: From `collect`.

        Returns:
            int64, shape [state.trie.num_candidates].
        """
        randomizer = self.parameters.randomizer(len(sums))
        if self.report_sampling is ReportSampling.PER_REPORT or randomizer is None:
            return sums
        no_item = self.parameters.reports_per_level - int(sums.sum())
        seed = seeds.derive(
            self._noise_key, "sum of reports", self._configuration, state.levels_done
        )
        return randomizer.sum_of_reports(np.append(sums, no_item), seed)[:-1]

    def update(self, state: LdpTrieHHState, votes: np.ndarray) -> LdpTrieHHOutput:
        """Returns what the server makes of the votes: lines 21 to 24 of Algorithm 2.

        Args:
            state: The state that the clients were told about.
            votes: From `randomize_sum`.

        Raises:
            ValueError: If ties leave more prefixes than the next level can extend.
        """
        kept, least = self._kept(votes)
        trie = state.trie.extend(kept, votes[kept])
        if state.level < self.parameters.max_depth:
            check_num_candidates(len(kept), trie.num_candidates)
        found = self._found(state, kept, votes)
        level = state.level
        metrics = collections.OrderedDict(
            pass_number=state.pass_number,
            level=level,
            clients=self.parameters.clients_per_level,
            reports=self.parameters.reports_per_level,
            candidates=len(votes),
            least_votes_kept=least,
            prefixes_kept=len(kept),
            words_found=len(found),
        )
        pass_number = state.pass_number
        finished = False
        if level == self.parameters.max_depth or trie.num_candidates == 0:
            finished = pass_number == self.parameters.num_passes
            if not finished:
                pass_number += 1
                trie = self._first_trie()
        next_state = dataclasses.replace(
            state,
            trie=trie,
            found=(*state.found, *found),
            pass_number=pass_number,
            levels_done=state.levels_done + 1,
            finished=finished,
        )
        return LdpTrieHHOutput(next_state, RoundMetrics(metrics, {}))

    def _kept(self, votes: np.ndarray) -> tuple[np.ndarray, int]:
        """Returns the candidates to keep, and the least votes that one of them has.

        Ties with the eta_max-th largest are kept, as Algorithm 2 has it, but for a tie
        at no votes at all: where fewer than eta_max candidates have votes, the others
        are not kept, which would be the whole domain.
        """
        least = 1
        place = len(votes) - self.parameters.max_prefixes
        if place > 0:
            least = max(least, int(np.partition(votes, place)[place]))
        return np.flatnonzero(votes >= least), least

    def _found(
        self, state: LdpTrieHHState, kept: np.ndarray, votes: np.ndarray
    ) -> list[FoundWord]:
        parents, symbols = np.divmod(kept, self.alphabet.num_symbols)
        ended = symbols == self.alphabet.end
        words = state.trie.frontier()[parents[ended]]
        votes = votes[kept[ended]]
        randomizer = self.parameters.randomizer(state.trie.num_candidates)
        reports = self.parameters.reports_per_level
        estimates, errors = votes.astype(np.float64), np.zeros(len(votes))
        if randomizer is not None:
            estimates = randomizer.estimate(votes, reports)
            errors = np.sqrt(
                randomizer.variance(np.clip(estimates, 0, reports), reports)
            )
        earlier = {word.text for word in state.found}
        found = [
            FoundWord(
                self.alphabet.decode(codes),
                state.pass_number,
                state.level,
                int(votes[i]),
                float(estimates[i]),
                float(errors[i]),
            )
            for i, codes in enumerate(words)
        ]
        # Noise can bring up a known word again, which no device voted for.
        return [word for word in found if word.text not in earlier]


def build_ldp_triehh_process(
    population: client_words.ClientWords,
    parameters: LdpTrieHHParameters,
    alphabet: alphabet_lib.Alphabet,
    *,
    seed: int,
    noise_key: int,
    report_sampling: ReportSampling = ReportSampling.AGGREGATE,
    aggregation: Aggregation = Aggregation.SECURE_SUM,
    num_blocks: int | None = None,
) -> LdpTrieHHProcess:
    """Returns LDP TrieHH over a population.

    Args:
        population: The clients; dictionary words were left out when it was prepared.
        parameters: What to do.
        alphabet: Has all characters of the population's words. The end symbol is one
            more symbol.
        seed: The run's seed, at least 0: the cohorts depend on it alone.
        noise_key: The run's secret, at least 0. Samplers and reports depend on it, on
            all other arguments and on the population's fingerprint.
        report_sampling: Whether reports are drawn one by one, or their sum at once.
        aggregation: How votes are kept from the server.
        num_blocks: Into how many client values a cohort is cut; part of what a result
            depends on. None: blocks of 25,000 devices, or if those are more than 40,
            40 blocks of at most 100,000 devices, or more of them.

    Returns:
        A process with `initialize()` and `next(state, cohort)`, in the manner of
        `tff.templates.IterativeProcess`, and `cohorts` for it.

    Raises:
        ValueError: If num_blocks is below 1, a word has a character outside the
            alphabet, or see `LdpTrieHHParameters.check_sizes`.
    """
    if num_blocks is None:
        clients = parameters.clients_per_level
        num_blocks = math.ceil(clients / _DEVICES_PER_BLOCK)
        if num_blocks > _MANY_BLOCKS:
            num_blocks = max(_MANY_BLOCKS, math.ceil(clients / _MOST_DEVICES_PER_BLOCK))
    if num_blocks < 1:
        raise ValueError(f"num_blocks is {num_blocks}; it has to be at least 1")
    return LdpTrieHHProcess(
        population,
        parameters,
        alphabet,
        seed,
        noise_key,
        report_sampling,
        aggregation,
        num_blocks,
    )


def participated_after(
    cohorts: participation.DisjointCohorts, levels_done: int
) -> np.ndarray:
    """Returns who took part in the first levels of a run: bool, shape [clients]."""
    participated = np.zeros(cohorts.population_size, bool)
    for number in range(levels_done):
        participated = participation.mark_participants(
            participated, cohorts.cohort(number)
        )
    return participated
