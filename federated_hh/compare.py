"""Puts runs side by side on one page: the better one, privacy, curves, flags.

    scripts/run compare runs/triehh/A runs/triehh/B --output=compare.html

Runs of one program or of several; metrics that only some have are shown for these.
"""

import dataclasses
import functools
import json
import os
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
from absl import app
from scipy import stats

from federated_hh.files import atomic_files, installation, tables
from federated_hh.options import option_flags
from federated_hh.options.fields import check, option
from federated_hh.privacy import statement as statement_lib
from federated_hh.privacy import written_statement
from federated_hh.reports import metric_labels, page, page_blocks, plots
from federated_hh.run_directory import record as run_record

_METRICS = "simulator/metrics.csv"
_CONFIDENCE = 0.95
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


def _distinct_words(table: pd.DataFrame) -> pd.Series:
    """Returns the number of distinct words that each repeat released."""
    if "released" in table:
        table = table[table["released"]]
    if "repeat" not in table:  # of one repeat
        table = table.assign(repeat=0)
    return table.groupby("repeat")["word"].nunique()


def _true_words(table: pd.DataFrame) -> pd.Series:
    return _distinct_words(table[table["true_count"] > 0])


def _last_loss(table: pd.DataFrame) -> pd.Series:
    known = table.dropna(subset="held_out_loss")
    return known.groupby("repeat")["held_out_loss"].last()


@dataclasses.dataclass(frozen=True)
class Measure:
    """A measure of a run's quality.

    Attributes:
        name: Name, as a metric's.
        file: Table of the run directory that has it.
        of: Values by repeat, from that table; KeyError where it has none.
        verdict: Sentence on the better run, such as "found more".
        counts: True for a count, which is 0 in a repeat without rows.
    """

    name: str
    file: str
    of: Callable[[pd.DataFrame], pd.Series]
    verdict: str = "found more"
    counts: bool = True

    @property
    def is_loss(self) -> bool:
        """Whether the smaller value is better."""
        return metric_labels.is_loss(self.name)

    def shown(self, value: float) -> str:
        """Returns a value as text; means of counts have one decimal."""
        if self.is_loss or float(value).is_integer():
            return metric_labels.shown(self.name, value)
        return f"{value:,.1f}" if self.counts else f"{value:.4g}"


# Where runs share several, the first ranks them.
_MEASURES = (
    Measure(
        "true_words_found,_of_any_length", "simulator/heavy_hitters.csv", _true_words
    ),
    Measure("words_found,_of_any_length", "heavy_hitters.csv", _distinct_words),
    Measure("held-out_loss", _METRICS, _last_loss, "has less loss", counts=False),
    Measure(
        "true_top_pairs_found",
        "simulator/pair_scores.csv",
        lambda table: pd.Series([table["found_of_top_k"].sum()]),
    ),
    Measure(
        "true_top_n-grams_found",
        "simulator/scores.csv",
        lambda table: pd.Series([table["found_of_top_k"].sum()]),
    ),
)


@dataclasses.dataclass(frozen=True)
class Compared:
    """A run, as far as it is compared.

    Attributes:
        name: Name on the page.
        record: The record of `run.json`.
        found: Result; empty if the run is not finished.
        statement: The statement of privacy; None where it is not finished.
        metrics: A row a round: the simulator's view.
        measures: Values by repeat, by the name of a `Measure`.
        facts: Facts on which repeats are paired: population, seed.
    """

    name: str
    record: run_record.Run
    found: str
    statement: statement_lib.PrivacyStatement | None
    metrics: pd.DataFrame
    measures: dict[str, pd.Series] = dataclasses.field(default_factory=dict)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

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
        rounds = directory / _METRICS
        if rounds.exists():
            metrics = tables.read(rounds)
        facts = {}
        if (directory / run_record.FACTS_FILE).exists():
            facts = json.loads((directory / run_record.FACTS_FILE).read_text())
        measures = {}
        if record["status"] == "complete":
            measures = _measures_of(directory, metrics)
        return cls(name, record, found, statement, metrics, measures, facts)

    def flags(self) -> dict[str, str]:
        """Returns the run's flags by name."""
        pairs = (
            flag.removeprefix("--").partition("=") for flag in self.record["flags"]
        )
        return {name: value if equals else "" for name, equals, value in pairs}


def _measures_of(
    directory: pathlib.Path, metrics: pd.DataFrame
) -> dict[str, pd.Series]:
    repeats = metrics["repeat"].unique() if "repeat" in metrics else [0]
    measures = {}
    for measure in _MEASURES:
        if (directory / measure.file).exists():
            try:
                values = measure.of(tables.read(directory / measure.file))
            except KeyError:  # a table of this name with other columns
                continue
            if measure.counts:
                values = values.reindex(repeats, fill_value=0)
            if len(values):
                measures[measure.name] = values.astype(float)
    return measures


def verdict(runs: Sequence[Compared]) -> list[str]:
    """Returns the better run, its lead and each run's guarantee, a line each."""
    shared = [m for m in _MEASURES if all(m.name in run.measures for run in runs)]
    if not shared:
        lines = [
            "No verdict: the runs have no measure of quality in common; tables follow."
        ]
        if unfinished := [r.name for r in runs if r.record["status"] != "complete"]:
            lines = [f"No verdict: not complete: {', '.join(unfinished)}."]
        return lines + [_price(run) for run in runs]
    measure = shared[0]
    means = {run.name: run.measures[measure.name].mean() for run in runs}
    ranked = sorted(runs, key=lambda run: means[run.name], reverse=not measure.is_loss)
    best, second = ranked[:2]
    label = metric_labels.label(measure.name)
    is_repeated = any(len(run.measures[measure.name]) > 1 for run in runs)
    each = ", mean over the repeats" if is_repeated else ""
    values = "; ".join(f"{run.name} {measure.shown(means[run.name])}" for run in ranked)
    lead, is_clear = _lead(measure, best, second)
    start = f"{best.name} {measure.verdict}"
    if means[best.name] == means[second.name]:
        start = f"{best.name} and {second.name} are equal"
    elif is_clear is False:
        start = f"No clear difference between {best.name} and {second.name}"
    lines = [f"{start}. {label.capitalize()}{each}: {values}.{lead}"]
    return lines + [_price(run) for run in ranked] + _caution(best, second)


def _lead(
    measure: Measure, best: Compared, second: Compared
) -> tuple[str, bool | None]:
    """Returns a sentence on a run's lead, and whether it is more than chance.

    Returns:
        The sentence, with a 95% interval, of the differences by repeat where the runs
        are paired; and None instead of an answer where a run has one repeat.
    """
    sign = -1 if measure.is_loss else 1
    ours, theirs = (sign * run.measures[measure.name] for run in (best, second))
    names = ("population", "seed", "repeats")
    facts = [{n: run.facts.get(n) for n in names} for run in (best, second)]
    differing = [n for n in names if facts[0][n] is None or facts[0][n] != facts[1][n]]
    is_paired = not differing and ours.index.equals(theirs.index)
    how = "one repeat: no interval"
    if min(len(ours), len(theirs)) < 2:
        which = (
            "different populations" if "population" in differing else "one population"
        )
        lead = measure.shown(ours.mean() - theirs.mean())
        return f" Lead over {second.name}: {lead} ({how}; {which}).", None
    variances = [values.var() / len(values) for values in (ours, theirs)]
    degrees = [len(ours) - 1, len(theirs) - 1]
    how = f"not paired: different {', '.join(differing) or 'repeats'}"
    if is_paired:
        variances, degrees = [(ours - theirs).var() / len(ours)], [len(ours) - 1]
        how = f"{len(ours)} repeats, paired: same population and seeds"
    error, low = sum(variances) ** 0.5, ours.mean() - theirs.mean()
    high = low
    if error:  # Welch's degrees of freedom; of paired repeats, one less than repeats
        parts = [v**2 / n for v, n in zip(variances, degrees, strict=True)]
        half = error * stats.t.ppf((1 + _CONFIDENCE) / 2, error**4 / sum(parts))
        low, high = low - half, high + half
    ends = " to ".join(
        f"{'-' if end < 0 else '+'}{measure.shown(abs(end))}" for end in (low, high)
    )
    lead = f" Lead over {second.name}, 95% interval: {ends} ({how})."
    return lead, bool(low * high > 0)


def _price(run: Compared) -> str:
    """Returns a run's guarantee in a line."""
    if run.statement is not None:
        told = run.statement.headline().removeprefix("Privacy").lstrip(":, ")
        return f"{run.name}: {told}"
    return f"{run.name}: {_unstated(run)}"


def _unstated(run: Compared) -> str:
    """Returns why a run without a statement has none."""
    is_complete = run.record["status"] == "complete"
    return "states no guarantee" if is_complete else "no statement yet"


def _caution(best: Compared, second: Compared) -> list[str]:
    """Returns a line on a lead that was not had at the same guarantee, or nothing."""
    mains = [
        run.statement.main_guarantees[:1] if run.statement is not None else ()
        for run in (best, second)
    ]
    if not mains[0] and not mains[1]:
        return []
    if not all(mains):
        return ["Only one of the two has a guarantee: they are no equals."]
    [ours], [theirs] = mains
    if (ours.adjacency, ours.one_sided) != (theirs.adjacency, theirs.one_sided):
        return ["Their guarantees are of different kinds: not comparable as numbers."]
    if ours.epsilon <= theirs.epsilon and ours.delta <= theirs.delta:
        return []
    if ours.epsilon > theirs.epsilon:
        return [
            f"{best.name} spent more: epsilon {ours.printed(ours.epsilon)} against "
            f"{theirs.printed(theirs.epsilon)}. Compare at one epsilon to be fair."
        ]
    return [f"{best.name} has the larger delta: compare at one delta to be fair."]


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
    return [_found(runs), _last(runs), _curves(runs), _privacy(runs), _flags(runs)]


def _found(runs: Sequence[Compared]) -> page_blocks.Section:
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
    return page_blocks.Section("What they came to", False).show(pd.DataFrame(rows))


def _privacy(runs: Sequence[Compared]) -> page_blocks.Section:
    section = page_blocks.Section("Privacy", True)
    rows, reasons = [], []
    for run in runs:
        if run.statement is None:
            reasons.append(f"* {run.name}: {_unstated(run)}")
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


def _numeric(run: Compared) -> pd.DataFrame:
    """Returns a run's metrics by round: means over its repeats."""
    known = run.metrics.select_dtypes("number")
    return known.groupby("round").mean().drop(columns=[*_KEYS], errors="ignore")


def _shown(runs: Sequence[Compared]) -> list[str]:
    """Returns the metrics that are shown: those of most runs first.

    Of as many, what was found or lost first, and effort last.
    """
    counts: dict[str, int] = {}
    for run in runs:
        for name in _numeric(run).dropna(axis="columns", how="all"):
            counts[name] = counts.get(name, 0) + 1

    def place(name: str) -> tuple[bool, bool, int, bool]:
        is_result = bool(re.search("loss|words|found|coverage|held_out|f1", name))
        is_effort = bool(re.search("candidates|prefixes", name))
        return name == "seconds", is_effort, -counts[name], not is_result

    return sorted(counts, key=place)


def _last(runs: Sequence[Compared]) -> page_blocks.Section:
    section = page_blocks.Section("After the last round", False)
    rows: list[dict[str, object]] = []
    for measure in _MEASURES:
        of_runs = {r.name: r.measures.get(measure.name, pd.Series()) for r in runs}
        if any(map(len, of_runs.values())) and measure.file != _METRICS:
            cells = {
                name: measure.shown(values.mean()) if len(values) else ""
                for name, values in of_runs.items()
            }
            rows.append({"metric": metric_labels.label(measure.name), **cells})
    for name in _shown(runs):
        row: dict[str, object] = {"metric": metric_labels.label(name)}
        for run in runs:
            values = _numeric(run).get(name, pd.Series(dtype=float)).dropna()
            row[run.name] = (
                metric_labels.shown(name, float(values.iloc[-1])) if len(values) else ""
            )
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
    paths, output = argv[1:], _FLAGS.read().output
    try:
        if len(paths) < 2:
            raise ValueError("give two run directories or more, as in A B")
        pairs = zip(paths, names_of(paths), strict=True)
        runs = [Compared.read(path, name) for path, name in pairs]
        lines = verdict(runs)
        text = page.html(
            f"{len(runs)} runs side by side",
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
