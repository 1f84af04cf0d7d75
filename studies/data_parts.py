"""Data sets that come as several compressed files."""

import hashlib
import os
import pathlib
from collections.abc import Iterator, Sequence

from federated_hh.files import atomic_files
from federated_hh.files.verified_files import PopulationError
from federated_hh.populations.columns import prepared_data


def parts_of(data_dir: str | os.PathLike[str], pattern: str) -> list[pathlib.Path]:
    """Returns the files of a data set that comes in parts, in order.

    Args:
        data_dir: Directory of the data sets.
        pattern: The pattern of the files, relative to it, such as
            "blogs/posts-*.jsonl.xz".

    Raises:
        PopulationError: If there is none.
    """
    files = sorted(pathlib.Path(data_dir).glob(pattern))
    if not files:
        raise PopulationError(f"data_dir: there is no file {pattern} in {data_dir}")
    return files


def fingerprint(path: str | os.PathLike[str]) -> str:
    """Returns the SHA-256 of a file's contents, as a text."""
    with open(path, "rb") as file:
        return f"SHA-256 {hashlib.file_digest(file, 'sha256').hexdigest()}"


def join_parts(
    files: Sequence[pathlib.Path], cache: str | os.PathLike[str], name: str
) -> pathlib.Path:
    """Returns one file that holds several compressed by xz, made on first use.

    Args:
        files: One after the other; streams of xz make one stream of all their lines.
        cache: Directory that keeps it, made if it is not there.
        name: The name of the file, as "blogs.jsonl.xz"; the hash of what it holds comes
            before the first dot. So a run finds its data by the same name where the
            parts were copied again.

    Raises:
        PopulationError: If a file cannot be read.
    """
    digest = hashlib.sha256()
    for file in files:
        prepared_data.file_state(str(file), name)
        for chunk in _chunks(file):
            digest.update(chunk)
    stem, _, extension = name.partition(".")
    target = pathlib.Path(cache) / f"{stem}-{digest.hexdigest()[:16]}.{extension}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_files.locked(target, "joining files"):
        if not target.exists():
            with atomic_files.new_file(target) as joined:
                for file in files:
                    for chunk in _chunks(file):
                        joined.write(chunk)
    return target


def _chunks(file: pathlib.Path) -> Iterator[bytes]:
    with open(file, "rb") as opened:
        while chunk := opened.read(1 << 20):
            yield chunk
