"""A trained model as a SavedModel with its vocabulary."""

import collections
import os
import pathlib
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from simulation import vocabulary as vocabulary_lib
from training import model as model_lib

VOCABULARY_FILE = "vocabulary.txt"


class _Module(tf.Module):
    """What is saved: the weights, and the function from tokens to logits."""

    def __init__(
        self,
        model: model_lib.LanguageModel,
        weights: Mapping[str, np.ndarray],
        sequence_length: int,
    ):
        super().__init__()
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
) -> None:
    """Writes a SavedModel and its vocabulary.

    Args:
        model: The model.
        weights: Its weights.
        vocabulary: The vocabulary that it was trained with.
        sequence_length: Tokens of an input, at least 1: the most that are looked at.
        path: A directory that does not exist, or is overwritten.

    Raises:
        ValueError: If the vocabulary is not of the model's size.
    """
    if vocabulary.num_tokens != model.num_tokens:
        raise ValueError(
            f"vocabulary has {vocabulary.num_tokens} tokens, the model "
            f"{model.num_tokens}."
        )
    module = _Module(model, weights, sequence_length)
    tf.saved_model.save(
        module, str(path), signatures={"serving_default": module.logits}
    )
    (pathlib.Path(path) / VOCABULARY_FILE).write_text(
        vocabulary.to_text(), encoding="utf-8"
    )


def read_weights(
    path: str | os.PathLike[str],
) -> tuple[collections.OrderedDict[str, np.ndarray], vocabulary_lib.Vocabulary]:
    """Returns the weights of an exported model, by name, and its vocabulary.

    Args:
        path: What `export` wrote.

    Raises:
        ValueError: If there is no model with a vocabulary.
    """
    vocabulary = read_vocabulary(path)
    loaded = load(path)
    weights = collections.OrderedDict(
        (weight.name.partition(":")[0], weight.numpy()) for weight in loaded.weights
    )
    return weights, vocabulary


def read_vocabulary(path: str | os.PathLike[str]) -> vocabulary_lib.Vocabulary:
    """Returns the vocabulary of an exported model.

    Args:
        path: What `export` wrote.

    Raises:
        ValueError: If there is no model with a vocabulary.
    """
    vocabulary_path = pathlib.Path(path) / VOCABULARY_FILE
    if not vocabulary_path.exists():
        raise ValueError(
            f"{path} is no exported model: it has no {VOCABULARY_FILE}. Give the "
            "directory 'model' of a run of training."
        )
    return vocabulary_lib.Vocabulary.read(vocabulary_path)


def load(path: str | os.PathLike[str]) -> tf.Module:
    """Returns an exported model as TensorFlow loads it.

    Args:
        path: What `export` wrote.

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
