"""The names of a language model's metrics: one for each number, everywhere.

Tables' columns and files' keys have the names; logs, plots and documents have the
labels. `evaluation.metrics_of_sums` defines the numbers. No TensorFlow.
"""

from collections.abc import Mapping

from federated_hh.reports.metric_labels import KEYBOARD_LABELS, LABELS

__all__ = [
    "BEST_POSSIBLE",
    "BIGRAM",
    "KEYBOARD_LABELS",
    "KNESER_NEY",
    "LABELS",
    "NGRAMS",
    "REGRET",
    "TRIGRAM",
    "UNIGRAM",
    "of_text",
    "text",
    "title",
]

# The best possible loss, if the law of the text is known; a model's regret is its loss
# above it, in nats per position.
BEST_POSSIBLE, REGRET = "the best possible", "regret"
# The baselines of each report.
NGRAMS = (
    "words by frequency alone",
    "interpolated bigram",
    "interpolated trigram",
    "Kneser-Ney trigram",
)
UNIGRAM, BIGRAM, TRIGRAM, KNESER_NEY = NGRAMS


def title(name: str) -> str:
    """Returns the title of a plot of one of `LABELS`, on held-out clients."""
    if name == "loss":
        return "Held-out clients: loss (nats a token)"
    return f"Accuracy of {LABELS[name]}"


def of_text(name: str) -> str:
    """Returns the suffix of the names of n-grams stored with a model.

    Args:
        name: Name of the model, on whose text they are counted.
    """
    return f", text of {name}"


def text(metrics: Mapping[str, float]) -> str:
    """Returns metrics as a log has them: the loss in nats, the rest in percent.

    Args:
        metrics: Metrics named as in `KEYBOARD_LABELS`, or some of them.
    """
    return ", ".join(
        f"{label} {metrics[name]:.3f}"
        if name == "loss"
        else f"{label} {metrics[name]:.2%}"
        for name, label in KEYBOARD_LABELS.items()
        if name in metrics
    )
