"""Sequence Fragment Puzzle: words from local reports on their fragments.

Apple 2017, "Learning with Privacy at Scale", Algorithm 10, as in Zhu et al. 2020,
appendix C. A client takes one of the fragments of two characters of its word, each
equally likely, puts the word's hash before it, and sends one report of a count mean
sketch of the fragment's position. The server keeps the T fragments with the largest
estimates of each position, and makes a word of every choice of fragments, one a
position, that have one word hash.

    algorithm = SequenceFragmentPuzzle(population, SfpOptions(epsilon=4.0), alphabet)
    outcome = run.run(algorithm, directory, seed=1)
    print(outcome.states[0].words)
"""

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import pandas as pd
import tensorflow as tf
from absl import logging

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import generated_clients, selection
from federated_hh.heavy_hitters.sfp import options as sfp_options
from federated_hh.populations import population
from federated_hh.populations.columns import generated_words
from federated_hh.populations.languages import hangul
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.local import sketch_plan
from federated_hh.randomizers import count_mean_sketch, local_randomizer
from federated_hh.randomness import identities, streams
from federated_hh.rounds import algorithm, block_round, client_bytes, samplers
from federated_hh.runtime import compiled

# Clients per TFF client value; each returns one number per fragment.
_BLOCK_SIZE = 200_000
# Of all positions together: each is a number that a block gives back.
_MAX_ITEMS = 1 << 27
# Of the sketches of all positions.
_MAX_CELLS = 1 << 27


class StitchingError(ValueError):
    """Fragments make more words than the bound allows."""


@dataclasses.dataclass(frozen=True)
class Fragments:
    """The fragments with the largest estimates, of each position.

    Attributes:
        items: int64 [positions, T], by decreasing estimate: a word hash and two symbols
            in one number.
        estimates: float64 [positions, T]: of how many clients of the position have
            each.
    """

    items: np.ndarray
    estimates: np.ndarray

    def first(self, threshold: int) -> Self:
        """Returns the candidates that a smaller T would have kept."""
        return type(self)(self.items[:, :threshold], self.estimates[:, :threshold])


@dataclasses.dataclass(frozen=True)
class SfpState:
    """The server's state.

    Attributes:
        fragments: None before the round.
        words: Those that were found, as `SequenceFragmentPuzzle.stitch` has them; none
            where they would be more than `max_words`.
    """

    fragments: Fragments | None = None
    words: tuple[str, ...] = ()


@identities.identity("federated_hh.sfp.SequenceFragmentPuzzle")
class SequenceFragmentPuzzle(algorithm.Algorithm[SfpState, np.ndarray]):
    """The Sequence Fragment Puzzle over a population, each client's most frequent word.

    A client without a word has the empty one, all end symbols.
    """

    contents = "words"
    Options = sfp_options.SfpOptions
    max_rounds = 1

    def __init__(
        self,
        clients: generated_words.Words,
        options: sfp_options.SfpOptions,
        alphabet: alphabet_lib.Alphabet,
        *,
        population_has_empty_users: bool = False,
    ):
        """Makes the plan, and cuts the population's words into fragments.

        Args:
            clients: The population.
            options: Options of the run.
            alphabet: Has all characters of the population's words.
            population_has_empty_users: Whether clients without words are in it.

        Raises:
            ValueError: If the population has fewer clients than are asked, a word has
                a character outside the alphabet, or a parameter is out of its range.
        """
        self.clients = clients
        self.options = options
        self.alphabet = alphabet
        num_items = (
            options.num_positions * options.num_word_hashes * alphabet.num_symbols**2
        )
        if num_items > _MAX_ITEMS:
            raise ValueError(
                f"num_word_hashes is {options.num_word_hashes:,}: with "
                f"{alphabet.num_symbols:,} symbols and {options.num_positions} "
                f"positions it makes {num_items:,} fragments; at most {_MAX_ITEMS:,} "
                "are possible. Give fewer, or a smaller alphabet (--alphabet)"
            )
        self.sketch = count_mean_sketch.CountMeanSketch(
            options.epsilon,
            options.num_word_hashes * alphabet.num_symbols**2,
            num_hashes=options.num_hashes,
            num_cells=options.num_cells,
            hash_seed=options.hash_seed,
        )
        num_cells = options.num_positions * math.prod(self.sketch.sketch_shape)
        if num_cells > _MAX_CELLS:
            raise ValueError(
                f"num_hashes is {options.num_hashes:,}: with num_cells = "
                f"{options.num_cells:,} and {options.num_positions} positions the "
                f"sketches have {num_cells:,} numbers; at most {_MAX_CELLS:,} are "
                "possible"
            )
        draws_sum = options.report_sampling == "aggregate"
        self.plan = plan_lib.Plan(
            sampler=samplers.DisjointCohorts(
                clients.num_clients, options.cohort_size or clients.num_clients
            ),
            contribution=sketch_plan.SketchReports(
                sketch=self.sketch,
                num_groups=options.num_positions,
                draws_sum=draws_sum,
                algorithm=identities.label_of(type(self)),
                population_has_empty_users=population_has_empty_users,
            ),
            mechanism=plan_lib.NoNoise(),
        )
        self._fragments_path = clients.derived_column(
            f"fragments_{options.max_length}_{options.num_word_hashes}"
            f"_{options.hash_seed}_{alphabet.fingerprint}",
            self._fragments,
        )
        work = self._items_of_block if draws_sum else self._sketches_of_block
        self._sums = block_round.BlockRound(work, {"sums": 1}, block_size=_BLOCK_SIZE)

    @classmethod
    def of(cls, options, population_options, cache, seed) -> Self:
        """Makes one for `federated_hh.run_algorithm`."""
        del seed
        return cls(
            population.prepare_words(population_options, cache),
            options,
            alphabet_lib.Alphabet(population_options.characters),
            population_has_empty_users=population_options.empty_clients == "keep",
        )

    def describe(self) -> Mapping[str, Any]:
        """Returns everything that the sketches depend on besides the plan."""
        return {
            "population": self.clients.fingerprint,
            "alphabet": self.alphabet.fingerprint,
            "threshold": self.options.threshold,
        }

    def initialize(self, repeat: int) -> SfpState:
        """Returns the state before the round."""
        del repeat
        return SfpState()

    def next_query(self, state: SfpState) -> algorithm.Query[np.ndarray] | None:
        """Returns the one question."""
        if state.fragments is not None:
            return None
        return algorithm.Query(
            self._collect,
            {sketch_plan.REPORTS: self.plan.sampler.cohort_size},
            self._client_bytes,
        )

    def update(
        self, state: SfpState, released: np.ndarray
    ) -> tuple[SfpState, Mapping[str, float | int]]:
        """Returns the fragments and words that the sketches show.

        Args:
            state: Before the round.
            released: int64 [positions, *sketch_shape].
        """
        del state
        found = [self._largest(sketch) for sketch in released]
        items, estimates = (np.stack(part) for part in zip(*found, strict=True))
        fragments = Fragments(items, estimates)
        words: tuple[str, ...] = ()
        try:
            words = self.stitch(fragments)
        except StitchingError as error:
            # The fragments are kept: they have cost epsilon.
            logging.warning("No words were built: %s.", error)
        metrics = {
            "reports": int(released[:, :, -1].sum()),
            "fragments": items.size,
            "least_estimate_kept": float(estimates.min()),
            "noise_standard_deviation": self._noise(released),
            "words_found": len(words),
        }
        return SfpState(fragments, words), metrics

    def results(self, state: SfpState) -> Mapping[str, pd.DataFrame]:
        """Returns the words found, and the fragments that they were made of."""
        assert state.fragments is not None
        hashes, symbols = np.divmod(
            state.fragments.items.ravel(), self.alphabet.num_symbols**2
        )
        table = pd.DataFrame(
            {
                "position": np.repeat(
                    1 + 2 * np.arange(len(state.fragments.items)),
                    state.fragments.items.shape[1],
                ),
                "word_hash": hashes,
                "fragment": [self._text(pair) for pair in symbols],
                "estimate": state.fragments.estimates.ravel(),
            }
        )
        words = pd.DataFrame({"word": np.array(state.words, object)})
        return {"heavy_hitters": words, "fragments": table}

    def stitch(self, fragments: Fragments) -> tuple[str, ...]:
        """Builds words from fragments: a Cartesian product for each word hash.

        It makes as many words as the sum over word hashes of the product over positions
        of the fragments with that hash, at most T^positions.

        Args:
            fragments: A state's fragments, or the first of them.

        Returns:
            The words, in the order of their hashes and of their fragments' estimates,
            each once. What comes after an end symbol is cut off; the empty word is left
            out.

        Raises:
            StitchingError: There are more than `max_words`; raised before any is built.
        """
        by_hash: dict[int, list[list[int]]] = {}
        for position, items in enumerate(fragments.items):
            for item in items.tolist():
                word_hash, pair = divmod(item, self.alphabet.num_symbols**2)
                pairs = by_hash.setdefault(word_hash, [[] for _ in fragments.items])
                pairs[position].append(pair)
        work = sum(math.prod(map(len, pairs)) for pairs in by_hash.values())
        if work > self.options.max_words:
            raise StitchingError(
                f"threshold is {fragments.items.shape[1]}: its fragments make "
                f"{work:,} words, more than max_words = {self.options.max_words:,}. "
                "stitch(fragments.first(T)) uses fewer fragments and costs nothing; "
                "another run with a smaller threshold, a larger epsilon or more "
                "clients costs epsilon again"
            )
        found: dict[str, None] = {}
        for _, pairs in sorted(by_hash.items()):
            for chosen in itertools.product(*pairs):
                text = "".join(map(self._text, chosen))
                found[hangul.syllables(text.partition(_END)[0])] = None
        found.pop("", None)
        return tuple(found)

    def _text(self, pair: int) -> str:
        """Returns the characters of a fragment, the end symbol as NUL."""
        symbols = divmod(int(pair), self.alphabet.num_symbols)
        characters = self.alphabet.characters + _END
        return hangul.syllables("".join(characters[symbol] for symbol in symbols))

    def _largest(self, sketch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the T items of one position with the largest estimates, and these."""
        tally = self.sketch.tally_of_sketch(sketch)
        estimates = self.sketch.estimate(tally, int(sketch[:, -1].sum()))
        # Of equal estimates those with the smaller numbers.
        most = min(self.options.threshold, len(estimates))
        items = np.argsort(-estimates, kind="stable")[:most]
        return items, estimates[items]

    def _noise(self, released: np.ndarray) -> float:
        """Returns the mean standard deviation of estimates of items without a holder.

        By the noise of the reports alone: frequent items that meet others under a hash
        function add to it; see `variance_of_collisions`.
        """
        reports = released[:, :, -1].sum(axis=1)
        variances = [self.sketch.variance(np.zeros(1), int(n))[0] for n in reports]
        return float(np.mean(np.sqrt(variances)))

    def _collect(self, cohort: np.ndarray, stream: streams.Stream) -> np.ndarray:
        """Returns the sums over a cohort: of true items, or of reports."""
        message = {"seed": stream.stateless_seed("positions")}
        return np.asarray(self._sums(message, cohort, stream)["sums"])

    def _client_bytes(self) -> client_bytes.ClientBytes:
        """Returns a client's bytes: the alphabet, and a report with its position."""
        position = local_randomizer.bits_of_index(self.options.num_positions)
        report = client_bytes.of_bits(position + self.sketch.bits_per_report)
        asked = self.alphabet.num_bytes(np.zeros((0, 0), np.int64))
        return client_bytes.ClientBytes(asked, report)

    def _fragments(self) -> np.ndarray:
        """Returns each word's fragments, and last those of the empty word.

        int32 [words + 1, positions].
        """
        options, alphabet = self.options, self.alphabet
        words = [*self.clients.words.to_pylist(), ""]
        codes = alphabet.encode(words, options.max_length)
        codes = np.minimum(codes, alphabet.end).astype(np.int64)
        key = options.hash_seed.to_bytes(8, "little")
        hashes = np.array(
            [
                int.from_bytes(hashlib.sha256(key + word.encode()).digest()[:8], "big")
                % options.num_word_hashes
                for word in (word[: options.max_length] for word in words)
            ],
            np.int64,
        )
        symbols = alphabet.num_symbols
        pairs = codes[:, 0::2] * symbols + codes[:, 1::2]
        return (hashes[:, np.newaxis] * symbols**2 + pairs).astype(np.int32)

    def _chosen(self, message, block) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns each client's position, and its item: int32, shape [block]."""
        most = selection.WordSelection.MOST_FREQUENT
        words = generated_clients.words_of(self.clients).select(
            most, block["clients"], None
        )
        words = tf.where(words >= 0, words, self.clients.num_words)
        positions = self.options.num_positions
        bits = selection.random_bits(
            message["seed"], block["first_place"], tf.size(words)
        )
        drawn = tf.math.floormod(bits, tf.constant(positions, tf.uint64))
        position = tf.cast(drawn, tf.int32)
        fragments = tf.raw_ops.ImmutableConst(
            dtype=tf.int32,
            shape=[self.clients.num_words + 1, positions],
            memory_region_name=self._fragments_path,
        )
        return position, tf.gather_nd(fragments, tf.stack([words, position], axis=1))

    def _items_of_block(self, message, block):
        with compiled.reading():
            position, items = self._chosen(message, block)
        size, positions = self.sketch.domain_size, self.options.num_positions
        sums = selection.votes(position * size + items, positions * size, _BLOCK_SIZE)
        return {"sums": tf.reshape(sums, [positions, size])}

    def _sketches_of_block(self, message, block):
        with compiled.reading():
            position, items = self._chosen(message, block)
        sketches = [
            self.sketch.sketch_per_report(
                tf.boolean_mask(items, tf.equal(position, i)),
                local_randomizer.fold_in(block["seed"], i),
            )
            for i in range(self.options.num_positions)
        ]
        shape = [self.options.num_positions, *self.sketch.sketch_shape]
        return {"sums": tf.ensure_shape(tf.stack(sketches), shape)}


# No word has it; see `alphabet.Alphabet`.
_END = "\0"
