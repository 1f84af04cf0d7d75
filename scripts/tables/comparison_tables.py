"""Tables of the documents on the comparison of Zhu et al. 2020, from its results."""

import math
from collections.abc import Mapping

import pandas as pd

from federated_hh.files import tables
from scripts.tables.table_text import RESULTS, table


def _summary(study: str) -> pd.DataFrame:
    return tables.read(RESULTS / study / "summary.csv")


def _shown(row: Mapping, column: str) -> str:
    """Returns a mean with its interval, both to two digits."""
    mean, low, high = (f"{row[f'{column}{end}']:.2f}" for end in ("", "_low", "_high"))
    is_point = math.isnan(row[f"{column}_low"]) or low == high == mean
    return mean if is_point else f"{mean} ({low}–{high})"


def table2() -> list[str]:
    """Recall at 50 and precision, beside the paper's."""
    rows = []
    counted = _summary("zhu_table2").set_index(["line", "epsilon"])
    for row in _summary("zhu_table2_printed").to_dict("records"):
        other = counted.loc[(row["line"], row["epsilon"])]
        recall, precision = row["paper_recall_at_50"], row["paper_precision"]
        paper = "" if math.isnan(recall) else f"{recall:g}, {precision:g}"
        rows.append(
            [
                row["line"],
                f"{row['epsilon']:g}",
                paper,
                _shown(row, "recall_at_50"),
                _shown(row, "precision"),
                _shown(other, "recall_at_50"),
                _shown(other, "precision"),
            ]
        )
    header = ["Table 2", "ε", "paper: recall at 50, precision"]
    for data in ("as printed", "as counted"):
        header += [f"{data}: recall", "precision"]
    return table(header, rows)


def _by_epsilon(study: str, column: str, name: str) -> list[str]:
    summary = _summary(study)
    epsilons = sorted(summary["epsilon"].unique())
    rows = []
    for line, group in summary.groupby("line", sort=False):
        of = {row["epsilon"]: row for row in group.to_dict("records")}
        shown = [_shown(of[e], column) if e in of else "" for e in epsilons]
        rows.append([str(line), *shown])
    return table([name, *[f"ε = {e:g}" for e in epsilons]], rows)


def figure4() -> list[str]:
    """F1 of the top 100 words, one word a user."""
    return _by_epsilon("zhu_figure4", "f1_at_100", "F1 of the top 100")


def figure6() -> list[str]:
    """Recall of the top 200 words, many words a user."""
    return _by_epsilon("zhu_figure6", "recall_at_200", "recall of the top 200")


TABLES = {
    "zhu_table2": table2,
    "zhu_figure4": figure4,
    "zhu_figure6": figure6,
}
