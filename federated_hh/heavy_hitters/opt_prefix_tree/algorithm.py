"""OptPrefixTree: a prefix tree whose levels adapt to what was found before.

Chadha et al. 2023, "Differentially private heavy hitter detection using federated
analytics". Each round asks clients that never took part before. A client chooses one of
its words whose prefix is in the tree, and sends one report of a local randomizer over
the tree's prefixes extended by a segment of symbols. Two parameters of a round follow
from what earlier rounds released, so they cost nothing: the segment is as long as the
number of prefixes and the largest number of candidates allow, and the votes that a
candidate needs are the fewest with which few of those kept are expected to be noise. A
further pass leaves out the words found before, on the client.

The paper encodes words in bits, and measures segments in bits; here they are symbols of
the alphabet, of which the last of a word is its end.

    algorithm = OptPrefixTree(population, OptPrefixTreeOptions(epsilon=8.0), alphabet)
    outcome = run.run(algorithm, directory, seed=1)
    print(outcome.states[0].found)
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import pandas as pd
import tensorflow as tf

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import found_words, selection
from federated_hh.heavy_hitters.found_words import FoundWord
from federated_hh.heavy_hitters.opt_prefix_tree.options import OptPrefixTreeOptions
from federated_hh.heavy_hitters.opt_prefix_tree.segments import Segment
from federated_hh.options.fields import OptionError
from federated_hh.populations import population
from federated_hh.populations.columns import client_words
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.local import plan as local_reports_plan
from federated_hh.privacy.local import vote_law
from federated_hh.randomizers import (
    arguments,
    by_name,
    local_randomizer,
    subset_selection,
)
from federated_hh.randomness import identities, streams
from federated_hh.rounds import algorithm, block_round, client_bytes, samplers
from federated_hh.runtime import compiled

# Clients of a TFF client value.
_BLOCK_SIZE = 50_000


@dataclasses.dataclass(frozen=True)
class OptPrefixTreeState:
    """The server's state between rounds.

    Attributes:
        prefixes: The prefixes that may grow: uint16, shape [prefixes, depth].
        found: The words found so far.
        pass_number: The pass in progress, from 1.
        rounds: Rounds of this pass that are done.
        finished: Whether the last pass is done.
    """

    prefixes: np.ndarray
    found: tuple[FoundWord, ...] = ()
    pass_number: int = 1
    rounds: int = 0
    finished: bool = False


@identities.identity("federated_hh.opt_prefix_tree.OptPrefixTree")
class OptPrefixTree(algorithm.Algorithm[OptPrefixTreeState, np.ndarray]):
    """OptPrefixTree over a population, one report of a client."""

    contents = "words"
    Options = OptPrefixTreeOptions

    def __init__(
        self,
        clients: client_words.ClientWords,
        options: OptPrefixTreeOptions,
        alphabet: alphabet_lib.Alphabet,
        *,
        population_has_empty_users: bool = False,
    ):
        """Makes the plan.

        Args:
            clients: The population.
            options: Options of the run.
            alphabet: Has all characters of the population's words.
            population_has_empty_users: Whether clients without words are in it.

        Raises:
            ValueError: If the population has fewer clients than are asked, a word has
                a character outside the alphabet, or an option is out of its range.
        """
        self.clients = clients
        self.options = options
        self.alphabet = alphabet
        self.max_rounds = options.num_rounds * options.num_passes
        if alphabet.num_symbols > options.max_candidates:
            raise ValueError(
                f"max_candidates is {options.max_candidates:,}; the first characters "
                f"of words alone are {alphabet.num_symbols:,} candidates. Give that "
                "or more, or a smaller alphabet (--alphabet)"
            )
        cohort_size = options.cohort_size or clients.num_clients // self.max_rounds
        if cohort_size < 1:
            raise ValueError(
                f"num_rounds is {options.num_rounds} and num_passes "
                f"{options.num_passes}: {self.max_rounds} rounds need as many clients, "
                f"and the population has {clients.num_clients:,}"
            )
        make: Any = by_name.randomizer(options.randomizer)
        replacement_epsilon = math.inf
        if not math.isinf(options.epsilon):
            arguments.check_memory(
                make, options.epsilon, options.max_candidates + 1, cohort_size
            )
            largest = make(options.epsilon, options.max_candidates + 1)
            replacement_epsilon = largest.guarantee.replacement_epsilon
        self.plan = plan_lib.Plan(
            sampler=samplers.DisjointCohorts(clients.num_clients, cohort_size),
            contribution=local_reports_plan.OneReport(
                randomizer=make,
                epsilon=options.epsilon,
                replacement_epsilon=replacement_epsilon,
                name=None
                if make is subset_selection.SubsetSelection
                else identities.label_of(make),
                num_rounds=self.max_rounds,
                max_candidates=options.max_candidates,
                population_has_empty_users=population_has_empty_users,
                draws_sum=options.report_sampling == "aggregate",
                algorithm="OptPrefixTree",
            ),
            mechanism=plan_lib.NoNoise(),
        )
        self._codes = alphabet.encode(clients.words, options.max_depth + 1)
        words = clients.words.to_pylist()
        self._place_of_word = {word: i for i, word in enumerate(words)}
        self._columns = selection.MappedColumns(clients)
        # Levels with as many candidates are the same computation.
        self._votes = functools.lru_cache(maxsize=1)(self._build_round)

    @classmethod
    def of(cls, options, population_options, cache, seed) -> Self:
        """Makes one for `federated_hh.run_algorithm`."""
        del seed
        return cls(
            population.prepare(population_options, cache),
            options,
            alphabet_lib.Alphabet(population_options.characters),
            population_has_empty_users=population_options.empty_clients == "keep",
        )

    def describe(self) -> Mapping[str, Any]:
        """Returns everything that a sum of reports depends on besides the plan."""
        options = dataclasses.asdict(self.options) | {"epsilon": None}
        del options["report_sampling"]  # the plan has it
        return {
            "population": self.clients.fingerprint,
            "alphabet": self.alphabet.fingerprint,
            "options": options,
        }

    def initialize(self, repeat: int) -> OptPrefixTreeState:
        """Returns the state before the first round."""
        del repeat
        return OptPrefixTreeState(_root())

    def check_detection(self) -> None:
        """Checks that the first round could find a prefix that all clients report.

        Raises:
            OptionError: If it would pass for noise.
        """
        candidates = self.segment(self.initialize(0)).size
        law = self._law(candidates)
        votes = math.floor(law.num_reports * law.own)
        if candidates * law.noise_tail(votes) > self.options.false_share:
            raise OptionError(
                self.options,
                "{epsilon=}: nothing can be found. Not even a prefix that all "
                f"{law.num_reports:,} clients of a round report stands out from the "
                f"noise on {candidates:,} candidates; give a larger {{epsilon}}, fewer "
                "{num_rounds}, fewer {max_candidates}, or more clients",
            )

    def _law(self, num_candidates: int) -> vote_law.VoteLaw:
        """Returns the law of a candidate's votes."""
        randomizer = self.plan.contribution.made(num_candidates)
        return vote_law.VoteLaw(
            num_reports=self.plan.sampler.cohort_size,
            own=float(randomizer.own_probability) if randomizer else 1.0,
            other=float(randomizer.other_probability) if randomizer else 0.0,
        )

    def segment(self, state: OptPrefixTreeState) -> Segment:
        """Returns the strings by which the next round extends the prefixes."""
        prefixes, depth = state.prefixes.shape
        most = self.options.max_depth + 1 - depth
        found = Segment(self.alphabet.size, 1, most == 1)
        for length in range(2, most + 1):
            longer = Segment(self.alphabet.size, length, length == most)
            if prefixes * longer.size > self.options.max_candidates:
                break
            found = longer
        return found

    def next_query(
        self, state: OptPrefixTreeState
    ) -> algorithm.Query[np.ndarray] | None:
        """Returns the question for reports on the extended prefixes."""
        if state.finished:
            return None
        num_candidates = len(state.prefixes) * self.segment(state).size
        return algorithm.Query(
            functools.partial(self._collect, state, num_candidates),
            {
                local_reports_plan.CANDIDATES: num_candidates,
                local_reports_plan.REPORTS: self.plan.sampler.cohort_size,
            },
            functools.partial(self._client_bytes, state, num_candidates),
        )

    def update(
        self, state: OptPrefixTreeState, released: np.ndarray
    ) -> tuple[OptPrefixTreeState, Mapping[str, float | int]]:
        """Returns the state after a round's votes, and its metrics.

        Args:
            state: The state that the clients were told about.
            released: int64 [candidates]: the votes.
        """
        segment = self.segment(state)
        law = self._law(len(released))
        least = self._least_votes(law, released)
        kept = np.flatnonzero(released >= least)
        parents, strings = np.divmod(kept, segment.size)
        codes = np.concatenate(
            [state.prefixes[parents], segment.codes(strings)], axis=1
        )
        ended = codes[:, -1] == self.alphabet.end
        found = self._found(state, law, codes[ended], released[kept[ended]])
        grows = np.flatnonzero(~ended)
        most = self.options.max_candidates // self.alphabet.num_symbols
        if len(grows) > most:  # those with the most votes, of equal ones the first
            votes = released[kept[grows]]
            grows = np.sort(grows[np.argsort(-votes, kind="stable")[:most]])
        metrics = {
            "pass_number": state.pass_number,
            "depth": codes.shape[1],
            "segment": segment.length,
            "candidates": len(released),
            "least_votes_kept": least,
            "least_estimate_kept": float(law.estimate(np.array(least))),
            "noise_standard_deviation": float(law.standard_error(np.zeros([]))),
            "prefixes_kept": len(grows),
            "words_found": len(found),
            "expected_false_candidates": len(released) * law.noise_tail(least),
        }
        return self._next(state, codes[grows], found), metrics

    def results(self, state: OptPrefixTreeState) -> Mapping[str, pd.DataFrame]:
        """Returns the words found, those with the largest estimates first."""
        names = [field.name for field in dataclasses.fields(FoundWord)]
        rows = [dataclasses.astuple(word) for word in state.found]
        table = pd.DataFrame(rows, columns=names).rename(
            columns={"text": "word", "level": "characters"}
        )
        table = table.sort_values("estimate", ascending=False, kind="stable")
        return {"heavy_hitters": table.reset_index(drop=True)}

    def progress(self, row: Mapping[str, float | int]) -> str:
        """Returns the log line of a round."""
        return (
            f"{row['candidates']:,} candidates of up to {row['depth']} symbols: "
            f"{row['prefixes_kept']:,} prefixes and {row['words_found']:,} words kept"
        )

    def _next(self, state, prefixes, found) -> OptPrefixTreeState:
        """Returns the state after a round that kept prefixes and found words."""
        found = (*state.found, *found)
        rounds = state.rounds + 1
        if len(prefixes) and rounds < self.options.num_rounds:
            return OptPrefixTreeState(prefixes, found, state.pass_number, rounds)
        if state.pass_number == self.options.num_passes:
            return OptPrefixTreeState(
                prefixes, found, state.pass_number, rounds, finished=True
            )
        return OptPrefixTreeState(_root(), found, state.pass_number + 1)

    def _least_votes(self, law: vote_law.VoteLaw, votes: np.ndarray) -> int:
        """Returns the fewest votes of a kept candidate.

        From the most votes down, the last number with which at most `false_share` of
        the kept candidates are expected to be noise; one more than the most votes where
        there is none.
        """
        counts, numbers = np.unique(votes[votes > 0], return_counts=True)
        least = int(counts[-1]) + 1 if len(counts) else 1
        kept = 0
        for count, number in zip(counts[::-1], numbers[::-1], strict=True):
            kept += int(number)
            expected = len(votes) * law.noise_tail(int(count))
            if expected > self.options.false_share * kept:
                break
            least = int(count)
        return least

    def _found(self, state, law, codes, votes) -> list[FoundWord]:
        """Returns the words of ended candidates that no earlier pass found."""
        earlier = {word.text for word in state.found}
        estimates = law.estimate(votes)
        errors = law.standard_error(np.clip(estimates, 0, law.num_reports))
        texts = [self.alphabet.decode(row) for row in codes]
        return [
            FoundWord(
                text,
                state.pass_number,
                int(np.count_nonzero(row != self.alphabet.end)),
                int(vote),
                float(estimate),
                float(error),
            )
            for text, row, vote, estimate, error in zip(
                texts, codes, votes, estimates, errors, strict=True
            )
            # The empty word is no word.
            if text and text not in earlier
        ]

    def _collect(
        self,
        state: OptPrefixTreeState,
        num_candidates: int,
        cohort: np.ndarray,
        stream: streams.Stream,
    ) -> np.ndarray:
        """Returns how many clients of a cohort chose each candidate."""
        message = {
            "item_of_word": self._items(state).astype(np.int32),
            "seed": stream.stateless_seed("words"),
        }
        return self._votes(num_candidates)(message, cohort, stream)["votes"]

    def _client_bytes(
        self, state: OptPrefixTreeState, num_candidates: int
    ) -> client_bytes.ClientBytes:
        """Returns a client's bytes: prefixes, earlier passes' words, and a report."""
        earlier = found_words.of_earlier(state.found, state.pass_number)
        clients = self.plan.sampler.cohort_size
        return client_bytes.ClientBytes(
            self.alphabet.num_bytes(state.prefixes) + client_bytes.of_words(earlier),
            client_bytes.of_reports(self.plan.contribution, num_candidates, clients),
        )

    def _items(self, state: OptPrefixTreeState) -> np.ndarray:
        """Returns the candidate of each word of the population, or -1."""
        depth = state.prefixes.shape[1]
        segment = self.segment(state)
        place = {row.tobytes(): i for i, row in enumerate(state.prefixes)}
        begins = np.ascontiguousarray(self._codes[:, :depth])
        parents = np.array([place.get(row.tobytes(), -1) for row in begins], np.int64)
        strings = segment.numbers(self._codes[:, depth : depth + segment.length])
        items = np.where(
            (parents >= 0) & (strings >= 0), parents * segment.size + strings, -1
        )
        denied = found_words.places_of_earlier(
            state.found, state.pass_number, self._place_of_word
        )
        items[denied] = -1
        return items

    def _build_round(self, num_candidates: int) -> block_round.BlockRound:
        randomizer = None
        if self.options.report_sampling == "per_report":
            randomizer = self.plan.contribution.made(num_candidates)

        def work(message, block):
            with compiled.reading():
                items = self._items_of_block(message, block)
            if randomizer is not None:
                reports = randomizer.sum_per_report(
                    tf.where(items >= 0, items, num_candidates),
                    local_randomizer.fold_in(block["seed"], 1),
                )
                votes = tf.cast(reports[:num_candidates], tf.int64)
                return {"votes": tf.ensure_shape(votes, [num_candidates])}
            return {"votes": selection.votes(items, num_candidates, _BLOCK_SIZE)}

        return block_round.BlockRound(work, {"votes": 1}, block_size=_BLOCK_SIZE)

    def _items_of_block(self, message, block) -> tf.Tensor:
        """Returns each client's candidate, or -1: int32, shape [block]."""
        clients = block["clients"]
        if not self.clients.num_entries:  # what is mapped cannot be empty
            return tf.fill(tf.shape(clients), -1)
        columns = self._columns
        entries, splits = columns.entries_of(clients)
        items = tf.gather(message["item_of_word"], columns.word_ids(entries))
        weights = tf.ones_like(items, tf.int64)
        if self.options.selection == "by_frequency":
            weights = columns.counts(entries)
        weights = tf.where(items >= 0, weights, 0)
        if self.options.selection == "most_frequent":
            weights = self._of_favorites(columns, clients, entries, splits, weights)
        bits = selection.random_bits(
            message["seed"], block["first_place"], tf.size(clients)
        )
        starts, ends = splits[:-1], splits[1:]
        drawn = selection.drawn_by_count(weights, starts, ends, bits)
        totals = tf.concat([[0], tf.cumsum(weights)], axis=0)
        has_one = tf.gather(totals, ends) > tf.gather(totals, starts)
        items = tf.concat([items, [-1]], axis=0)
        return tf.where(has_one, tf.gather(items, drawn), -1)

    def _of_favorites(self, columns, clients, entries, splits, weights) -> tf.Tensor:
        """Returns weights, 0 for words that are not their client's favorite."""
        owners = tf.ragged.row_splits_to_segment_ids(splits)
        favorites = tf.gather(columns.favorites(), clients)
        is_favorite = tf.equal(columns.word_ids(entries), tf.gather(favorites, owners))
        return tf.where(is_favorite, weights, 0)


def _root() -> np.ndarray:
    """Returns the empty prefix: uint16, shape [1, 0]."""
    return np.zeros((1, 0), alphabet_lib.CODE_DTYPE)
