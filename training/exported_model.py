"""A trained model as a SavedModel with its vocabulary, and typing with it."""

import collections
import os
import pathlib
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from simulation import sentence_tokenizers
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
    vocabulary = _read_vocabulary(path)
    loaded = _load(path)
    weights = collections.OrderedDict(
        (weight.name.partition(":")[0], weight.numpy()) for weight in loaded.weights
    )
    return weights, vocabulary


def _read_vocabulary(path: str | os.PathLike[str]) -> vocabulary_lib.Vocabulary:
    vocabulary_path = pathlib.Path(path) / VOCABULARY_FILE
    if not vocabulary_path.exists():
        raise ValueError(
            f"{path} is no exported model: it has no {VOCABULARY_FILE}. Give the "
            "directory 'model' of a run of training."
        )
    return vocabulary_lib.Vocabulary.read(vocabulary_path)


def _load(path: str | os.PathLike[str]) -> tf.Module:
    try:
        return tf.saved_model.load(str(path))
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise ValueError(
            f"{path}: the exported model cannot be read: {error}"
        ) from error


class NextWordPredictor:
    """Suggests next words with an exported model.

    Attributes:
        vocabulary: The model's.
    """

    def __init__(self, path: str | os.PathLike[str]):
        """Loads a model.

        Args:
            path: What `export` wrote.

        Raises:
            ValueError: If there is no model with a vocabulary.
        """
        self.vocabulary = _read_vocabulary(path)
        self._loaded = _load(path)
        self._logits = self._loaded.signatures["serving_default"]
        signature = self._logits.structured_input_signature[1]["tokens"]
        self._length = signature.shape[1]

    def suggest(self, text: str, num_words: int = 3) -> list[tuple[str, float]]:
        """Returns the likeliest next words of a text.

        Args:
            text: What was typed; a sentence that has ended is looked at no more.
            num_words: How many, at least 1; as many as there are at most.

        Returns:
            Words with their probability among all tokens, the likeliest first.
        """
        if num_words < 1:
            raise ValueError(f"num_words is {num_words}; it has to be at least 1.")
        split = sentence_tokenizers.get_sentence_tokenizer("keyboard").split
        # A word behind the text shows whether its last sentence goes on.
        *_, last = split(f"{text} x")
        tokens = [vocabulary_lib.BOS, *self.vocabulary.encode(last[:-1])]
        tokens = tokens[-self._length :]
        padded = np.full((1, self._length), vocabulary_lib.PAD, np.int32)
        padded[0, : len(tokens)] = tokens
        logits = self._logits(tokens=tf.constant(padded))["logits"][0, len(tokens) - 1]
        probabilities = tf.nn.softmax(logits).numpy()
        special = len(vocabulary_lib.SPECIAL_TOKENS)
        order = np.argsort(-probabilities[special:], kind="stable")[:num_words]
        return [
            (self.vocabulary.words[i], float(probabilities[special + i])) for i in order
        ]
