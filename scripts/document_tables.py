"""Keeps the documents' tables, and some plots, equal to the CSV files they come from.

scripts/run scripts.document_tables --write

A table with numbers stands below a line `<!-- table NAME -->`, and is then made from
the files in results/, or computed where that takes no run; or it stands below
`<!-- table not measured: WHY -->`. The plots are those of `quality_plots`. Without
--write the program says which tables and plots differ, and ends with exit code 1.
"""

import math
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from absl import app, flags

from federated_hh.files import tables
from federated_hh.options import option_flags
from federated_hh.privacy import printed_numbers
from federated_hh.privacy.triehh import guarantees as triehh
from federated_hh.privacy.triehh import solver as triehh_solver
from federated_hh.privacy.triehh import theorem1 as triehh_theorem1
from federated_hh.runtime.masking import graph
from federated_hh.runtime.worker import startup
from scripts.tables import (
    comparison_tables,
    cost_tables,
    coverage_tables,
    quality_plots,
    scale_tables,
    statistics_tables,
    xu_tables,
)
from scripts.tables.table_text import RESULTS, table
from training.models import metric_names

_WRITE = flags.DEFINE_bool(
    "write", False, "Write the tables and plots that differ anew."
)

_ROOT = pathlib.Path(__file__).parent.parent
_MARK = re.compile(r"<!-- table (?P<name>.+?) -->")
_NOT_MEASURED = "not measured: "
_NUMBER = re.compile(r"\d")
# What of a training study the documents show, in their order.
_METRICS = ("loss", "one_suggestion", "three_suggestions", "top1_in_vocabulary")
_BLOGS = RESULTS / "training_blogs"

# Xu et al. 2023, Section 1: of models of 10, 20 and 30 thousand words.
_PAPER_PARAMETERS = ("2.4 M", "4.4 M", "6.4 M")
# Of the examples of TrieHH's parameters.
_MAX_LENGTH = 10
_DISCOVERY_RATE = 0.9
_ON_A_KEYBOARD = (
    "three_suggestions",
    "picked_rate",
    "keystrokes_saved",
    "trigger_rate",
    "word_modified_before",
    "word_modified_after",
)
_BLOGGERS_MODELS = {"DP-FTRL": "DP-FTRL, z = 2", "FedAvg": "FedAvg, not private"}
_MASKED_COHORTS = (100, 1000, 6500, 10**5, 10**6)
# Shares that drop out and that collude.
_SHARES = ((0.05, 0.05), (0.3, 0.05), (0.05, 0.33), (0.33, 0.33))


def documents() -> list[pathlib.Path]:
    """Returns the Markdown files whose tables are checked."""
    pages = sorted((_ROOT / "docs").glob("**/*.md"))
    return [_ROOT / "README.md", *pages, RESULTS / "README.md"]


def marked_tables(text: str) -> Iterator[tuple[str | None, int, list[str]]]:
    """Yields the tables of a Markdown text.

    Args:
        text: Markdown.

    Yields:
        The name of a table's mark, or None; the number of its first line, from 0; and
        its lines: none below a mark that no table follows yet.
    """
    lines, in_code, i = text.splitlines(), False, 0
    while i < len(lines):
        if lines[i].startswith("```"):
            in_code = not in_code
        if in_code or not lines[i].startswith("|"):
            lone = None if in_code else _MARK.fullmatch(lines[i])
            i += 1
            below = next((line for line in lines[i:] if line), "")
            if lone and not below.startswith("|"):
                yield lone["name"], i, []
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
        table = TABLES[name]()
        lines[first : first + len(old)] = table if old else ["", *table]
    return "\n".join(lines) + "\n"


def training_demo() -> list[str]:
    """The demo of training beside n-grams and, last of all, the best possible."""
    folder = RESULTS / "training_demo"
    last = tables.read(folder / "metrics.csv").iloc[-1]
    ours = {name: last[f"held_out_{name}"] for name in _METRICS}
    beside = tables.read(folder / "baselines.csv").set_index("baseline")
    epsilon = printed_numbers.rounded_up_to(last["epsilon"], 1)
    rho = printed_numbers.rounded_up_to(last["rho"], 2)
    return table(
        ["", *[metric_names.LABELS[name] for name in _METRICS]],
        [
            [
                name,
                *_scores(values),
            ]
            for name, values in (
                *list(beside.iterrows())[:-1],
                (
                    f"DP-FTRL, epsilon {epsilon} at delta 1e-10 (zCDP {rho})",
                    ours,
                ),
                *list(beside.iterrows())[-1:],
            )
        ],
    )


_LEARNED = (
    "held-out clients",
    *[metric_names.LABELS[name] for name in _METRICS],
    "epsilon (delta 1e-10)",
)


def _runs_of_bloggers() -> pd.DataFrame:
    """Returns the last round of each setting that was run on bloggers' sentences."""
    return tables.read(_BLOGS / "runs.csv").groupby("setting").last()


def training_blogs() -> list[str]:
    """What the mechanisms learn from bloggers' sentences."""
    runs = _runs_of_bloggers()
    chat = tables.read(RESULTS / "pretraining" / "private_metrics.csv").iloc[-1]
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
    beside = tables.read(_BLOGS / "baselines.csv").set_index("baseline")
    for name, row in beside.add_prefix("held_out_").iterrows():
        rows.append([*_learned(name, row)[:-1], ""])
    return table(_LEARNED, rows)


def pretraining() -> list[str]:
    """What public chat is worth on bloggers before any private round."""
    found = tables.read(RESULTS / "pretraining" / "on_bloggers.csv")
    rows = []
    for row in found.to_dict("records"):
        name = row["baseline"].replace("chat", "public chat")
        if row["baseline"] == "chat":
            name = f"trained centrally on {name}"
        rows.append([name, *_scores(row)])
    labels = [metric_names.LABELS[name] for name in _METRICS]
    return table(["held-out bloggers", *labels], rows)


def training_blt() -> list[str]:
    """What a tree and correlated noise let a model learn, at one epsilon or noise."""
    runs = _runs_of_bloggers()
    rows = [
        _learned(f"{name} (zCDP {_rho(runs.loc[setting])})", runs.loc[setting])
        for name, setting in (
            ("DP-FTRL, z = 2", "dp_ftrl"),
            ("BLT at its epsilon, z = 1.2587", "blt"),
            ("BLT at its noise, z = 2.516", "blt_less_epsilon"),
        )
    ]
    return table(_LEARNED, rows)


def _rho(row: pd.Series) -> str:
    return printed_numbers.rounded_up_to(row["rho"], 3)


def _learned(name: str, row: pd.Series) -> list[str]:
    scores = _scores({name: row[f"held_out_{name}"] for name in _METRICS})
    epsilon = row.get("epsilon", math.inf)
    shown = printed_numbers.rounded_up_to(epsilon, 1)
    return [name, *scores, "none" if math.isinf(epsilon) else shown]


def _scores(values: Mapping[str, float]) -> list[str]:
    loss, *accuracies = (values[name] for name in _METRICS)
    return [f"{loss:.3f}", *[f"{value:.1%}" for value in accuracies]]


def model_parameters() -> list[str]:
    """How many numbers the models of the paper's vocabularies have."""
    from federated_hh.populations import vocabulary
    from training.models import model  # here: TensorFlow takes seconds to import

    sizes = {f"{k} x 1024": k * 1024 for k in (10, 20, 30)}
    sizes |= {f"{k},000": k * 1000 for k in (10, 20, 30)}
    special = len(vocabulary.SPECIAL_TOKENS)
    counts = [
        model.cifg_language_model(size + special).num_parameters()
        for size in sizes.values()
    ]
    return table(
        ["words", *sizes],
        [
            ["ours", *[f"{count / 1e6:.1f} M" for count in counts]],
            ['Xu et al. 2023 ("10K", "20K", "30K")', *_PAPER_PARAMETERS, "", "", ""],
        ],
    )


def triehh_parameters() -> list[str]:
    """The parameters of TrieHH by the paper's corollary and by the curve."""
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
    return table(header, rows)


def _power(exponent: int) -> str:
    """Returns a power of ten."""
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def keyboard_blogs() -> list[str]:
    """Models of bloggers' sentences on a keyboard."""
    scores = tables.read(RESULTS / "keyboard_blogs" / "scores.csv")
    scores = scores.set_index(["model", "metric"])
    rows = []
    for model in scores.index.unique("model"):
        cells = [_share(scores.loc[(model, metric)]) for metric in _ON_A_KEYBOARD]
        rows.append([_BLOGGERS_MODELS.get(model, model), *cells])
    header = [metric_names.KEYBOARD_LABELS[metric] for metric in _ON_A_KEYBOARD]
    return table(["held-out clients", *header], rows)


def _share(score: pd.Series) -> str:
    half = (score["high"] - score["low"]) / 2
    return f"{score['value']:.1%} ± {half:.1%}".replace("% ±", " ±")


def masked_graphs() -> list[str]:
    """Neighbours and thresholds, by cohort and what is withstood."""
    rows = []
    for clients in _MASKED_COHORTS:
        row = [f"{clients:,}"]
        for dropout, corrupt in _SHARES:
            found = graph.choose(graph.Needs.of_shares(clients, dropout, corrupt))
            row.append(f"{found.neighbours}, {found.threshold}")
        rows.append(row)
    shares = [
        f"{dropout:.0%} drop out, {corrupt:.0%} collude" for dropout, corrupt in _SHARES
    ]
    return table(["clients", *shares], rows)


TABLES: dict[str, Callable[[], list[str]]] = {
    **coverage_tables.TABLES,
    "training_demo": training_demo,
    "model_parameters": model_parameters,
    "triehh_parameters": triehh_parameters,
    "training_blogs": training_blogs,
    "training_blt": training_blt,
    "pretraining": pretraining,
    "keyboard_blogs": keyboard_blogs,
    "masked_graphs": masked_graphs,
    **comparison_tables.TABLES,
    **cost_tables.TABLES,
    **scale_tables.TABLES,
    **statistics_tables.TABLES,
    **xu_tables.TABLES,
}


def main(argv: Sequence[str]) -> None:
    """Compares the documents with the results, or writes their tables and plots."""
    del argv
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
    for folder in quality_plots.FOLDERS:
        for path, content in quality_plots.differing(folder).items():
            if _WRITE.value:
                path.write_bytes(content)
                print(f"{path}: written")
            else:
                failures.append(f"{path}: differs from the runs that it shows")
    if failures:
        print(*failures, sep="\n", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    app.run(main, flags_parser=option_flags.parse)
