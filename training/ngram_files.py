"""N-grams on disk: beside a model of public text, for what begins with it."""

import os
import pathlib
from collections.abc import Iterable

import numpy as np

from training import array_files, ngrams

# Beside an exported model.
FILE = "ngrams.npz"


def write(
    models: Iterable[ngrams.Model], num_tokens: int, folder: str | os.PathLike[str]
) -> None:
    """Writes n-grams beside an exported model.

    Args:
        models: A unigram, and interpolated models of the orders 2 and so on.
        num_tokens: Size of the vocabulary with its special tokens.
        folder: Where.
    """
    unigram, *higher = models
    assert isinstance(unigram, ngrams.Unigram)
    arrays = {
        "num_tokens": np.array(num_tokens),
        "probabilities": unigram.probabilities,
    }
    for model in higher:
        assert isinstance(model, ngrams.Interpolated)
        arrays[f"keys_{model.order}"] = model.counts.keys
        arrays[f"counts_{model.order}"] = model.counts.counts
        arrays[f"weights_{model.order}"] = model.weights
    array_files.write(pathlib.Path(folder) / FILE, arrays)


def find(model: str | os.PathLike[str]) -> pathlib.Path | None:
    """Returns where `write` wrote; None where there is none.

    Args:
        model: The exported model, or the directory of its run.
    """
    return array_files.find(model, FILE)


def read(model: str | os.PathLike[str]) -> list[ngrams.Model]:
    """Returns what `write` wrote; nothing where there is none.

    Args:
        model: The exported model, or the directory of its run.

    Raises:
        ValueError: If the file is damaged.
    """
    path = find(model)
    if path is None:
        return []
    what = "the n-grams of a model's text"
    mend = "Export the model again, or remove the file."
    with array_files.reading(path, what, mend) as file:
        found: list[ngrams.Model] = [ngrams.Unigram(file["probabilities"])]
        size = int(file["num_tokens"])
        while f"keys_{len(found) + 1}" in file:
            order = len(found) + 1
            keys, counts, weights = (
                file[f"{name}_{order}"] for name in ("keys", "counts", "weights")
            )
            counted = ngrams.Counts.of_keys(size, keys, counts)
            found.append(ngrams.Interpolated(order, found[-1], counted, weights))
    return found
