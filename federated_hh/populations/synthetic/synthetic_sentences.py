"""Synthetic sentences: a language with context to learn, of known distribution.

Words are those of the language's list (`languages.words`), as far as a sentence
tokenizer leaves them whole, with their frequencies q. A sentence has N words, where

    P(N = n) = (1 - p)^(n - 1) p,   p = 1 / mean_sentence_words,

so that it ends after each word with the same probability p. Its first word is drawn
from q. Each of the `context_words` most frequent words has its own list of followers:
`num_followers` words drawn from q, once, by the population's seed; the j-th has a
weight proportional to 1/j, and a word drawn twice has both weights. After such a word
the next one is, with probability `context_strength`, one of its followers, and else
drawn from q; after any other word it is drawn from q. That is a Markov chain of first
order.

A client writes S sentences, independently of what is in them, where S is a log-normal
number, rounded up, such that the mean number of words is the wanted one.
"""

import contextlib
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from federated_hh.files import freed_memory, memory, progress, verified_files
from federated_hh.populations.columns import client_text
from federated_hh.populations.languages import languages, sentence_tokenizers
from federated_hh.populations.options import population_options
from federated_hh.populations.synthetic import alias_table, synthetic_english
from federated_hh.randomness import streams

# Clients per chunk. A change changes the populations of a given seed.
_WORDS_IN_CHUNK = 1 << 19
_BYTES_OF_A_NAME = 26  # a client's number, its text and where that starts


class SyntheticLanguage:
    """A language: its words, and the law of its sentences.

    Attributes:
        options: Options of the language.
        words: The words, the most frequent first.
        frequencies: q: float64 [words], adding up to 1.
        followers: int64 [context_words, num_followers]: row i has the followers of word
            i, as indices of words.
        follower_weights: float64 [num_followers], adding up to 1.
    """

    def __init__(
        self,
        words: Sequence[str],
        frequencies: np.ndarray,
        options: population_options.LanguageOptions,
        seed: int,
    ):
        """Draws the followers.

        Args:
            words: The most frequent first.
            frequencies: Floats [words], above 0: their frequencies up to a factor.
            options: Options of the language.
            seed: Nonnegative seed of the followers.

        Raises:
            ValueError: If there are fewer words than are to have followers.
        """
        if options.context_words > len(words):
            raise ValueError(
                f"context_words is {options.context_words}; it has to be in "
                f"1..{len(words)}: the language has {len(words):,} words."
            )
        self.options = options
        self.words = tuple(words)
        self._from_frequencies = alias_table.AliasTable(frequencies)
        # Identity of the drawn values, to the last bit.
        drawn = self._from_frequencies.probabilities()
        self.frequencies = drawn[: len(words)]
        weights = 1.0 / np.arange(1, options.num_followers + 1)
        self._from_weights = alias_table.AliasTable(weights)
        drawn = self._from_weights.probabilities()
        self.follower_weights = drawn[: options.num_followers]
        shape = (options.context_words, options.num_followers)
        self.followers = self._from_frequencies.draw(
            streams.generator(seed, "followers"), math.prod(shape)
        ).reshape(shape)

    @classmethod
    def of_words(
        cls,
        options: population_options.LanguageOptions,
        seed: int,
        tokenizer: sentence_tokenizers.SentenceTokenizer,
        code: str = languages.DEFAULT,
    ) -> Self:
        """Returns the synthetic language of a real language's words.

        Args:
            options: Options of the language.
            seed: Seed, as in the constructor.
            tokenizer: Words that it would cut or change are left out.
            code: The real language's code.
        """
        frequencies = _frequencies(tokenizer, code)
        return cls(
            list(frequencies), np.array(list(frequencies.values())), options, seed
        )

    @property
    def end_probability(self) -> float:
        """p: that a sentence ends after a word."""
        return 1.0 / self.options.mean_sentence_words

    def draw_lengths(self, random: np.random.Generator, size: int) -> np.ndarray:
        """Draws numbers of words of sentences: int64 [size], at least 1."""
        return random.geometric(self.end_probability, size)

    def draw_sentences(
        self, random: np.random.Generator, lengths: np.ndarray
    ) -> np.ndarray:
        """Draws independent sentences.

        Args:
            random: Source of randomness.
            lengths: int64 [sentences], at least 1: the words of each.

        Returns:
            int64 [words]: indices of words, one sentence after the other.
        """
        starts = np.cumsum(lengths) - lengths
        result = np.empty(int(lengths.sum()), np.int64)
        # The longest first, so that unfinished ones are in front.
        order = np.argsort(-lengths, kind="stable")
        starts, lengths = starts[order], lengths[order]
        previous = self._from_frequencies.draw(random, len(lengths))
        result[starts] = previous
        for place in range(1, lengths.max(initial=0)):
            goes_on = int(np.searchsorted(-lengths, -place, side="left"))
            previous = self._next_words(random, previous[:goes_on])
            result[starts[:goes_on] + place] = previous
        return result

    def _next_words(
        self, random: np.random.Generator, previous: np.ndarray
    ) -> np.ndarray:
        following = self._from_frequencies.draw(random, len(previous))
        coin = random.random(len(previous)) < self.options.context_strength
        chosen = np.flatnonzero(coin & (previous < self.options.context_words))
        which = self._from_weights.draw(random, len(chosen))
        following[chosen] = self.followers[previous[chosen], which]
        return following


@freed_memory.cached(maxsize=2)
def _frequencies(
    tokenizer: sentence_tokenizers.SentenceTokenizer, code: str
) -> Mapping[str, float]:
    return dict(languages.whole_words(code, tokenizer.split))


def sentences_per_client(
    options: population_options.PopulationOptions,
    language: population_options.LanguageOptions,
) -> synthetic_english.WordsPerClient:
    """Returns the law of the number of sentences that a client writes.

    Args:
        options: The mean number of words, and the spread of the number of sentences.
        language: The mean number of words of a sentence.

    Raises:
        PopulationError: If no such law has that mean.
    """
    words, sigma = options.mean_words_per_client, options.words_per_client_sigma
    mean = words / language.mean_sentence_words
    if mean <= 1 if sigma > 0 else mean < 1 or mean != int(mean):
        wanted = "above 1" if sigma > 0 else "a whole number from 1 on"
        raise verified_files.PopulationError(
            f"mean_words_per_client is {words:g} and mean_sentence_words "
            f"{language.mean_sentence_words:g}, which makes {mean:g} sentences per "
            f"client; that has to be {wanted} with a words_per_client_sigma of "
            f"{sigma:g}."
        )
    return synthetic_english.WordsPerClient(mean, sigma)


def _check_room(
    directory: pathlib.Path,
    options: population_options.PopulationOptions,
    language: population_options.LanguageOptions,
) -> None:
    """Refuses a population that will fit neither into memory nor onto the disk."""
    what = (
        f"a synthetic population of {options.num_clients:,} clients (--num_clients) "
        f"who write {options.mean_words_per_client:g} words each "
        "(--mean_words_per_client)"
    )
    names = _BYTES_OF_A_NAME * options.num_clients
    memory.check_needed(names, what)
    sentences = options.mean_words_per_client / language.mean_sentence_words
    columns = 8 + 8 * sentences + 4 * options.mean_words_per_client
    memory.check_disk(directory, int(options.num_clients * columns) + names, what)


def build(
    directory: pathlib.Path,
    options: population_options.PopulationOptions,
    language: SyntheticLanguage,
    encode: Callable[[Sequence[str]], list[int]],
    metadata: Mapping[str, Any],
) -> None:
    """Writes the columns of a population that writes synthetic sentences.

    Args:
        directory: An existing directory, empty.
        options: The number of clients, the words of each, and the seed.
        language: Language of the clients.
        encode: Gives words their token ids.
        metadata: JSON values kept with the columns.

    Raises:
        PopulationError: If the sentences of a client have no law; see
            `sentences_per_client`.
    """
    law = sentences_per_client(options, language.options)
    tokens = np.array(encode(language.words), np.int32)
    chunk_size = math.ceil(_WORDS_IN_CHUNK / options.mean_words_per_client)
    num_clients = options.num_clients
    _check_room(directory, options, language.options)
    writer = client_text.ClientTextWriter(directory)
    bar = progress.Progress("Drawing synthetic sentences", num_clients, "clients")
    with contextlib.closing(writer), bar:
        for first in range(0, num_clients, chunk_size):
            random = streams.generator(options.seed, "sentences", first)
            size = min(chunk_size, num_clients - first)
            client_lengths = law.draw(random, size)
            lengths = language.draw_lengths(random, int(client_lengths.sum()))
            words = language.draw_sentences(random, lengths)
            writer.append(tokens[words], lengths, client_lengths)
            bar.set(first + size)
        names = pa.array(np.arange(num_clients)).cast(pa.large_string())
        about = {"empty_clients": options.empty_clients}
        writer.finish(names, {**metadata, **about, "numpy_version": np.__version__})
