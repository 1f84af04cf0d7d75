"""Run metadata, written once and verified on resume: `run.json`."""

import hashlib
import hmac
import json
import os
import pathlib
import platform
import time
from collections.abc import Mapping, Sequence
from typing import Any

from federated_hh.files import json_files, seal, software
from federated_hh.randomness import noise_keys
from federated_hh.run_directory import files as run_files

RUN_FILE = seal.RUN_FILE
FLAGS_FILE = "flags.txt"
STATEMENT_FILE = "privacy.json"
# Facts that only the simulator knows, such as the data's fingerprint.
FACTS_FILE = "simulator/facts.json"
# In its own folder, which only the user can enter.
KEY_FILE = "secret/noise_key"
# Version 5 has `record_hmac`, and a seal when it is complete.
_SCHEMA_VERSIONS = (4, 5)
# Fields that change when a run completes.
_LATER = {"status", "finished", "privacy_sha256", "record_hmac"}
_SCHEMA_FILE = pathlib.Path(__file__).with_name("run.schema.json")

Run = dict[str, Any]


def new(
    program: str,
    flags: Sequence[str],
    facts: Mapping[str, Any],
    noise_key: noise_keys.NoiseKey,
) -> Run:
    """Returns the record of a run that begins now.

    Args:
        program: The program's name.
        flags: All flags that decide a result, as `--name=value`.
        facts: Further facts that a result depends on, such as the data's fingerprint.
        noise_key: The noise key of the run.
    """
    run = {
        "schema_version": _SCHEMA_VERSIONS[-1],
        "program": program,
        "status": "running",
        "started": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "version": software.version(),
        "sources": software.sources_digest(),
        "python": platform.python_version(),
        "packages": software.package_versions(),
        "flags": list(flags),
        "flags_sha256": _digest(list(flags)),
        "noise_key": {
            "is_secret": noise_key.is_secret,
            "sha256": noise_key.commitment,
        },
        "facts": _digest_of_facts(facts, noise_key),
    }
    return run | {"record_hmac": _record_hmac(run, noise_key)}


def _record_hmac(run: Run, noise_key: noise_keys.NoiseKey) -> str:
    """Returns a keyed hash of the fields that are as a run began."""
    began = {name: value for name, value in run.items() if name not in _LATER}
    return seal.mac(noise_key.to_bytes(), "record", began)


def read(path: str | os.PathLike[str]) -> Run:
    """Returns the contents of `run.json`.

    Raises:
        RunDirectoryError: If there is no run at `path`, or its record is damaged.
    """
    file = pathlib.Path(path) / RUN_FILE
    if not file.exists():
        raise run_files.RunDirectoryError(
            f"--output_dir={path} holds no run: no {RUN_FILE}"
        )
    run = run_files.read_json(file)
    found = run.get("schema_version")
    if found not in _SCHEMA_VERSIONS:
        raise run_files.RunDirectoryError(
            f"{file}: schema_version is {found!r}, this program reads "
            f"{_SCHEMA_VERSIONS[-1]}. Give a run of this program and version"
        )
    try:
        json_files.check(run, json_files.schema_of(_SCHEMA_FILE))
    except json_files.JsonError as error:
        raise run_files.RunDirectoryError(
            f"{file} is damaged: {error}. Restore it, or begin a new run"
        ) from error
    if _digest(run["flags"]) != run["flags_sha256"]:
        raise run_files.RunDirectoryError(
            f"{file}: its flags changed after the run began, and clients have already "
            "been asked with the original ones. Restore the file, or begin a new run"
        )
    return run


def flagfile(flags: Sequence[str]) -> str:
    """Returns flags as the text of a flagfile.

    A flagfile is read line by line, without surrounding blanks. A flag that would not
    survive this is written as a comment.
    """
    lines = [
        flag if flag == flag.strip() and flag.isprintable() else f"# {flag!r}"
        for flag in flags
    ]
    return "".join(f"{line}\n" for line in lines)


def flags_of(path: str | os.PathLike[str]) -> list[str]:
    """Returns the flags that a run began with, as `--name=value`.

    Raises:
        RunDirectoryError: If there is no run at `path`, or its record or flags file has
            changed since.
    """
    run = read(path)
    file = pathlib.Path(path) / FLAGS_FILE
    if not file.exists():  # the run was killed in its first moment
        run_files.RunFiles(file.parent).write_text(file.name, flagfile(run["flags"]))
    if run_files.read_bytes(file) != flagfile(run["flags"]).encode():
        raise run_files.RunDirectoryError(
            f"{file} differs from the flags that the run began with (see {RUN_FILE}), "
            "and clients have already been asked with those. Restore the file, or "
            "begin a new run"
        )
    return run["flags"]


def noise_key_of(path: str | os.PathLike[str]) -> noise_keys.NoiseKey:
    """Returns the key of a run's noise.

    Raises:
        RunDirectoryError: If there is no run at `path`.
        NoiseKeyError: If its key is missing or has changed.
    """
    recorded = read(path)["noise_key"]
    file = pathlib.Path(path) / KEY_FILE
    key = noise_keys.NoiseKey.read(file, is_secret=recorded["is_secret"])
    if key.commitment != recorded["sha256"]:
        raise noise_keys.NoiseKeyError(
            f"{file} holds another noise key than the run began with; restore it, or "
            "begin a new run"
        )
    return key


def check_same(
    path: pathlib.Path,
    run: Run,
    program: str,
    facts: Mapping[str, Any],
    noise_key: noise_keys.NoiseKey,
) -> None:
    """Raises `RunDirectoryError` unless a run can be continued.

    Args:
        path: Its path.
        run: Its record.
        program: The program that resumes it.
        facts: The current facts.
        noise_key: The current key.
    """
    if run["program"] != program:
        raise run_files.RunDirectoryError(
            f"--output_dir={path} holds a run of {run['program']}, not {program}"
        )
    if run["status"] == "complete":
        raise run_files.RunDirectoryError(f"the run in --output_dir={path} is complete")
    if run["noise_key"]["sha256"] != noise_key.commitment:
        raise run_files.RunDirectoryError(
            f"--output_dir={path}: the run began with another noise key"
        )
    if "record_hmac" in run and run["record_hmac"] != _record_hmac(run, noise_key):
        raise run_files.RunDirectoryError(
            f"{path / RUN_FILE} changed after the run began: its record_hmac is not of "
            "its other fields. Restore the file, or begin a new run"
        )
    file = path / FACTS_FILE
    began = run_files.read_json(file)
    if _digest_of_facts(began, noise_key) != run["facts"]:
        raise run_files.RunDirectoryError(
            f"{file} changed after the run began; restore it, or begin a new run"
        )
    for name in sorted(began.keys() | facts.keys()):
        # As text: the file has lists for tuples, and nan is not equal to itself.
        if _text(began.get(name)) != _text(facts.get(name)):
            raise run_files.RunDirectoryError(
                f"--output_dir={path}: the run began with {name} = "
                f"{began.get(name)!r}, and it is now {facts.get(name)!r}; restore the "
                "original, or begin a new run"
            )


def identity(run: Run, *, with_start: bool = False) -> str:
    """Returns a hash of everything that decides a run's results, except the code.

    Args:
        run: Its record.
        with_start: True to include the start time, as older checkpoints do.

    Returns:
        64 hexadecimal digits.
    """
    decisive = ["program", "flags", "facts", "noise_key"]
    decisive += ["started"] if with_start else []
    return _digest({name: run[name] for name in decisive})


def _digest_of_facts(facts: Mapping[str, Any], noise_key: noise_keys.NoiseKey) -> str:
    """Returns a keyed hash, so `run.json` reveals nothing about the data."""
    text = _text(dict(facts))
    return hmac.new(noise_key.to_bytes(), text.encode(), "sha256").hexdigest()


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _digest(values: Mapping[str, Any] | Sequence[str]) -> str:
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
