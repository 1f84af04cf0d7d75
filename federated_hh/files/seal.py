"""The seal of a finished run: the digests of its files, under its key.

`seal.json` has the SHA-256 of every released file, and an HMAC of these under the run's
noise key: whoever edits a file and its digest lacks the key. `simulator/seal.json` does
the same for the simulator's files. A shared run may lack `simulator/` and `secret/`;
the digests of the others are still checked.
"""

import functools
import hashlib
import hmac
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from absl import logging

from federated_hh.files import json_files, plain_files

FILE = "seal.json"
FILES = (FILE, "simulator/seal.json")
REPORT_FILE = "report.html"  # it shows ground truth
RUN_FILE = "run.json"
# Its first version with a seal.
_RUN_SCHEMA = 5
_KEY_FILE = "secret/noise_key"
# TensorBoard's files are still open, and no program reads them.
_UNSEALED = frozenset(["secret", "simulator/tensorboard", *FILES])
# Beside run.json a user may put pages and notes, but nothing that a program reads.
_READ = (".csv", ".json")
# States of checkpoints may be deleted: they are large.
_OPTIONAL = ".npz"
_FILES: json_files.Schema = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": json_files.SHA256,
}
_SCHEMA = json_files.object_of(
    {"schema_version": {"const": 1}, "files": _FILES, "hmac": json_files.SHA256}
)
_REMEDY = "Restore the file as the run wrote it, or run it again"


class SealError(ValueError):
    """A finished run's file is not the one that the run wrote; the message names it."""


def mac(key: bytes, purpose: str, value: Any) -> str:
    """Returns a keyed hash of a value of JSON, in hexadecimal digits.

    Args:
        key: The bytes of a noise key.
        purpose: Purpose of the hash: each has a key of its own, which is none of those
            that noise is drawn with.
        value: The value.
    """
    own = hmac.digest(key, f"federated_hh {purpose}".encode(), "sha256")
    text = json.dumps(value, sort_keys=True)
    return hmac.new(own, text.encode(), "sha256").hexdigest()


def of(
    directory: str | os.PathLike[str], key: bytes, ahead: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Returns the seals of a run: the contents of `FILES`.

    Args:
        directory: The run directory.
        key: The bytes of the run's noise key.
        ahead: Contents of released files that are written after the seal, by name.
    """
    root = pathlib.Path(directory)
    seals, ahead = {}, dict(ahead)
    for seal in FILES:
        names = [name for name in _names(root) if _seal_of(name) == seal]
        digests = {name: _digest(root / name) for name in names}
        digests |= {n: hashlib.sha256(text).hexdigest() for n, text in ahead.items()}
        digests = dict(sorted(digests.items()))
        value = {"schema_version": 1, "files": digests, "hmac": mac(key, seal, digests)}
        seals[seal] = f"{json.dumps(value, indent=1)}\n".encode()
        ahead = {seal: seals[seal]}  # the next one binds it
    return seals


def check(directory: str | os.PathLike[str], run: Mapping[str, Any]) -> None:
    """Checks the files of a finished run; an unfinished run has no seal yet.

    Args:
        directory: The run directory.
        run: Its record, from `run.json`.

    Raises:
        SealError: If a file is missing, changed or added.
    """
    root = pathlib.Path(directory)
    if not (root / FILE).exists():
        is_sealed = run.get("schema_version", 0) >= _RUN_SCHEMA
        if run["status"] == "complete" and is_sealed:
            raise SealError(f"{root / FILE} is missing. {_REMEDY}")
        if run["status"] == "complete":
            _warn(
                f"{directory}: an earlier version made this run, without {FILE}; edits "
                "of its files cannot be detected."
            )
        return
    sealed: set[str] = set()
    for seal in FILES:
        if (root / seal).parent.exists():  # a shared run lacks the simulator's part
            sealed |= _check_seal(root, seal, run)
    folders = {os.path.dirname(name) for name in sealed}
    for name in _names(root):
        is_read = os.path.dirname(name) or name.endswith(_READ)
        if name not in sealed and os.path.dirname(name) in folders and is_read:
            raise SealError(
                f"{root / name} is not a file of the run: it is not in {FILE}. Move it "
                "out of the run directory"
            )


def _check_seal(root: pathlib.Path, seal: str, run: Mapping[str, Any]) -> set[str]:
    """Checks the files of a seal; returns their names."""
    path = root / seal
    try:
        value = json_files.parse(plain_files.read(path), _SCHEMA)
    except OSError as error:
        raise SealError(f"{path} cannot be read: {error.strerror}. {_REMEDY}") from None
    except json_files.JsonError as error:
        raise SealError(f"{path} is damaged: {error}. {_REMEDY}") from None
    files, given = value["files"], value["hmac"].encode()
    key = _key_of(root, run)
    if key and not hmac.compare_digest(mac(key, seal, files).encode(), given):
        raise SealError(
            f"{path}: its HMAC is not of the run's key, so it was edited. {_REMEDY}"
        )
    for name, digest in files.items():
        _check_file(root, name, digest, run["status"] == "complete")
    return set(files)


def _check_file(root: pathlib.Path, name: str, digest: str, is_complete: bool) -> None:
    path = root / name
    if path.parent != root and not path.parent.exists():
        return  # the run was shared without it
    if not path.is_file():
        if not name.endswith(_OPTIONAL):
            raise SealError(f"{path} is missing; {FILE} has it. {_REMEDY}")
    elif _digest(path) != digest:
        remedy = _REMEDY if is_complete else "Finish the run with --resume"
        raise SealError(
            f"{path} changed after the run completed: its SHA-256 is not the one in "
            f"{FILE}. {remedy}"
        )


def _key_of(root: pathlib.Path, run: Mapping[str, Any]) -> bytes:
    """Returns the run's key; empty, with a warning, where it is not at hand."""
    file = root / _KEY_FILE
    if not os.access(file, os.R_OK):
        _warn(
            f"{root}: {_KEY_FILE} is not at hand, so the digests in {FILE} are checked "
            "and its HMAC is not."
        )
        return b""
    try:
        key = bytes.fromhex(file.read_bytes().strip().decode())
    except (OSError, ValueError):
        key = b""
    if hashlib.sha256(key).hexdigest() != run["noise_key"]["sha256"]:
        raise SealError(f"{file} is not the run's noise key. {_REMEDY}")
    return key


def _seal_of(name: str) -> str:
    """Returns the seal of a file.

    A digest confirms a guess of the contents, so the simulator's are not released.
    """
    parts = pathlib.PurePosixPath(name).parts
    return FILES["simulator" in parts or parts[-1] == REPORT_FILE]


def _names(root: pathlib.Path) -> Iterator[str]:
    """Yields the names of files that belong to a run, in no order.

    A run within the run has its own seal.
    """
    for folder, folders, files in os.walk(root):
        place = pathlib.Path(folder).relative_to(root)
        if folder != os.fspath(root) and RUN_FILE in files:
            folders.clear()
            continue
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and (place / name).as_posix() not in _UNSEALED
        ]
        for name in files:
            if not name.startswith(".") and (place / name).as_posix() not in _UNSEALED:
                yield (place / name).as_posix()


def _digest(path: pathlib.Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@functools.cache  # once for each run
def _warn(text: str) -> None:
    logging.warning("%s", text)
