"""Comparison of finished runs: results, the better run, its guarantee."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
from scipy import stats

from federated_hh.files import json_files, seal, tables
from federated_hh.options import fields
from federated_hh.populations.options import population_options
from federated_hh.privacy import statement as statement_lib
from federated_hh.privacy import written_statement
from federated_hh.reports import metric_labels, page
from federated_hh.run_directory import files as run_files
from federated_hh.run_directory import record as run_record

METRICS_FILE = "simulator/metrics.csv"
_SUMMARY = {
    "type": "object",
    "required": ["found"],
    "properties": {"found": json_files.TEXT},
}
_SECONDS_FILE = "simulator/seconds.csv"
_CONFIDENCE = 0.95
# Flags that make a population, besides those of `PopulationOptions`.
_POPULATION_FLAGS = frozenset(["table", "num_tokens", "vocabulary_size"])
_MOST_REASONS = 3
# Epsilons whose ratio is no larger are about the same.
_ABOUT = 1.05


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
        better: Sentence on the better run, such as "found more".
        counts: True for a count, which is 0 in a repeat without rows.
    """

    name: str
    file: str
    of: Callable[[pd.DataFrame], pd.Series]
    better: str = "found more"
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
MEASURES = (
    Measure(
        "true_words_found,_of_any_length", "simulator/heavy_hitters.csv", _true_words
    ),
    Measure("words_found,_of_any_length", "heavy_hitters.csv", _distinct_words),
    Measure("held-out_loss", METRICS_FILE, _last_loss, "has less loss", counts=False),
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
            raise ValueError(
                f"{path} is no run directory: it has no {run_record.RUN_FILE}"
            )
        record = run_record.read(path)
        seal.check(directory, record)
        found, statement, metrics = "", None, pd.DataFrame({"round": []})
        summary = directory / "simulator" / page.SUMMARY_FILE
        if summary.exists():
            found = run_files.read_json(summary, _SUMMARY)["found"]
        stated = directory / "privacy.json"
        if stated.exists():
            try:
                statement = written_statement.read(stated.read_text("utf-8"))
            except ValueError as error:
                raise ValueError(f"{stated}: {error}") from None
        rounds = directory / METRICS_FILE
        if rounds.exists():
            metrics = tables.read(rounds)
        seconds = directory / _SECONDS_FILE
        if seconds.exists():
            metrics["seconds"] = tables.read(seconds)["seconds"]
        facts = {}
        if (directory / run_record.FACTS_FILE).exists():
            facts = run_files.read_json(directory / run_record.FACTS_FILE)
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
    for measure in MEASURES:
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


def ranking(runs: Sequence[Compared]) -> list[str]:
    """Returns the better run, its lead and each run's guarantee, a line each.

    No run is the better one where populations or measures differ.
    """
    if told := _populations(runs):
        return [told, *map(_price, runs)]
    shared = [m for m in MEASURES if all(m.name in run.measures for run in runs)]
    if not shared:
        lines = [
            "No ranking: the runs have no quality measure in common; tables follow."
        ]
        if unfinished := [r.name for r in runs if r.record["status"] != "complete"]:
            lines = [f"No ranking: not complete: {', '.join(unfinished)}."]
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
    start = f"{best.name} {measure.better}"
    if means[best.name] == means[second.name]:
        start = f"{best.name} and {second.name} are equal"
    elif is_clear is False:
        start = f"No clear difference between {best.name} and {second.name}"
    lines = [f"{start}. {label.capitalize()}{each}: {values}.{lead}"]
    return lines + [_price(run) for run in ranked] + _caution(best, second)


def _populations(runs: Sequence[Compared]) -> str:
    """Returns why runs of different populations have no winner; "" for one population.

    Returns:
        A sentence with the flags of populations that differ.
    """
    groups: dict[Any, list[str]] = {}
    for run in runs:
        groups.setdefault(run.facts.get("population"), []).append(run.name)
    unfinished = [run for run in runs if run.record["status"] != "complete"]
    if len(groups) == 1 or unfinished:
        return ""
    of_populations = _POPULATION_FLAGS.union(
        field.flag
        for field in fields.fields_of(population_options.PopulationOptions).values()
    )
    # A flag that only some programs have says nothing of a run of another program.
    reasons = [
        f"--{flag}: {', '.join(f'{run.name} {value}' for run, value in values)}"
        for flag, values in differing_flags(runs)
        if flag in of_populations and all(value for _, value in values)
    ]
    why = "; ".join(reasons[:_MOST_REASONS]) or "the flags do not say why"
    return (
        f"No ranking: the runs have {len(groups)} different populations "
        f"({' | '.join(map(', '.join, groups.values()))}), so their results are not "
        f"comparable ({why}). Repeat one of them on the other's population."
    )


def differing_flags(
    runs: Sequence[Compared],
) -> list[tuple[str, list[tuple[Compared, str]]]]:
    """Returns the flags that differ, each with every run's value, "" for none."""
    given = [run.flags() for run in runs]
    found = []
    for flag in sorted(set().union(*given)):
        values = [flags.get(flag, "") for flags in given]
        if len(set(values)) > 1:
            found.append((flag, list(zip(runs, values, strict=True))))
    return found


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
    how += f"; unknown {differing[0]}" if "population" in differing else ""
    if min(len(ours), len(theirs)) < 2:
        lead = measure.shown(ours.mean() - theirs.mean())
        return f" Lead over {second.name}: {lead} ({how}).", None
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
    return f"{run.name}: {unstated(run)}"


def unstated(run: Compared) -> str:
    """Returns why a run without a statement has none."""
    is_complete = run.record["status"] == "complete"
    return "states no guarantee" if is_complete else "no statement yet"


def _caution(best: Compared, second: Compared) -> list[str]:
    """Returns a line on a lead at a larger cost in privacy, or nothing."""
    mains = [
        run.statement.main_guarantees[:1] if run.statement is not None else ()
        for run in (best, second)
    ]
    if not mains[0] and not mains[1]:
        return []
    if not all(mains):
        return [
            "Only one of the two has a guarantee: compare at one epsilon to be fair."
        ]
    [ours], [theirs] = mains
    if (ours.adjacency, ours.one_sided) != (theirs.adjacency, theirs.one_sided):
        return ["Their guarantees are of different kinds: not comparable as numbers."]
    if ours.epsilon <= theirs.epsilon and ours.delta <= theirs.delta:
        return []
    if theirs.epsilon < ours.epsilon <= _ABOUT * theirs.epsilon:
        return [
            f"They spent about the same: epsilon {ours.printed(ours.epsilon)} and "
            f"{theirs.printed(theirs.epsilon)}."
        ]
    if ours.epsilon > theirs.epsilon:
        return [
            f"{best.name} spent more: epsilon {ours.printed(ours.epsilon)} against "
            f"{theirs.printed(theirs.epsilon)}. Compare at one epsilon to be fair."
        ]
    return [f"{best.name} has the larger delta: compare at one delta to be fair."]
