"""A trained model as a SavedModel with its vocabulary, and its reader.

A SavedModel's graph is a program. It is written for deployment and never run here: the
reader takes the variables, and builds the model that the run's settings describe.
"""

import collections
import dataclasses
import json
import math
import os
import pathlib
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf import message, text_format
from tensorflow.core.protobuf import (
    saved_model_pb2,
    trackable_object_graph_pb2,
)
from tensorflow.python.saved_model import fingerprinting_utils

from federated_hh.files import json_files
from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.languages import words as words_lib
from federated_hh.run_directory import files as run_files
from federated_hh.run_directory import record as run_record
from training.models import custom_model, finished_runs, model_vocabularies
from training.models import model as model_lib

_FOLDER = "model"  # of a run's directory
_GRAPH_FILE = "saved_model.pb"
# Of a checkpoint: the key of a variable, and of the record of objects.
_KEY = "{}/.ATTRIBUTES/VARIABLE_VALUE"
_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
_ARGUMENT = "_user_specified_name"  # of a graph's functions
# No keyboard's sentence is longer.
_LONGEST = 2**16
# Error allowed in the logits of a probe, relative to the largest: processors differ.
_PROBE_ERROR = 1e-3
_MEND = "Restore the original folder, or export the model again."
_FOREIGN = (
    "Another SavedModel's graph is a program, which is never run; bring its weights by "
    "training.models.exported_model.export (see docs/guide/custom_model.md)."
)


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
        self.probe = tf.Variable(
            _probed(model, weights, sequence_length), trainable=False
        )
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
        OSError: If it cannot be written, as on a full disk.
        ValueError: If the vocabulary is not of the model's size.
    """
    if vocabulary.num_tokens != model.num_tokens:
        raise ValueError(
            f"vocabulary has {vocabulary.num_tokens} tokens; the model has "
            f"{model.num_tokens}."
        )
    changed = {name: getattr(words, name) for name in words.changed()}
    module = _Module(model, weights, vocabulary.fingerprint, sequence_length, changed)
    _remove_unfinished(pathlib.Path(path))
    try:
        tf.saved_model.save(
            module, str(path), signatures={"serving_default": module.logits}
        )
    except tf.errors.OpError as error:
        # Its message names a file in the model, and then the reason.
        reason = error.message.rpartition("; ")[2]
        raise OSError(
            f"{path} cannot be written: {reason}. Fix this and continue with --resume"
        ) from error
    _make_repeatable(pathlib.Path(path))
    (pathlib.Path(path) / model_vocabularies.VOCABULARY_FILE).write_text(
        vocabulary.to_text(), encoding="utf-8"
    )


def _remove_unfinished(path: pathlib.Path) -> None:
    """Removes what TensorFlow leaves of an export that ended in its middle."""
    shutil.rmtree(path / "variables", ignore_errors=True)
    for file in path.glob("*.tmp*"):
        file.unlink()


def _make_repeatable(path: pathlib.Path) -> None:
    """Gives an export's graph the same bytes in every process.

    TensorFlow numbers functions and captured inputs by what the process made before.
    """
    saved = saved_model_pb2.SavedModel.FromString((path / _GRAPH_FILE).read_bytes())
    functions = saved.meta_graphs[0].graph_def.library.function
    numbered = []
    for name in (function.signature.name for function in functions):
        stem, _, number = name.rpartition("_")
        numbered.append(
            (stem, int(number), name) if number.isdigit() else (name, 0, name)
        )
    names = {}
    for place, (stem, _, name) in enumerate(sorted(numbered)):
        # Placeholders of a loop have the name of its function in lower case.
        names[name.lower()], names[name] = f"{stem.lower()}_{place}", f"{stem}_{place}"
    alternatives = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    text = re.sub(
        rf"(?<!\w)(?:{alternatives})(?!\d)",
        lambda found: names[found[0]],
        text_format.MessageToString(saved),
    )
    saved = text_format.Parse(text, saved_model_pb2.SavedModel())
    functions = saved.meta_graphs[0].graph_def.library.function
    functions.sort(key=lambda function: function.signature.name)
    for function in functions:
        for place, arg in function.arg_attr.items():
            if _ARGUMENT in arg.attr and arg.attr[_ARGUMENT].s.isdigit():
                arg.attr[_ARGUMENT].s = str(place).encode()
    (path / _GRAPH_FILE).write_bytes(saved.SerializeToString(deterministic=True))
    fingerprinting_utils.write_fingerprint(str(path))


@dataclasses.dataclass(frozen=True)
class ExportedModel:
    """An exported model, read as data.

    Attributes:
        path: Its directory.
        weights: Its weights by name, in the model's order: float32, finite.
        vocabulary: The vocabulary that it was trained with.
        length: Tokens of an input, at least 1.
        words: Options of the words that it was trained with.
        flags: Flags of its run by name; empty if the run is not known.
        probe: Its logits after `_probed`; None of an older version's model.
    """

    path: pathlib.Path
    weights: collections.OrderedDict[str, np.ndarray]
    vocabulary: vocabulary_lib.Vocabulary
    length: int
    words: words_lib.WordOptions
    flags: Mapping[str, str]
    probe: np.ndarray | None

    def network(self, custom_models: Sequence[str] = ()) -> model_lib.LanguageModel:
        """Returns the model that computes with the weights.

        Args:
            custom_models: Functions that may be called, as `module:function`.

        Raises:
            ValueError: See `network_of`; or if the model now computes other logits than
                when it was exported.
        """
        size = self.vocabulary.num_tokens
        network = network_of(
            self.path, self.weights, size, self.length, self.flags, custom_models
        )
        if self.probe is not None:
            found = _probed(network, self.weights, self.length)
            error = _PROBE_ERROR * np.abs(self.probe).max(initial=1)
            if not np.allclose(found, self.probe, rtol=0, atol=error):
                raise ValueError(
                    f"{self.path}: with these weights the model that is built now "
                    "computes other logits than the exported one did. Restore the "
                    "code that it was trained with, such as its custom function."
                )
        return network


def network_of(
    path: str | os.PathLike[str],
    weights: Mapping[str, np.ndarray],
    num_tokens: int,
    length: int,
    flags: Mapping[str, str],
    custom_models: Sequence[str],
) -> model_lib.LanguageModel:
    """Returns the model that a run's settings, or the weights' shapes, describe.

    Args:
        path: Place of the weights, for errors.
        weights: Its weights by name.
        num_tokens: Size of the vocabulary with its special tokens.
        length: Tokens of an input.
        flags: The run's flags by name; empty if they are not known.
        custom_models: Functions that may be called, as `module:function`.

    Raises:
        ValueError: If the weights are not that model's, or it is a custom model whose
            function is not among `custom_models`.
    """
    shapes = {name: weight.shape for name, weight in weights.items()}
    named = flags.get("model")
    tied = "output_embedding" not in shapes
    cifg = model_lib.cifg_shapes(5, 1, 1, 1, tied)
    if named is None and shapes.keys() == cifg.keys():
        sizes = _cifg_sizes(path, shapes, flags)
        expected = model_lib.cifg_shapes(num_tokens, *sizes, tied)
        _check_shapes(path, shapes, expected, f"the CIFG-LSTM of {_described(sizes)}")
        num_units, projection_size, embedding_size = sizes
        return model_lib.cifg_language_model(
            num_tokens,
            num_units=num_units,
            projection_size=projection_size,
            embedding_size=embedding_size,
            tied=tied,
        )
    if named is None and len(custom_models) == 1:
        [named] = custom_models
    if named is None or named not in custom_models:
        raise ValueError(
            f"{path} is a custom model, and the function that makes it is a program, "
            "which runs only if you name it. Add --custom_models="
            f"{named or 'module:function, the one name that its run had as --model'}."
        )
    network = custom_model.language_model(
        named, num_tokens, length, seed=0, option="--custom_models"
    )
    expected = {n: w.shape for n, w in network.initial_weights(0).items()}
    _check_shapes(path, shapes, expected, named)
    return network


def _cifg_sizes(
    path: str | os.PathLike[str],
    shapes: Mapping[str, tuple[int, ...]],
    flags: Mapping[str, str],
) -> tuple[int, int, int]:
    """Returns units, projection size and embedding size: of flags, or of shapes."""
    if {"num_units", "embedding_size"} <= flags.keys():
        embedding_size = int(flags["embedding_size"])
        return int(flags["num_units"]), embedding_size, embedding_size
    try:
        num_units, projection_size = shapes["projection"]
        _, embedding_size = shapes["input_embedding"]
    except ValueError:
        raise ValueError(
            f"{path}: projection and input_embedding of the model have the shapes "
            f"{shapes['projection']} and {shapes['input_embedding']}; each has to have "
            f"two sizes. {_MEND}"
        ) from None
    return num_units, projection_size, embedding_size


def _described(sizes: tuple[int, int, int]) -> str:
    return "{} units, projection {} and embedding {}".format(*sizes)


def _check_shapes(
    path: str | os.PathLike[str],
    shapes: Mapping[str, tuple[int, ...]],
    expected: Mapping[str, tuple[int, ...]],
    what: str,
) -> None:
    for name in {**expected, **shapes}:
        if shapes.get(name) != expected.get(name):
            raise ValueError(
                f"{path}: {name} of the model has the shape {shapes.get(name)}; "
                f"{what} has {expected.get(name)}. {_MEND}"
            )


def folder_of(path: str | os.PathLike[str]) -> pathlib.Path | None:
    """Returns the folder of an exported model; None if there is none.

    Args:
        path: The folder, or the directory of its run.
    """
    path = pathlib.Path(path).expanduser()
    for folder in (path, path / _FOLDER):
        for name in (model_vocabularies.VOCABULARY_FILE, _GRAPH_FILE):
            if (folder / name).exists():
                return folder
    return None


def read(path: str | os.PathLike[str]) -> ExportedModel:
    """Reads an exported model; the one place that opens the folder of a run's model.

    The SavedModel's graph is not loaded: it is a program. Its weights, vocabulary and
    options are data, and so is the length of its input.

    Args:
        path: The directory of `export`.

    Raises:
        ValueError: If it is no model of `export`, is damaged, does not match the
            vocabulary next to it or its run's flags, or its weights are not finite.
    """
    path = pathlib.Path(path)
    vocabulary_path = path / model_vocabularies.VOCABULARY_FILE
    if not vocabulary_path.exists():
        raise ValueError(
            f"{path} is not an exported model of this program: it lacks "
            f"{vocabulary_path.name}. {_FOREIGN}"
        )
    vocabulary = vocabulary_lib.Vocabulary.read(vocabulary_path)
    try:
        flags = finished_runs.flags_of_model(path)
        found = _read_variables(path)
        length = _read_length(path / _GRAPH_FILE)
    except (run_files.RunDirectoryError, OSError) as error:
        raise ValueError(str(error)) from error
    most = int(flags.get("max_words", length - 1)) + 1
    if length != most:
        raise ValueError(
            f"{path / _GRAPH_FILE} has inputs of {length} tokens; its run's "
            f"--max_words={most - 1} has {most}. {_MEND}"
        )
    trained_with = found.vocabulary or _vocabulary_of_run(path)
    if trained_with is not None and trained_with != vocabulary.fingerprint:
        raise ValueError(
            f"{vocabulary_path} does not match the model next to it, which is of "
            f"words with the fingerprint {trained_with[:16]}, and that file's "
            f"{vocabulary.num_tokens:,} tokens have {vocabulary.fingerprint[:16]}, so "
            "its tokens would mean other words. Restore the original file."
        )
    check_finite(path, found.weights)
    return ExportedModel(
        path, found.weights, vocabulary, length, found.words, flags, found.probe
    )


class _Variables(NamedTuple):
    """The variables of `_Module`; None where an older version has none."""

    weights: collections.OrderedDict[str, np.ndarray]
    vocabulary: str | None
    words: words_lib.WordOptions
    probe: np.ndarray | None


def _read_variables(path: pathlib.Path) -> _Variables:
    """Reads a model's variables.

    Raises:
        ValueError: If they are missing, damaged, or not those of `_Module`.
    """
    prefix = path / "variables" / "variables"
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        shapes = reader.get_variable_to_shape_map()
        types = reader.get_variable_to_dtype_map()
        # Sizes that a damaged index claims would be allocated.
        needed = sum(
            math.prod(shape) * types[name].size for name, shape in shapes.items()
        )
        held = sum(file.stat().st_size for file in prefix.parent.glob("*.data-*"))
        if needed > held:
            raise ValueError(f"it holds {held:,} bytes of {needed:,}")

        def read(name: str, dtype: tf.DType) -> Any:
            key = _KEY.format(name)
            if key not in shapes:
                return None
            if types[key] != dtype:
                raise ValueError(f"{name} is {types[key].name}, not {dtype.name}")
            return reader.get_tensor(key)

        names = _variable_names(reader.get_tensor(_OBJECTS))
        weights: collections.OrderedDict[str, np.ndarray] = collections.OrderedDict()
        while (weight := read(f"weights/{len(weights)}", tf.float32)) is not None:
            key = _KEY.format(f"weights/{len(weights)}")
            weights[names[key]] = weight
        if len(weights) != sum(key.startswith("weights/") for key in shapes):
            raise ValueError(f"it lacks weights/{len(weights)}")
        vocabulary = read("vocabulary", tf.string)
        words = read("words", tf.string)
        found = _Variables(
            weights,
            vocabulary and vocabulary.decode(),
            words_lib.WordOptions.of(json_files.parse(words, json_files.OBJECT))
            if words
            else words_lib.DEFAULT,
            read("probe", tf.float32),
        )
    except (
        *(ArithmeticError, AttributeError, LookupError, MemoryError, OSError),
        *(RuntimeError, TypeError, ValueError, tf.errors.OpError, message.DecodeError),
    ) as error:
        told = " ".join(str(error).split())
        raise ValueError(
            f"{prefix}.*: the model's variables cannot be read: {told}. {_MEND}"
        ) from error
    if not weights:
        raise ValueError(
            f"{path} is not an exported model of this program: its variables lack "
            f"weights/0. {_FOREIGN}"
        )
    return found


def _variable_names(objects: bytes) -> dict[str, str]:
    """Returns variables' names by their keys in a checkpoint.

    Args:
        objects: Its record of objects.
    """
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(objects)
    return {
        attribute.checkpoint_key: attribute.full_name
        for node in graph.nodes
        for attribute in node.attributes
    }


def _read_length(path: pathlib.Path) -> int:
    """Returns the tokens of an input by a SavedModel's signature, without its graph.

    Raises:
        ValueError: If it has no such signature.
    """
    try:
        saved = saved_model_pb2.SavedModel.FromString(run_files.read_bytes(path))
        inputs = saved.meta_graphs[0].signature_def["serving_default"].inputs
        length = inputs["tokens"].tensor_shape.dim[1].size
    except (IndexError, message.DecodeError) as error:
        raise ValueError(
            f"{path} cannot be read: it has no signature 'serving_default' of tokens "
            f"[batch, length] ({error}). {_MEND}"
        ) from error
    if not 1 <= length <= _LONGEST:
        raise ValueError(
            f"{path} has inputs of {length:,} tokens; 1 to {_LONGEST:,} are allowed. "
            f"{_MEND}"
        )
    return length


def _vocabulary_of_run(path: pathlib.Path) -> str | None:
    """Returns the fingerprint of the vocabulary that a run was trained with.

    Models of older versions do not have it, but the run that they are in may.
    """
    path = path.absolute()
    facts = path.parent / run_record.FACTS_FILE
    if path.name != _FOLDER or not facts.exists():
        return None
    return run_files.read_json(facts, model_vocabularies.FACTS).get("vocabulary")


def _probed(
    model: model_lib.LanguageModel, weights: Mapping[str, np.ndarray], length: int
) -> np.ndarray:
    """Returns a model's logits after the first words: float32 [num_tokens]."""
    tokens = np.arange(vocabulary_lib.BOS, vocabulary_lib.BOS + length)
    values = [tf.constant(weight) for weight in weights.values()]
    logits = tf.function(model.logits)
    return logits(values, tf.constant(tokens[np.newaxis] % model.num_tokens, tf.int32))[
        0, -1
    ].numpy()


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
