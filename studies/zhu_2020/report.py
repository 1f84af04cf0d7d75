"""Results of a study of Zhu et al. 2020: tables and figures beside the paper's."""

import math
from collections.abc import Sequence

import matplotlib.ticker
import numpy as np
import pandas as pd

from federated_hh.files import tables
from federated_hh.privacy import rounding
from federated_hh.reports import plots
from studies import comparison, intervals, pages, study

# Table 2: recall at 50, precision, by line and epsilon.
PAPER_TABLE_2 = {
    ("TrieHH", 1.0): (0.65, 1.0),
    ("TrieHH", 4.0): (0.76, 1.0),
    ("SFP, T = 20", 1.0): (0.17, 0.853),
    ("SFP, T = 20", 4.0): (0.19, 0.867),
    ("SFP, T = 80", 1.0): (0.25, 0.494),
    ("SFP, T = 80", 4.0): (0.325, 0.456),
}
# What the paper says of Figure 4 (F1 of the top 100) and Figure 7 (recall of the top
# 200), both at epsilon 4, "close to".
PAPER_F1_AT_100 = {"TrieHH": "near 1", "SFP, T = 20": "near 0.2"}
PAPER_RECALL_AT_200 = {"TrieHH": "near 1"}
_RECALL_AT = 50
_COLORS = {
    "TrieHH": plots.BLUE,
    "TrieHH, tighter guarantee": plots.PURPLE,
    "SFP": plots.ORANGE,
    "SFP, tighter bound": "#8a5a00",
    "LDP TrieHH": plots.GREEN,
}
_OTHER_COLOR = plots.INK
# Of the lines of one color.
_STYLES = {"": "-", "T = 20": "-", "T = 80": ":"}
# Characters of a word that TrieHH completes in ten rounds.
_LONGEST = 9
# Bins of like frequency, of the plots of discovery rates.
_BINS = 24
_NOTES = (
    "95% intervals are over runs with separate cohorts, reports and noise, on one "
    "population. They are Wilson's score interval, with the standard error of the mean "
    "and Student's t; there is none where all runs agree.",
    "Precision is the share of words found that some client has; recall is the share "
    "of the true top K among all words found.",
    "delta is {delta}. `TrieHH` has the parameters of Corollary 1, `tighter guarantee` "
    "those proved in docs/triehh_privacy.md. Both hold for removing a client's words, "
    "in one direction.",
    "`SFP` has the local epsilon of Balle et al. 2019, Theorem 5.3, as in the paper. "
    "`tighter bound` and `LDP TrieHH` have that of the clones bound of 2021. These "
    "hold for the exchange of a client's word, in both directions.",
    "`LDP TrieHH` has one report a client, nine levels of equal cohorts, and eta_max = "
    "500. It releases words from three standard errors on.",
    "Trust: TrieHH's server sees a cohort's votes and must keep the cohort secret. "
    "Each report of SFP and LDP TrieHH is private by itself; the central epsilon rests "
    "on a secure sum or a shuffler.",
)


def files(
    name: str, study_: comparison.Comparison, found: study.Tables, data: str
) -> dict[str, bytes]:
    """Returns the files of a study's results.

    Args:
        name: The name of the study.
        study_: The study.
        found: See `comparison.Comparison.run_part`.
        data: Description of the data, for the page.
    """
    scores = comparison.scores_of(found)
    runs = intervals.of_means(
        found["runs"], ["contestant", "variant", "line", "epsilon"], ["precision"]
    )
    details = found["runs"].groupby(["line", "epsilon"], sort=False)[
        ["words_found", "words_real", "stated_epsilon", "local_epsilon", "seconds"]
    ]
    runs = runs.merge(details.mean().reset_index(), on=["line", "epsilon"])
    summary = _summary(runs, scores, name.startswith("zhu_table2"))
    made = {
        "runs.csv": found["runs"],
        "scores.csv": scores,
        "summary.csv": summary,
    }
    pictures = {}
    if name == "zhu_figure6":
        pictures["figure7.png"] = plot_scores(
            scores, "recall", "Recall of the top K words, all words of each client"
        )
    elif name == "zhu_figure4":
        pictures["figure4.png"] = plot_scores(
            scores, "f1", "F1 of the top K words, one word a client"
        )
    else:
        pictures["figure5.png"] = plot_scores(
            scores, "f1", "F1 of the top K unknown words"
        )
    if name in ("zhu_figure4", "zhu_figure6"):
        discovery = binned(found["discovery"])
        made["discovery.csv"] = discovery
        figure = "figure6.png" if name == "zhu_figure6" else "figure3.png"
        pictures[figure] = plot_discovery(discovery)
    page = to_markdown(name, study_.title, summary, data)
    return {
        **{file: tables.write(table).encode() for file, table in made.items()},
        **pictures,
        study.PAGE: page.encode(),
    }


def _summary(
    runs: pd.DataFrame, scores: pd.DataFrame, is_table_2: bool
) -> pd.DataFrame:
    """Returns a row a line and epsilon: precision, scores at some K, Table 2's."""
    at = scores.set_index(["line", "epsilon", "k"])
    rows = []
    for row in runs.to_dict("records"):
        key = row["line"], row["epsilon"]
        for k, column in ((_RECALL_AT, "recall"), (100, "f1"), (200, "recall")):
            for end in ("", "_low", "_high"):
                row[f"{column}_at_{k}{end}"] = at.loc[(*key, k), column + end]
        if is_table_2:
            recall, precision = PAPER_TABLE_2.get(key, (np.nan, np.nan))
            row |= {"paper_recall_at_50": recall, "paper_precision": precision}
        rows.append(row)
    return pd.DataFrame(rows)


def to_markdown(name: str, title: str, summary: pd.DataFrame, data: str) -> str:
    """Returns the table of a study as Markdown, the paper's numbers beside it.

    Args:
        name: The name of the study.
        title: Its heading.
        summary: A row a line and epsilon.
        data: Description of the data.
    """
    scores = {
        "zhu_figure4": ("f1_at_100", "F1 at 100"),
        "zhu_figure6": ("recall_at_200", "recall at 200"),
    }
    column, label = scores.get(name, ("recall_at_50", "recall at 50"))
    rows = [
        row
        | {
            "local": _unless_nan(row["local_epsilon"], ".2f"),
            "stated": rounding.rounded_up_to(row["stated_epsilon"], 2),
            "score": _with_interval(row, column),
            "paper_score": _paper(name, row, "score"),
            "shown_precision": _with_interval(row, "precision"),
            "printed_precision": _paper(name, row, "precision"),
        }
        for row in summary.to_dict("records")
    ]
    header = ["algorithm", "epsilon", "local epsilon", "stated", "runs", "words found"]
    cells = (
        "{line} | {epsilon:g} | {local} | {stated} | {repeats} | {words_found:,.0f} | "
        "{score} | {paper_score} | {shown_precision} | {printed_precision}"
    )
    table = pages.table_of(
        [*header, label, "paper", "precision", "paper"],
        [cells.format(**row).split(" | ") for row in rows],
    )
    stated = (
        "`stated` is the smallest central epsilon proved for the run. It is below the "
        "requested one where the paper's bound is loose."
    )
    # As the paper has it for each.
    delta = "1/(300n)" if name == "zhu_figure6" else "1/n^2"
    notes = [note.replace("{delta}", delta) for note in (*_NOTES, stated)]
    return pages.page(title, f"Data: {data}.", table, pages.notes(*notes)).decode()


def _unless_nan(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)


def _with_interval(row: dict, column: str) -> str:
    low, high = row[f"{column}_low"], row[f"{column}_high"]
    if math.isnan(row[column]):
        return ""
    shown = f"{row[column]:.3f}"
    if math.isnan(low) or f"{low:.3f}" == f"{high:.3f}" == shown:
        return shown
    return f"{shown} ({low:.3f} to {high:.3f})"


def _paper(name: str, row: dict, which: str) -> str:
    line, epsilon = row["line"], row["epsilon"]
    if name.startswith("zhu_table2"):
        printed = PAPER_TABLE_2.get((line, epsilon))
        return "" if printed is None else f"{printed[which == 'precision']:g}"
    if which == "precision" or epsilon != 4:
        return ""
    known = PAPER_F1_AT_100 if name == "zhu_figure4" else PAPER_RECALL_AT_200
    return known.get(line, "")


def binned(discovery: pd.DataFrame) -> pd.DataFrame:
    """Returns discovery rates of words of like frequency.

    Words that are too long to be completed are left out.

    Args:
        discovery: See `comparison.Comparison.run_part`.

    Returns:
        A row for each line, epsilon and bin with words: words, share (the mean), runs,
        discovery_rate with its 95% interval over runs, and worst_case, the mean.
    """
    table = discovery[discovery["characters"] <= _LONGEST].copy()
    edges = np.geomspace(
        table["share"].min() * 0.999, table["share"].max() * 1.001, _BINS + 1
    )
    table["bin"] = pd.cut(table["share"], edges, labels=False)
    rows = []
    keys = ["contestant", "variant", "line", "epsilon", "bin"]
    for key, group in table.groupby(keys, sort=False):
        in_run = np.array([[*map(int, runs)] for runs in group["found_in_run"]])
        # Words of one run are found or missed together: they share its cohorts.
        low, high = intervals.of_mean(in_run.mean(axis=0))
        rows.append(
            {
                **dict(zip(keys[:-1], key, strict=False)),
                "words": len(group),
                "share": group["share"].mean(),
                "runs": int(group["runs"].iloc[0]),
                "discovery_rate": in_run.mean(),
                "discovery_rate_low": low,
                "discovery_rate_high": high,
                "worst_case": group["worst_case"].mean(),
            }
        )
    return pd.DataFrame(rows).sort_values(["line", "epsilon", "share"])


def _panels(title: str, epsilons: Sequence[float], x_label: str, y_label: str):
    titles = [f"epsilon = {epsilon:g}" for epsilon in epsilons]
    titles[0] = f"{title}: {titles[0]}"
    figure, panels = plots.stacked(titles, x_label)
    figure.set_figheight(1.0 + 2.7 * len(panels))
    for axes in panels:
        axes.set_ylabel(y_label, color=plots.MUTED)
        axes.set_ylim(0, 1.03)
    return figure, panels


def _look(rows: pd.DataFrame) -> tuple[str, str]:
    """Returns the color and the style of a line."""
    contestant, variant = rows["contestant"].iloc[0], rows["variant"].iloc[0]
    return _COLORS.get(contestant, _OTHER_COLOR), _STYLES.get(variant, "-")


def plot_scores(scores: pd.DataFrame, column: str, title: str) -> bytes:
    """Plots a score over K, a panel an epsilon; returns a PNG."""
    epsilons = sorted(scores["epsilon"].unique())
    figure, panels = _panels(title, epsilons, "K", column.replace("f1", "F1"))
    for axes, epsilon in zip(panels, epsilons, strict=True):
        of_epsilon = scores[scores["epsilon"] == epsilon]
        for line, group in of_epsilon.groupby("line", sort=False):
            table = group.set_index("k")
            color, style = _look(group)
            axes.plot(table[column], label=line, color=color, ls=style)
            plots.band(axes, table[f"{column}_low"], table[f"{column}_high"], color)
        axes.set_xlim(scores["k"].min(), scores["k"].max())
    plots.legend(panels[-1], below=True)
    return plots.png(figure)


def plot_discovery(discovery: pd.DataFrame) -> bytes:
    """Plots discovery rates over frequency, a panel an epsilon; returns a PNG."""
    epsilons = sorted(discovery["epsilon"].unique())
    figure, panels = _panels(
        "Discovery rate of words of like frequency",
        epsilons,
        "frequency of the word",
        "share of runs that find it",
    )
    for axes, epsilon in zip(panels, epsilons, strict=True):
        of_epsilon = discovery[discovery["epsilon"] == epsilon]
        for line, group in of_epsilon.groupby("line", sort=False):
            table = group.set_index("share")
            color, style = _look(group)
            axes.plot(
                table["discovery_rate"],
                f"o{style}",
                ms=2,
                color=color,
                label=str(line),
            )
            plots.band(
                axes, table["discovery_rate_low"], table["discovery_rate_high"], color
            )
            if table["worst_case"].notna().any():
                axes.plot(
                    table["worst_case"],
                    "--",
                    lw=1,
                    color=color,
                    label=f"{line}: Proposition 1",
                )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(
            matplotlib.ticker.FuncFormatter(lambda share, _: f"{share:.3g}")
        )
    plots.legend(panels[-1], below=True)
    return plots.png(figure)
