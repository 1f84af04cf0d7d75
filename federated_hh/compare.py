"""Compares runs on one page: the better one, privacy, curves, flags.

    scripts/run compare runs/triehh/A runs/triehh/B

Runs of one program or of several; metrics that only some have are shown for these.
"""

import dataclasses
import functools
import hashlib
import os
import pathlib
import re
import sys
from collections.abc import Sequence

import pandas as pd
from absl import app

from federated_hh.files import atomic_files, installation
from federated_hh.options import option_flags
from federated_hh.options.fields import check, option
from federated_hh.reports import (
    client_bytes,
    compared,
    metric_labels,
    page,
    page_blocks,
    plots,
)

# Metrics of a run's progress, not of its quality.
_KEYS = frozenset(["repeat", "round", "level", "pass_number"])
_MOST_PANELS = 24
_PANELS_A_PICTURE = 6
_LONGEST_NAME = 100  # bytes of runs' names in a page's: file systems take 255


@dataclasses.dataclass(frozen=True)
class Options:
    """Path of the page."""

    output: str | None = option(
        None,
        "Path of the page, by default compare_A_B_DIGEST.html in the working "
        "directory, by the runs' names and paths; a file there is replaced.",
    )

    def __post_init__(self):
        check(self)


_FLAGS = option_flags.define(Options)
# Runs are arguments.
parse_flags = functools.partial(option_flags.parse, takes_words=True)


def names_of(paths: Sequence[str]) -> list[str]:
    """Returns the shortest ends of paths that tell them apart."""
    parts = [pathlib.Path(path).resolve().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = [os.path.join(*one[-length:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    raise ValueError("a run is given twice; give each once")


def page_path(paths: Sequence[str], names: Sequence[str]) -> str:
    """Returns the default path of a page: of other runs it is another one."""
    resolved = "\n".join(str(pathlib.Path(path).resolve()) for path in paths)
    digest = hashlib.sha256(resolved.encode()).hexdigest()[:8]
    readable = re.sub(r"\W+", "-", "_".join(names)).encode()[:_LONGEST_NAME]
    return f"compare_{readable.decode(errors='ignore')}_{digest}.html"


def sections(runs: Sequence[compared.Compared]) -> list[page_blocks.Section]:
    """Returns the page's sections."""
    return [_found(runs), _privacy(runs), _last(runs), _curves(runs), _flags(runs)]


def _found(runs: Sequence[compared.Compared]) -> page_blocks.Section:
    rows = [
        {
            "run": run.name,
            "program": run.record["program"]
            .rpartition(".")[2]
            .removeprefix("run_")
            .replace("_", " "),
            "found": run.found,
            "status": run.record["status"],
            "started": run.record["started"],
            "code": run.record["version"],
        }
        for run in runs
    ]
    return page_blocks.Section("Results", False).show(pd.DataFrame(rows))


def _privacy(runs: Sequence[compared.Compared]) -> page_blocks.Section:
    section = page_blocks.Section("Privacy", True)
    rows, further, reasons = [], [], []
    for run in runs:
        if run.statement is None:
            reasons.append(f"* {run.name}: {compared.unstated(run)}")
        elif not run.statement.guarantees:
            reasons.append(f"* {run.name}: none: {run.statement.no_guarantee_reason}")
        else:
            basis = {"run": run.name, "basis": run.statement.basis}
            stated = run.statement
            shown = stated.main_guarantees or stated.comparisons
            rows += [basis | each.row() for each in shown]
            further += [basis | each.row() for each in stated.further_guarantees]
    if rows:
        section.guarantees(rows)
    if reasons:
        section.text("\n".join(reasons))
    tables = [page_blocks.guarantees(further)] if further else []
    return section.fold(
        "Details: other adjacencies, one repeat, comparability",
        "Guarantees of different units or adjacencies are not comparable as numbers. "
        "`scripts/run accounting --compose=RUN,RUN` gives the total guarantee of "
        "several runs on the same clients.",
        *tables,
    )


def _flags(runs: Sequence[compared.Compared]) -> page_blocks.Section:
    section = page_blocks.Section("Flags that differ", True)
    rows = [
        {"flag": f"--{flag}", **{run.name: value for run, value in values}}
        for flag, values in compared.differing_flags(runs)
    ]
    if not rows:
        return section.text("None.")
    return section.show(pd.DataFrame(rows), names=[run.name for run in runs])


def _numeric(run: compared.Compared) -> pd.DataFrame:
    """Returns a run's metrics by round: means over its repeats."""
    known = run.metrics.select_dtypes("number")
    return known.groupby("round").mean().drop(columns=[*_KEYS], errors="ignore")


def _shown(runs: Sequence[compared.Compared]) -> list[str]:
    """Returns the metrics that are shown: those of most runs first.

    Of as many, what was found or lost first, and effort last.
    """
    counts: dict[str, int] = {}
    for run in runs:
        for name in _numeric(run).dropna(axis="columns", how="all"):
            counts[name] = counts.get(name, 0) + 1

    def place(name: str) -> tuple[bool, bool, int, bool]:
        is_result = bool(re.search("loss|words|found|coverage|held_out|f1", name))
        is_effort = bool(re.search("candidates|prefixes|bytes", name))
        return name == "seconds", is_effort, -counts[name], not is_result

    return sorted(counts, key=place)


def _last(runs: Sequence[compared.Compared]) -> page_blocks.Section:
    section = page_blocks.Section("Metrics after the last round", False)
    rows: list[dict[str, object]] = []
    for measure in compared.MEASURES:
        of_runs = {r.name: r.measures.get(measure.name, pd.Series()) for r in runs}
        if any(map(len, of_runs.values())) and measure.file != compared.METRICS_FILE:
            cells = {
                name: measure.shown(values.mean()) if len(values) else ""
                for name, values in of_runs.items()
            }
            rows.append({"metric": metric_labels.label(measure.name), **cells})
    for name in _shown(runs):
        # A phone has to bear the largest round, and the last is often a small one.
        is_largest = name in client_bytes.COLUMNS
        label = metric_labels.label(name) + ", largest round" * is_largest
        row: dict[str, object] = {"metric": label}
        for run in runs:
            values = _numeric(run).get(name, pd.Series(dtype=float)).dropna()
            row[run.name] = (
                metric_labels.shown(
                    name, float(values.max() if is_largest else values.iloc[-1])
                )
                if len(values)
                else ""
            )
        rows.append(row)
    if not rows:
        return section.text("No run has a round yet.")
    names = [run.name for run in runs]
    return section.show(pd.DataFrame(rows), "Means over the repeats", names)


def _curves(runs: Sequence[compared.Compared]) -> page_blocks.Section:
    section = page_blocks.Section("Curves", False)
    found = {run.name: _numeric(run) for run in runs}
    names = [
        name
        for name in _shown(runs)
        if any(name in t and t[name].dropna().nunique() > 1 for t in found.values())
    ][:_MOST_PANELS]
    for first in range(0, len(names), _PANELS_A_PICTURE):
        shown = names[first : first + _PANELS_A_PICTURE]
        titles = [metric_labels.label(name) for name in shown]
        figure, panels = plots.stacked(titles, "round")
        for axes, name in zip(panels, shown, strict=True):
            for number, (run, table) in enumerate(found.items()):
                axes.plot(
                    table[name].dropna() if name in table else [],
                    label=run,
                    marker="o",
                    markersize=3,
                    **plots.look(number),
                )
            plots.label_metric(axes.yaxis, name)
        plots.legend(panels[-1], below=True)
        section.picture(figure)
    return section


def main(argv: list[str]) -> None:
    """Reads the runs and writes the page."""
    paths = argv[1:]
    try:
        if len(paths) < 2:
            raise ValueError("give two run directories or more, as in A B")
        names = names_of(paths)
        output = _FLAGS.read().output or page_path(paths, names)
        pairs = zip(paths, names, strict=True)
        runs = [compared.Compared.read(path, name) for path, name in pairs]
        lines = compared.ranking(runs)
        text = page.html(
            f"Comparison of {len(runs)} runs",
            ", ".join(run.name for run in runs),
            sections(runs),
            page.Summary(found=lines[0], privacy="", report=output, further=lines[1:]),
        )
    except (ValueError, RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(installation.WRONG_USE)
    try:
        atomic_files.write_file(output, text.encode())
    except OSError as error:
        print(f"error: --output: {error}", file=sys.stderr)
        sys.exit(installation.FAILED)
    print("\n".join([*lines, f"Report: {output}"]))


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
