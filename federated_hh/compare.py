"""Puts runs side by side on one page: what they found, curves, privacy, flags.

    scripts/run compare runs/triehh/A runs/triehh/B --output=compare.html

Runs of one program or of several; metrics that only some have are shown for these.
"""

import dataclasses
import functools
import json
import os
import pathlib
import sys
from collections.abc import Sequence

import pandas as pd
from absl import app

from federated_hh.files import atomic_files, installation, tables
from federated_hh.options import option_flags
from federated_hh.options.fields import check, option
from federated_hh.privacy import statement as statement_lib
from federated_hh.privacy import written_statement
from federated_hh.reports import metric_labels, page, page_blocks, plots
from federated_hh.run_directory import record as run_record

_COLORS = (plots.BLUE, plots.ORANGE, plots.GREEN, plots.PURPLE, plots.INK)
_LINES = ("-", "--", ":", "-.")
# Metrics that say how far a run is, not how it went.
_KEYS = frozenset(["repeat", "round", "level", "pass_number"])
_MOST_PANELS = 24
_PANELS_A_PICTURE = 6


@dataclasses.dataclass(frozen=True)
class Options:
    """Path of the page."""

    output: str = option("compare.html", "The page; another one there is replaced.")

    def __post_init__(self):
        check(self)


_FLAGS = option_flags.define(Options)
# Runs are arguments.
parse_flags = functools.partial(option_flags.parse, takes_words=True)


@dataclasses.dataclass(frozen=True)
class Compared:
    """A run, as far as it is compared.

    Attributes:
        name: Name on the page.
        record: The record of `run.json`.
        found: Result; empty if the run is not finished.
        statement: The statement of privacy; None where it is not finished.
        metrics: A row a round: the simulator's view.
    """

    name: str
    record: run_record.Run
    found: str
    statement: statement_lib.PrivacyStatement | None
    metrics: pd.DataFrame

    @classmethod
    def read(cls, path: str, name: str) -> "Compared":
        """Reads a run directory.

        Raises:
            ValueError: If there is no run, or a file of it is damaged.
        """
        directory = pathlib.Path(path)
        if not (directory / run_record.RUN_FILE).exists():
            raise ValueError(f"{path} is no run directory: no {run_record.RUN_FILE}")
        record = run_record.read(path)
        found, statement, metrics = "", None, pd.DataFrame({"round": []})
        summary = directory / "simulator" / page.SUMMARY_FILE
        if summary.exists():
            found = json.loads(summary.read_text())["found"]
        stated = directory / "privacy.json"
        if stated.exists():
            try:
                text = stated.read_text()
                statement = written_statement.read(text)
            except ValueError as error:
                raise ValueError(f"{stated}: {error}") from None
        rounds = directory / "simulator" / "metrics.csv"
        if rounds.exists():
            metrics = tables.read(rounds)
        return cls(name, record, found, statement, metrics)

    def flags(self) -> dict[str, str]:
        """Returns the run's flags by name."""
        pairs = (
            flag.removeprefix("--").partition("=") for flag in self.record["flags"]
        )
        return {name: value if equals else "" for name, equals, value in pairs}


def names_of(paths: Sequence[str]) -> list[str]:
    """Returns the shortest ends of paths that tell them apart."""
    parts = [pathlib.Path(path).resolve().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = [os.path.join(*one[-length:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    raise ValueError("a run is given twice; give each once")


def sections(runs: Sequence[Compared]) -> list[page_blocks.Section]:
    """Returns the page's sections."""
    return [_found(runs), _privacy(runs), _flags(runs), _last(runs), _curves(runs)]


def _found(runs: Sequence[Compared]) -> page_blocks.Section:
    rows = [
        {
            "run": run.name,
            "program": run.record["program"].rpartition(".")[2],
            "found": run.found,
            "status": run.record["status"],
            "started": run.record["started"],
            "code": run.record["version"],
        }
        for run in runs
    ]
    return page_blocks.Section("What they came to", False).show(pd.DataFrame(rows))


def _privacy(runs: Sequence[Compared]) -> page_blocks.Section:
    section = page_blocks.Section("Privacy", True)
    rows, reasons = [], []
    for run in runs:
        if run.statement is None:
            ended = run.record["status"] == "complete"
            told = "states no guarantee" if ended else "no statement yet"
            reasons.append(f"* {run.name}: {told}")
        elif not run.statement.guarantees:
            reasons.append(f"* {run.name}: none: {run.statement.no_guarantee_reason}")
        else:
            basis = {"run": run.name, "basis": run.statement.basis}
            stated = run.statement
            shown = (*stated.main_guarantees, *stated.further_guarantees)
            rows += [basis | each.row() for each in shown or stated.comparisons]
    if rows:
        section.guarantees(rows)
    if reasons:
        section.text("\n".join(reasons))
    return section.text(
        "Guarantees of different units or adjacencies are not comparable as numbers. "
        "What several runs on the same clients guarantee together says "
        "`scripts/run accounting --compose=RUN,RUN`."
    )


def _flags(runs: Sequence[Compared]) -> page_blocks.Section:
    section = page_blocks.Section("Flags that differ", True)
    of_runs = {run.name: run.flags() for run in runs}
    rows = []
    for flag in sorted(set().union(*of_runs.values())):
        values = {name: found.get(flag, "") for name, found in of_runs.items()}
        if len(set(values.values())) > 1:
            rows.append({"flag": f"--{flag}", **values})
    if not rows:
        return section.text("None.")
    return section.show(pd.DataFrame(rows), names=list(of_runs))


def _label(metric: str) -> str:
    """Returns what logs, reports and documents call a metric."""
    judged = metric.removeprefix("held_out_")
    label = metric_labels.KEYBOARD_LABELS.get(judged, judged.replace("_", " "))
    return label if judged == metric else f"held-out clients: {label}"


def _numeric(run: Compared) -> pd.DataFrame:
    """Returns a run's metrics by round: means over its repeats."""
    known = run.metrics.select_dtypes("number")
    return known.groupby("round").mean().drop(columns=[*_KEYS], errors="ignore")


def _shown(runs: Sequence[Compared]) -> list[str]:
    """Returns the metrics that are shown: those of most runs first, time last."""
    counts: dict[str, int] = {}
    for run in runs:
        for name in _numeric(run).dropna(axis="columns", how="all"):
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: (name == "seconds", -counts[name]))


def _last(runs: Sequence[Compared]) -> page_blocks.Section:
    section = page_blocks.Section("After the last round", False)
    rows = []
    for name in _shown(runs):
        row: dict[str, object] = {"metric": _label(name)}
        for run in runs:
            values = _numeric(run).get(name, pd.Series(dtype=float)).dropna()
            row[run.name] = tables.shown(float(values.iloc[-1])) if len(values) else ""
        rows.append(row)
    if not rows:
        return section.text("No run has a round yet.")
    names = [run.name for run in runs]
    return section.show(pd.DataFrame(rows), "Means over the repeats", names)


def _curves(runs: Sequence[Compared]) -> page_blocks.Section:
    section = page_blocks.Section("Round by round", False)
    found = {run.name: _numeric(run) for run in runs}
    names = [
        name
        for name in _shown(runs)
        if any(name in t and t[name].dropna().nunique() > 1 for t in found.values())
    ][:_MOST_PANELS]
    for first in range(0, len(names), _PANELS_A_PICTURE):
        shown = names[first : first + _PANELS_A_PICTURE]
        titles = [_label(name) for name in shown]
        figure, panels = plots.stacked(titles, "round")
        for axes, name in zip(panels, shown, strict=True):
            for number, (run, table) in enumerate(found.items()):
                axes.plot(
                    table[name].dropna() if name in table else [],
                    label=run,
                    color=_COLORS[number % len(_COLORS)],
                    linestyle=_LINES[number // len(_COLORS) % len(_LINES)],
                    marker="o",
                    markersize=3,
                )
        plots.legend(panels[-1], below=True)
        section.picture(figure)
    return section


def main(argv: list[str]) -> None:
    """Reads the runs and writes the page."""
    paths, output = argv[1:], _FLAGS.read().output
    try:
        if len(paths) < 2:
            raise ValueError("give two run directories or more, as in A B")
        pairs = zip(paths, names_of(paths), strict=True)
        runs = [Compared.read(path, name) for path, name in pairs]
        text = page.html(
            f"{len(runs)} runs side by side",
            ", ".join(run.name for run in runs),
            sections(runs),
            page.Summary(
                found=" ".join(f"{r.name}: {r.found}" for r in runs if r.found),
                privacy="",
                report=output,
            ),
        )
    except (ValueError, RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(installation.WRONG_USE)
    try:
        atomic_files.write_file(output, text.encode())
    except OSError as error:
        print(f"error: --output: {error}", file=sys.stderr)
        sys.exit(installation.FAILED)
    print(f"Report: {output}")


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
