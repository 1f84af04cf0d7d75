"""Tables of the documents on the case study of Sun et al. 2024, from its results."""

import math

from federated_hh.files import tables
from scripts.tables.table_text import RESULTS, mean, of_rows, table
from scripts.tables.table_text import rows as read

# Coverage of the law's clients by the settings of Figure 1, by a model of the
# algorithm that is older than the runs.
_PREDICTED = {
    "epsilon 2": 0.004,
    "epsilon 4": 0.176,
    "epsilon 6": 0.518,
    "epsilon 8": 0.723,
    "epsilon 10": 0.766,
    "epsilon 12": 0.770,
    "epsilon inf": 0.774,
}
_FOUND = "{words_found:,.0f} ({words_real:,.0f})"
_RELEASED = "{words_released:,.0f} ({released_real:,.0f})"


def oov_table1() -> list[str]:
    """Table 1 of Sun et al. 2024."""
    others = {row["setting"]: row for row in read("oov_table1_bloggers/summary")}
    return of_rows(
        read("oov_table1/summary"),
        {
            "Table 1: coverage, epsilon 10": lambda row: row["setting"].replace(
                ",", " sampler,", 1
            ),
            "N": "{cohort_size:,}",
            "here": mean,
            "words found (real)": _FOUND,
            "above 3 standard errors (real)": _RELEASED,
            "bloggers drawn with replacement": lambda row: mean(others[row["setting"]]),
            "paper": "{paper_coverage:.1%}",
        },
    )


def oov_table1_fashion() -> list[str]:
    """The stress test: words in fashion."""
    rows = read("oov_table1_fashion/summary")
    return table(
        [
            "coverage at a quarter of the clients, two repeats",
            *[row["setting"] for row in rows],
        ],
        [["three quarters of it in fashion", *[mean(row) for row in rows]]],
    )


def oov_figure1() -> list[str]:
    """Figure 1 of Sun et al. 2024."""
    rows = read("oov_figure1/summary")
    names = [row["setting"].removeprefix("epsilon ") for row in rows]
    return table(
        ["epsilon", *[name.replace("inf", "infinite") for name in names]],
        [
            ["coverage", *[mean(row) for row in rows]],
            [
                "of bloggers drawn with replacement",
                *[mean(row) for row in read("oov_figure1_bloggers/summary")],
            ],
            ["predicted", *[f"{_PREDICTED[row['setting']]:.1%}" for row in rows]],
            ["words found (real)", *[_FOUND.format(**row) for row in rows]],
            [
                "above 3 standard errors (real)",
                *[_RELEASED.format(**row) for row in rows],
            ],
        ],
    )


def oov_production() -> list[str]:
    """What the production setting of Sun et al. 2024 guaranteed."""
    rows = tables.read(RESULTS / "oov_production" / "guarantees.csv").fillna("")
    return [
        "| guarantee | here | paper |",
        "|---|---|---|",
        *[f"| {' | '.join(row)} |" for row in rows.itertuples(index=False, name=None)],
    ]


def oov_real_text() -> list[str]:
    """Words that a large dictionary does not know, in real text."""
    rows = {row["setting"]: row for row in read("oov_real_text/summary")}
    of_ten = [row for name, row in rows.items() if name.endswith(", epsilon 10")]
    return of_rows(
        [{**row, "name": row["setting"].partition(", epsilon ")[0]} for row in of_ten],
        {
            "": lambda row: row["name"].replace("-", " "),
            "N": "{cohort_size:,}",
            "coverage, epsilon 10": mean,
            "without privacy": lambda row: mean(rows[f"{row['name']}, epsilon inf"]),
            "words found (real)": _FOUND,
            "above 3 standard errors (real)": _RELEASED,
            "their coverage": lambda row: mean(row, "released_coverage"),
            "words found, of other bloggers": lambda row: (
                ""
                if math.isnan(row["held_out_coverage"])
                else f"{row['held_out_coverage']:.2%}"
            ),
        },
    )


TABLES = {
    "oov_table1": oov_table1,
    "oov_table1_fashion": oov_table1_fashion,
    "oov_figure1": oov_figure1,
    "oov_production": oov_production,
    "oov_real_text": oov_real_text,
}
