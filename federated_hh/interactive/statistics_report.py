"""What a run of interactive statistics leaves: tables, plots, and their page."""

import dataclasses

import numpy as np
import pandas as pd
from matplotlib import figure as figure_lib

from federated_hh.interactive import events, fleet, ngrams, preparation
from privacy import statement as statement_lib
from simulation import page, plots, run_directory

_NUM_SHOWN = 30


@dataclasses.dataclass(frozen=True)
class Truth:
    """How many devices hold each n-gram of known words.

    Attributes:
        holders: By n-gram, the most frequent first.
    """

    holders: dict[str, int]

    @classmethod
    def of(cls, stored: events.NGramEvents, length: int) -> "Truth":
        """Counts the n-grams of some number of words."""
        grams = stored.grams[:, :length]
        owners = np.repeat(np.arange(stored.num_devices), np.diff(stored.splits))
        is_known = (grams >= 0).all(axis=1)
        # A number each: words, then owner.
        codes = np.zeros(int(is_known.sum()), np.int64)
        for column in grams[is_known].T:
            codes = codes * len(stored.words) + column
        _, code = np.unique(codes, return_inverse=True)
        pairs = np.unique(code.reshape(-1) * stored.num_devices + owners[is_known])
        found, counts = np.unique(pairs // stored.num_devices, return_counts=True)
        distinct = np.unique(codes)[found]
        order = np.argsort(-counts, kind="stable")
        holders = {}
        for value, count in zip(
            distinct[order].tolist(), counts[order].tolist(), strict=True
        ):
            words = []
            for _ in range(length):
                value, word = divmod(value, len(stored.words))
                words.append(stored.words[word])
            holders[" ".join(reversed(words))] = count
        return cls(holders)


def evaluate(
    prepared: preparation.Prepared, state: ngrams.State, max_k: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compares the n-grams found with the truth.

    Args:
        prepared: The run.
        state: At its end.
        max_k: K: of the true n-grams of a length, the most frequent that count as
            popular.

    Returns:
        The n-grams found, with `true_holders` (devices that hold it) and `true_rank`
        (0 for an n-gram that nobody holds); and a row a length: words, found,
        found_of_top_k, true_n_grams, precision, recall.
    """
    found = prepared.algorithm.results(state)["ngrams"]
    parts, scores = [], []
    for words in range(1, prepared.algorithm.length + 1):
        part = found[found["words"] == words].copy()
        truth = Truth.of(prepared.stored, words).holders
        ranks = {gram: rank for rank, gram in enumerate(truth, start=1)}
        part["true_holders"] = [truth.get(gram, 0) for gram in part["ngram"]]
        part["true_rank"] = [ranks.get(gram, 0) for gram in part["ngram"]]
        top = min(max_k, len(truth))
        hits = int(part["true_rank"].between(1, top).sum())
        parts.append(part)
        scores.append(
            {
                "words": words,
                "found": len(part),
                "found_of_top_k": hits,
                "true_n_grams": len(truth),
                "precision": hits / len(part) if len(part) else np.nan,
                "recall": hits / top if top else np.nan,
            }
        )
    return pd.concat(parts, ignore_index=True), pd.DataFrame(scores)


def write(
    directory: run_directory.RunDirectory,
    prepared: preparation.Prepared,
    state: ngrams.State,
    statement: statement_lib.PrivacyStatement,
    *,
    max_k: int,
    device: int | None,
) -> None:
    """Writes the tables, plots, privacy statement and report of a run.

    Args:
        directory: Of the run.
        prepared: What was run.
        state: At its end.
        statement: What is guaranteed.
        max_k: See `evaluate`.
        device: Whose log to show; None for nobody's.
    """
    report = page.Page(directory, "Interactive federated statistics")
    released = prepared.algorithm.results(state)["ngrams"]
    found = report.section("N-grams found", covered=True)
    found.text(
        "How many of a query's reports are of each n-gram, with its standard error. A "
        "device reports on one n-gram of its own, drawn from those that go on from "
        "what the query before it found."
    )
    found.table("ngrams.csv", released, shown=released.head(_NUM_SHOWN))
    if len(released):
        found.plot("ngrams.png", plot_estimates(released))
    queries = report.section("The queries", covered=True)
    queries.show(directory.released_metrics())
    against, scores = evaluate(prepared, state, max_k)
    truth = report.section("Against the truth", covered=False)
    truth.text(
        f"`true holders` is the number of devices that hold an n-gram, and the top K "
        f"those of most holders, K = {max_k}."
    )
    truth.table("scores.csv", scores)
    longest = against.sort_values(["words", "estimate"], ascending=False)
    truth.table("ngrams.csv", against, shown=longest.head(_NUM_SHOWN))
    if device is not None:
        log = report.section(f"The log of device {device}", covered=False)
        log.text("Every query that reached it, and the bits that left it.")
        table = prepared.device_log(device)
        log.table("device_log.csv", table, shown=_shortened(table))
    devices = prepared.algorithm.devices
    kind = "real" if isinstance(devices, fleet.DeviceFleet) else "vectorised"
    report.section("The simulation", covered=False).text(
        f"{prepared.stored.num_devices:,} {kind} devices with "
        f"{len(prepared.stored.grams):,} events; "
        f"{directory.metrics()['seconds'].sum():.1f} s of queries."
    )
    report.statement(statement)
    report.how_it_was_made()
    report.write()


def _shortened(log: pd.DataFrame) -> pd.DataFrame:
    reports = log["report"].fillna("")
    return log.assign(
        report=[bits if len(bits) <= 32 else f"{bits[:29]}..." for bits in reports]
    )


def plot_estimates(found: pd.DataFrame) -> figure_lib.Figure:
    """Plots the share of the reports of each n-gram, with two standard errors."""
    figure, axes = plots.single(
        "N-grams found", "n-gram, the most frequent of its length first", "share"
    )
    colors = [plots.BLUE, plots.ORANGE, plots.GREEN]
    for words, part in found.groupby("words"):
        errors = 2 * part["stderr"] * part["share"] / part["estimate"]
        axes.errorbar(
            np.arange(1, len(part) + 1),
            part["share"],
            yerr=errors,
            fmt="o",
            markersize=3,
            color=colors[(int(words) - 1) % len(colors)],
            label=f"{words} word{'s' if words > 1 else ''}",
        )
    axes.set_yscale("log")
    plots.legend(axes)
    return figure
