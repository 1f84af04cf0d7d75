"""Synthetic words: clients who type at the frequencies of a real language.

Each client types T words, independently of the others, where T is log-normal, rounded
up, and at most 100,000. Typed text is cut and filtered like a file's text. The kept
words are drawn independently from a law that all clients share, by default the
frequencies of the language's list of the wordfreq package (of English, 318,465 words
of books, subtitles, news, web pages, Twitter and Reddit); see `common_law`. Or clients
have habits: a client's words are a Pitman-Yor process over the common law; see
`pitman_yor`.
"""

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from federated_hh.files import memory, ordered_work, progress, verified_files
from federated_hh.populations.columns import (
    canonical_rows,
    column_writer,
    generated_words,
    packed_entries,
    raw_columns,
)
from federated_hh.populations.languages import languages, tokenizers
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import kept_words, word_table
from federated_hh.populations.synthetic import (
    alias_table,
    common_law,
    pitman_yor,
    typed_numbers,
    word_list,
)

MAX_WORDS_PER_CLIENT = typed_numbers.MAX_WORDS_PER_CLIENT

# Of a chunk, for which the arrays stay within the processor's caches, and are so long
# that threads do not wait for the interpreter. They decide which random numbers a
# client gets: with a change, `population.prepare` has to count a new format version.
_MAX_CLIENTS_PER_CHUNK = 1 << 13
_MAX_WORDS_KEPT_PER_CHUNK = 1 << 18
# Margin of the disk estimate over the clients of the first chunk.
_ROOM_FOR_COUNTS = 4


class WordsPerClient:
    """The distribution of the number of words that a client types.

    T = min(ceil(exp(mu + sigma * Z)), MAX_WORDS_PER_CLIENT), Z standard normal. mu is
    such that the mean of T, rounding and bound included, is the wanted mean. With sigma
    = 0, T is the mean itself.

    Attributes:
        mean: The mean of T.
    """

    def __init__(self, mean: float, sigma: float):
        """Solves for mu.

        Args:
            mean: The mean of T; above 1 if sigma is, else a whole number from 1.
            sigma: Standard deviation of the log of the unrounded number, at least 0.
        """
        self.mean, self._sigma = mean, sigma
        if sigma > 0:
            from scipy import optimize

            self._mu = optimize.brentq(
                lambda mu: self._mean_of(mu) - mean,
                -10.0 * sigma,
                math.log(MAX_WORDS_PER_CLIENT) + 10.0 * sigma,
            )

    def _mean_of(self, mu: float) -> float:
        from scipy import special

        # E[T] is the sum of P(T > k) over k from 0; P(T > 0) = 1.
        logs = np.log(np.arange(1, MAX_WORDS_PER_CLIENT))
        return 1.0 + float(special.ndtr((mu - logs) / self._sigma).sum())

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Draws independent numbers of words: int64 [size]."""
        if self._sigma == 0:
            return np.full(size, int(self.mean))
        typed = np.ceil(np.exp(self._mu + self._sigma * rng.standard_normal(size)))
        return np.clip(typed, 1, MAX_WORDS_PER_CLIENT).astype(np.int64)

    def probability_at_most(self, count: int) -> float:
        """Returns P(T <= count)."""
        if count < 1:
            return 0.0
        if count >= MAX_WORDS_PER_CLIENT:
            return 1.0
        if self._sigma == 0:
            return float(count >= self.mean)
        from scipy import special

        return float(special.ndtr((math.log(count) - self._mu) / self._sigma))


class Typing:
    """The outcome of a typed word: its kept words, with probabilities.

    Typed words without a kept word are thinned out exactly: of T typed words a binomial
    number is kept, drawn from the conditional distribution.

    Attributes:
        keep_probability: Probability that a typed word yields a kept word.
        dropped_probabilities: Probability that nothing is kept, by reason.
        share_beyond: The common law's share of words outside the list.
    """

    def __init__(self, kept: kept_words.KeptWords, law: common_law.CommonLaw) -> None:
        """Stores the words kept of the word list.

        Args:
            kept: Words kept of each typed word.
            law: The law of the words kept.
        """
        weights, dropped = kept.frequencies, kept.dropped
        if law.is_of_kept_words:
            dropped = {}
        kept_total = math.fsum(weights)
        total = kept_total + math.fsum(dropped.values())
        self.keep_probability = kept_total / total if dropped else 1.0
        self.dropped_probabilities = {k: v / total for k, v in dropped.items()}
        chances, self.share_beyond = law.of_words(weights)
        self._alias_table = alias_table.AliasTable(chances)
        self._flat, self._lengths = kept.codes, kept.lengths
        self._starts = np.concatenate(([0], np.cumsum(self._lengths)[:-1]))

    def chances(self, num_words: int) -> np.ndarray:
        """Returns each word's mean count, a word typed: float64 [num_words]."""
        of_entries = self._alias_table.probabilities()[: len(self._lengths)]
        each = np.repeat(self.keep_probability * of_entries, self._lengths)
        return np.bincount(self._flat, each, num_words)

    def draw(
        self,
        rng: np.random.Generator,
        clients: np.ndarray,
        times: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Draws typed words that yield kept words.

        Args:
            rng: Source of randomness.
            clients: Integers [n], the client of each.
            times: Integers [n], counts; None for ones.

        Returns:
            Client, word id and count of each kept word, in the order of typing.
        """
        outcomes = self._alias_table.draw(rng, len(clients))
        if len(self._flat) == len(self._lengths):  # one word each
            return clients, self._flat[outcomes], times
        lengths = self._lengths[outcomes]
        words = self._flat[raw_columns.ranges(self._starts[outcomes], lengths)]
        if times is not None:
            times = np.repeat(times, lengths)
        return np.repeat(clients, lengths), words, times


def _chunk(
    index: int,
    size: int,
    options: population_options.PopulationOptions,
    law: WordsPerClient | typed_numbers.TypedNumbers,
    typing: Typing,
) -> tuple[canonical_rows.Rows, np.ndarray]:
    """Draws a chunk of clients.

    Args:
        index: The index of the chunk; decides its random numbers together with the
            seed.
        size: Number of clients.
        options: The seed of the population, and the clients' law.
        law: The law of the number of words typed.
        typing: The law that the words are typed by.

    Returns:
        The clients, and the number of typed words dropped for each reason.
    """
    seeds = np.random.SeedSequence(options.seed, spawn_key=(index,))
    rng = np.random.Generator(np.random.SFC64(seeds))
    typed = law.draw(rng, size)
    kept = typed
    if typing.keep_probability < 1:
        kept = rng.binomial(typed, typing.keep_probability)
    dropped = np.zeros(0, np.int64)
    if typing.dropped_probabilities:
        shares = np.array([*typing.dropped_probabilities.values()])
        dropped = rng.multinomial(typed.sum() - kept.sum(), shares / shares.sum())
    owners, times = np.repeat(np.arange(size), kept), None
    if options.client_law == "pitman_yor":
        is_new, times = pitman_yor.seat(
            rng, kept, options.client_discount, options.client_concentration
        )
        owners = owners[is_new]
    owners, words, times = typing.draw(rng, owners, times)
    return canonical_rows.rows(owners, words, times, size), dropped


def _bytes_per_client(rows: canonical_rows.Rows, num_words: int) -> float:
    """Returns an upper estimate of a client's bytes on disk, from the first clients."""
    packing = packed_entries.Packing.of(num_words)
    # A client of the rest may have a word much more often; then entries of eight bytes
    # are written while those of four are still there.
    fit = rows.counts.max(initial=1) * _ROOM_FOR_COUNTS <= packing.max_count
    per_entry = 4 if fit and packing.dtype.itemsize == 4 else 12
    return 12 + per_entry * len(rows.word_ids) / len(rows.row_lengths)


def _check_disk(
    writer: column_writer.ColumnWriter,
    options: population_options.PopulationOptions,
    bytes_per_client: float,
) -> None:
    """Refuses a population that will not fit, judging by the first clients."""
    memory.check_disk(
        writer.directory,
        int(options.num_clients * bytes_per_client),
        f"a synthetic population of {options.num_clients:,} clients (--num_clients) "
        f"with {options.mean_words_per_client:g} words each "
        "(--mean_words_per_client)",
    )


def _laws(
    directory: pathlib.Path,
    options: population_options.PopulationOptions,
    tokenizer: tokenizers.Tokenizer,
    table: word_table.WordTable,
    identity: Mapping[str, Any] | None,
) -> tuple[typed_numbers.TypedNumbers | WordsPerClient, kept_words.KeptWords, Typing]:
    """Returns the laws of typed numbers, the kept words, and their law.

    Args:
        directory: Directory to be written, inside the population cache.
        options: See `build`; so are the others.
        tokenizer: Cuts typed text.
        table: Filters the words.
        identity: Everything that decides the population, or None.
    """
    law: typed_numbers.TypedNumbers | WordsPerClient
    if options.words_per_client:
        law = typed_numbers.read(options.words_per_client)
    else:
        law = WordsPerClient(
            options.mean_words_per_client, options.words_per_client_sigma
        )

    def keep() -> kept_words.KeptWords:
        listed = languages.words(options.language)
        if options.common_words:
            listed = word_list.read(
                options.common_words, options.common_law == "frequencies"
            )
        return kept_words.KeptWords.of(tokenizer, table, listed)

    if identity is None:
        kept = keep()
    else:
        kept = kept_words.KeptWords.find_or_make(directory.parent, identity, keep)
    return law, kept, Typing(kept, common_law.CommonLaw.of(options))


def build_law(
    writer: generated_words.LawWriter,
    options: population_options.PopulationOptions,
    tokenizer: tokenizers.Tokenizer,
    table: word_table.WordTable,
    identity: Mapping[str, Any],
) -> dict[str, Any]:
    """Writes the law of a generated population.

    Args:
        writer: The law's writer.
        options: See `build`; so are the others.
        tokenizer: Cuts typed text.
        table: Filters the words.
        identity: Everything that decides the population.

    Returns:
        "client_ids" for the writer, and facts about the law: "dropped_words" are
        expectations.
    """
    law, kept, typing = _laws(writer.directory, options, tokenizer, table, identity)
    typed_ends = np.array(
        [law.probability_at_most(k) for k in range(1, MAX_WORDS_PER_CLIENT + 1)]
    )
    typed_ends = typed_ends[: 1 + int(np.argmax(typed_ends == 1.0))]
    writer.set_law(kept.words, typing.chances(len(kept.words)), typed_ends)
    every = options.num_clients * law.mean
    return {
        "client_ids": None,
        "num_clients": options.num_clients,
        "seed": options.seed,
        "dropped_words": {
            reason: round(every * share)
            for reason, share in typing.dropped_probabilities.items()
        },
        "missing_characters": kept.missing,
        "common_law_beyond_list": typing.share_beyond,
    }


def build(
    writer: column_writer.ColumnWriter,
    options: population_options.PopulationOptions,
    tokenizer: tokenizers.Tokenizer,
    table: word_table.WordTable,
    identity: Mapping[str, Any] | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Writes the columns of a synthetic population.

    Args:
        writer: The writer of the population.
        options: The number of clients, the law of words per client, the seed, and the
            treatment of clients without words.
        tokenizer: Cuts typed text.
        table: Filters the words.
        identity: Everything that decides the population, for finding the cached kept
            words; see `population.describe`. None to compute it.
        threads: Thread count; None for one per core. The result does not depend on it.

    Returns:
        "client_ids" for the writer, and facts about the data.

    Raises:
        PopulationError: If no client has a word.
    """
    law, kept, typing = _laws(writer.directory, options, tokenizer, table, identity)
    mean_kept = law.mean * typing.keep_probability
    chunk_size = min(
        _MAX_CLIENTS_PER_CHUNK, math.ceil(_MAX_WORDS_KEPT_PER_CHUNK / mean_kept)
    )
    num_clients = options.num_clients
    empty = 0
    dropped = np.zeros(len(typing.dropped_probabilities), np.int64)

    def draw(index: int):
        size = min(chunk_size, num_clients - index * chunk_size)
        return _chunk(index, size, options, law, typing)

    writer.set_words(kept.words)
    chunks = math.ceil(num_clients / chunk_size)
    title = f"Drawing synthetic {languages.get(options.language).name}"
    with progress.Progress(title, num_clients, "clients") as bar:
        for index, chunk in enumerate(ordered_work.in_order(draw, chunks, threads)):
            rows, chunk_dropped = chunk
            dropped += chunk_dropped
            without = int((rows.row_lengths == 0).sum())
            empty += without
            if index == 0:
                _check_disk(writer, options, _bytes_per_client(rows, len(kept.words)))
            if without and options.empty_clients == "drop":
                rows = rows.without_empty()
            writer.append_rows(rows)
            bar.set(min((index + 1) * chunk_size, num_clients))
    if empty == num_clients:
        raise verified_files.PopulationError(
            f"none of the {num_clients} clients has a word left after the tokenizer, "
            "the alphabet and the known words; ask for more clients or more words "
            "per client."
        )
    return {
        "client_ids": None,
        "clients_without_words": empty,
        "dropped_words": dict(
            zip(typing.dropped_probabilities, dropped.tolist(), strict=True)
        ),
        "missing_characters": kept.missing,
        "common_law_beyond_list": typing.share_beyond,
        "numpy_version": np.__version__,
    }
