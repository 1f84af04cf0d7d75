"""The vocabulary that a model of an earlier run was trained with. No TensorFlow."""

import dataclasses
import os
import pathlib

from federated_hh.populations.languages import languages, sentence_tokenizers
from federated_hh.populations.options.population_options import (
    TEXT,
    PopulationOptions,
)
from federated_hh.populations.vocabulary import Vocabulary
from federated_hh.run_directory import files as run_files
from federated_hh.run_directory import record as run_record
from training.models import finished_runs

# Next to an exported model.
VOCABULARY_FILE = "vocabulary.txt"
# Schema of a run's facts, as far as they concern its vocabulary.
FACTS = {"type": "object", "properties": {"vocabulary": {"type": "string"}}}


def read(
    given: str | None, size: int, population: PopulationOptions
) -> tuple[Vocabulary, str]:
    """Returns a vocabulary, and a clause on its public data.

    Args:
        given: Path of its file, or text:FILE to count it; None for the language's list.
        size: Number of words, where they are not read from its file.
        population: The language, and the columns of text files.

    Raises:
        ValueError: If the file is not a vocabulary, or has too few words.
        PopulationError: If it cannot be read.
    """
    if given is None:
        name = languages.get(population.language).name
        words = Vocabulary.of_language(size, population.language)
        return words, f"the vocabulary, the most frequent {name} words of wordfreq."
    if not given.startswith(TEXT):
        words = Vocabulary.read(given, population.language)
        return words, f"the vocabulary, {given} (given by the user)."
    path = given.removeprefix(TEXT)
    public = dataclasses.replace(
        population, source=path, format="auto", split=None, drop_users=None
    )
    tokenizer = sentence_tokenizers.get_sentence_tokenizer("keyboard", population)
    return (
        Vocabulary.from_public_text(public, tokenizer, size),
        f"the vocabulary, the {size:,} most frequent words of {path} (given by the "
        "user as public text; no guarantee covers it).",
    )


def check(named: str, trained_with: str, vocabulary: Vocabulary) -> None:
    """Raises `ValueError` unless a model to begin with is of a run's vocabulary.

    Args:
        named: The model's name in the error.
        trained_with: The fingerprint of the model's vocabulary.
        vocabulary: The run's.
    """
    if trained_with != vocabulary.fingerprint:
        raise ValueError(
            f"{named} was trained with another vocabulary (fingerprint "
            f"{trained_with[:16]}, the run's {vocabulary.fingerprint[:16]}), so its "
            "token ids mean other words. Set --vocabulary to that model's file "
            f"{VOCABULARY_FILE} (for a run, in its folder 'model')."
        )


def check_files(path: str | os.PathLike[str], vocabulary: Vocabulary) -> None:
    """Checks an initial model's files, before anything is prepared.

    A missing model is an error later, when it is read.

    Args:
        path: An exported model, or the directory of a run.
        vocabulary: The run's.

    Raises:
        ValueError: If they name another vocabulary than the run's, or a vocabulary file
            is damaged.
        RunDirectoryError: If the run's facts are damaged.
    """
    finished_runs.check_seal(path)
    named, path = f"--initial_model={path}", pathlib.Path(path)
    if (path / VOCABULARY_FILE).exists():
        words = Vocabulary.read(path / VOCABULARY_FILE)
        check(named, words.fingerprint, vocabulary)
    elif (path / run_record.FACTS_FILE).exists():
        facts = run_files.read_json(path / run_record.FACTS_FILE, FACTS)
        if "vocabulary" in facts:
            check(named, facts["vocabulary"], vocabulary)
