"""Keeps the tables of the documents equal to the CSV files that they come from.

scripts/run scripts.document_tables --write

A table with numbers stands below a line `<!-- table NAME -->`, and is then made from
the files in results/, or computed where that takes no run; or it stands below
`<!-- table not measured: WHY -->`. Without --write the program says which tables
differ, and ends with exit code 1.
"""

import json
import math
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd
from absl import app, flags

from privacy import triehh, triehh_solver, triehh_theorem1
from simulation import startup, tables

_WRITE = flags.DEFINE_bool("write", False, "Write the tables that differ anew.")

_ROOT = pathlib.Path(__file__).parent.parent
_RESULTS = _ROOT / "results"
_MARK = re.compile(r"<!-- table (?P<name>.+?) -->")
_NOT_MEASURED = "not measured: "
_NUMBER = re.compile(r"\d")
# The rows of a training study that the documents show, and their names there.
_METRICS = ("loss", "accuracy_of_suggestion", "accuracy_of_3_suggestions", "accuracy")

# Xu et al. 2023, Section 1: of models of 10, 20 and 30 thousand words.
_PAPER_PARAMETERS = ("2.4 M", "4.4 M", "6.4 M")
# Of the examples of TrieHH's parameters.
_MAX_LENGTH = 10
_DISCOVERY_RATE = 0.9


def documents() -> list[pathlib.Path]:
    """Returns the Markdown files whose tables are checked."""
    pages = sorted((_ROOT / "docs").glob("**/*.md"))
    return [_ROOT / "README.md", *pages, _RESULTS / "README.md"]


def marked_tables(text: str) -> Iterator[tuple[str | None, int, list[str]]]:
    """Yields the tables of a Markdown text.

    Args:
        text: Markdown.

    Yields:
        The name of a table's mark, or None; the number of its first line, from 0; and
        its lines.
    """
    lines, in_code, i = text.splitlines(), False, 0
    while i < len(lines):
        if lines[i].startswith("```"):
            in_code = not in_code
        if in_code or not lines[i].startswith("|"):
            i += 1
            continue
        first = i
        while i < len(lines) and lines[i].startswith("|"):
            i += 1
        above = next((line for line in reversed(lines[:first]) if line), "")
        mark = _MARK.fullmatch(above)
        yield mark and mark["name"], first, lines[first:i]


def without_mark(text: str) -> list[int]:
    """Returns the line numbers, from 1, of tables with numbers and no mark."""
    return [
        first + 1
        for name, first, lines in marked_tables(text)
        if name is None and any(_NUMBER.search(line) for line in lines)
    ]


def renewed(text: str) -> str:
    """Returns a Markdown text with its marked tables made from the results.

    Raises:
        ValueError: If a mark has a name that there is no table for.
    """
    lines = text.splitlines()
    for name, first, old in reversed(list(marked_tables(text))):
        if name is None or name.startswith(_NOT_MEASURED):
            continue
        if name not in TABLES:
            raise ValueError(
                f"line {first}: no table is called {name!r}; there are "
                f"{', '.join(sorted(TABLES))}"
            )
        lines[first : first + len(old)] = TABLES[name]()
    return "\n".join(lines) + "\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a Markdown table, its columns but the first set to the right."""
    lines = [f"| {' | '.join(header)} |", f"|---|{'--:|' * (len(header) - 1)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def _mean(row, name: str = "coverage") -> str:
    """Returns a mean with its interval, both to a hundredth of a percent."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if math.isnan(low):
        return f"{row[name]:.2%}"
    return f"{row[name]:.2%} ± {(high - low) / 2:.2%}"


def _summary(study: str) -> list[pd.Series]:
    table = tables.read(_RESULTS / study / "summary.csv")
    return [row for _, row in table.iterrows()]


def oov_table1() -> list[str]:
    """Table 1 of Sun et al. 2024."""
    return _table(
        [
            "Table 1: coverage, epsilon 10",
            "N",
            "here",
            "words found (real)",
            "paper",
        ],
        [
            [
                row["setting"].replace(",", " sampler,", 1),
                f"{row['cohort_size']:,}",
                _mean(row),
                f"{row['words_found']:,.0f} ({row['words_real']:,.0f})",
                f"{row['paper_coverage']:.1%}",
            ]
            for row in _summary("oov_table1")
        ],
    )


def oov_population() -> list[str]:
    """How Table 1 moves with the population."""
    populations = {
        "as_in_table1": "as above",
        "nothing_in_fashion": "nothing in fashion: `--trending_share=0`",
        "fewer_words": "a third of the words: `--mean_words_per_client=1200`",
        "more_repetition": "more repetition: `--mean_words_per_client=5400 "
        "--trending_words=110 --trending_exponent=0`",
        "more_repetition_full_scale": "the last at full scale",
    }
    return _table(
        [
            "coverage at a quarter of the clients, three repeats "
            "(`results/oov_population`)",
            "greedy",
            "random",
            "random, two passes",
        ],
        [
            [label, *[_mean(row) for row in _summary(f"oov_population/{name}")]]
            for name, label in populations.items()
        ],
    )


def oov_figure1() -> list[str]:
    """Figure 1 of Sun et al. 2024."""
    rows = _summary("oov_figure1")
    names = [row["setting"].removeprefix("epsilon ") for row in rows]
    return _table(
        ["epsilon", *[name.replace("inf", "infinite") for name in names]],
        [
            ["coverage", *[_mean(row) for row in rows]],
            [
                "words found that are real",
                *[f"{row['words_real']:,.0f}" for row in rows],
            ],
        ],
    )


def oov_production() -> list[str]:
    """What the production setting of Sun et al. 2024 guaranteed."""
    table = tables.read(_RESULTS / "oov_production" / "guarantees.csv").fillna("")
    return [
        "| guarantee | here | paper |",
        "|---|---|---|",
        *[f"| {' | '.join(row)} |" for row in table.itertuples(index=False, name=None)],
    ]


def oov_real_text() -> list[str]:
    """Words that a large dictionary does not know, in real text."""
    rows = _summary("oov_real_text")
    settings = {row["setting"]: row for row in rows}
    return _table(
        [
            "",
            "N",
            "coverage, epsilon 10",
            "without privacy",
            "words found (real), epsilon 10",
        ],
        [
            [
                name,
                f"{settings[f'{name}, epsilon 10']['cohort_size']:,}",
                _mean(settings[f"{name}, epsilon 10"]),
                _mean(settings[f"{name}, epsilon inf"]),
                f"{settings[f'{name}, epsilon 10']['words_found']:,.0f} "
                f"({settings[f'{name}, epsilon 10']['words_real']:,.0f})",
            ]
            for name in ("blogs", "chat", "tweets")
        ],
    )


def _randomizers(epsilon: float, domain_size: int) -> list[str]:
    table = tables.read(_RESULTS / "randomizers" / "side_by_side.csv")
    table = table[(table["epsilon"] == epsilon) & (table["domain_size"] == domain_size)]
    rows = []
    for row in table.to_dict("records"):
        name = row["randomizer"].replace("k-ary response", "k-ary randomized response")
        guarantee = f"replacement {row['replacement_epsilon']:g}"
        if name == "symmetric one-hot":
            guarantee += f" = deletion {row['replacement_epsilon'] / 2:g}"
        if name.endswith(", deletion"):
            name = name.removesuffix(", deletion")
            guarantee = f"deletion {epsilon:g} = {guarantee}"
        rows.append(
            [
                name,
                guarantee,
                f"{row['bits_per_report']:,}",
                f"{row['error']:,.0f}",
                _seconds(row["sum_cpu_seconds"]),
                _seconds(row["cpu_microseconds_per_report"] / 1e6),
            ]
        )
    reports = int(table["reports"].iloc[0])
    count = "10⁶" if reports == 10**6 else f"{reports / 1e7:g}·10⁷"
    return _table(
        [
            f"at epsilon = {epsilon:g}, {domain_size:,} items, {count} reports",
            "guarantee",
            "bits a report",
            "error (devices)",
            "sum of all reports",
            "one report",
        ],
        rows,
    )


def _seconds(value: float) -> str:
    """Returns a time with two significant digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= 0.1 * size or unit == "µs":
            return f"{float(f'{value / size:.2g}'):g} {unit}"
    raise AssertionError("the last unit takes all")


def training_demo() -> list[str]:
    """The demo of training beside words by frequency and the best possible."""
    folder = _RESULTS / "training_demo"
    last = tables.read(folder / "metrics.csv").iloc[-1]
    ours = {name: last[f"held_out_{name}"] for name in _METRICS}
    frequencies, best = (
        json.loads((folder / f"{name}.json").read_text())
        for name in ("unigram_baseline", "best_possible")
    )
    epsilon = math.ceil(last["epsilon"] * 10) / 10
    return _table(
        ["", "loss", "one suggestion right", "three"],
        [
            [
                name,
                f"{values['loss']:.3f}",
                f"{values['accuracy_of_suggestion']:.1%}",
                f"{values['accuracy_of_3_suggestions']:.1%}",
            ]
            for name, values in (
                ("words by frequency alone", frequencies),
                (
                    f"DP-FTRL, epsilon {epsilon:g} at delta 1e-10 (zCDP "
                    f"{last['rho']:.3g})",
                    ours,
                ),
                ("the best possible", best),
            )
        ],
    )


_LEARNED = (
    "held-out clients",
    "loss",
    "one suggestion",
    "three",
    "top-1 in-vocabulary",
    "epsilon (delta 1e-10)",
)


def training_blogs() -> list[str]:
    """What the mechanisms learn from bloggers' sentences."""
    folder = _RESULTS / "training_blogs"
    runs = tables.read(folder / "runs.csv").groupby("setting").last()
    chat = tables.read(folder / "dp_ftrl_from_chat.csv").iloc[-1]
    rows = [
        _learned(name, row)
        for name, row in (
            ("DP-FTRL, z = 2", runs.loc["dp_ftrl"]),
            ("DP-FTRL, z = 6", runs.loc["dp_ftrl_more_noise"]),
            (
                f"DP-FTRL, z = 6, {chat['round']:.0f} rounds, from a model of public "
                "chat (below)",
                chat,
            ),
            ("DP-FedAvg, z = 2", runs.loc["dp_fedavg"]),
            ("FedAvg with the same clip, not private", runs.loc["fedavg"]),
        )
    ]
    frequencies = json.loads((folder / "unigram_baseline.json").read_text())
    by_frequency = pd.Series({f"held_out_{k}": v for k, v in frequencies.items()})
    rows.append([*_learned("words by frequency alone", by_frequency)[:-1], ""])
    return _table(_LEARNED, rows)


def training_blt() -> list[str]:
    """What a tree and correlated noise let a model learn, at one epsilon or noise."""
    runs = tables.read(_RESULTS / "training_blt" / "runs.csv").groupby("setting").last()
    rows = [
        _learned(f"{name} (zCDP {runs.loc[setting]['rho']:.3f})", runs.loc[setting])
        for name, setting in (
            ("DP-FTRL, z = 2", "dp_ftrl"),
            ("BLT at its epsilon, z = 1.2587", "blt"),
            ("BLT at its noise, z = 2.516", "blt_less_epsilon"),
        )
    ]
    return _table(_LEARNED, rows)


def _learned(name: str, row: pd.Series) -> list[str]:
    loss, *accuracies = (row[f"held_out_{metric}"] for metric in _METRICS)
    epsilon = row.get("epsilon", math.inf)
    # Rounded upwards: an upper bound stays one.
    shown = "none" if math.isinf(epsilon) else f"{math.ceil(epsilon * 10) / 10:g}"
    return [name, f"{loss:.3f}", *[f"{value:.1%}" for value in accuracies], shown]


def model_parameters() -> list[str]:
    """How many numbers the models of the paper's vocabularies have."""
    from simulation import vocabulary
    from training import model  # here: TensorFlow takes seconds to import

    sizes = {f"{k} x 1024": k * 1024 for k in (10, 20, 30)}
    sizes |= {f"{k},000": k * 1000 for k in (10, 20, 30)}
    special = len(vocabulary.SPECIAL_TOKENS)
    counts = [
        model.cifg_language_model(size + special).num_parameters()
        for size in sizes.values()
    ]
    return _table(
        ["words", *sizes],
        [
            ["ours", *[f"{count / 1e6:.1f} M" for count in counts]],
            ['Xu et al. 2023 ("10K", "20K", "30K")', *_PAPER_PARAMETERS, "", "", ""],
        ],
    )


def triehh_parameters() -> list[str]:
    """The parameters of TrieHH by the paper's corollary and by the tight bound."""
    rows = []
    for clients, epsilon, digits in ((6, 2, 12), (6, 4, 12), (5, 4, 10)):
        request: dict[str, Any] = {
            "population_size": 10**clients,
            "max_length": _MAX_LENGTH,
            "epsilon": float(epsilon),
            "delta": 10.0**-digits,
        }
        row = [
            f"{_power(clients)}, {_MAX_LENGTH}, ({epsilon}, {_power(-digits)})",
        ]
        for found in (
            triehh_theorem1.solve_parameters(**request),
            triehh_solver.solve_parameters(**request),
        ):
            needed = triehh.holders_needed(found, _DISCOVERY_RATE)
            row += [f"{found.threshold}, {found.cohort_size:,}", f"{needed:,}"]
        rows.append(row)
    holders = f"holders for {_DISCOVERY_RATE:g}"
    header = ["n, L, (ε, δ)", "by Corollary 1: θ, m", holders, "here: θ, m", holders]
    return _table(header, rows)


def _power(exponent: int) -> str:
    """Returns a power of ten."""
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


TABLES: dict[str, Callable[[], list[str]]] = {
    "oov_table1": oov_table1,
    "oov_population": oov_population,
    "oov_figure1": oov_figure1,
    "oov_production": oov_production,
    "oov_real_text": oov_real_text,
    "randomizers_thousand": lambda: _randomizers(4, 1001),
    "randomizers_million": lambda: _randomizers(10, 1_000_001),
    "training_demo": training_demo,
    "model_parameters": model_parameters,
    "triehh_parameters": triehh_parameters,
    "training_blogs": training_blogs,
    "training_blt": training_blt,
}


def main(argv: Sequence[str]) -> None:
    """Compares the documents with the results, or writes their tables."""
    if len(argv) > 1:
        raise app.UsageError(f"arguments are flags; what is {argv[1]!r}?")
    startup.silence_tensorflow()
    failures = []
    for document in documents():
        text = document.read_text()
        failures += [
            f"{document}:{line}: a table with numbers and no mark"
            for line in without_mark(text)
        ]
        new = renewed(text)
        if new != text and _WRITE.value:
            document.write_text(new)
            print(f"{document}: written")
        elif new != text:
            failures.append(f"{document}: a table differs from its file of results")
    if failures:
        print(*failures, sep="\n", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    app.run(main)
