"""Tables of the documents on what interaction gains, from its results."""

from collections.abc import Mapping
from typing import Any

from scripts.table_text import summary, table

_WAYS = ("interactive", "interactive, one report a device", "static")
_NAMES = {
    "ngrams": "of the top 100 3-grams",
    "joint": "of the top 100 pairs of age and 3-gram",
    "distribution": "largest error of the share below a value",
}


def gains() -> list[str]:
    """What each way finds, or its error, at the same total privacy."""
    rows: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for row in summary("mcmillan_analyses"):
        key = row["analysis"], f"{row['data'].partition(',')[0]}, {row['clients']:,}"
        way = row["approach"]
        if way.startswith("static,"):  # of the grids the best
            way = "static"
            best = rows[key].get(way)
            if best and best["largest_error"] <= row["largest_error"]:
                continue
        rows.setdefault(key, {})[way] = row
    return table(
        ["found, devices", *_WAYS],
        [
            [f"{_NAMES[analysis]}: {data}", *(_shown(ways[way]) for way in _WAYS)]
            for (analysis, data), ways in rows.items()
        ],
    )


def _shown(row: Mapping[str, Any]) -> str:
    if row["analysis"] == "distribution":
        half = (row["largest_error_high"] - row["largest_error_low"]) / 2
        return f"{row['largest_error']:.2%} ± {half:.2%}"
    half = (row["popular_found_high"] - row["popular_found_low"]) / 2
    return f"{row['popular_found']:.1f} ± {half:.1f}"


TABLES = {"mcmillan_analyses": gains}
