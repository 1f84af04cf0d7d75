"""The files of a population: paths, patterns and directories."""

import glob
import os
from typing import Any

from federated_hh.files import json_files, verified_files
from federated_hh.populations.columns import prepared_data
from federated_hh.populations.options import file_options, population_options
from federated_hh.populations.readers import opening

_FLAG = "population"


def files_of(options: population_options.PopulationOptions) -> list[str]:
    """Returns a population's files, in reading order.

    Args:
        options: `source` is a path, a pattern with `*`, `?`, `[...]` or `**`, or a
            directory; or several of these with commas between. A directory means the
            files directly in it whose names show a format, or, if the options give a
            format, all files but hidden ones. A value that is itself an existing path
            is not split or expanded.

    Raises:
        PopulationError: If there is no such file, or one is named twice.
    """
    found: dict[str, str] = {}  # part of the source by file
    paths = []
    for part in _parts(options.source):
        for path in _expand(part, options.format, options.split):
            real = os.path.realpath(path)
            if real in found:
                raise verified_files.PopulationError(
                    f"{_FLAG}: {path} is named twice, by {found[real]!r} and by "
                    f"{part!r}. Its rows would count twice; name it once."
                )
            found[real] = part
            paths.append(path)
    return paths


def format_of(options: population_options.PopulationOptions) -> str:
    """Returns the format of a population's files, which all have the same.

    Args:
        options: The files, and the format unless their names show it.

    Raises:
        PopulationError: If the names show no format or different formats, or one is a
            compressed Parquet file.
    """
    paths = files_of(options)
    formats = [_format(path, options.format) for path in paths]
    for path, other in zip(paths, formats, strict=True):
        if other != formats[0]:
            raise verified_files.PopulationError(
                f"{_FLAG}: {paths[0]} is {formats[0]} by its name, and {path} is "
                f"{other}; all files have to have one format. Give files of one "
                "format, or set --population_format for all."
            )
    return formats[0]


def state_of(options: population_options.PopulationOptions) -> dict[str, Any]:
    """Returns values that reveal a change of the files, as JSON values.

    Raises:
        PopulationError: If one is missing or unreadable.
    """
    states = [prepared_data.file_state(path, _FLAG) or {} for path in files_of(options)]
    if len(states) == 1:
        return {"kind": "file", **states[0]}
    return {
        "kind": "files",
        "path": options.source,
        "size": sum(state["size"] for state in states),
        "files": states,
    }


def stem_of(options: population_options.PopulationOptions) -> str:
    """Returns a name for data prepared from the files."""
    first = os.path.basename(_parts(options.source)[0].rstrip("/"))
    kept = "".join(c for c in first.split(".")[0] if c not in "*?[]")
    return kept or "population"


def _parts(source: str) -> list[str]:
    source = source.strip()
    if os.path.exists(os.path.expanduser(source)):
        return [source]
    parts = [part.strip() for part in source.split(",")]
    return [part for part in parts if part] or [source]


def _expand(part: str, wanted: str, split: str | None) -> list[str]:
    path = os.path.expanduser(part)
    if os.path.isdir(path):
        return _of_hugging_face(path, split) or _of_directory(path, wanted)
    if os.path.lexists(path) or not glob.has_magic(path):
        return [path]  # whether it can be read is seen later
    found = sorted(
        match for match in glob.glob(path, recursive=True) if not os.path.isdir(match)
    )
    if not found:
        raise verified_files.PopulationError(
            f"{_FLAG}: no file matches the pattern {part!r} (looked in "
            f"{os.path.abspath(_fixed_part(path))})."
        )
    return found


def _fixed_part(pattern: str) -> str:
    """Returns the directory that a pattern begins with."""
    while glob.has_magic(pattern):
        pattern = os.path.dirname(pattern)
    return pattern or "."


def _of_hugging_face(directory: str, split: str | None) -> list[str]:
    """Returns the Arrow files of a folder of `save_to_disk`; none of another folder.

    Args:
        directory: Folder of a dataset, or of several with a split each.
        split: The wanted one; None for all.

    Raises:
        PopulationError: If it has no such split, or names files that are not there.
    """
    listed = _read_json(os.path.join(directory, "dataset_dict.json"), "splits")
    if listed is not None:
        if split is not None and split not in listed:
            raise verified_files.PopulationError(
                f"--population_split={split}: {directory} has the splits "
                f"{', '.join(map(str, listed))}; name one of them."
            )
        chosen = listed if split is None else [split]
        parts = [os.path.join(directory, str(name)) for name in chosen]
        return [path for part in parts for path in _of_hugging_face(part, split)]
    listed = _read_json(os.path.join(directory, "state.json"), "_data_files")
    paths = []
    for file in listed or ():
        name = file.get("filename") if isinstance(file, dict) else None
        path = os.path.join(directory, os.path.basename(str(name)))
        if not os.path.isfile(path):
            raise verified_files.PopulationError(
                f"{_FLAG}: {directory}/state.json names the file {name!r}, which is "
                "not there; save the dataset again."
            )
        paths.append(path)
    return paths


def _read_json(path: str, key: str) -> list[Any] | None:
    """Returns a list in a file of JSON; None if there is no such file or list."""
    try:
        with open(path, "rb") as file:
            listed = json_files.parse(file.read(), json_files.OBJECT).get(key)
    except (OSError, ValueError):
        return None
    return listed if isinstance(listed, list) else None


def _of_directory(directory: str, wanted: str) -> list[str]:
    try:
        names = sorted(os.listdir(directory))
    except OSError as error:
        raise verified_files.PopulationError(
            f"{_FLAG}: {directory} cannot be read: {error.strerror}."
        ) from None
    paths = [
        os.path.join(directory, name)
        for name in names
        if not name.startswith((".", "_"))
    ]
    files = [path for path in paths if not os.path.isdir(path)]
    known = [
        path
        for path in files
        if wanted != "auto" or _suffix(path) in file_options.BY_SUFFIX
    ]
    if not known:
        shown = ", ".join(map(os.path.basename, paths[:5])) or "nothing"
        known_suffixes = ", ".join(file_options.BY_SUFFIX)
        raise verified_files.PopulationError(
            f"{_FLAG}: the directory {directory} has no file of a known format "
            f"({known_suffixes}); it has {shown}. Name the files by a pattern such as "
            "'DIR/*.txt' and their format by --population_format; 'DIR/**/*.csv' "
            "also matches files in subdirectories."
        )
    return known


def _suffix(path: str) -> str:
    stem, _ = opening.split_compression(path)
    return os.path.splitext(stem)[1].lower()


def _format(path: str, wanted: str) -> str:
    """Returns a file's format: the given one, or by its name."""
    _, compression = opening.split_compression(path)
    found = wanted
    if wanted == "auto":
        if _suffix(path) not in file_options.BY_SUFFIX:
            known = ", ".join(file_options.BY_SUFFIX)
            raise verified_files.PopulationError(
                f"{path}: the name does not show the format (known suffixes: {known}, "
                "of text also with "
                f"{', '.join(opening.COMPRESSIONS)}); give it with "
                f"--population_format: {', '.join(file_options.FORMATS)}."
            )
        found = file_options.BY_SUFFIX[_suffix(path)].name
    why = file_options.FORMATS[found].uncompressed_why
    if why and compression:
        raise verified_files.PopulationError(
            f"{path}: {why} cannot be read from {compression}; decompress it first."
        )
    return found
