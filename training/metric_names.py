"""The names of what a language model is judged by: one for each number, everywhere.

Columns of tables and keys of files have the names, logs, plots and documents the
labels. What the numbers are is said by `evaluation.metrics_of_sums`. No TensorFlow.
"""

import types
from collections.abc import Mapping

LABELS: Mapping[str, str] = types.MappingProxyType(
    {
        "loss": "loss",
        "top1_in_vocabulary": "top-1 in-vocabulary",
        "one_suggestion": "one suggestion",
        "three_suggestions": "three suggestions",
    }
)
# What no model can beat, where the law of the text is known; the nats a place that a
# model's loss is above it are its regret.
BEST_POSSIBLE, REGRET = "the best possible", "regret"
# What each report has beside its model.
NGRAMS = (
    "words by frequency alone",
    "interpolated bigram",
    "interpolated trigram",
    "Kneser-Ney trigram",
)
UNIGRAM, BIGRAM, TRIGRAM, KNESER_NEY = NGRAMS
# Beside these, of a model on a keyboard; `keyboard_evaluation` says where each is
# defined.
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


def title(name: str) -> str:
    """Returns the title of a plot of one of `LABELS`, on held-out clients."""
    if name == "loss":
        return "Held-out clients: loss (nats a token)"
    return f"Accuracy of {LABELS[name]}"


def of_text(name: str) -> str:
    """Returns what follows the names of n-grams that come along with a model.

    Args:
        name: Of the model, on whose text they are counted.
    """
    return f", text of {name}"


def text(metrics: Mapping[str, float]) -> str:
    """Returns metrics as a log has them: the loss in nats, the rest in percent.

    Args:
        metrics: By the names of `KEYBOARD_LABELS`, or some of them.
    """
    return ", ".join(
        f"{label} {metrics[name]:.3f}"
        if name == "loss"
        else f"{label} {metrics[name]:.2%}"
        for name, label in KEYBOARD_LABELS.items()
        if name in metrics
    )
