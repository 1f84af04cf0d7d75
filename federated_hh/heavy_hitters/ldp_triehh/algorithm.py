"""LDP TrieHH: heavy hitters from locally private reports.

Sun et al. 2024, "Private federated discovery of out-of-vocabulary words for Gboard",
Algorithm 2, to the letter: the trie begins with the whole alphabet (P_0), so that level
i votes on prefixes of i + 1 symbols, and level D completes words of up to D characters.
Each level has its own cohort, of N clients that never took part before. Each client
merges its words into the level's candidates, takes at most B of them, pads them to B
with "no item", and sends B reports of a local randomizer over the candidates and "no
item": Subset Selection, or any other. The server drops "no item", keeps the eta_max
candidates with most votes (all of those equal to the last), and takes kept candidates
that end as words. A further pass does it again without the words that earlier ones
found.

Where eta_max is more than the prefixes that people share, most of what is kept is
noise. Prefixes stay, as Algorithm 2 has it; of the words, those are released whose
estimate is at least `min_standard_errors` of its standard errors (`released`).

    algorithm = LdpTrieHH(population, parameters, alphabet)
    outcome = run.run(algorithm, directory, seed=1)
    print(outcome.states[0].found)
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import found_words, generated_clients
from federated_hh.heavy_hitters import trie as trie_lib
from federated_hh.heavy_hitters.found_words import FoundWord
from federated_hh.heavy_hitters.ldp_triehh.parameters import (
    Aggregation,
    LdpTrieHHParameters,
    ReportSampling,
    check_num_candidates,
)
from federated_hh.populations.columns import generated_words
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.local import plan as local_reports_plan
from federated_hh.randomizers import local_randomizer
from federated_hh.randomness import identities, streams
from federated_hh.rounds import algorithm, block_round, client_bytes, samplers
from federated_hh.runtime import compiled, runtime

# Blocks of some 25,000 devices keep the arrays of a block near 100 MB. The votes of all
# blocks stay in the worker until they are summed, 8 MB a block for a million
# candidates: where blocks are many they are larger.
_DEVICES_PER_BLOCK = 25_000
_MANY_BLOCKS = 40
_MOST_DEVICES_PER_BLOCK = 100_000


@dataclasses.dataclass(frozen=True)
class LdpTrieHHState:
    """The server's state between levels.

    Attributes:
        trie: The trie of the pass in progress; its first level is the alphabet.
        found: The words found so far.
        pass_number: The pass in progress, from 1.
        finished: Whether the last level of the last pass is done.
    """

    trie: trie_lib.PrefixTrie
    found: tuple[FoundWord, ...] = ()
    pass_number: int = 1
    finished: bool = False

    @property
    def level(self) -> int:
        """The level that comes next, from 1."""
        return self.trie.depth


def plan_of(
    parameters: LdpTrieHHParameters,
    num_clients: int,
    *,
    report_sampling: ReportSampling = ReportSampling.AGGREGATE,
    aggregation: Aggregation = Aggregation.SECURE_SUM,
    population_has_empty_users: bool = False,
) -> plan_lib.Plan[
    samplers.DisjointCohorts, local_reports_plan.LdpTrieHHReports, plan_lib.NoNoise
]:
    """Returns the plan of LDP TrieHH.

    Args:
        parameters: Parameters of the run.
        num_clients: Clients of the population.
        report_sampling: Whether reports are drawn one by one, or their sum at once.
        aggregation: Protection of votes from the server.
        population_has_empty_users: Whether users without an item are in the population.
    """
    smallest = parameters.randomizer(1)
    reports = local_reports_plan.LdpTrieHHReports(
        randomizer=parameters.make_randomizer,
        epsilon=parameters.epsilon,
        replacement_epsilon=smallest.guarantee.replacement_epsilon
        if smallest
        else math.inf,
        name=None
        if parameters.is_subset_selection
        else identities.label_of(type(smallest)),
        bound=parameters.contribution_bound,
        sampler=parameters.sampler.value,
        draws_sum=report_sampling is ReportSampling.AGGREGATE,
        aggregation=aggregation.value,
        max_depth=parameters.max_depth,
        num_passes=parameters.num_passes,
        max_prefixes=parameters.max_prefixes,
        population_has_empty_users=population_has_empty_users,
    )
    return plan_lib.Plan(
        sampler=samplers.DisjointCohorts(num_clients, parameters.cohort_size),
        contribution=reports,
        mechanism=plan_lib.NoNoise(),
    )


@identities.identity("federated_hh.ldp_triehh.LdpTrieHH")
class LdpTrieHH(algorithm.Algorithm[LdpTrieHHState, np.ndarray]):
    """LDP TrieHH over a population."""

    def __init__(
        self,
        population: generated_words.Words,
        parameters: LdpTrieHHParameters,
        alphabet: alphabet_lib.Alphabet,
        *,
        report_sampling: ReportSampling = ReportSampling.AGGREGATE,
        aggregation: Aggregation = Aggregation.SECURE_SUM,
        population_has_empty_users: bool = False,
        num_blocks: int | None = None,
    ):
        """Prepares the population.

        Args:
            population: The clients; dictionary words were left out when it was
                prepared.
            parameters: Parameters of the run.
            alphabet: Has all characters of the population's words. The end symbol is
                one more symbol.
            report_sampling: See `plan_of`.
            aggregation: See `plan_of`.
            population_has_empty_users: See `plan_of`.
            num_blocks: Into how many client values a cohort is cut; part of what a
                result depends on. None: blocks of 25,000 devices, or if those are
                more than 40, 40 blocks of at most 100,000 devices, or more of them.

        Raises:
            ValueError: If num_blocks is below 1, a word has a character outside the
                alphabet, or see `LdpTrieHHParameters.check_sizes`.
        """
        self.population = population
        self.parameters = parameters
        self.alphabet = alphabet
        self.report_sampling = report_sampling
        self.aggregation = aggregation
        self.max_rounds = parameters.levels
        if num_blocks is None:
            num_blocks = _default_num_blocks(parameters.cohort_size)
        self._num_blocks = num_blocks
        self._block_size = block_round.block_size_of(parameters.cohort_size, num_blocks)
        parameters.check_sizes(
            population.num_clients, alphabet, self._block_size, report_sampling
        )
        self.plan = plan_of(
            parameters,
            population.num_clients,
            report_sampling=report_sampling,
            aggregation=aggregation,
            population_has_empty_users=population_has_empty_users,
        )
        self._items = generated_clients.items_of(
            population, parameters.sampler, parameters.contribution_bound
        )
        self._codes = alphabet.encode(population.words, parameters.max_depth + 1)
        words = population.words.to_pylist()
        self._place_of_word = {word: i for i, word in enumerate(words)}
        # Levels with as many candidates are the same computation.
        self._level = functools.lru_cache(maxsize=1)(self._build_level)
        # Of the class that the parameters name, which can do more than a plan needs.
        made: Any = self.plan.contribution.made
        self._randomizer = functools.lru_cache(maxsize=1)(made)

    def describe(self) -> Mapping[str, Any]:
        """Returns everything that a sum of reports depends on besides the plan."""
        return {
            "population": self.population.fingerprint,
            "alphabet": self.alphabet.fingerprint,
            "num_blocks": self._num_blocks,
        }

    def initialize(self, repeat: int) -> LdpTrieHHState:
        """Returns the state before the first level."""
        del repeat
        return LdpTrieHHState(self._first_trie())

    def _first_trie(self) -> trie_lib.PrefixTrie:
        """Returns P_0: every character is a prefix, without a vote."""
        characters = np.arange(self.alphabet.size)
        return trie_lib.PrefixTrie(self.alphabet).extend(
            characters, np.zeros_like(characters)
        )

    def next_query(self, state: LdpTrieHHState) -> algorithm.Query[np.ndarray] | None:
        """Returns the question for reports on the level's candidates."""
        if state.finished:
            return None
        num_candidates = state.trie.num_candidates
        self._randomizer(num_candidates)
        return algorithm.Query(
            functools.partial(self._collect, state),
            {
                local_reports_plan.CANDIDATES: num_candidates,
                local_reports_plan.REPORTS: self.parameters.reports_per_level,
            },
            functools.partial(self._client_bytes, state),
        )

    def results(self, state: LdpTrieHHState) -> Mapping[str, pd.DataFrame]:
        """Returns the released words, those with the largest estimates first."""
        names = [field.name for field in dataclasses.fields(FoundWord)]
        least = self.parameters.min_standard_errors
        released = [word for word in state.found if word.stands_out(least)]
        rows = [dataclasses.astuple(word) for word in released]
        table = pd.DataFrame(rows, columns=names).rename(columns={"text": "word"})
        table = table.sort_values("estimate", ascending=False, kind="stable")
        return {"heavy_hitters": table.reset_index(drop=True)}

    def worker(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the worker, with two blocks in memory at once."""
        return runtime.computing(max_concurrent_calls=2)

    def progress(self, row: Mapping[str, float | int]) -> str:
        """Returns the log line of a level."""
        passes = self.parameters.num_passes
        which = f"pass {row['pass_number']} of {passes}, " if passes > 1 else ""
        kept, most = row["prefixes_kept"], self.parameters.max_prefixes
        ties = f" ({kept - most:,} more than --max_prefixes, by ties)" * (kept > most)
        false = found_words.false_words(row["expected_false_words"])
        return (
            f"{which}{kept:,} of {row['candidates']:,} prefixes kept{ties}; "
            f"{found_words.counted(int(row['words_released']))} of length "
            f"{row['level']:,} found ({false} expected to be false)"
        )

    def _collect(
        self, state: LdpTrieHHState, cohort: np.ndarray, stream: streams.Stream
    ) -> np.ndarray:
        """Returns the sum of a cohort's reports, or of its true items.

        That depends on `report_sampling`; int64 [candidates].
        """
        level = self._level(state.trie.num_candidates)
        seed = stream.stateless_seed("items")
        message = self._items.message(self._candidate_of_word(state), seed)
        return level(message, cohort, stream)["votes"]

    def _client_bytes(self, state: LdpTrieHHState) -> client_bytes.ClientBytes:
        """Returns a client's bytes: prefixes and earlier passes' words, and reports."""
        earlier = found_words.of_earlier(state.found, state.pass_number)
        candidates = state.trie.num_candidates
        return client_bytes.ClientBytes(
            self.alphabet.num_bytes(state.trie.frontier())
            + client_bytes.of_words(earlier),
            client_bytes.of_reports(
                self.plan.contribution, candidates, self.parameters.cohort_size
            ),
        )

    def _candidate_of_word(self, state: LdpTrieHHState) -> np.ndarray:
        """Returns the learned prefixes, as the candidate of each distinct word.

        A device walks the trie along its words. A word is walked once here, not once
        for each device that has it, and devices look the result up.
        """
        candidates = state.trie.candidates_of(self._codes)
        known = found_words.places_of_earlier(
            state.found, state.pass_number, self._place_of_word
        )
        candidates[known] = -1
        return candidates.astype(np.int32)

    def _build_level(self, num_candidates: int) -> block_round.BlockRound:
        """Returns a level's selection, randomization and sum."""
        parameters = self.parameters
        bound = parameters.contribution_bound
        randomizer, largest = None, 1
        if self.report_sampling is ReportSampling.PER_REPORT:
            randomizer, largest = self._randomizer(num_candidates), bound

        def counted(items):
            # Items beyond the candidates are dropped: padding.
            return local_randomizer.counted(items, num_candidates)

        def votes_of_block(message, block):
            with compiled.reading():
                items = self._items.items_of_block(message, block)
            if randomizer is None:
                most = self._block_size * bound
                items = compiled.padded(items, most, num_candidates)
                votes = compiled.compiled(counted)(items)
            else:
                padding = tf.size(block["clients"]) * bound - tf.size(items)
                items = tf.concat([items, tf.fill([padding], num_candidates)], axis=0)
                reports = randomizer.sum_per_report(
                    items, local_randomizer.fold_in(block["seed"], 1)
                )
                votes = reports[:num_candidates]
            return {"votes": tf.ensure_shape(votes, [num_candidates])}

        in_the_open = self.aggregation is Aggregation.EPHEMERAL
        return block_round.BlockRound(
            votes_of_block,
            {"votes": None if in_the_open else largest},
            block_size=self._block_size,
            growing=self._items.growing,
        )

    def update(
        self, state: LdpTrieHHState, released: np.ndarray
    ) -> tuple[LdpTrieHHState, Mapping[str, float | int]]:
        """Updates the server's state by the votes: lines 21 to 24 of Algorithm 2.

        Args:
            state: The state that the clients were told about.
            released: int64 [candidates]: the votes.

        Returns:
            The next state, and the metrics of the level: how many clients, reports,
            candidates, prefixes kept and words found; how many of the kept prefixes
            are inside the noise, with an estimate below 3 standard errors; how many
            words are released, and how many candidates for a word that nobody of the
            cohort reports on are released on average, at most; the votes that the
            last kept candidate has, the estimated count that follows from them, and
            the standard deviation of the estimate for a prefix that nobody has.

        Raises:
            ValueError: If ties leave more prefixes than the next level can extend.
        """
        kept, least = self._kept(released)
        trie = state.trie.extend(kept, released[kept])
        if state.level < self.parameters.max_depth:
            check_num_candidates(len(kept), trie.num_candidates)
        found = self._found(state, kept, released)
        metrics = {
            "pass_number": state.pass_number,
            "level": state.level,
            "clients": self.parameters.cohort_size,
            "reports": self.parameters.reports_per_level,
            "candidates": len(released),
            "least_votes_kept": least,
            "prefixes_kept": len(kept),
            "words_found": len(found),
            **self._noise(state, found, released[kept], least),
        }
        pass_number = state.pass_number
        finished = False
        if state.level == self.parameters.max_depth or trie.num_candidates == 0:
            finished = pass_number == self.parameters.num_passes
            if not finished:
                pass_number += 1
                trie = self._first_trie()
        words = (*state.found, *found)
        return LdpTrieHHState(trie, words, pass_number, finished), metrics

    def _noise(
        self,
        state: LdpTrieHHState,
        found: list[FoundWord],
        votes: np.ndarray,
        least: int,
    ) -> dict[str, float | int]:
        """Compares the votes of kept candidates with a level's noise."""
        return found_words.against_noise(
            self.parameters.vote_law(self._randomizer(state.trie.num_candidates)),
            found,
            votes,
            least_votes=least,
            new_words=self._new_words(state),
            min_standard_errors=self.parameters.min_standard_errors,
        )

    def _new_words(self, state: LdpTrieHHState) -> int:
        """Returns the number of a level's candidates for new words."""
        frontier = state.trie.frontier()
        known = {word.text for word in state.found if word.level == state.level}
        if not known:
            return len(frontier)
        return sum(self.alphabet.decode(codes) not in known for codes in frontier)

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
        randomizer = self._randomizer(state.trie.num_candidates)
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


def _default_num_blocks(clients: int) -> int:
    blocks = math.ceil(clients / _DEVICES_PER_BLOCK)
    if blocks > _MANY_BLOCKS:
        blocks = max(_MANY_BLOCKS, math.ceil(clients / _MOST_DEVICES_PER_BLOCK))
    return blocks
