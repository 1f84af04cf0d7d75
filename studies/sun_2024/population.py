"""The clients of Sun et al. 2024: synthetic ones, or bloggers."""

import glob
import os
import pathlib
import string
from typing import Any

from federated_hh.populations import population
from federated_hh.populations.columns import client_words
from federated_hh.populations.options import population_options
from studies import resampling
from studies.sun_2024 import case_options, target_words

_BLOGS = "blog-authorship/posts-*.jsonl.xz"
_DICTIONARY = "word-lists/american-english-huge.txt.xz"
# The text of the blogs, without the corpus's marks for links and characters.
_BLOGS_TEXT: dict[str, Any] = {
    "tokenizer": "words",
    "alphabet": string.ascii_lowercase + "'",
    "drop_pattern": "urlLink|&[a-z]+;?|nbsp",
    "empty_clients": "keep",
}
_HABITS = (
    "Each client's target words are a Pitman-Yor process with discount "
    "{0.client_discount:g} and concentration {0.client_concentration:g} over a common "
    "law, {1}; {0.mean_words_per_client:g} words a client on average. "
    "`federated_hh.fit_population` fits such a law to real text."
)
_INDEPENDENT = (
    "All clients draw words independently from one distribution. Real users do not: "
    "they repeat their own words."
)
_BLOGGERS = (
    "Clients are bloggers, each drawn with replacement: a blogger stands for "
    "{0:,.0f} clients on average, so words are as common, and as much a person's own, "
    "as among them, but fewer than so many clients would have."
)


def prepare(
    options: case_options.Options, cache: str | os.PathLike[str]
) -> client_words.ClientWords:
    """Returns the clients of a study.

    Args:
        options: The options of the study.
        cache: Directory where populations are kept.

    Raises:
        PopulationError: If data cannot be read.
    """
    targets = known = None
    if options.data_dir:
        targets = _targets(options, options.data_dir, cache)
    else:
        known = target_words.known_words_file(
            cache, options.target_share, options.vocabulary_size
        )
    if options.client_law == case_options.BLOGGERS:
        bloggers = population.prepare(
            population_options.PopulationOptions(
                source=_blogs(str(options.data_dir)), only_words=targets, **_BLOGS_TEXT
            ),
            cache,
        )
        return resampling.resampled(
            bloggers,
            options.num_clients,
            resampling.CLIENTS,
            seed=options.population_seed,
            cache=cache,
        )
    return population.prepare(
        population_options.PopulationOptions(
            tokenizer="whitespace",
            known_words=known,
            common_words=targets,
            client_law=options.client_law,
            client_discount=options.client_discount,
            client_concentration=options.client_concentration,
            common_law=options.common_law,
            common_discount=options.common_discount,
            common_concentration=options.common_concentration,
            num_clients=options.num_clients,
            mean_words_per_client=options.mean_words_per_client,
            words_per_client_sigma=options.words_per_client_sigma,
            trending_share=options.trending_share,
            trending_words=options.trending_words,
            trending_exponent=options.trending_exponent,
            seed=options.population_seed,
        ),
        cache,
    )


def _blogs(data_dir: str) -> str:
    return os.path.join(glob.escape(data_dir), _BLOGS)


def _targets(
    options: case_options.Options, data_dir: str, cache: str | os.PathLike[str]
) -> str:
    """Returns the file of the target words that bloggers typed."""
    everything = population.prepare(
        population_options.PopulationOptions(source=_blogs(data_dir), **_BLOGS_TEXT),
        cache,
    )
    return target_words.seldom_typed_file(
        cache, everything, pathlib.Path(data_dir) / _DICTIONARY, options.target_share
    )


def notes(
    options: case_options.Options, clients: client_words.ClientWords
) -> tuple[str, ...]:
    """Returns notes on the clients of a study.

    Args:
        options: The options of the study.
        clients: Clients from `prepare`.
    """
    words = "English words that make up the rarest {:.0%} of its list"
    if options.data_dir:
        words = "words of a dictionary in the lowest {:.0%} of what bloggers typed"
    size = (
        f"Population: {clients.num_clients:,} clients with {clients.num_words:,} "
        f"distinct target words ({words.format(options.target_share)}), "
        f"{clients.num_entries / clients.num_clients:.1f} of them a client on average; "
        f"scale {options.scale:g}."
    )
    return (size, _law(options, clients))


def _law(options: case_options.Options, clients: client_words.ClientWords) -> str:
    """Returns the law of a client's words."""
    if options.client_law == case_options.BLOGGERS:
        return _BLOGGERS.format(clients.num_clients / clients.metadata["drawn_from"])
    common = "the frequencies of English"
    if options.common_law == "pitman_yor":
        common = (
            "the expected masses of a Pitman-Yor law with discount "
            f"{options.common_discount:g} and concentration "
            f"{options.common_concentration:g}, by rank"
        )
    if options.trending_share:
        common += (
            f", and for {options.trending_share:.0%} {options.trending_words} words "
            "in fashion"
        )
    if options.client_law == "pitman_yor":
        return _HABITS.format(options, common)
    return f"{_INDEPENDENT} The common law: {common}."
