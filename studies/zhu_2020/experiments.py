"""The experiments of Zhu et al. 2020, Section 5, on populations that the user has."""

import dataclasses
import os
import pathlib
from typing import TYPE_CHECKING, Any

from federated_hh.options import fields as options_lib
from federated_hh.options.fields import option
from federated_hh.populations.options import population_options
from studies import data_parts, study_options

if TYPE_CHECKING:  # TensorFlow comes with these: it takes seconds to import
    from federated_hh.populations.columns import client_words
    from studies import comparison

TITLES = {
    "zhu_table2": "Table 2 and Figure 5 of Zhu et al. 2020: unknown words",
    "zhu_table2_printed": "Table 2 and Figure 5 of Zhu et al. 2020, at the frequencies "
    "of its appendix D.2",
    "zhu_figure4": "Figures 3 and 4 of Zhu et al. 2020: one word a user",
    "zhu_figure6": "Figures 6 and 7 of Zhu et al. 2020: many words a user",
}
# Users with a word, in the paper's two data sets of one word each; with the first, the
# paper's local epsilons of SFP come out (results/zhu_theory).
_OOV = ("zhu_table2", "zhu_table2_printed")
_USERS, _OOV_USERS = 659_774, 6_000_000
_TWEETS = "sentiment140-partial/tweets.csv.xz"
_DICTIONARY = "word-lists/american-english-huge.txt.xz"
_RAW_COLUMNS = ("polarity", "id", "date", "query", "user", "text")
# Synthetic English has no unknown words: its rare ones take their place.
_RARE_SHARE = 0.05
_SYNTHETIC_CLIENTS = 200_000
_EPSILONS = (1.0, 4.0)
# Of discovery rates.
_MORE_EPSILONS = (1.0, 2.0, 4.0)
KS = tuple(range(10, 301, 10))


@dataclasses.dataclass(frozen=True)
class Options(study_options.StudyOptions):
    """Data and repeats of a study; each field is a flag.

    Raises:
        OptionError: If one is not allowed, or some do not go together.
    """

    sentiment140: str | None = option(
        None,
        "The raw file of Sentiment140, training.1600000.processed.noemoticon.csv; the "
        "paper's data.",
    )
    data_dir: str | None = option(
        None,
        "The directory that holds sentiment140-partial and word-lists, for those who "
        "do not have the raw file. Without both, synthetic English takes its place.",
    )
    dictionary: str | None = option(
        None,
        "Known words, one a line, for the study of unknown ones; by default "
        "word-lists/american-english-huge.txt.xz in --data_dir.",
    )
    resample_clients: int | None = option(
        None,
        "Clients of the population, drawn from the frequencies of the data; by default "
        "the paper's number, 6,000,000 for unknown words and 659,774 else. 0: the "
        "users of the data as they are.",
        least=0,
        most=2**31 - 1,
    )
    num_repeats: int = option(
        5, "Runs of each setting, for the intervals.", least=1, most=1000
    )
    discovery_repeats: int = option(
        40,
        "Runs of TrieHH where discovery rates are counted, Figures 3 and 6.",
        least=1,
        most=10_000,
    )
    algorithm: str | None = option(
        None, "A further line: an algorithm of your own, as module:Class."
    )
    population_seed: int = option(
        0, "Seed of what is drawn from the data.", least=0, most=2**63 - 1
    )


def _source(options: Options) -> tuple[str, dict[str, Any], Any]:
    """Returns the data's name, their options, and their dictionary's file."""
    dictionary = options.dictionary
    if dictionary is None and options.data_dir:
        dictionary = str(pathlib.Path(options.data_dir) / _DICTIONARY)
    if options.sentiment140:
        return (
            "Sentiment140, the raw file",
            {
                "source": options.sentiment140,
                "encoding": "iso-8859-1",
                "csv_columns": _RAW_COLUMNS,
            },
            dictionary,
        )
    if options.data_dir:
        (file,) = data_parts.parts_of(options.data_dir, _TWEETS)
        return "Sentiment140, 57,198 of its tweets", {"source": str(file)}, dictionary
    return "synthetic English", {"num_clients": _SYNTHETIC_CLIENTS}, dictionary


def population_of(
    name: str, options: Options, cache: str | os.PathLike[str]
) -> tuple[str, "client_words.ClientWords", "client_words.ClientWords"]:
    """Returns the data's description, their users, and the clients of a study.

    Args:
        name: The name of the study.
        options: The study's options.
        cache: Directory where populations are kept.

    Raises:
        ValueError: If they cannot be read, or there is no dictionary for them.
    """
    from federated_hh.populations import population
    from studies import resampling
    from studies.sun_2024 import target_words

    data, values, dictionary = _source(options)
    is_oov = name in _OOV
    if is_oov:
        if dictionary is None and "csv_columns" in values:
            raise options_lib.OptionError(
                options, "{sentiment140=}: unknown words need a {dictionary}"
            )
        values["known_words"] = dictionary or target_words.known_words_file(
            cache, _RARE_SHARE
        )
    users = population.prepare(
        population_options.PopulationOptions(tokenizer="triehh", **values), cache
    )
    if name == "zhu_table2_printed":
        data = f"the 100 words that the paper prints, the rest from {data}"
        users = _printed(users, cache)
    number = options.resample_clients
    if number is None:
        number = _OOV_USERS if is_oov else _USERS
        if options.sentiment140 and not is_oov:
            number = 0
    if number == 0:
        return data, users, users
    what = {
        "zhu_table2": resampling.OCCURRENCES,
        "zhu_table2_printed": resampling.OCCURRENCES,
        "zhu_figure4": resampling.FAVORITES,
        "zhu_figure6": resampling.CLIENTS,
    }[name]
    clients = resampling.resampled(
        users, number, what, seed=options.population_seed, cache=cache
    )
    drawn = {
        resampling.OCCURRENCES: "words",
        resampling.FAVORITES: "most frequent words of users",
        resampling.CLIENTS: "users with all their words",
    }[what]
    return f"{data}; {number:,} {drawn} drawn from their frequencies", users, clients


def _printed(
    users: "client_words.ClientWords", cache: str | os.PathLike[str]
) -> "client_words.ClientWords":
    """Returns one user who has the printed words, and others, as often as printed."""
    from federated_hh.populations import population
    from studies.zhu_2020 import printed as zhu_2020_printed

    return population.prepare(
        population_options.PopulationOptions(
            source=zhu_2020_printed.counts_file(users, cache),
            format="word_counts",
            tokenizer="triehh",
        ),
        cache,
    )


def prepare(
    name: str, options: Options, *, seed: int, cache: str | os.PathLike[str]
) -> "comparison.Comparison":
    """Returns the study; see `studies`.

    Raises:
        ValueError: If the data cannot be read, or are too few for a setting.
    """
    from federated_hh.heavy_hitters import alphabet as alphabet_lib
    from federated_hh.heavy_hitters import selection
    from federated_hh.populations.languages import tokenizers
    from studies import comparison
    from studies.zhu_2020 import report as zhu_2020_report

    # Before minutes of work.
    own = (comparison.contestant(options.algorithm),) if options.algorithm else ()
    data, users, clients = population_of(name, options, cache)
    many = name == "zhu_figure6"
    study = comparison.Comparison(
        title=TITLES[name],
        settings=_settings(name, options, own),
        clients=clients,
        alphabet=alphabet_lib.Alphabet(tokenizers.TRIEHH_ALPHABET),
        word_selection=selection.WordSelection.BY_FREQUENCY
        if many
        else selection.WordSelection.MOST_FREQUENT,
        # Section 5 has delta below 5e-9 for many words a user: most likely 1/(300n).
        delta=1 / (300 * clients.num_clients) if many else clients.num_clients**-2,
        data={
            data.partition(";")[0]: users.fingerprint,
            "clients": clients.fingerprint,
        },
        seed=seed,
        ks=KS,
        report=lambda study, tables: zhu_2020_report.files(name, study, tables, data),
    )
    assert study.algorithms  # what cannot be made is refused before all runs
    return study


def _settings(
    name: str, options: Options, own: tuple["comparison.Contestant", ...]
) -> tuple["comparison.Setting", ...]:
    """Returns the settings of a study, those of a user's own last."""
    from studies import comparison
    from studies.zhu_2020 import contestants

    few, many = options.num_repeats, options.discovery_repeats
    triehh = (contestants.TRIEHH, contestants.TIGHT_TRIEHH)
    if name in _OOV:
        chosen = [(c, e, few) for c in (*contestants.ALL, *own) for e in _EPSILONS]
    else:
        chosen = [(c, e, many) for c in triehh for e in _MORE_EPSILONS]
        others = [contestants.LDP_TRIEHH, *own]
        if name == "zhu_figure4":
            others = [contestants.SFP, contestants.TIGHT_SFP, *others]
        chosen += [(c, e, few) for c in others for e in _EPSILONS]
    return tuple(comparison.Setting(*values) for values in chosen)
