"""A trained model as a keyboard uses it: read from a run, and asked for words."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from federated_hh.options import checks, option_flags
from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.languages import sentence_tokenizers
from federated_hh.populations.languages import words as words_lib
from federated_hh.populations.options import population_options
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import files as run_files
from federated_hh.run_directory import record as run_record
from training.federated import initial_model
from training.models import exported_model, model_vocabularies
from training.models import finished_runs as keyboard_runs
from training.models import model as model_lib

_FIRST_WORD = len(vocabulary_lib.SPECIAL_TOKENS)


@dataclasses.dataclass(frozen=True)
class KeyboardModel:
    """A model of the next word.

    Attributes:
        vocabulary: Gives words their token ids.
        length: Largest number of tokens that it uses, at least 1.
        logits_at: Given tokens, int32 [batch, length], padded behind, and places, int32
            [places, 2], rows and columns: the logits of the tokens that follow there,
            float32 [places, num_tokens].
        words: Options of the words that it was trained with.
    """

    vocabulary: vocabulary_lib.Vocabulary
    length: int
    logits_at: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    words: words_lib.WordOptions = words_lib.DEFAULT

    def suggest(self, text: str, num_words: int = 3) -> list[tuple[str, float]]:
        """Returns the likeliest next words of a text.

        Args:
            text: The typed text; only its last sentence counts.
            num_words: Number of words, at least 1.

        Returns:
            Words with their probability among all tokens, the likeliest first.
        """
        checks.integer(least=1, num_words=num_words)
        split = sentence_tokenizers.get_sentence_tokenizer("keyboard", self.words).split
        # A word after the text shows whether its last sentence is unfinished.
        *_, last = split(f"{text} x")
        tokens = [vocabulary_lib.BOS, *self.vocabulary.encode(last[:-1])]
        tokens = tokens[-self.length :]
        padded = np.full((1, self.length), vocabulary_lib.PAD, np.int32)
        padded[0, : len(tokens)] = tokens
        logits = self.logits_at(
            tf.constant(padded), tf.constant([[0, len(tokens) - 1]])
        )
        probabilities = tf.nn.softmax(logits[0]).numpy()
        order = np.argsort(-probabilities[_FIRST_WORD:], kind="stable")[:num_words]
        return [
            (self.vocabulary.words[i], float(probabilities[_FIRST_WORD + i]))
            for i in order
        ]


def of_weights(
    model: model_lib.LanguageModel,
    weights: Mapping[str, np.ndarray],
    vocabulary: vocabulary_lib.Vocabulary,
    length: int,
    words: words_lib.WordOptions = words_lib.DEFAULT,
) -> KeyboardModel:
    """Returns a model with weights.

    Args:
        model: The model of the vocabulary's size.
        weights: Its weights.
        vocabulary: Its vocabulary.
        length: Tokens of an input, at least 1.
        words: Options of the words that it was trained with.
    """
    values = [tf.constant(weight) for weight in weights.values()]
    signature = [tf.TensorSpec([None, size], tf.int32) for size in (length, 2)]

    @tf.function(input_signature=signature)
    def logits_at(tokens: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
        return tf.gather_nd(model.logits(values, tokens), places)

    return KeyboardModel(vocabulary, length, logits_at, words)


def read(
    path: str | os.PathLike[str], custom_models: Sequence[str] = ()
) -> KeyboardModel:
    """Reads a model.

    Args:
        path: The directory of a run of training, or the model exported in it. Of an
            unfinished run the last checkpoint is read.
        custom_models: Functions that may be called, as `module:function`.

    Raises:
        ValueError: If there is no model, or it cannot be read.
    """
    path = pathlib.Path(path).expanduser()
    keyboard_runs.check_seal(path)
    if (folder := exported_model.folder_of(path)) is not None:
        found = exported_model.read(folder)
        return of_weights(
            found.network(custom_models),
            found.weights,
            found.vocabulary,
            found.length,
            found.words,
        )
    if not (path / run_record.RUN_FILE).exists():
        raise ValueError(
            f"{path} holds no model: it is neither a training run's directory "
            f"({run_record.RUN_FILE}) nor an exported model "
            f"({model_vocabularies.VOCABULARY_FILE})."
        )
    if not (path / run_directory.CHECKPOINT_FILE).exists():
        raise ValueError(
            f"{path} holds no model yet: the run there has no checkpoint "
            f"({run_directory.CHECKPOINT_FILE}). Wait for the first one, or continue "
            "the run with --resume."
        )
    try:
        return _read_checkpoint(path, custom_models)
    except run_files.RunDirectoryError as error:
        raise ValueError(str(error)) from error


def _read_checkpoint(path: pathlib.Path, custom_models: Sequence[str]) -> KeyboardModel:
    last = initial_model.read(path)
    flags = keyboard_runs.TrainingRun.read(path).flags
    vocabulary, _ = model_vocabularies.read(
        flags.get("vocabulary"),
        int(flags.get("vocabulary_size", 0)),
        option_flags.read_lines(
            population_options.PopulationOptions, run_record.flags_of(path)
        ),
    )
    if vocabulary.fingerprint != last.vocabulary_fingerprint:
        raise ValueError(
            f"{path}: the run's vocabulary has the fingerprint "
            f"{last.vocabulary_fingerprint[:16]}, but its flags now give "
            f"{vocabulary.fingerprint[:16]}; restore its file or wordfreq's version."
        )
    exported_model.check_finite(path, last.weights)
    length, words = int(flags["max_words"]) + 1, words_lib.WordOptions.of(flags)
    model = exported_model.network_of(
        path, last.weights, vocabulary.num_tokens, length, flags, custom_models
    )
    return of_weights(model, last.weights, vocabulary, length, words)
