"""The table of models on a keyboard; see `scripts.document_tables`."""

from collections.abc import Callable

import pandas as pd

from scripts.table_text import RESULTS, table
from simulation import tables
from training import metric_names

_SHOWN = (
    "three_suggestions",
    "picked_rate",
    "keystrokes_saved",
    "trigger_rate",
    "word_modified_before",
    "word_modified_after",
)
_MODELS = {"DP-FTRL": "DP-FTRL, z = 2", "FedAvg": "FedAvg, not private"}


def keyboard_blogs() -> list[str]:
    """Models of bloggers' sentences on a keyboard."""
    scores = tables.read(RESULTS / "keyboard_blogs" / "scores.csv")
    scores = scores.set_index(["model", "metric"])
    rows = []
    for model in scores.index.unique("model"):
        cells = [_cell(scores.loc[(model, metric)]) for metric in _SHOWN]
        rows.append([_MODELS.get(model, model), *cells])
    header = [metric_names.KEYBOARD_LABELS[metric] for metric in _SHOWN]
    return table(["held-out clients", *header], rows)


def _cell(score: pd.Series) -> str:
    half = (score["high"] - score["low"]) / 2
    return f"{score['value']:.1%} ± {half:.1%}".replace("% ±", " ±")


TABLES: dict[str, Callable[[], list[str]]] = {"keyboard_blogs": keyboard_blogs}
