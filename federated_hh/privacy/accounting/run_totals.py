"""The total guarantee of several runs on the same clients."""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from federated_hh.files import json_files, plain_files, seal
from federated_hh.options import checks
from federated_hh.privacy import ledger, written_statement
from federated_hh.privacy.accounting import recomputation
from federated_hh.privacy.guarantee import Adjacency, Guarantee, Unit
from federated_hh.privacy.statement import PrivacyStatement

# What a total is for, what says the most first.
_TARGETS = {
    Unit.CLIENT: (Adjacency.ZERO_OUT, Adjacency.REPLACE_CLIENT, Adjacency.EMPTIED),
    Unit.ITEM: (Adjacency.REPLACE_ONE_ITEM,),
}
_ASSUMPTIONS = (
    "all that the statements of the runs assume; nothing that they do not count is "
    "counted here",
    "these are all runs on these clients, with their parameters chosen without looking "
    "at the data or at what one of them released",
)
_POPULATIONS = (
    "the runs' populations differ, or are not known to be one: a client of one is "
    "taken to be at most one client of each other. That they have no client in common "
    "is not taken for granted; it would make the total smaller, not larger"
)

_NO_DIGEST = (
    "an earlier version made it, whose run.json has no SHA-256 of privacy.json: that "
    "nobody edited the statement is taken for granted, as far as its parameters allow"
)
_NOT_CHECKED = (
    "its theorem is not one of this code, or its parameters do not say all that its "
    "guarantees follow from: they are taken as they are"
)
_RECORD = {
    "type": "object",
    "required": ["program", "status", "flags", "flags_sha256"],
    "properties": {
        "schema_version": json_files.SIZE,
        "program": json_files.TEXT,
        "status": json_files.TEXT,
        "flags": {"type": "array", "items": json_files.TEXT},
        "noise_key": {
            "type": "object",
            "required": ["sha256"],
            "properties": {"sha256": json_files.SHA256},
        },
        "privacy_sha256": json_files.SHA256,
    },
}
_FACTS = {"type": "object", "properties": {"population": json_files.TEXT}}
_STATEMENT_FILE, _RUN_FILE = "privacy.json", "run.json"
# Of programs, and of algorithms that a program runs.
_OWN = ("federated_hh.", "training.", "examples.")


@dataclasses.dataclass(frozen=True)
class Run:
    """A run, as far as a total depends on it.

    Attributes:
        name: Name in messages.
        statement: Its privacy statement.
        program: Program; two programs need not mean the same by an item.
        population: The fingerprint of its population; None where it is not known.
        warnings: Parts of its statement that could not be checked.
    """

    name: str
    statement: PrivacyStatement
    program: str
    population: str | None = None
    warnings: tuple[str, ...] = ()


def read_run(directory: str) -> Run:
    """Reads a run from its directory, and checks everything that can be recomputed.

    Args:
        directory: The directory of a run that is complete.

    Raises:
        ValueError: It has no statement that can be read, or one that was edited.
    """
    path = pathlib.Path(directory)
    statement_file, run_file = path / _STATEMENT_FILE, path / _RUN_FILE
    try:
        written, record = map(plain_files.read, (statement_file, run_file))
    except FileNotFoundError as error:
        raise ValueError(
            f"{directory} has no {pathlib.Path(error.filename).name}; give complete "
            "runs, and complete the others by --resume: they spent privacy too"
        ) from error
    except OSError as error:
        raise ValueError(f"{directory}: {error}") from error
    file = run_file
    try:
        run = json_files.parse(record, _RECORD)
        _check_record(run)
        program = " ".join([run["program"], *_algorithm_of(run["flags"])])
        file, digest = statement_file, run.get("privacy_sha256")
        if digest is not None and hashlib.sha256(written).hexdigest() != digest:
            raise ValueError(
                f"its SHA-256 is not the one in {_RUN_FILE}: it was edited"
            )
        statement = written_statement.read(written.decode())
        is_known = recomputation.check(
            statement, run["flags"], is_whole=digest is not None
        )
        names = program.replace("--algorithm=", "").split(" ")
        if digest and not is_known and any(name.startswith(_OWN) for name in names):
            raise ValueError("its parameters are not those of a theorem of this code")
    except ValueError as error:
        raise ValueError(
            f"{file}: {error}; restore the file as the run wrote it, or run it again"
        ) from error
    seal.check(path, run)
    warnings = [_NO_DIGEST] if digest is None else []
    warnings += [] if is_known else [_NOT_CHECKED]
    return Run(directory, statement, program, _population(path), tuple(warnings))


def _check_record(run: Mapping[str, Any]) -> None:
    """Raises `ValueError` where a run is not complete, or its record was edited."""
    if run["status"] != "complete":
        raise ValueError(
            f"status is {run['status']!r}; it has to be 'complete', because only then "
            "the statement has the run's whole cost. Finish the run with --resume"
        )
    flags = json.dumps(run["flags"], sort_keys=True)
    if hashlib.sha256(flags.encode()).hexdigest() != run["flags_sha256"]:
        raise ValueError("flags do not match flags_sha256")


def _algorithm_of(flags: Sequence[str]) -> list[str]:
    """Returns the algorithm that a general program ran."""
    return [flag for flag in flags if flag.startswith("--algorithm=")]


def _population(path: pathlib.Path) -> str | None:
    """Returns the simulator's record of the population, where it is at hand."""
    file = path / "simulator" / "facts.json"
    try:
        facts = json_files.parse(file.read_bytes(), _FACTS, is_finite=False)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: {error}; restore the file") from error
    return facts.get("population")


def compose(directories: Sequence[str], delta: float) -> list[dict[str, Any]]:
    """Answers what runs cost together: one total for each unit.

    Args:
        directories: The directories of runs.
        delta: The delta of the totals, in (0, 1).

    Returns:
        Rows of quantity, value and what it rests on.

    Raises:
        ValueError: A directory is named twice or has no statement, or there is no
            total for any unit; the message has the reasons.
    """
    places = [pathlib.Path(directory).resolve() for directory in directories]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise ValueError(f"compose names {directories[number]} twice")
    return totals([read_run(directory) for directory in directories], delta)


def totals(runs: Sequence[Run], delta: float) -> list[dict[str, Any]]:
    """Answers like `compose`, of runs that were read.

    Args:
        runs: One or more.
        delta: The delta of the totals, in (0, 1).

    Raises:
        ValueError: As `compose`.
    """
    checks.probability(delta=delta)
    if not runs:
        raise ValueError("compose names no run; it has to name at least one")
    found: list[dict[str, Any]] = []
    reasons: dict[Unit, str] = {}
    for unit in _units(runs):
        try:
            found += _rows(*_total(runs, unit, delta))
        except ValueError as error:
            reasons[unit] = str(error)
    if not found:
        why = "; ".join(f"for {unit.value}s, {why}" for unit, why in reasons.items())
        raise ValueError(f"no total: {why}")
    for unit, why in reasons.items():
        found.append(_row(f"total epsilon, {unit.value}", "-", why))
    assumptions = list(_ASSUMPTIONS)
    populations = {run.population for run in runs}
    if len(runs) > 1 and (None in populations or len(populations) > 1):
        assumptions.append(_POPULATIONS)
    found += [_row("assumption", "", text) for text in assumptions]
    return found + [
        _row("warning", "", f"{run.name}: {text}")
        for run in runs
        for text in run.warnings
    ]


def _units(runs: Sequence[Run]) -> list[Unit]:
    """Returns the client, and the item where a run says anything of one."""
    of_items = any(
        guarantee.unit is Unit.ITEM
        for run in runs
        for guarantee in run.statement.guarantees
    )
    return [Unit.CLIENT, Unit.ITEM] if of_items else [Unit.CLIENT]


def _total(
    runs: Sequence[Run], unit: Unit, delta: float
) -> tuple[ledger.Ledger, Guarantee]:
    """Composes the runs for the first adjacency that all can be converted to.

    Raises:
        ValueError: There is none, or delta is too small.
    """
    for adjacency in _TARGETS[unit]:
        book = ledger.Ledger(adjacency)
        try:
            starts = {run.name: _add(book, run, delta / len(runs)).unit for run in runs}
        except ValueError as error:
            refused = error
            continue
        of_items = [run for run in runs if starts[run.name] is Unit.ITEM]
        programs = {run.program for run in of_items}
        populations = {run.population for run in of_items}
        if len(of_items) > 1 and (None in populations or len(populations) > 1):
            raise ValueError(
                "the populations differ, so their items may not be the same"
            )
        if len(programs) > 1:
            raise ValueError(
                f"an item of {' and one of '.join(sorted(programs))} need not be the "
                "same: one item of a client may be several of another program's"
            )
        return book, book.total(delta)
    raise refused


def _add(book: ledger.Ledger, run: Run, share: float) -> Guarantee:
    """Adds the best guarantee of a run's statement.

    Args:
        book: Receives the section.
        run: The run.
        share: The largest delta that is wanted.

    Returns:
        What was added, as the statement has it.

    Raises:
        ValueError: Nothing in the statement can be added; the message says why.
    """
    guarantees = run.statement.guarantees
    if not guarantees:
        raise ValueError(
            f"{run.name}: nothing is guaranteed: {run.statement.no_guarantee_reason}"
        )
    reasons: dict[str, None] = {}
    best: tuple[tuple[bool, float], Guarantee] | None = None
    for guarantee in guarantees:
        trial = ledger.Ledger(book.adjacency)
        try:
            trial.add(run.name, guarantee)
        except ValueError as error:
            reasons[str(error)] = None
            continue
        (entry,) = trial.entries
        # The delta of zCDP and of a curve is free; of others the smallest epsilon
        # within the share. A total variation distance alone is never within it.
        is_free = entry.guarantee.rho is not None or entry.guarantee.voting is not None
        too_much = not is_free and entry.guarantee.delta > share
        if too_much and entry.guarantee.epsilon == 0:
            reasons[f"{run.name}: a total variation distance is no epsilon"] = None
            continue
        rank = (too_much, entry.guarantee.epsilon)
        if best is None or rank < best[0]:
            best = rank, guarantee
    if best is None:
        raise ValueError("; ".join(reasons))
    book.add(run.name, best[1])
    return best[1]


def _rows(book: ledger.Ledger, total: Guarantee) -> list[dict[str, Any]]:
    unit = total.unit.value
    rows = [
        _row(
            f"epsilon at delta = {entry.guarantee.delta:.4g}, {unit}",
            entry.guarantee.epsilon,
            f"{entry.name}: {entry.guarantee.bound}",
        )
        for entry in book.entries
    ]
    sided = ", one-sided (from D to D' only)" if total.one_sided else ""
    basis = f"{total.adjacency.value}{sided}: {total.adjacency.text}; {total.bound}"
    name = f"total epsilon at delta = {total.delta:g}, {unit}"
    return [*rows, _row(name, total.epsilon, basis)]


def _row(quantity: str, value: Any, basis: str) -> dict[str, Any]:
    return {"quantity": quantity, "value": value, "basis": basis}
