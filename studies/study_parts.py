"""A study in parts, each a run of its own: for jobs of an array, and no coordinator.

    scripts/run reproduce --study=NAME --study_part=2/8 --output_dir=parts/2
    scripts/run reproduce --study=NAME --gather=parts/1,parts/2,...

A run, a repeat of a setting, is in one part, which follows from its number alone.
"""

import dataclasses
import pathlib
import re
import shutil
from collections.abc import Sequence
from typing import Any, Self

from federated_hh.files import seal
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import files as run_files
from federated_hh.run_directory import record as run_record

# Flags that differ between parts, and from those of the run that gathers them.
_OF_A_PART = re.compile("--(study_part|gather|results_dir)=.*")

# A setting's name, and the number of a repeat.
StudyRun = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class StudyPart:
    """One of the parts that a study is split into.

    Attributes:
        number: Number of the part, from 1.
        count: Number of parts.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the part that a text such as "2/8" names.

        Raises:
            ValueError: If it names none.
        """
        found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        number, count = map(int, found.groups()) if found else (0, 0)
        if not 1 <= number <= count:
            raise ValueError(
                f"--study_part is {text!r}; it has to be i/n, part i of n, with i in "
                "1..n"
            )
        return cls(number, count)

    def of(self, runs: Sequence[StudyRun]) -> list[StudyRun]:
        """Returns the part's share: every `count`-th run."""
        return list(runs[self.number - 1 :: self.count])


def gather(
    directory: run_directory.RunDirectory,
    runs: Sequence[StudyRun],
    folders: Sequence[str],
    paths: Sequence[str],
) -> dict[str, Any]:
    """Copies the finished runs of a study's parts.

    Args:
        directory: The directory of the whole study; gets the folders of the parts'
            runs.
        runs: All runs of the study, in their order.
        folders: Folder of each run.
        paths: The run directories of the parts.

    Returns:
        What a checkpoint of a study holds.

    Raises:
        RunDirectoryError: If a part is of another study, data, flags or code, or does
            not hold what it says, or runs are missing or come twice.
    """
    rows: dict[str, dict[StudyRun, list[Any]]] = {}
    found: dict[StudyRun, str] = {}
    for path in paths:
        state = _state_of(path, directory)
        for setting, repeat in state["done"]:
            one = (setting, repeat)
            if one in found:
                raise run_files.RunDirectoryError(
                    f"--gather: {path} and {found[one]} both have {setting}, repeat "
                    f"{repeat + 1}; name each part once"
                )
            found[one] = path
        for name, table in state["tables"].items():
            for row in table:
                one = (row["setting"], row["repeat"])
                rows.setdefault(name, {}).setdefault(one, []).append(row)
    missing = [one for one in runs if one not in found]
    if missing:
        names = ", ".join(
            f"{name}, repeat {repeat + 1}" for name, repeat in missing[:5]
        )
        raise run_files.RunDirectoryError(
            f"--gather: {len(missing)} of {len(runs)} runs are in no part, as "
            f"{names}; run the parts that are missing, or name them"
        )
    for one, folder in zip(runs, folders, strict=True):
        source = pathlib.Path(found[one]) / folder
        if source.exists():
            shutil.copytree(source, directory.path / folder, dirs_exist_ok=True)
    return {
        "done": [list(one) for one in runs],
        "tables": {
            name: [row for one in runs for row in of_run.get(one, [])]
            for name, of_run in rows.items()
        },
    }


def _state_of(path: str, directory: run_directory.RunDirectory) -> dict[str, Any]:
    """Returns a part's checkpoint, of the same study as a directory's run."""
    record, whole = run_record.read(path), directory.run
    seal.check(path, record)
    for name in ("program", "packages", "sources", "noise_key"):
        if record[name] != whole[name]:
            raise run_files.RunDirectoryError(
                f"--gather: {path} has another {name.replace('_', ' ')} than this run: "
                f"{record[name]}, now {whole[name]}"
            )
    flags = [_decisive(run_record.flags_of(path)), _decisive(whole["flags"])]
    if flags[0] != flags[1]:
        differ = sorted(flags[0] ^ flags[1])
        raise run_files.RunDirectoryError(
            f"--gather: {path} was run with other flags: {', '.join(differ[:6])}"
        )
    file = pathlib.Path(path) / run_directory.CHECKPOINT_FILE
    if not file.exists():
        raise run_files.RunDirectoryError(f"--gather: {path} has done nothing so far")
    run, checkpoint = run_directory.read_checkpoint(file)
    if run != run_record.identity(record):
        raise run_files.RunDirectoryError(f"--gather: {file} is of another run")
    return checkpoint["state"]


def _decisive(flags: Sequence[str]) -> frozenset[str]:
    return frozenset(flag for flag in flags if not _OF_A_PART.fullmatch(flag))
