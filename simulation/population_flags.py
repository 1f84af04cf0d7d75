"""The flags that say what the population is made of."""

from typing import TYPE_CHECKING

from absl import flags, logging

from simulation import population, population_options, prepared_data, tokenizers

if TYPE_CHECKING:
    from simulation import client_words

_DEFAULTS = population_options.PopulationOptions()

_POPULATION = flags.DEFINE_string(
    "population",
    _DEFAULTS.source,
    "Where the clients' words come from: 'synthetic' (English words at their real "
    "frequencies), or the path of a CSV, TSV, JSON lines, Parquet or word count file; "
    "all but Parquet also as .gz, .xz or .zst.",
)
_FORMAT = flags.DEFINE_enum(
    "population_format",
    _DEFAULTS.format,
    population_options.FORMATS,
    "Format of the file. 'auto' goes by its name. 'word_counts' is "
    "user<TAB>word<TAB>count without header.",
)
_ENCODING = flags.DEFINE_string(
    "encoding",
    _DEFAULTS.encoding,
    "Text encoding of the file (not of Parquet), such as utf-8 or iso-8859-1.",
)
_USER_COLUMN = flags.DEFINE_string(
    "user_column",
    _DEFAULTS.user_column,
    "Column that says which user (client) a row is of: a name, or a number from 0. "
    "JSON lines: the name of a field.",
)
_TEXT_COLUMN = flags.DEFINE_string(
    "text_column",
    _DEFAULTS.text_column,
    "Column with the text that --tokenizer cuts into words: a name or a number.",
)
_WORD_COLUMN = flags.DEFINE_string(
    "word_column",
    _DEFAULTS.word_column,
    "Column with a word, taken as it is, for files that hold words instead of text.",
)
_COUNT_COLUMN = flags.DEFINE_string(
    "count_column",
    _DEFAULTS.count_column,
    "Column with how often the user has the word of --word_column; without it, a row "
    "counts one.",
)
_CSV_COLUMNS = flags.DEFINE_list(
    "csv_columns",
    list(_DEFAULTS.csv_columns),
    "Names of all columns of a CSV, TSV or word count file that has no header, such as "
    "polarity,id,date,query,user,text for the original Sentiment140 file.",
)
_CSV_HEADER = flags.DEFINE_enum(
    "csv_header",
    _DEFAULTS.csv_header,
    population_options.CSV_HEADERS,
    "Whether the first row of a CSV or TSV file is a header. 'auto': it is, unless "
    "--csv_columns names the columns or all columns are given by number.",
)
_TOKENIZER = flags.DEFINE_enum(
    "tokenizer",
    _DEFAULTS.tokenizer,
    tokenizers.TOKENIZER_NAMES,
    "How text is cut into words. 'triehh' (Zhu et al. 2020, Section 5): lower case, "
    "',.;?!' stripped from both ends, at least 3 characters, no links, letters and "
    "_@#-;()*:.'/ only. 'whitespace': printable ASCII between white space.",
)
_ALPHABET = flags.DEFINE_string(
    "alphabet",
    _DEFAULTS.alphabet,
    "The characters that words may have, written one after the other; by default "
    "those of the tokenizer.",
)
_OUT_OF_ALPHABET = flags.DEFINE_enum(
    "out_of_alphabet",
    _DEFAULTS.out_of_alphabet,
    population_options.OUT_OF_ALPHABET,
    "What becomes of a word with another character: 'drop' leaves it out and counts "
    "it, 'refuse' stops with an error that names the first ones.",
)
_KNOWN_WORDS = flags.DEFINE_string(
    "known_words",
    _DEFAULTS.known_words,
    "Dictionary (one word a line, UTF-8; also .gz, .xz, .zst) whose words are left "
    "out, compared in lower case: what remains is out of vocabulary.",
)
_MAX_BAD_ROWS = flags.DEFINE_integer(
    "max_bad_rows",
    _DEFAULTS.max_bad_rows,
    "How many rows may be unreadable. They are left out and listed with their line "
    "numbers; one more stops with an error.",
    lower_bound=0,
    upper_bound=population_options.MAX_BAD_ROWS,
)
_EMPTY_CLIENTS = flags.DEFINE_enum(
    "empty_clients",
    _DEFAULTS.empty_clients,
    population_options.EMPTY_CLIENTS,
    "What becomes of clients that are left without words: 'drop' leaves them out and "
    "counts them, 'keep' lets them take part with nothing to say.",
)
_NUM_CLIENTS = flags.DEFINE_integer(
    "num_clients",
    _DEFAULTS.num_clients,
    "Synthetic population: number of clients that type. Those left without words are "
    "then dropped (--empty_clients).",
    lower_bound=1,
    upper_bound=population_options.MAX_CLIENTS,
)
_MEAN_WORDS = flags.DEFINE_float(
    "mean_words_per_client",
    _DEFAULTS.mean_words_per_client,
    "Synthetic population: mean number of words a client types, before the tokenizer "
    "leaves out short ones.",
    lower_bound=1,
    upper_bound=population_options.MAX_MEAN_WORDS,
)
_SIGMA = flags.DEFINE_float(
    "words_per_client_sigma",
    _DEFAULTS.words_per_client_sigma,
    "Synthetic population: spread of that number, the standard deviation of its "
    "logarithm. 0: everyone types the same number.",
    lower_bound=0,
    upper_bound=population_options.MAX_SIGMA,
)
_TRENDING_SHARE = flags.DEFINE_float(
    "trending_share",
    _DEFAULTS.trending_share,
    "Synthetic population: share of the words kept that are words in fashion; below 1.",
    lower_bound=0,
    upper_bound=1,
)
_TRENDING_WORDS = flags.DEFINE_integer(
    "trending_words",
    _DEFAULTS.trending_words,
    "Synthetic population: how many words are in fashion, drawn from the words kept, "
    "all equally likely.",
    lower_bound=1,
    upper_bound=population_options.MAX_TRENDING_WORDS,
)
_TRENDING_EXPONENT = flags.DEFINE_float(
    "trending_exponent",
    _DEFAULTS.trending_exponent,
    "Synthetic population: the k-th word in fashion is typed k**-exponent times as "
    "often as the first.",
    lower_bound=0,
    upper_bound=population_options.MAX_TRENDING_EXPONENT,
)
_SEED = flags.DEFINE_integer(
    "population_seed",
    _DEFAULTS.seed,
    "Synthetic population: seed; the same one gives the same population.",
    lower_bound=0,
    upper_bound=population_options.MAX_SEED,
)
_CACHE = flags.DEFINE_string(
    "population_cache",
    str(prepared_data.DEFAULT_CACHE),
    "Directory where prepared populations are kept for later runs.",
)


@flags.multi_flags_validator(
    ["mean_words_per_client", "words_per_client_sigma"],
    "words_per_client_sigma=0 needs a whole mean_words_per_client, and any other a "
    "mean above 1.",
)
def _words_law_exists(values: dict[str, float]) -> bool:
    mean = values["mean_words_per_client"]
    return mean == int(mean) if values["words_per_client_sigma"] == 0 else mean > 1


@flags.validator("trending_share", "must be below 1: some words are not in fashion.")
def _some_words_are_not_trending(value: float) -> bool:
    return value < 1


@flags.multi_flags_validator(
    ["word_column", "count_column"], "count_column needs word_column."
)
def _counts_are_of_words(values: dict[str, str | None]) -> bool:
    return not values["count_column"] or bool(values["word_column"])


@flags.validator("alphabet", "must have a character.")
def _alphabet_has_a_character(value: str | None) -> bool:
    return value != ""


@flags.validator("population", "must be 'synthetic' or the path of a file.")
def _population_is_named(value: str) -> bool:
    return bool(value)


@flags.validator("csv_columns", "must have no name twice.")
def _names_differ(value: list[str]) -> bool:
    return len(set(value)) == len(value)


def is_synthetic() -> bool:
    """Returns whether the clients' words are drawn, and nobody's."""
    return _POPULATION.value == population_options.SYNTHETIC


def options_from_flags() -> population_options.PopulationOptions:
    """Returns the options that the flags give."""
    return population_options.PopulationOptions(
        source=_POPULATION.value,
        format=_FORMAT.value,
        encoding=_ENCODING.value,
        user_column=_USER_COLUMN.value,
        text_column=_TEXT_COLUMN.value,
        word_column=_WORD_COLUMN.value,
        count_column=_COUNT_COLUMN.value,
        csv_columns=tuple(_CSV_COLUMNS.value),
        csv_header=_CSV_HEADER.value,
        tokenizer=_TOKENIZER.value,
        alphabet=_ALPHABET.value,
        out_of_alphabet=_OUT_OF_ALPHABET.value,
        known_words=_KNOWN_WORDS.value,
        max_bad_rows=_MAX_BAD_ROWS.value,
        empty_clients=_EMPTY_CLIENTS.value,
        num_clients=_NUM_CLIENTS.value,
        mean_words_per_client=_MEAN_WORDS.value,
        words_per_client_sigma=_SIGMA.value,
        trending_share=_TRENDING_SHARE.value,
        trending_words=_TRENDING_WORDS.value,
        trending_exponent=_TRENDING_EXPONENT.value,
        seed=_SEED.value,
    )


def alphabet_from_flags() -> str:
    """Returns the characters that the population's words may have."""
    return _ALPHABET.value or tokenizers.get_tokenizer(_TOKENIZER.value).alphabet


def prepare_from_flags() -> "client_words.ClientWords":
    """Returns the population that the flags describe, made on first use.

    Raises:
      population_options.PopulationError: If it cannot be made.
    """
    prepared = population.prepare(options_from_flags(), _CACHE.value)
    unspelled = prepared.metadata.get("dropped_words", {}).get("out_of_alphabet", 0)
    if unspelled:
        logging.warning(
            "%s words have a character outside the alphabet and are left out; "
            "--alphabet says which it has, --out_of_alphabet=refuse stops and names "
            "the first ones.",
            f"{unspelled:,}",
        )
    return prepared
