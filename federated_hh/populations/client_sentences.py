"""From a user's data to clients' sentences on disk, made once and found again."""

import dataclasses
import json
import os
import pathlib
from importlib import metadata
from typing import Any

from federated_hh.files import verified_files
from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.columns import (
    client_text,
    prepared_data,
    resampled_text,
)
from federated_hh.populations.languages import sentence_tokenizers
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import sentences, sources
from federated_hh.populations.synthetic import synthetic_sentences

# Part of the directory's name: a change of the written data needs a new version.
_FORMAT_VERSION = 3


def describe(
    options: population_options.PopulationOptions,
    vocabulary: vocabulary_lib.Vocabulary,
    tokenizer: sentence_tokenizers.SentenceTokenizer,
    language: population_options.LanguageOptions,
) -> dict[str, Any]:
    """Returns everything that decides the contents, as JSON values.

    Raises:
        PopulationError: If the file is missing or unreadable.
    """
    chosen = options.deciding("sentences")
    if options.source == population_options.SYNTHETIC:
        source = {
            "kind": population_options.SYNTHETIC,
            "wordfreq": metadata.version("wordfreq"),
        }
        chosen |= dataclasses.asdict(language)
    else:
        source = sources.state_of(options)
    chosen["sentence_tokenizer"] = tokenizer.name
    chosen["vocabulary"] = vocabulary.fingerprint
    identity = {
        "contents": "sentences",
        "format_version": _FORMAT_VERSION,
        "source": source,
        "options": chosen,
    }
    # Through JSON and back, so that it compares equal to what was stored.
    return json.loads(json.dumps(identity))


def prepare(
    options: population_options.PopulationOptions,
    vocabulary: vocabulary_lib.Vocabulary,
    tokenizer: sentence_tokenizers.SentenceTokenizer,
    cache_dir: str | os.PathLike[str] | None = None,
    language: population_options.LanguageOptions | None = None,
    resampling: population_options.ResamplingOptions | None = None,
) -> client_text.ClientText:
    """Returns clients' sentences, prepared on first use and cached.

    Args:
        options: The files, their format and columns; or "synthetic", the number of
            clients, the words of each and the seed. The options on words alone are not
            used.
        vocabulary: Gives words their token ids.
        tokenizer: Cuts text into sentences of words.
        cache_dir: Directory of prepared data; None for `.cache/populations` in the
            repository.
        language: Language of synthetic clients; None for the defaults.
        resampling: Simulated clients in place of a file's people; None for the people.

    Returns:
        The sentences, memory-mapped. The metadata has the number of clients without a
        sentence, who are kept or dropped by `options.empty_clients`.

    Raises:
        PopulationError: If the file cannot be read, has more bad rows than allowed, no
            client has a sentence, or the columns cannot be written.
        ValueError: If the language has fewer words than `context_words`.
    """
    if resampling is not None and resampling.resampled_clients is not None:
        return _resampled(
            prepare(options, vocabulary, tokenizer, cache_dir),
            resampling,
            options.seed,
            cache_dir,
        )
    language = language or population_options.LanguageOptions()
    identity = describe(options, vocabulary, tokenizer, language)

    def make(directory: pathlib.Path, origin: dict[str, Any]) -> None:
        with client_text.new_text(directory) as partial:
            if options.source == population_options.SYNTHETIC:
                written = synthetic_sentences.SyntheticLanguage.of_words(
                    language, options.seed, tokenizer, options.language
                )
                synthetic_sentences.build(
                    partial, options, written, vocabulary.encode, origin
                )
                return
            sentences.build_from_files(
                partial, options, tokenizer, vocabulary.encode, origin
            )
            if describe(options, vocabulary, tokenizer, language) != identity:
                raise verified_files.PopulationError(
                    prepared_data.changed_while_read(options.source)
                )

    directory = prepared_data.find_or_make(cache_dir, _stem(options), identity, make)
    return prepared_data.open_prepared(directory, identity, client_text.ClientText.open)


def _resampled(
    people: client_text.ClientText,
    resampling: population_options.ResamplingOptions,
    seed: int,
    cache_dir: str | os.PathLike[str] | None,
) -> resampled_text.ResampledText:
    """Returns simulated clients who have the sentences of people."""
    assert resampling.resampled_clients is not None
    chosen = {
        "num_clients": resampling.resampled_clients,
        "max_words": resampling.max_words,
        "seed": seed,
    }
    identity = {
        "contents": "resampled sentences",
        "format_version": resampled_text.SCHEMA_VERSION,
        "source": {"kind": "resampled", "of": people.fingerprint},
        "options": chosen,
    }

    def make(directory: pathlib.Path, origin: dict[str, Any]) -> None:
        with client_text.new_text(directory) as partial:
            resampled_text.draw(partial, people, metadata=origin, **chosen)

    stem = f"resampled-sentences-{resampling.resampled_clients}"
    directory = prepared_data.find_or_make(cache_dir, stem, identity, make)
    return prepared_data.open_prepared(
        directory,
        identity,
        lambda path: resampled_text.ResampledText.open_with(path, people),
    )


def _stem(options: population_options.PopulationOptions) -> str:
    if options.source == population_options.SYNTHETIC:
        return f"synthetic-sentences-{options.num_clients}"
    return sources.stem_of(options)
