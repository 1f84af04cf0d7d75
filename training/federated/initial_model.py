"""The first weights of training: an earlier run's, or public word frequencies.

A run's guarantee takes its initial weights for public: see
`training_report.with_public_data`.
"""

import collections
import dataclasses
import functools
import hashlib
import os
import pathlib
from collections.abc import Mapping

import numpy as np

from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.languages import languages
from federated_hh.rounds import checkpoints
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import files as run_files
from federated_hh.run_directory import record as run_record
from training.models import exported_model, finished_runs, model_vocabularies

Weights = collections.OrderedDict[str, np.ndarray]

# Words per sentence end: about that of English text. It is only the start of the
# search.
_WORDS_PER_SENTENCE = 15
_BIAS = "output_bias"
# A run that averages its rounds' models leaves the average.
_AVERAGE, _LAST = "state/average/", "state/weights/"
_UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    run_directory.RunDirectoryError,
)


@dataclasses.dataclass(frozen=True)
class InitialModel:
    """A model to begin with.

    Attributes:
        weights: Weights by name, in the model's order: float32.
        vocabulary_fingerprint: The fingerprint of the vocabulary that it was
            trained with.
    """

    weights: Weights
    vocabulary_fingerprint: str

    @property
    def fingerprint(self) -> str:
        """The digest of the weights; see `fingerprint`."""
        return fingerprint(self.weights)


def fingerprint(weights: Weights) -> str:
    """Returns SHA-256 of weights' names, shapes and values, in hexadecimal."""
    digest = hashlib.sha256()
    for name, array in weights.items():
        digest.update(f"{name} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array, "<f4").tobytes())
    return digest.hexdigest()


def read(path: str | os.PathLike[str]) -> InitialModel:
    """Reads the model of an earlier run.

    Args:
        path: An exported model (the directory `model` of a run), or the directory of
            a run, finished or not, whose last checkpoint is taken.

    Raises:
        ValueError: If there is neither, or it cannot be read.
    """
    path = pathlib.Path(path)
    finished_runs.check_seal(path)
    if (path / run_directory.CHECKPOINT_FILE).exists():
        return _read_checkpoint(path)
    if (folder := exported_model.folder_of(path)) is not None:
        found = exported_model.read(folder)
        return InitialModel(found.weights, found.vocabulary.fingerprint)
    raise ValueError(
        f"{path} holds no model: neither an exported model "
        f"({model_vocabularies.VOCABULARY_FILE}) nor a run's checkpoint "
        f"({run_directory.CHECKPOINT_FILE}). Give a training run's directory with a "
        "checkpoint, or its directory 'model'."
    )


def _read_checkpoint(path: pathlib.Path) -> InitialModel:
    try:
        facts = run_files.read_json(
            path / run_record.FACTS_FILE, model_vocabularies.FACTS
        )
        arrays = checkpoints.last_arrays(path)
        weights = _below(_AVERAGE, arrays) or _below(_LAST, arrays)
        if not weights:
            raise ValueError("it has no weights; give a run of training")
        return InitialModel(weights, facts["vocabulary"])
    except _UNREADABLE as error:
        raise ValueError(
            f"{path}: the checkpoint cannot be read: {error!r}. Give a training run's "
            "directory, or its directory 'model'."
        ) from error


def _below(prefix: str, arrays: Mapping[str, np.ndarray]) -> Weights:
    """Returns the arrays of a part of a state, by the rest of their paths."""
    return collections.OrderedDict(
        (name.removeprefix(prefix), array)
        for name, array in arrays.items()
        if name.startswith(prefix)
    )


def check(
    model: InitialModel, weights: Weights, vocabulary: vocabulary_lib.Vocabulary
) -> None:
    """Raises `ValueError` unless a model fits as the initial model.

    Args:
        model: Model, from `read`.
        weights: The run's own first weights.
        vocabulary: The run's.
    """
    named = "--initial_model"
    model_vocabularies.check(named, model.vocabulary_fingerprint, vocabulary)
    expected = {name: array.shape for name, array in weights.items()}
    found = {name: array.shape for name, array in model.weights.items()}
    for name in expected | found:
        if expected.get(name) != found.get(name):
            raise ValueError(
                f"{name} of --initial_model has the shape {found.get(name)}, not the "
                f"run's {expected.get(name)}; give the initial model's sizes "
                "(--num_units, --embedding_size)."
            )
    for name, array in model.weights.items():
        if not np.all(np.isfinite(array)):
            raise ValueError(
                f"{name} of --initial_model has values that are not finite; give "
                "another model."
            )


@functools.lru_cache(maxsize=1)
def _public_frequencies(words: tuple[str, ...], language: str) -> dict[str, float]:
    """Returns the frequencies of those words that wordfreq's list has."""
    everything = languages.frequencies(language)
    return {word: everything[word] for word in words if word in everything}


def words_not_public(vocabulary: vocabulary_lib.Vocabulary) -> list[str]:
    """Returns the words of a vocabulary that its language's list does not have."""
    frequencies = _public_frequencies(vocabulary.words, vocabulary.language)
    return [word for word in vocabulary.words if word not in frequencies]


def public_probabilities(
    vocabulary: vocabulary_lib.Vocabulary, *, others_are_rare: bool = False
) -> np.ndarray:
    """Returns the probability of each token in public text of its language.

    Args:
        vocabulary: Words of wordfreq's list of its language.
        others_are_rare: Whether words that the list does not have are taken to be as
            rare as the vocabulary's rarest that it has; at most half of the words.

    Returns:
        float64 [num_tokens], sums to 1: words by wordfreq's frequencies, the rest of
        its words as out of vocabulary, and an end for 15 words; next to nothing for
        padding and beginnings, which never follow anything.

    Raises:
        ValueError: If a word is not in the list, or of those that need not be in it
            more than half are not.
    """
    frequencies = _public_frequencies(vocabulary.words, vocabulary.language)
    unknown = words_not_public(vocabulary)
    if len(unknown) > (len(vocabulary.words) / 2 if others_are_rare else 0):
        raise ValueError(
            f"vocabulary has {len(unknown):,} words that are not in wordfreq's "
            f"list of {languages.get(vocabulary.language).name}, such as "
            f"{unknown[0]!r}; leave --initial_bias out, or use the default vocabulary."
        )
    least = min(frequencies.values())
    known = np.array([frequencies.get(word, least) for word in vocabulary.words])
    share_of_words = _WORDS_PER_SENTENCE / (_WORDS_PER_SENTENCE + 1)
    special = np.zeros(len(vocabulary_lib.SPECIAL_TOKENS))
    special[vocabulary_lib.OOV] = max(1 - known.sum(), least) * share_of_words
    special[vocabulary_lib.EOS] = 1 - share_of_words
    special[[vocabulary_lib.PAD, vocabulary_lib.BOS]] = least
    probabilities = np.concatenate([special, known * share_of_words])
    return probabilities / probabilities.sum()


def with_public_bias(
    weights: Weights, vocabulary: vocabulary_lib.Vocabulary
) -> Weights:
    """Returns first weights whose output bias is the public words' log-probability.

    A model begins then about where words by frequency alone are, instead of taking all
    tokens for equally likely, and spends no privacy on learning which are frequent.

    Args:
        weights: A CIFG-LSTM's first weights.
        vocabulary: See `public_probabilities`.

    Raises:
        ValueError: If the model has no `output_bias`, or see `public_probabilities`.
    """
    if weights.get(_BIAS, np.zeros(())).shape != (vocabulary.num_tokens,):
        raise ValueError(
            f"weights has {list(weights)}; it has to have {_BIAS} with "
            f"{vocabulary.num_tokens} values."
        )
    changed = collections.OrderedDict(weights)
    changed[_BIAS] = np.log(public_probabilities(vocabulary)).astype(np.float32)
    return changed


@dataclasses.dataclass(frozen=True)
class Beginning:
    """The first weights of a run.

    Attributes:
        weights: The first weights.
        public_data: Their sentence in the privacy statement; empty if they are
            random.
        facts: Facts that a resumed run shares with its start, besides flags.
    """

    weights: Weights
    public_data: str
    facts: dict[str, str]

    @property
    def is_of_model(self) -> bool:
        """Whether the weights are those of a model that was trained before."""
        return "initial_model" in self.facts


def beginning(
    weights: Weights,
    vocabulary: vocabulary_lib.Vocabulary,
    initial_model: str | None,
    *,
    has_public_bias: bool,
) -> Beginning:
    """Returns the first weights of a run.

    Args:
        weights: The model's own first weights.
        vocabulary: The run's.
        initial_model: See `read`; None for the model's own weights.
        has_public_bias: Whether the output bias is `with_public_bias`'s; only without
            an initial model.

    Raises:
        ValueError: See `read`, `check` and `with_public_bias`.
    """
    if has_public_bias:
        weights = with_public_bias(weights, vocabulary)
        return Beginning(
            weights, "The first output bias, the logarithm of its frequencies.", {}
        )
    if initial_model is None:
        return Beginning(weights, "", {})
    model = read(initial_model)
    check(model, weights, vocabulary)
    public_data = (
        f"The model that training began with, {initial_model} (SHA-256 of its weights: "
        f"{model.fingerprint[:16]}). If that model was trained on private text, the "
        "guarantee for that text is the one of its own run, if it has one, and is not "
        "counted here."
    )
    return Beginning(model.weights, public_data, {"initial_model": model.fingerprint})
