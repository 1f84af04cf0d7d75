"""Options of a population.

Imports nothing heavy, so that flags can be parsed and wrong ones refused at once.
"""

import dataclasses
import functools
import os
import re
from typing import Any

from federated_hh.options.fields import OptionError, check, option
from federated_hh.populations.languages import hangul, languages, tokenizers, words
from federated_hh.populations.options import file_options

SYNTHETIC = "synthetic"
# Synthetic clients that are drawn where they are asked.
GENERATED = "generated"
# A dictionary that begins so is the most frequent words of the language.
WORDFREQ = "wordfreq:"
# A vocabulary that begins so is counted on the text of a file.
TEXT = "text:"
# Flags that name files, made independent of the working directory.
PATH_FLAGS = (
    "population",
    "known_words",
    "only_words",
    "common_words",
    "deny_words",
    "words_per_client",
    "data_dir",
    "vocabulary",
    "initial_model",
    "compare_with",
    "recipe",
    "policy",
    "table",
    "training_flagfile",
)
CLIENT_LAWS = ("independent", "pitman_yor")
COMMON_LAWS = ("frequencies", "pitman_yor")
OUT_OF_ALPHABET = ("drop", "refuse", "keep")
EMPTY_CLIENTS = ("drop", "keep")
MAX_CLIENTS = 2**31 - 1  # they are numbered with 31 bits
MAX_MEAN_WORDS = 10_000
MAX_SIGMA = 3.0
MAX_CONCENTRATION = 1e9
MAX_TRENDING_EXPONENT = 3.0
MAX_POWER = 4.0
MAX_TRENDING_WORDS = 1_000_000  # the English list has a third of that
MAX_SEED = 2**64 - 1  # more bits than this make no detectable difference


# A field so marked decides nothing of other populations; one without a mark decides
# every population.
_SYNTHETIC_ONLY = {"source": "synthetic"}
_WORDS_ONLY = {"contents": "words"}
# Options of a topic in --help, or of one kind of population.
_words_option = functools.partial(option, marks=_WORDS_ONLY)
_synthetic_option = functools.partial(
    option, marks=_SYNTHETIC_ONLY, group="A synthetic population"
)
_synthetic_words_option = functools.partial(
    option, marks=_SYNTHETIC_ONLY | _WORDS_ONLY, group="A synthetic population"
)
_language_option = functools.partial(option, group="A synthetic population")

# Options that do not decide a population at their default.
_LEFT_OUT_AS_DEFAULT = ("delimiter", "normalize_users", "frequency_power")


@dataclasses.dataclass(frozen=True)
class PopulationOptions(file_options.FileOptions, words.WordOptions):
    """Options of a population; `program_flags` of the command line has the flags."""

    source: str = option(
        SYNTHETIC,
        "Source of the clients' words: 'synthetic' (English words at their real "
        "frequencies), 'generated' (the same with nothing on disk, to find words), or "
        "files: CSV, TSV, JSON lines, Parquet, word counts, TFF's SQLite; text files "
        "also as .gz, .xz or .zst. A path, a pattern such as 'posts-*.jsonl.xz' (in "
        "quotes), a directory, or several with commas between.",
        flag="population",
    )
    _: dataclasses.KW_ONLY
    language: str = option(
        languages.DEFAULT,
        "Language of the clients: a code such as de, hi, ko or ru. It gives the "
        "alphabet, the default vocabulary, the synthetic population and the keyboard "
        "layout, from wordfreq's public word frequencies; flags for these win over it. "
        "'auto' takes the language that the first rows of --population are in, and "
        "says which; no guarantee covers that choice. The codes: "
        f"{', '.join(languages.codes())}.",
    )
    tokenizer: str = _words_option(
        tokenizers.DEFAULT,
        "Rule that cuts text into words. 'words': words by Unicode's rules, as the "
        "options of words have them; ASCII letters, digits and '- only, unless "
        "--alphabet has others. 'triehh' (Zhu et al. 2020, Section 5): lower case, "
        "',.;?!' stripped from both ends, at least 3 characters, no links, letters and "
        "_@#-;()*:.'/ only. 'whitespace': printable ASCII between white space.",
        choices=tokenizers.TOKENIZER_NAMES,
    )
    alphabet: str | None = _words_option(
        None,
        "The characters that words may have, written one after the other; by default "
        "those of the tokenizer, with the letters of --language. A Hangul syllable "
        "counts as its two or three letters (jamo). LDP TrieHH's prefixes have the 100 "
        "characters of string.printable in English, so that noise can release a word "
        "such as ~ZA, which no client can have.",
    )
    out_of_alphabet: str = _words_option(
        "drop",
        "Treatment of a word with another character: 'drop' leaves it out and counts "
        "it, 'refuse' stops with an error that names the first ones, 'keep' keeps it, "
        "for an algorithm that needs no alphabet, such as set union.",
        choices=OUT_OF_ALPHABET,
    )
    known_words: str | None = _words_option(
        None,
        "Dictionary (one word a line, UTF-8; also .gz, .xz, .zst) whose words are left "
        "out, in any case; the rest is out of vocabulary. An example is "
        "/usr/share/dict/american-english of Debian's package wamerican; "
        "docs/guide/your_data.md has further sources. wordfreq:N stands for the N most "
        "frequent words of --language.",
    )
    only_words: str | None = _words_option(
        None,
        "Dictionary, likewise, whose words alone are kept, such as the target words of "
        "a case study.",
    )
    empty_clients: str = option(
        "drop",
        "Treatment of clients without words or sentences: 'drop' leaves them out and "
        "counts them, 'keep' lets them take part with nothing to say.",
        choices=EMPTY_CLIENTS,
    )
    num_clients: int = _synthetic_option(
        1_000_000,
        "Synthetic population: number of clients that type. Those left without words "
        "may be dropped then.",
        least=1,
        most=MAX_CLIENTS,
    )
    mean_words_per_client: float = _synthetic_option(
        20.0,
        "Synthetic population: mean number of words a client types, before the "
        "tokenizer leaves out short ones.",
        least=1,
        most=MAX_MEAN_WORDS,
    )
    words_per_client_sigma: float = _synthetic_option(
        1.0,
        "Synthetic population: spread of that number, the standard deviation of its "
        "logarithm (before rounding). 0: everyone types the same number.",
        least=0,
        most=MAX_SIGMA,
    )
    words_per_client: str | None = _synthetic_words_option(
        None,
        "Synthetic population: file of numbers of words, one a line. A client types as "
        "many words as one of them says, each as likely, in place of the law of the "
        "mean and sigma; so the numbers of a population of one's own can be drawn.",
    )
    frequency_power: float = _synthetic_words_option(
        1.0,
        "Synthetic population: power of the list's frequencies that the words kept are "
        "typed with; below 1 rare words are more likely.",
        least=0,
        most=MAX_POWER,
    )
    client_law: str = _synthetic_words_option(
        "independent",
        "Synthetic population: law of the words that a client has. 'independent': each "
        "drawn from the common law. 'pitman_yor': a client has habits; a word typed is "
        "one of its own again, or a new draw from the common law, by a Pitman-Yor "
        "process.",
        choices=CLIENT_LAWS,
    )
    client_discount: float = _synthetic_words_option(
        0.8,
        "With --client_law=pitman_yor: the discount of a client's process: how fast "
        "its distinct words grow with what it types.",
        least=0,
        below=1,
    )
    client_concentration: float = _synthetic_words_option(
        20.0,
        "With --client_law=pitman_yor: its concentration, above minus the discount: "
        "how many words are new draws before the first ones come again.",
        above=-1,
        most=MAX_CONCENTRATION,
    )
    common_words: str | None = _synthetic_words_option(
        None,
        "Synthetic population: list of words in place of --language's: a word a line, "
        "or word<TAB>count; UTF-8, also .gz, .xz, .zst. It goes through the tokenizer, "
        "the alphabet and the known words.",
    )
    common_law: str = _synthetic_words_option(
        "frequencies",
        "Synthetic population: how likely the words are that clients draw. "
        "'frequencies': as the list has them. 'pitman_yor': the list's words have, by "
        "rank, the expected masses of a Pitman-Yor law, and all words typed are kept.",
        choices=COMMON_LAWS,
    )
    common_discount: float = _synthetic_words_option(
        0.1,
        "With --common_law=pitman_yor: its discount.",
        least=0,
        below=1,
    )
    common_concentration: float = _synthetic_words_option(
        15_000.0,
        "With --common_law=pitman_yor: its concentration, above minus the discount.",
        above=-1,
        most=MAX_CONCENTRATION,
    )
    trending_share: float = _synthetic_words_option(
        0.0,
        "Synthetic population: share of the words kept that are words in fashion.",
        least=0,
        below=1,
        why="some words are not in fashion",
    )
    trending_words: int = _synthetic_words_option(
        100,
        "Synthetic population: how many words are in fashion, drawn from the words "
        "kept by the seed, all equally likely.",
        least=1,
        most=MAX_TRENDING_WORDS,
    )
    trending_exponent: float = _synthetic_words_option(
        0.5,
        "Synthetic population: the k-th word in fashion is typed k**-exponent times as "
        "often as the first.",
        least=0,
        most=MAX_TRENDING_EXPONENT,
    )
    seed: int = _synthetic_option(
        0,
        "Synthetic population: seed; the same one gives the same population.",
        least=0,
        most=MAX_SEED,
        flag="population_seed",
    )

    def __post_init__(self):
        check(self)
        self._check_words_law()
        self._check_source()
        self._check_language()
        self._check_columns()
        self._check_words()

    @property
    def is_synthetic(self) -> bool:
        """Whether the clients' words are drawn, so belong to nobody."""
        return self.source in (SYNTHETIC, GENERATED)

    @property
    def is_generated(self) -> bool:
        """Whether clients are drawn where they are asked, and none is on disk."""
        return self.source == GENERATED

    @property
    def characters(self) -> str:
        """The characters that words may have, Hangul as jamo; see `alphabet_with`."""
        return self.alphabet_with(self.word_tokenizer)

    @property
    def word_tokenizer(self) -> tokenizers.Tokenizer:
        """The tokenizer that the options name, with the options of words."""
        return tokenizers.get_tokenizer(self.tokenizer, self)

    def alphabet_with(self, tokenizer: tokenizers.Tokenizer) -> str:
        """Returns the characters that words may have, Hangul as jamo.

        Args:
            tokenizer: Its alphabet, with the language's letters, is the default.
        """
        if self.alphabet:
            return hangul.alphabet(self.alphabet)
        return languages.alphabet(self.language, tokenizer.alphabet)

    @classmethod
    def names(cls, contents: str) -> list[str]:
        """Returns the names of the options that a kind of population uses.

        Args:
            contents: "words" or "sentences".
        """
        return [
            field.name
            for field in dataclasses.fields(cls)
            if field.metadata.get("contents", contents) == contents
        ]

    def deciding(self, contents: str) -> dict[str, Any]:
        """Returns the fields that decide the population's contents, except the source.

        Args:
            contents: "words" or "sentences".

        Raises:
            OptionError: See `check_contents`.
        """
        self.check_contents(contents)
        kind = "synthetic" if self.is_synthetic else "file"
        names = self.names(contents)
        chosen = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name in names
            and field.name != "source"
            and field.metadata.get("source", kind) == kind
            and not (
                field.name in _LEFT_OUT_AS_DEFAULT
                and getattr(self, field.name) == field.default
            )
            and field.name not in set(words.OPTION_NAMES) - {"language"}
            and not (field.name == "language" and self._has_no_language(contents))
        }
        # What later versions added is left out where it changes nothing.
        if not self.is_synthetic or (contents == "words" and self._reads_words()):
            chosen["text"] = words.VERSION
        return chosen | self.changed()

    def check_contents(self, contents: str) -> None:
        """Raises an `OptionError` if generated clients cannot have contents.

        Args:
            contents: "words", "sentences", or "columns": clients' words on disk.
        """
        if not self.is_generated:
            return
        if contents != "words":
            raise OptionError(
                self,
                "{source=}: generated clients answer questions about their words, and "
                "have neither sentences nor anything on disk; give {source=synthetic}, "
                "or a file",
            )
        if self.client_law != CLIENT_LAWS[0]:
            raise OptionError(
                self,
                "{client_law=}: generated clients have no habits; give "
                "{client_law=independent}, or {source=synthetic}",
            )
        if self.empty_clients != "keep":
            raise OptionError(
                self,
                "{empty_clients=}: who has no words is known once a generated client "
                "is asked; give {empty_clients=keep}, or {source=synthetic}",
            )

    def _reads_words(self) -> bool:
        return bool(self.known_words or self.only_words or self.common_words)

    def _has_no_language(self, contents: str) -> bool:
        is_encoded = contents == "sentences" and not self.is_synthetic
        return self.language == languages.DEFAULT or is_encoded

    def _check_words_law(self) -> None:
        mean, sigma = self.mean_words_per_client, self.words_per_client_sigma
        if sigma == 0 and mean != int(mean):
            raise OptionError(
                self,
                "{mean_words_per_client=}: has to be a whole number with "
                "{words_per_client_sigma=}, because every client types that many "
                "words",
            )
        if sigma > 0 and mean <= 1:
            raise OptionError(
                self,
                "{mean_words_per_client=}: has to be above 1 with "
                "{words_per_client_sigma=}",
            )

        ranked = self.is_synthetic and self.common_law != COMMON_LAWS[0]
        if ranked and self.frequency_power != 1:
            raise OptionError(
                self,
                "{frequency_power=}: has to be 1 with {common_law=}, which does not "
                "use the frequencies",
            )
        for whose in ("client", "common"):
            discount = getattr(self, f"{whose}_discount")
            if getattr(self, f"{whose}_concentration") <= -discount:
                raise OptionError(
                    self,
                    f"{{{whose}_concentration=}}: has to be above minus the discount, "
                    f"{{{whose}_discount=}}",
                )

    def _check_language(self) -> None:
        try:
            if self.language != languages.AUTO:
                languages.get(self.language)
            elif self.is_synthetic:
                raise ValueError("needs a file of text (--population); name a language")
        except ValueError as error:
            raise OptionError(self, "{language=}: {why}", why=error) from None
        known = self.known_words or ""
        if known.startswith(WORDFREQ) and not re.fullmatch(
            WORDFREQ + "[1-9][0-9]{0,8}", known
        ):
            raise OptionError(
                self, "{known_words=}: has to have a number of words, as wordfreq:50000"
            )

    def _check_source(self) -> None:
        if not self.source.strip():
            raise OptionError(self, "{source=}: has to be 'synthetic' or a path")
        if self.alphabet == "":
            raise OptionError(self, "{alphabet=}: has to have at least one character")


@dataclasses.dataclass(frozen=True)
class LanguageOptions:
    """Options of the language of synthetic clients."""

    mean_sentence_words: float = _language_option(
        8.0,
        "Synthetic population: mean number of words of a sentence. A sentence ends "
        "after each word with the same probability.",
        least=1,
        most=1000,
    )
    context_strength: float = _language_option(
        0.7,
        "Synthetic population: probability that a word with followers of its own is "
        "followed by one of them, and not by a word drawn from the frequencies.",
        least=0,
        most=1,
    )
    num_followers: int = _language_option(
        4,
        "Synthetic population: followers of each word that has some.",
        least=1,
        most=1000,
    )
    context_words: int = _language_option(
        1000,
        "Synthetic population: how many words have followers of their own, the most "
        "frequent ones. All should be in the vocabulary, so that they can be learned.",
        least=1,
        most=1_000_000,
    )

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True)
class ResamplingOptions:
    """Options of simulated clients who have the sentences of a file's people."""

    resampled_clients: int | None = _language_option(
        None,
        "Train this many simulated clients instead of the people of --population. Each "
        "has a random part of the sentences of one person, drawn with replacement, so "
        "a guarantee is for a simulated client and says nothing about the people. "
        "--population_seed is the seed.",
        least=1,
        most=MAX_CLIENTS,
    )
    resampled_words: int | None = _language_option(
        None,
        "With --resampled_clients: largest number of words that a client has, but one "
        "sentence at least; 80 by default.",
        least=1,
        most=MAX_MEAN_WORDS,
    )

    def __post_init__(self):
        check(self)
        if self.resampled_words is not None and self.resampled_clients is None:
            raise OptionError(
                self,
                "{resampled_words=}: is for simulated clients; give "
                "{resampled_clients}, too, or leave it out",
            )

    @property
    def max_words(self) -> int:
        """The largest number of words that a client has."""
        return 80 if self.resampled_words is None else self.resampled_words


def absolute_path(path: str) -> str:
    """Returns a path flag's value with the same meaning in any directory.

    Args:
        path: A path, or "synthetic", "generated", "wordfreq:N" or "text:PATH"; a blank
            value is kept, to be refused later.
    """
    if path.startswith(TEXT):
        return TEXT + os.path.abspath(path.removeprefix(TEXT))
    is_path = path.strip() and path not in (SYNTHETIC, GENERATED)
    is_path = is_path and not path.startswith(WORDFREQ)
    return os.path.abspath(path) if is_path else path
