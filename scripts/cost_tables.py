"""The tables of what populations, their readers and the choice of items cost."""

from typing import Any

from scripts.table_text import RESULTS, table
from simulation import tables

_MEANING = {
    "read": "reading a pair and its candidate",
    "merge": "and merging words with one prefix",
    "random": "the random sampler, counting included",
    "greedy": "the greedy sampler, counting included",
    "read, in NumPy": "reading a pair and its candidate, in NumPy on one core",
}


def _rows(folder: str) -> list[dict[str, Any]]:
    return tables.read(RESULTS / folder / "cost.csv").to_dict("records")


def selection() -> list[str]:
    """What a pair of a client and a word costs in TFF's worker, step by step."""
    found = {row["way"]: row for row in _rows("benchmark_selection")}
    alone = found["nothing"]["wall_seconds"]
    rows = []
    for way, meaning in _MEANING.items():
        row = found[way]
        wall = row["wall_seconds"] - ("NumPy" not in way) * alone
        rows.append(
            [
                meaning,
                f"{row['nanoseconds_a_pair']:.0f} ns",
                f"{row['nanoseconds_a_pair_least']:.0f} to "
                f"{row['nanoseconds_a_pair_most']:.0f} ns",
                f"{1e9 * wall / row['pairs']:.0f} ns",
            ]
        )
    header = ["a pair of client and word", "processor time", "of all turns"]
    return table([*header, "time"], rows)


def reading() -> list[str]:
    """What it costs to read users' own text."""
    rows = [
        [
            row["way"],
            f"{row['cpu_seconds']:.1f} s",
            f"{row['of_plain_python']:.2f} ({row['of_plain_python_least']:.2f} to "
            f"{row['of_plain_python_most']:.2f})",
            f"{row['peak_megabytes']:.0f} MB",
        ]
        for row in _rows("benchmark_reading")
    ]
    header = ["", "processor seconds", "of plain Python's, turn by turn", "peak memory"]
    return table(header, rows)


def population() -> list[str]:
    """What clients with habits cost, beside independent ones."""
    rows = [
        [
            row["clients"],
            f"{row['distinct_words_a_client']:.0f}",
            f"{row['microseconds_a_client']:.0f} µs",
            f"{row['habits_to_it']:.2f} ({row['habits_to_it_least']:.2f} to "
            f"{row['habits_to_it_most']:.2f})",
        ]
        for row in _rows("benchmark_population")
    ]
    header = [
        "clients with",
        "distinct words",
        "a client",
        "habits to it, turn by turn",
    ]
    return table(header, rows)


TABLES = {
    "benchmark_selection": selection,
    "benchmark_reading": reading,
    "benchmark_population": population,
}
