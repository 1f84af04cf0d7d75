"""The metadata of columns on disk, `population.json`: written last, believed by nobody.

Besides what its writer says of the data it holds

    schema_version  what the columns are
    files           size and SHA-256 of each file, by name
    fingerprint     SHA-256 of the files' names and contents
    digest          SHA-256 of all the rest of the metadata
"""

import hashlib
import json
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from federated_hh.files import atomic_files, verified_files

METADATA_FILE = "population.json"
REMEDY = "remove its directory and prepare it again"
_FILE_NAME = re.compile(r"[A-Za-z0-9_]+\.(bin|arrow)")
_MAX_BYTES = 64 << 20  # far above what is written; a larger file is something else


def write(
    directory: pathlib.Path,
    metadata: Mapping[str, Any],
    files: Mapping[str, verified_files.WrittenFile],
) -> None:
    """Writes the metadata of a directory.

    Args:
        directory: Directory of the files.
        metadata: JSON values.
        files: Written files by name.
    """
    contents = dict(
        metadata,
        files={name: files[name].to_json() for name in sorted(files)},
        fingerprint=fingerprint(files),
    )
    # As they are read, so that the digest is the same.
    contents = json.loads(json.dumps(contents))
    contents["digest"] = _digest(contents)
    text = json.dumps(contents, indent=2, ensure_ascii=False) + "\n"
    with atomic_files.naming(directory / METADATA_FILE):
        (directory / METADATA_FILE).write_text(text, encoding="utf-8")


def read(
    directory: str, schema_version: int, contents: str | None = None
) -> tuple[dict[str, Any], dict[str, verified_files.WrittenFile]]:
    """Returns the metadata of a directory, and what was written into its files.

    Args:
        directory: Absolute path.
        schema_version: The one that the caller reads.
        contents: Required contents, other than words.

    Raises:
        FileNotFoundError: If there is none.
        DamagedFileError: If it cannot be read, or is not what was written.
        ValueError: If it has another schema version, or holds words.
    """
    path = os.path.join(directory, METADATA_FILE)
    metadata = _load(path, directory)
    if contents is not None and "num_entries" in metadata:  # which words have
        raise ValueError(f"{path}: it holds no {contents}, but words of clients.")
    version = metadata.get("schema_version")
    if version != schema_version:
        raise ValueError(
            f"{path}: schema_version is {verified_files.shortened(version)}, this "
            f"program reads {schema_version}; {REMEDY}."
        )
    try:
        files = _check(metadata)
    except ValueError as error:
        raise damaged(directory, str(error)) from None
    return metadata, files


def sizes_of(
    directory: str, metadata: Mapping[str, Any], names: Sequence[str]
) -> list[int]:
    """Returns values of the metadata that are sizes.

    Raises:
        DamagedFileError: If one is not a whole number, at least 0.
    """
    for name in names:
        if not verified_files.is_whole(metadata.get(name)):
            found = verified_files.shortened(metadata.get(name))
            raise damaged(
                directory, f"{name} is {found}; it has to be a whole number, at least 0"
            )
    return [metadata[name] for name in names]


def fingerprint(files: Mapping[str, verified_files.WrittenFile]) -> str:
    """Returns the SHA-256 of the files' names and contents, in hexadecimal."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode() + bytes.fromhex(files[name].sha256))
    return digest.hexdigest()


def _load(path: str, directory: str) -> dict[str, Any]:
    try:
        size = os.path.getsize(path)
        if size > _MAX_BYTES:
            raise damaged(directory, f"it has {size} bytes")
        with open(path, encoding="utf-8") as file:
            metadata = json.load(file)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{directory} is not a population directory: it has no {METADATA_FILE}."
        ) from None
    except verified_files.DamagedFileError:
        raise
    except OSError as error:
        raise damaged(directory, error.strerror) from None
    except (ValueError, RecursionError) as error:
        raise damaged(directory, f"not readable as JSON: {error}") from None
    if not isinstance(metadata, dict):
        found = verified_files.shortened(metadata)
        raise damaged(directory, f"it is no JSON object but {found}")
    return metadata


def _check(metadata: Mapping[str, Any]) -> dict[str, verified_files.WrittenFile]:
    """Returns the files, or raises `ValueError` if the metadata cannot be."""
    if metadata.get("digest") != _digest(metadata):
        raise ValueError("it is not what was written, by its own digest")
    if not isinstance(metadata.get("files"), dict):
        raise ValueError("it names no files")
    files = {}
    for name, written in metadata["files"].items():
        if not _FILE_NAME.fullmatch(name):
            raise ValueError(
                f"{verified_files.shortened(name)} is no name of a column's file"
            )
        try:
            files[name] = verified_files.WrittenFile.from_json(written)
        except ValueError as error:
            raise ValueError(f"files[{name!r}]: {error}") from None
    if metadata.get("fingerprint") != fingerprint(files):
        raise ValueError("the fingerprint is not that of the files")
    return files


def _digest(metadata: Mapping[str, Any]) -> str:
    contents = {name: metadata[name] for name in metadata if name != "digest"}
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def damaged(directory: str, what: str) -> verified_files.DamagedFileError:
    """Returns the error that the metadata of a directory cannot be believed."""
    return verified_files.DamagedFileError(
        f"{os.path.join(directory, METADATA_FILE)} is damaged: {what}; {REMEDY}."
    )
