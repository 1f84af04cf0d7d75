"""The labels of a language model's metrics, in logs, plots and documents."""

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
