"""Tables of the documents on the case study of Sun et al. 2024, from its results."""

from collections.abc import Mapping
from typing import Any

from scripts.table_text import RESULTS, mean, summary, table
from simulation import tables

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


def _words(row: Mapping[str, Any], found: str, real: str) -> str:
    return f"{row[found]:,.0f} ({row[real]:,.0f})"


def oov_table1() -> list[str]:
    """Table 1 of Sun et al. 2024."""
    return table(
        [
            "Table 1: coverage, epsilon 10",
            "N",
            "here",
            "words found (real)",
            "above 3 standard errors (real)",
            "bloggers drawn with replacement",
            "paper",
        ],
        [
            [
                row["setting"].replace(",", " sampler,", 1),
                f"{row['cohort_size']:,}",
                mean(row),
                _words(row, "words_found", "words_real"),
                _words(row, "words_released", "released_real"),
                mean(other),
                f"{row['paper_coverage']:.1%}",
            ]
            for row, other in zip(
                summary("oov_table1"), summary("oov_table1_bloggers"), strict=True
            )
        ],
    )


def oov_table1_fashion() -> list[str]:
    """The stress test: words in fashion."""
    rows = summary("oov_table1_fashion")
    return table(
        [
            "coverage at a quarter of the clients, two repeats",
            *[row["setting"] for row in rows],
        ],
        [["three quarters of it in fashion", *[mean(row) for row in rows]]],
    )


def oov_figure1() -> list[str]:
    """Figure 1 of Sun et al. 2024."""
    rows = summary("oov_figure1")
    names = [row["setting"].removeprefix("epsilon ") for row in rows]
    return table(
        ["epsilon", *[name.replace("inf", "infinite") for name in names]],
        [
            ["coverage", *[mean(row) for row in rows]],
            [
                "of bloggers drawn with replacement",
                *[mean(row) for row in summary("oov_figure1_bloggers")],
            ],
            ["predicted", *[f"{_PREDICTED[row['setting']]:.1%}" for row in rows]],
            [
                "words found (real)",
                *[_words(row, "words_found", "words_real") for row in rows],
            ],
            [
                "above 3 standard errors (real)",
                *[_words(row, "words_released", "released_real") for row in rows],
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
    rows = {row["setting"]: row for row in summary("oov_real_text")}
    shown = []
    for setting, private in rows.items():
        name, _, epsilon = setting.partition(", epsilon ")
        if epsilon != "10":
            continue
        without = rows[f"{name}, epsilon inf"]
        others = private["held_out_coverage"]
        shown.append(
            [
                name.replace("-", " "),
                f"{private['cohort_size']:,}",
                mean(private),
                mean(without),
                _words(private, "words_found", "words_real"),
                _words(private, "words_released", "released_real"),
                mean(private, "released_coverage"),
                "" if others != others else f"{others:.2%}",
            ]
        )
    return table(
        [
            "",
            "N",
            "coverage, epsilon 10",
            "without privacy",
            "words found (real)",
            "above 3 standard errors (real)",
            "their coverage",
            "words found, of other bloggers",
        ],
        shown,
    )


TABLES = {
    "oov_table1": oov_table1,
    "oov_table1_fashion": oov_table1_fashion,
    "oov_figure1": oov_figure1,
    "oov_production": oov_production,
    "oov_real_text": oov_real_text,
}
