"""N-grams on disk: beside a model of public text, for what begins with it."""

import os
import pathlib
from collections.abc import Mapping

import numpy as np

from training import array_files, kneser_ney, metric_names, ngrams

# Beside an exported model.
FILE = "ngrams.npz"


def write(
    models: Mapping[str, ngrams.Model], num_tokens: int, folder: str | os.PathLike[str]
) -> None:
    """Writes n-grams beside an exported model.

    Args:
        models: From `kneser_ney.by_name`.
        num_tokens: Size of the vocabulary with its special tokens.
        folder: Where.
    """
    unigram = models[metric_names.UNIGRAM]
    assert isinstance(unigram, ngrams.Unigram)
    arrays = {
        "num_tokens": np.array(num_tokens),
        "probabilities": unigram.probabilities,
    }
    # The other trigram is one of the same counts.
    for name in (metric_names.BIGRAM, metric_names.TRIGRAM):
        model = models[name]
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


def read(model: str | os.PathLike[str]) -> dict[str, ngrams.Model]:
    """Returns what `write` wrote; nothing where there is none.

    Args:
        model: The exported model, or the directory of its run.

    Raises:
        ValueError: If the file is damaged.
    """
    path = find(model)
    if path is None:
        return {}
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
        return kneser_ney.by_name(found)
