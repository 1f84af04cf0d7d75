"""A trained model as a SavedModel with its vocabulary."""

import collections
import json
import os
import pathlib
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.languages import words as words_lib
from federated_hh.run_directory import files as run_files
from federated_hh.run_directory import record as run_record
from training.models import model as model_lib
from training.models import model_vocabularies


class _Module(tf.Module):
    """An exported model: its weights, and the function from tokens to logits.

    And which vocabulary gives tokens their meaning, and changed options of words.
    """

    def __init__(
        self,
        model: model_lib.LanguageModel,
        weights: Mapping[str, np.ndarray],
        vocabulary: str,
        sequence_length: int,
        words: Mapping[str, str],
    ):
        super().__init__()
        self.vocabulary = tf.Variable(vocabulary, trainable=False)
        if words:
            self.words = tf.Variable(json.dumps(words), trainable=False)
        self.weights = [tf.Variable(w, name=name) for name, w in weights.items()]
        signature = tf.TensorSpec([None, sequence_length], tf.int32, name="tokens")

        @tf.function(input_signature=[signature])
        def logits(tokens):
            return {
                "logits": model.logits([w.read_value() for w in self.weights], tokens)
            }

        self.logits = logits


def export(
    model: model_lib.LanguageModel,
    weights: Mapping[str, np.ndarray],
    vocabulary: vocabulary_lib.Vocabulary,
    sequence_length: int,
    path: str | os.PathLike[str],
    words: words_lib.WordOptions = words_lib.DEFAULT,
) -> None:
    """Writes a SavedModel and its vocabulary.

    Args:
        model: The model.
        weights: Its weights.
        vocabulary: The vocabulary that it was trained with.
        sequence_length: Tokens of an input, at least 1: the most that are looked at.
        path: A directory that does not exist, or is overwritten.
        words: Options of the words that it was trained with.

    Raises:
        ValueError: If the vocabulary is not of the model's size.
    """
    if vocabulary.num_tokens != model.num_tokens:
        raise ValueError(
            f"vocabulary has {vocabulary.num_tokens} tokens; the model has "
            f"{model.num_tokens}."
        )
    changed = {name: getattr(words, name) for name in words.changed()}
    module = _Module(model, weights, vocabulary.fingerprint, sequence_length, changed)
    tf.saved_model.save(
        module, str(path), signatures={"serving_default": module.logits}
    )
    (pathlib.Path(path) / model_vocabularies.VOCABULARY_FILE).write_text(
        vocabulary.to_text(), encoding="utf-8"
    )


def read_weights(
    path: str | os.PathLike[str],
) -> tuple[collections.OrderedDict[str, np.ndarray], vocabulary_lib.Vocabulary]:
    """Returns the weights of an exported model, by name, and its vocabulary.

    Args:
        path: The directory of `export`.

    Raises:
        ValueError: See `read`.
    """
    loaded, vocabulary = read(path)
    return _weights_of(loaded), vocabulary


def read(
    path: str | os.PathLike[str],
) -> tuple[tf.Module, vocabulary_lib.Vocabulary]:
    """Returns an exported model, as from `load`, and its vocabulary.

    Args:
        path: The directory of `export`.

    Raises:
        ValueError: If there is no model with a vocabulary, the vocabulary next to it is
            not the one that it was trained with, or its weights are not finite.
    """
    path = pathlib.Path(path)
    vocabulary_path = path / model_vocabularies.VOCABULARY_FILE
    if not vocabulary_path.exists():
        raise ValueError(
            f"{path} is not an exported model: it lacks {vocabulary_path.name}. Give "
            "a training run's directory 'model'."
        )
    vocabulary = vocabulary_lib.Vocabulary.read(vocabulary_path)
    loaded = load(path)
    logits = loaded.signatures["serving_default"].structured_outputs["logits"]
    num_tokens = logits.shape[-1]
    trained_with = _vocabulary_of(path, loaded)
    if num_tokens not in (None, vocabulary.num_tokens):
        what = (
            f"of {num_tokens:,} tokens, and that file is of {vocabulary.num_tokens:,}"
        )
    elif trained_with is not None and trained_with != vocabulary.fingerprint:
        what = (
            f"of words with the fingerprint {trained_with[:16]}, and that file's have "
            f"{vocabulary.fingerprint[:16]}"
        )
    else:
        check_finite(path, _weights_of(loaded))
        return loaded, vocabulary
    raise ValueError(
        f"{vocabulary_path} does not match the model next to it, which is {what}, so "
        "its tokens would mean other words. Restore the original file."
    )


def word_options(loaded: tf.Module) -> words_lib.WordOptions:
    """Returns the options of the words that an exported model was trained with.

    Raises:
        ValueError: If this program has no such options, or lacks a package for them.
    """
    if not hasattr(loaded, "words"):
        return words_lib.DEFAULT
    return words_lib.WordOptions.of(json.loads(loaded.words.numpy()))


def _vocabulary_of(path: pathlib.Path, loaded: tf.Module) -> str | None:
    """Returns the fingerprint of the vocabulary that a model was trained with.

    Models of older versions do not have it, but the run that they are in may.
    """
    if hasattr(loaded, "vocabulary"):
        return loaded.vocabulary.numpy().decode()
    path = path.absolute()
    facts = path.parent / run_record.FACTS_FILE
    if path.name != "model" or not facts.exists():
        return None
    return run_files.read_json(facts).get("vocabulary")


def _weights_of(loaded: tf.Module) -> collections.OrderedDict[str, np.ndarray]:
    return collections.OrderedDict(
        (weight.name.partition(":")[0], weight.numpy()) for weight in loaded.weights
    )


def check_finite(
    path: str | os.PathLike[str], weights: Mapping[str, np.ndarray]
) -> None:
    """Raises `ValueError` unless a model's weights are finite.

    Args:
        path: Its path, for the error.
        weights: Its weights by name.
    """
    for name, array in weights.items():
        if not np.all(np.isfinite(array)):
            raise ValueError(
                f"{path}: {name} of the model has values that are not finite, because "
                "its training diverged. Train it with lower learning rates, or leave "
                "it out."
            )


def load(path: str | os.PathLike[str]) -> tf.Module:
    """Returns an exported model as TensorFlow loads it.

    Args:
        path: The directory of `export`.

    Returns:
        It has `weights`, and the signature `serving_default` from `tokens`, int32
        [batch, sequence_length], to `logits`, float32 [batch, sequence_length,
        num_tokens].

    Raises:
        ValueError: If it cannot be read.
    """
    try:
        return tf.saved_model.load(str(path))
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise ValueError(
            f"{path}: the exported model cannot be read: {error}"
        ) from error
