"""Prepared data on disk: made on first use, found again later, never rewritten.

Imports nothing heavy, so that flags can be parsed and wrong ones refused at once.
"""

import datetime
import errno
import hashlib
import json
import os
import pathlib
import stat
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from absl import logging

from federated_hh.files import atomic_files, installation, json_files
from federated_hh.files.verified_files import PopulationError
from federated_hh.populations.options.population_options import SYNTHETIC

DEFAULT_CACHE = installation.cache() / "populations"
_EARLIER = {
    "type": "object",
    "required": ["identity", "prepared_at"],
    "properties": {
        "prepared_at": json_files.TEXT,
        "identity": {
            "type": "object",
            "required": ["source", "options", "format_version"],
            "properties": {"source": json_files.OBJECT, "options": json_files.OBJECT},
        },
    },
}
_MOST_CHANGES = 2  # that the log names


def find_or_make(
    cache_dir: str | os.PathLike[str] | None,
    stem: str,
    identity: Mapping[str, Any],
    make: Callable[[pathlib.Path, dict[str, Any]], None],
) -> pathlib.Path:
    """Returns the directory of prepared data, which is made if it is missing.

    It is found again by the hash of `identity`. Of two processes that want the same
    one, the second waits for the first.

    Args:
        cache_dir: Directory of prepared data; None for `.cache/populations` in the
            repository.
        stem: Begins the directory's name.
        identity: JSON values with "format_version", "source" and "options", and
            "contents" other than words: everything that decides the columns.
        make: Given a directory that does not exist and what to keep in its
            `population.json`, makes it; it appears only when it is complete.

    Raises:
        PopulationError: If it cannot be made.
    """
    cache = pathlib.Path(cache_dir or DEFAULT_CACHE).absolute()
    directory = cache / _directory_name(stem, identity)
    if os.path.exists(directory):
        logging.info("Using the population in %s.", directory)
        return directory
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _write_error(error, cache) from error
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    try:
        for abandoned in atomic_files.remove_abandoned(cache):
            logging.info("Removed %s, left by a process that was killed.", abandoned)
        logging.info(
            "Preparing the population in %s%s.", directory, _reason(cache, identity)
        )
        make(directory, {"identity": dict(identity), "prepared_at": now})
    except FileExistsError:
        logging.info("Another process has prepared %s in the meantime.", directory)
    except PopulationError:
        raise
    except OSError as error:
        raise _write_error(error, cache) from error
    except MemoryError as error:
        raise PopulationError(
            f"memory ran out while preparing {directory.name}; nothing was kept. Ask "
            "for fewer clients, or run on a machine with more memory."
        ) from error
    return directory


class _HasMetadata(Protocol):
    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata that was written with the data."""


Prepared = TypeVar("Prepared", bound=_HasMetadata)


def open_prepared(
    directory: pathlib.Path,
    identity: Mapping[str, Any],
    opener: Callable[[pathlib.Path], Prepared],
) -> Prepared:
    """Opens the result of `find_or_make`, and checks its identity.

    Args:
        directory: Directory of the prepared data.
        identity: Identity, as in `find_or_make`.
        opener: Opens it, with its "identity" in `metadata`.

    Raises:
        PopulationError: If it is damaged, or something else; the message names it.
    """
    try:
        prepared = opener(directory)
    except PopulationError:
        raise
    except FileNotFoundError as error:
        raise PopulationError(f"{error} Remove it and prepare it again.") from error
    except ValueError as error:
        raise PopulationError(str(error)) from error
    if prepared.metadata.get("identity") != identity:
        raise PopulationError(
            f"{directory} holds another population than its name implies; remove it, "
            "and run again."
        )
    return prepared


def changed_while_read(source: str) -> str:
    """Returns the message about a source that changed while it was read."""
    return f"{source} changed while it was being read; run again."


def _directory_name(stem: str, identity: Mapping[str, Any]) -> str:
    canonical = json.dumps(identity, sort_keys=True)
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:16]
    return f"{stem[:64]}-{digest}"


def file_state(path: str | None, name: str) -> dict[str, Any] | None:
    """Returns path, size and time of a file, which reveal a change.

    Args:
        path: The file; None for none.
        name: Noun for messages.

    Raises:
        PopulationError: If it is missing or unreadable.
    """
    if path is None:
        return None
    resolved = os.path.realpath(os.path.expanduser(path))
    try:
        state = os.stat(resolved)
        # Opening a pipe would wait for its other end, and it cannot be read twice.
        if not (stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode)):
            raise PopulationError(
                f"{name}: {resolved} is not a file but a device or pipe."
            )
        with open(resolved, "rb"):
            pass
    except FileNotFoundError:
        seen = "" if path == resolved else f" (looked for {resolved})"
        raise PopulationError(f"{name}: there is no file {path}{seen}.") from None
    except IsADirectoryError:
        raise PopulationError(
            f"{name}: {resolved} is a directory, not a file."
        ) from None
    except PopulationError:
        raise
    except OSError as error:
        raise PopulationError(
            f"{name}: {resolved} cannot be read: {error.strerror}."
        ) from None
    return {"path": resolved, "size": state.st_size, "mtime_ns": state.st_mtime_ns}


def _reason(cache: pathlib.Path, identity: Mapping[str, Any]) -> str:
    """Returns the changes since the most similar earlier preparation.

    Returns:
        "" without one: more changes make another population.
    """
    earlier = [
        (metadata["prepared_at"], metadata["identity"])
        for metadata in map(_metadata_of_earlier, cache.glob("*/population.json"))
        if metadata
    ]
    source = identity["source"]
    name = source.get("path", SYNTHETIC)
    same = [
        (when, old)
        for when, old in earlier
        if old["source"].get("path", SYNTHETIC) == name
        and old.get("contents") == identity.get("contents")
    ]
    if not same:
        return ""
    # The one that differs in the fewest things explains the most.
    when, old = min(same, key=lambda pair: len(_differences(pair[1], identity)))
    changes = _differences(old, identity)
    if len(changes) > _MOST_CHANGES:
        return ""
    return f"; since {when}: {', '.join(changes)}"


def _metadata_of_earlier(path: pathlib.Path) -> dict[str, Any] | None:
    """Returns the metadata of another population, or None if it cannot be compared."""
    try:
        return json_files.parse(path.read_bytes(), _EARLIER)
    except (OSError, ValueError):
        return None


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    changes = []
    if old["format_version"] != new["format_version"]:
        changes.append("format changed")
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
        what = "there is no space left for it" + (
            f" ({error.filename})" if error.filename else ""
        )
    else:
        what = str(error)
    return PopulationError(
        f"the population could not be written to {cache}: {what}. Nothing was kept; "
        "choose another place with --population_cache, or free some space."
    )
