"""From data to a population on disk: preparation, cache.

Imports nothing heavy, so that flags can be parsed and wrong ones refused at once.
"""

import inspect
import json
import os
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from federated_hh.files.verified_files import PopulationError
from federated_hh.populations.columns import prepared_data
from federated_hh.populations.languages import tokenizers
from federated_hh.populations.options.population_options import (
    WORDFREQ,
    PopulationOptions,
)

if TYPE_CHECKING:
    from federated_hh.populations.columns import client_words, generated_words

# Options that name a file.
_FILES = {"known_words", "only_words", "common_words", "words_per_client"}
# Part of a prepared population's name: a change of the written data needs a new
# version.
_FORMAT_VERSION = 6


def describe(
    options: PopulationOptions, tokenizer: tokenizers.Tokenizer | None = None
) -> dict[str, Any]:
    """Returns everything that decides a population's contents, as JSON values.

    Args:
        options: The options.
        tokenizer: A user's own, in place of the one that the options name.

    Returns:
        The source (path, size, time of change), the options that matter for it, and the
        version of the written data.

    Raises:
        PopulationError: If a file is missing or unreadable, or is named twice.
    """
    chosen = options.deciding("words")
    if tokenizer is not None:
        chosen["tokenizer"] = {
            "name": tokenizer.name,
            "alphabet": tokenizer.alphabet,
            "source": _source_code(tokenizer.split),
        }
    for name in _FILES & chosen.keys():
        if not str(chosen[name]).startswith(WORDFREQ):
            chosen[name] = prepared_data.file_state(getattr(options, name), name)
    if "language" in chosen:  # its letters follow from wordfreq's version
        chosen["alphabet"] = options.alphabet_with(tokenizer or options.word_tokenizer)
    source: dict[str, Any] = {"kind": options.source}
    if options.is_synthetic:
        source["wordfreq"] = _version("wordfreq")
    else:
        # Readers are loaded for files alone.
        from federated_hh.populations.readers import sources

        source = sources.state_of(options)
    # Through JSON and back, so that it compares equal to what was stored.
    return json.loads(
        json.dumps(
            {"format_version": _FORMAT_VERSION, "source": source, "options": chosen}
        )
    )


def prepare(
    options: PopulationOptions,
    cache_dir: str | os.PathLike[str] | None = None,
    tokenizer: tokenizers.Tokenizer | None = None,
) -> "client_words.ClientWords":
    """Returns a population that has columns on disk; see `prepare_words`.

    Raises:
        OptionError: If its clients are generated.
    """
    from federated_hh.populations.columns import client_words

    options.check_contents("columns")
    prepared = prepare_words(options, cache_dir, tokenizer)
    assert isinstance(prepared, client_words.ClientWords)
    return prepared


def prepare_words(
    options: PopulationOptions,
    cache_dir: str | os.PathLike[str] | None = None,
    tokenizer: tokenizers.Tokenizer | None = None,
) -> "generated_words.Words":
    """Returns the population of the options, prepared on first use and cached.

    A prepared population is found again by the hash of all options and of the
    source's path, size and time of change, and never rewritten. Of two processes that
    want the same one, the second waits for the first.

    Args:
        options: Options of the population.
        cache_dir: Directory of prepared data; None for `.cache/populations` in
            the repository.
        tokenizer: A custom tokenizer instead of the named one. A change inside
            functions that its `split` calls is not detected; give it a new name then.

    Returns:
        The population, memory-mapped: clients' words, or of generated clients the law.

    Raises:
        PopulationError: If the source cannot be read, has more bad rows than allowed,
            leaves no words, or cannot be written; if a prepared population is damaged.
    """
    from federated_hh.populations.columns import client_words, generated_words

    identity = describe(options, tokenizer)

    def make(directory: pathlib.Path, origin: dict[str, Any]) -> None:
        from federated_hh.populations.columns import column_writer

        new: Any = column_writer.new_population
        if options.is_generated:
            new = generated_words.new_law
        with new(directory) as writer:
            metadata = _build(writer, options, tokenizer, identity)
            if describe(options, tokenizer) != identity:
                raise PopulationError(prepared_data.changed_while_read(options.source))
            writer.finish(metadata.pop("client_ids"), metadata | origin)

    if options.is_synthetic:
        stem = f"{options.source}-{options.num_clients}"
    else:
        from federated_hh.populations.readers import sources

        stem = sources.stem_of(options)
    directory = prepared_data.find_or_make(cache_dir, stem, identity, make)
    opener: Any = client_words.ClientWords.open
    if options.is_generated:
        opener = generated_words.GeneratedWords.open
    return prepared_data.open_prepared(directory, identity, opener)


def _build(writer, options, tokenizer, identity) -> dict[str, Any]:
    """Writes the columns; returns the metadata with "client_ids"."""
    tokenizer = tokenizer or options.word_tokenizer
    from federated_hh.populations.readers import word_table

    alphabet = options.alphabet_with(tokenizer)
    table = word_table.WordTable(
        alphabet=alphabet,
        known_words=word_table.read_dictionary(options.known_words, options.language),
        refuse=options.out_of_alphabet == "refuse",
        keep=options.out_of_alphabet == "keep",
        only_words=word_table.read_dictionary(options.only_words, options.language),
        language=options.language,
    )
    if options.is_synthetic:
        from federated_hh.populations.synthetic import synthetic_english

        build: Any = synthetic_english.build
        if options.is_generated:
            build = synthetic_english.build_law
        metadata = build(writer, options, tokenizer, table, identity)
    else:
        from federated_hh.populations.readers import files

        metadata = files.build(writer, options, tokenizer, table)
    return metadata | {"alphabet": alphabet}


def _source_code(function: Callable[..., Any]) -> str | None:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # typed at a prompt, or a callable object
        return None


def _version(package: str) -> str:
    from importlib import metadata

    return metadata.version(package)
