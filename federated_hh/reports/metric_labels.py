"""Labels and units of metrics, in logs, tables, plots and documents."""

import re
import types
from collections.abc import Mapping

from federated_hh.files import tables

LABELS: Mapping[str, str] = types.MappingProxyType(
    {
        "loss": "loss",
        "top1_in_vocabulary": "top-1 in-vocabulary",
        "one_suggestion": "one suggestion",
        "three_suggestions": "three suggestions",
    }
)
# Further metrics of a model on a keyboard; `training.keyboard.evaluation` defines them.
KEYBOARD_LABELS: Mapping[str, str] = types.MappingProxyType(
    {
        **LABELS,
        "picked_rate": "picked rate",
        "keystrokes_saved": "keystrokes saved",
        "trigger_rate": "Smart Compose: trigger rate",
        "compose_accuracy": "Smart Compose: accuracy",
        "compose_picked_rate": "Smart Compose: picked rate",
        "word_modified_before": "word-modified ratio before re-ranking",
        "word_modified_after": "word-modified ratio after re-ranking",
        "word_modified_of_all_before": "word-modified ratio of all before re-ranking",
        "word_modified_of_all_after": "word-modified ratio of all after re-ranking",
    }
)

# By the last words of a metric's name.
_UNITS = {
    "seconds": "seconds",
    "hours": "hours",
    "bytes": "bytes",
    "bits": "bits",
    "bits_per_parameter": "bits a parameter",
    "loss": "nats a token",
    "regret": "nats a token",
    "norm": "L2 norm",
    "stddev": "standard deviation",
    "standard_deviation": "standard deviation",
    "estimate_kept": "estimated clients",
    "rho": "rho (zCDP)",
    "epsilon": "epsilon",
}
# Counted things, by a word of a metric's name.
_COUNTED = re.compile(
    "words|prefixes|votes|clients|candidates|reports|cells|fragments|devices|attempts"
)
_SHARES = {*LABELS, *KEYBOARD_LABELS, *LABELS.values(), *KEYBOARD_LABELS.values()}
_SHARES -= {"loss"}
_SHARE = re.compile(
    r"(.*[_ ])?(share|(?<!learning.)rate|coverage|probability|accuracy)"
)


def label(metric: str) -> str:
    """Returns a metric's name for people.

    Args:
        metric: Name of a column, such as `held_out_one_suggestion`.
    """
    bare = metric.removeprefix("held_out_")
    shown = KEYBOARD_LABELS.get(bare, bare.replace("_", " "))
    return shown if bare == metric else f"held-out clients: {shown}"


def is_share(metric: str) -> bool:
    """Returns whether a metric is a share, shown in percent."""
    bare = metric.removeprefix("held_out_")
    return bare in _SHARES or bool(_SHARE.fullmatch(bare))


def is_loss(metric: str) -> bool:
    """Returns whether a metric is a loss in nats, shown with three decimals."""
    return bool(re.fullmatch(r"(.*[_ ])?(loss|regret)", metric))


def unit(metric: str) -> str:
    """Returns the label of a metric's axis: its unit, or the things that it counts."""
    if is_share(metric):
        return "share"
    for ending, known in _UNITS.items():
        if metric == ending or metric.endswith(f"_{ending}"):
            return known
    counted = _COUNTED.search(metric)
    return counted[0] if counted else "number"


def shown(metric: str, value: float) -> str:
    """Returns a metric's value as text: shares in percent, losses with three decimals.

    Args:
        metric: Name of the metric.
        value: Its value.
    """
    if value != value:  # not a number
        return "–"
    if is_share(metric):
        return f"{value:.2%}"
    return f"{value:,.3f}" if is_loss(metric) else tables.shown(value)
