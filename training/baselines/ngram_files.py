"""N-grams on disk, next to a model of public text, for runs that begin with it."""

import os
import pathlib
from collections.abc import Mapping

import numpy as np

from federated_hh.files import array_files
from federated_hh.populations import vocabulary as vocabulary_lib
from training.baselines import kneser_ney, ngrams
from training.models import metric_names

# Next to an exported model.
FILE = "ngrams.npz"


def write(
    models: Mapping[str, ngrams.Model],
    vocabulary: vocabulary_lib.Vocabulary,
    folder: str | os.PathLike[str],
) -> None:
    """Writes n-grams next to an exported model.

    Args:
        models: Models, from `kneser_ney.by_name`.
        vocabulary: Their vocabulary.
        folder: The folder.
    """
    unigram = models[metric_names.UNIGRAM]
    assert isinstance(unigram, ngrams.Unigram)
    arrays = {
        "num_tokens": np.array(vocabulary.num_tokens),
        "vocabulary": np.array(vocabulary.fingerprint),
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
    """Returns the path of `write`'s file; None if there is none.

    Args:
        model: The exported model, or the directory of its run.
    """
    return array_files.find(model, FILE)


def read(
    model: str | os.PathLike[str], vocabulary: vocabulary_lib.Vocabulary
) -> dict[str, ngrams.Model]:
    """Reads the models of `write`; empty if there is no file.

    Args:
        model: The exported model, or the directory of its run.
        vocabulary: The model's.

    Raises:
        ValueError: If the file is damaged, or counted with another vocabulary.
    """
    path = find(model)
    if path is None:
        return {}
    what = "the n-grams of a model's text"
    mend = "Export the model again, or remove the file."
    with array_files.reading(path, what, mend) as file:
        found: list[ngrams.Model] = [ngrams.Unigram(file["probabilities"])]
        size = int(file["num_tokens"])
        # Files of older versions have the size only.
        counted_with = str(file.get("vocabulary", vocabulary.fingerprint))
        if (size, counted_with) != (vocabulary.num_tokens, vocabulary.fingerprint):
            raise ValueError(
                f"they have {size:,} tokens, fingerprint {counted_with[:16]}, and the "
                f"model has {vocabulary.num_tokens:,}, fingerprint "
                f"{vocabulary.fingerprint[:16]}"
            )
        while f"keys_{len(found) + 1}" in file:
            order = len(found) + 1
            keys, counts, weights = (
                file[f"{name}_{order}"] for name in ("keys", "counts", "weights")
            )
            counted = ngrams.Counts.of_keys(size, keys, counts)
            found.append(ngrams.Interpolated(order, found[-1], counted, weights))
        return kneser_ney.by_name(found)
