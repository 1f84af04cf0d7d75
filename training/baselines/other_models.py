"""Models of other runs, evaluated on this run's held-out clients."""

import pathlib
from collections.abc import Sequence

import tensorflow as tf

from federated_hh.files import json_files
from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.columns import client_text
from federated_hh.privacy import rounding
from training.baselines import baselines, ngram_files
from training.federated import initial_model, shared_text
from training.models import (
    central_evaluation,
    exported_model,
    metric_names,
    model_vocabularies,
)
from training.models import finished_runs as keyboard_runs
from training.text import examples, windows

_MODEL = "model"  # of a run's directory
_STATEMENT = "privacy.json"  # likewise
_GUARANTEE = {
    "type": "object",
    "required": ["epsilon", "delta"],
    "properties": {
        "epsilon": {"oneOf": [{"type": "number"}, {"const": "inf"}]},
        "delta": {"type": "number"},
    },
}
_GUARANTEES = {
    "type": "object",
    "required": ["guarantees"],
    "properties": {"guarantees": {"type": "array", "items": _GUARANTEE}},
}


def evaluated(
    paths: Sequence[str],
    vocabulary: vocabulary_lib.Vocabulary,
    held_out_text: windows.Windows,
    max_words: int,
    text: client_text.ClientText,
    split: tuple[str, str, str],
    custom_models: Sequence[str] = (),
) -> tuple[list[baselines.Baseline], list[str]]:
    """Returns the scores of other models, and the fingerprints of their weights.

    Args:
        paths: Runs' directories, or the models exported in them; distinct.
        vocabulary: The run's.
        held_out_text: The positions of the held-out clients.
        max_words: The first words of a sentence that are used.
        text: The text of the population of the held-out clients.
        split: The split's population, seed and number; see `TrainingRun.split`.
        custom_models: Functions that may be called, as `module:function`.

    Raises:
        ValueError: If there is no exported model at a path, or it has another
            vocabulary, uses fewer words of a sentence, or was trained by held-out
            clients; or the record of its text is damaged.
    """
    found, fingerprints = [], []
    for path, name in zip(paths, _names(paths), strict=True):
        folder = _existing(path)
        _check_split(path, split)
        other_model = exported_model.read(folder)
        other = other_model.vocabulary
        if other.fingerprint != vocabulary.fingerprint:
            raise ValueError(
                f"--compare_with={path}: the model has another vocabulary "
                f"({other.num_tokens:,} tokens, fingerprint {other.fingerprint[:16]}) "
                f"than the run ({vocabulary.num_tokens:,}, "
                f"{vocabulary.fingerprint[:16]}), so their losses cannot be compared. "
                f"Run with --vocabulary={folder / model_vocabularies.VOCABULARY_FILE}, "
                "or leave the model out."
            )
        fingerprint = initial_model.fingerprint(other_model.weights)
        scores = _scores(path, other_model, max_words + 1, custom_models)
        metrics = central_evaluation.CentralEvaluation(
            scores, held_out_text, max_words + 1
        ).metrics()
        made_of = (
            f"SHA-256 of its weights {fingerprint[:16]}; {_stated(folder)}"
            f"{_may_have_read(name, path, text)}"
        )
        found.append(baselines.Baseline(name, made_of, metrics))
        fingerprints.append(fingerprint)
    return found, fingerprints


def evaluated_ngrams(
    paths: Sequence[str],
    held_out_text: windows.Windows,
    vocabulary: vocabulary_lib.Vocabulary,
) -> list[baselines.Baseline]:
    """Returns the scores of n-grams that came along with other models.

    Args:
        paths: Paths as for `evaluated`, or of any other run of the vocabulary.
        held_out_text: The positions of the held-out clients.
        vocabulary: The run's.

    Raises:
        ValueError: See `ngram_files.read`.
    """
    # A model may be both the initial model and a model to compare with.
    folders = {
        exported_model.folder_of(path) or pathlib.Path(path): path for path in paths
    }
    found = []
    names = _names(list(folders.values()))
    for folder, name in zip(folders, names, strict=True):
        models = ngram_files.read(folder, vocabulary)
        if models:
            made_of = f"counted on the text that {name} was trained on, no noise"
            source = metric_names.of_text(name)
            found += baselines.of_ngrams(models, held_out_text, made_of, source)
    return found


def _existing(path: str) -> pathlib.Path:
    folder = exported_model.folder_of(path)
    if folder is not None:
        return folder
    raise ValueError(
        f"--compare_with={path}: no exported model is there or in its directory "
        f"{_MODEL!r}. Give a finished run of training."
    )


def _check_split(path: str, split: tuple[str, str, str]) -> None:
    """Raises `ValueError` where a held-out client may have trained a model."""
    run = keyboard_runs.TrainingRun.of_model(path)
    if run is None or run.population != split[0] or run.split == split:
        return
    _, seed, num_held_out = run.split
    raise ValueError(
        f"--compare_with={path}: the model was trained on this population with other "
        "held-out clients, so some of this run's held-out clients trained it. Run "
        f"with --seed={seed} --num_held_out_clients={num_held_out}, or leave the "
        "model out."
    )


def _may_have_read(name: str, path: str, text: client_text.ClientText) -> str:
    """Returns a note on held-out clients' text that a model has read, if any is known.

    A model that has read held-out clients' text looks better than it is.
    """
    if told := shared_text.of_held_out({name: path}, text):
        return f". {told[0].removesuffix('.')}"
    run = keyboard_runs.TrainingRun.of_model(path)
    if run is None:
        return "; it is not known who trained it: a held-out client may have"
    if run.population != text.fingerprint:
        return "; it is not known whether a held-out client trained it"
    return ""


def _scores(
    path: str,
    model: exported_model.ExportedModel,
    length: int,
    custom_models: Sequence[str],
) -> central_evaluation.Scores:
    if model.length < length:
        raise ValueError(
            f"--compare_with={path}: the model uses {model.length - 1} words of a "
            f"sentence, the run {length - 1}. Run with --max_words={model.length - 1}, "
            "or leave the model out."
        )
    network = model.network(custom_models)
    values = [tf.constant(weight) for weight in model.weights.values()]

    def scores(batch: examples.Batch) -> tuple[tf.Tensor, tf.Tensor]:
        tokens = tf.pad(batch.inputs, [[0, 0], [0, model.length - length]])
        return network.logits(values, tokens)[:, :length], batch.targets

    return scores


def _stated(folder: pathlib.Path) -> str:
    """Returns the guarantee of a model's run, for its training clients."""
    try:
        text = (folder.parent / _STATEMENT).read_text("utf-8")
        guarantees = json_files.parse(text, _GUARANTEES)["guarantees"]
    except (OSError, ValueError):
        return "nothing is known of a guarantee of its training"
    if not guarantees:
        return "its training had no guarantee"
    epsilon, delta = (float(guarantees[0][name]) for name in ("epsilon", "delta"))
    kind = "" if guarantees[0].get("is_upper_bound") else ", an estimate"
    shown = rounding.rounded_up_to(epsilon, 2)
    return f"its training had epsilon {shown} at delta {delta:g}{kind}"


def _names(paths: Sequence[str]) -> list[str]:
    """Returns the shortest endings of paths that distinguish them."""
    parts = [
        [part for part in pathlib.Path(path).parts if part != _MODEL] for path in paths
    ]
    for number in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(some[-number:]) for some in parts]
        if len(set(names)) == len(names):
            return names
    return list(paths)
