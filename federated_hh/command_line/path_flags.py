"""Flags that name files, made independent of the working directory."""

import os

from federated_hh.populations.options.population_options import SYNTHETIC

NAMES = (
    "population",
    "known_words",
    "only_words",
    "common_words",
    "words_per_client",
    "data_dir",
    "vocabulary",
    "initial_model",
    "compare_with",
    "recipe",
    "training_flagfile",
)


def absolute(path: str) -> str:
    """Returns the value of such a flag so that it means the same in any directory.

    Args:
        path: A path, or "synthetic"; what is blank stays, for others to refuse.
    """
    is_path = path.strip() and path != SYNTHETIC
    return os.path.abspath(path) if is_path else path
