"""From data to a population on disk: preparation, cache.

Imports nothing heavy, so that flags can be parsed and wrong ones refused at once.
"""

import dataclasses
import datetime
import errno
import hashlib
import inspect
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from absl import logging

from simulation import atomic_files, tokenizers
from simulation.population_options import (
    SYNTHETIC,
    PopulationError,
    PopulationOptions,
)

if TYPE_CHECKING:
    from simulation import client_words

DEFAULT_CACHE = pathlib.Path(__file__).resolve().parents[1] / ".cache" / "populations"

# Part of a prepared population's name: a change in what is written needs another.
_FORMAT_VERSION = 1
_SYNTHETIC_OPTIONS = (
    "num_clients",
    "mean_words_per_client",
    "words_per_client_sigma",
    "seed",
)
_FILTER_OPTIONS = ("alphabet", "out_of_alphabet", "empty_clients")


def describe(
    options: PopulationOptions, tokenizer: tokenizers.Tokenizer | None = None
) -> dict[str, Any]:
    """Returns all that decides a population's contents, as JSON values.

    Args:
      options: The options.
      tokenizer: A user's own, in place of the one that the options name.

    Returns:
      The source (path, size, time of change), the options that matter for it, and the
      version of what is written.

    Raises:
      PopulationError: If a file is missing or unreadable.
    """
    values = dataclasses.asdict(options)
    chosen = {name: values[name] for name in _FILTER_OPTIONS}
    chosen["tokenizer"] = options.tokenizer
    if tokenizer is not None:
        chosen["tokenizer"] = {
            "name": tokenizer.name,
            "alphabet": tokenizer.alphabet,
            "source": _source_code(tokenizer.split),
        }
    chosen["known_words"] = _file_state(options.known_words, "known_words")
    source: dict[str, Any] = {"kind": SYNTHETIC}
    if options.source == SYNTHETIC:
        chosen.update({name: values[name] for name in _SYNTHETIC_OPTIONS})
        source["wordfreq"] = _version("wordfreq")
    else:
        source = {"kind": "file", **_file_state(options.source, "population")}
        left_out = {"source", *_SYNTHETIC_OPTIONS}
        for name in values.keys() - chosen.keys() - left_out:
            chosen[name] = values[name]
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
    """Returns the population of the options, made on first use and kept.

    A prepared population is found again by the hash of all options and of the
    source's path, size and time of change, and never rewritten. Of two processes that
    want the same one, the second waits for the first.

    Args:
      options: What the population is made of.
      cache_dir: Where prepared populations are kept; None for `.cache/populations` in
        the repository.
      tokenizer: A user's own tokenizer, in place of the one that the options name. A
        change inside the functions that its `split` calls is not seen: give it a new
        name then.

    Returns:
      The population, memory-mapped.

    Raises:
      PopulationError: If the source cannot be read, has more bad rows than allowed,
        leaves no words, or cannot be written.
    """
    from simulation import column_writer

    identity = describe(options, tokenizer)
    cache = pathlib.Path(cache_dir or DEFAULT_CACHE).absolute()
    directory = cache / _directory_name(options, identity)
    if os.path.exists(directory):
        logging.info("Using the population prepared in %s.", directory)
        return _open(directory)
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _write_error(error, cache) from error
    try:
        for abandoned in atomic_files.remove_abandoned(cache):
            logging.info("Removed %s, left by a process that was killed.", abandoned)
        logging.info("Preparing %s: %s.", directory, _reason(cache, identity))
        with column_writer.new_population(directory) as writer:
            metadata = _build(writer, options, tokenizer)
            if describe(options, tokenizer) != identity:
                raise PopulationError(
                    f"{options.source} changed while it was being read; run again."
                )
            writer.finish(
                metadata.pop("words"),
                metadata.pop("client_ids"),
                metadata
                | {
                    "identity": identity,
                    "prepared_at": datetime.datetime.now(datetime.UTC).isoformat(
                        timespec="seconds"
                    ),
                },
            )
    except FileExistsError:
        logging.info("Another process has prepared %s meanwhile.", directory)
    except PopulationError:
        raise
    except OSError as error:
        raise _write_error(error, cache) from error
    except MemoryError as error:
        raise PopulationError(
            f"memory ran out while {options.source} was being prepared; nothing was "
            "kept. Run on a machine with more memory."
        ) from error
    return _open(directory)


def _open(directory: pathlib.Path) -> "client_words.ClientWords":
    from simulation import client_words

    try:
        return client_words.ClientWords.open(directory)
    except ValueError as error:
        raise PopulationError(str(error)) from error


def _build(writer, options, tokenizer) -> dict[str, Any]:
    """Writes the columns; returns the metadata with "words" and "client_ids"."""
    if tokenizer is None:
        tokenizer = tokenizers.get_tokenizer(options.tokenizer)
    from simulation.readers import word_table

    alphabet = options.alphabet or tokenizer.alphabet
    table = word_table.WordTable(
        alphabet=alphabet,
        known_words=word_table.read_known_words(options.known_words),
        refuse=options.out_of_alphabet == "refuse",
    )
    if options.source == SYNTHETIC:
        from simulation.readers import synthetic_english as reader
    else:
        from simulation.readers import files as reader
    metadata = reader.build(writer, options, tokenizer, table)
    return metadata | {"alphabet": alphabet}


def _directory_name(options: PopulationOptions, identity: Mapping[str, Any]) -> str:
    canonical = json.dumps(identity, sort_keys=True)
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:16]
    stem = pathlib.Path(options.source).name.split(".")[0] or "population"
    if options.source == SYNTHETIC:
        stem = f"{SYNTHETIC}-{options.num_clients}"
    return f"{stem[:64]}-{digest}"


def _file_state(path: str | None, name: str) -> dict[str, Any] | None:
    """Returns what tells whether a file has changed."""
    if path is None:
        return None
    resolved = os.path.realpath(os.path.expanduser(path))
    try:
        with open(resolved, "rb"):
            pass
        state = os.stat(resolved)
    except FileNotFoundError:
        raise PopulationError(
            f"{name}: there is no file {path} (looked for {resolved})."
        ) from None
    except IsADirectoryError:
        raise PopulationError(
            f"{name}: {resolved} is a directory, not a file."
        ) from None
    except OSError as error:
        raise PopulationError(
            f"{name}: {resolved} cannot be read: {error.strerror}."
        ) from None
    return {"path": resolved, "size": state.st_size, "mtime_ns": state.st_mtime_ns}


def _source_code(function: Callable[..., Any]) -> str | None:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # typed at a prompt, or a callable object
        return None


def _version(package: str) -> str:
    from importlib import metadata

    return metadata.version(package)


def _reason(cache: pathlib.Path, identity: Mapping[str, Any]) -> str:
    """Says why a new preparation is needed, from what earlier ones were made of."""
    earlier = []
    for path in cache.glob("*/population.json"):
        try:
            metadata = json.loads(path.read_text(encoding="utf-8"))
            earlier.append((metadata["prepared_at"], metadata["identity"]))
        except (OSError, ValueError, KeyError):
            continue
    source = identity["source"]
    name = source.get("path", SYNTHETIC)
    same = [
        (when, old)
        for when, old in earlier
        if old["source"].get("path", SYNTHETIC) == name
    ]
    if not same:
        return "not prepared before"
    # The one that differs in the fewest things explains the most.
    when, old = min(same, key=lambda pair: len(_differences(pair[1], identity)))
    return f"{', '.join(_differences(old, identity))} since the one of {when}"


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    changes = []
    if old["format_version"] != new["format_version"]:
        changes.append("the format of populations changed")
    if old["source"] != new["source"]:
        sizes = f"{old['source'].get('size')} -> {new['source'].get('size')} bytes"
        changes.append(
            f"source changed ({sizes})"
            if "size" in new["source"]
            else "the word list changed"
        )
    for name in sorted(old["options"].keys() | new["options"].keys()):
        before, after = old["options"].get(name), new["options"].get(name)
        if before != after:
            changes.append(f"option {name} changed ({before!r} -> {after!r})")
    return changes


def _write_error(error: OSError, cache: pathlib.Path) -> PopulationError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        what = "there is no space left for it"
    else:
        what = str(error)
    return PopulationError(
        f"the population could not be written to {cache}: {what}. Nothing was kept; "
        "choose another place with --population_cache, or free some space."
    )
