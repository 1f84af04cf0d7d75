"""The vocabulary that a model of an earlier run was trained with. No TensorFlow."""

import os
import pathlib

from federated_hh.populations.vocabulary import Vocabulary
from federated_hh.run_directory import files as run_files
from federated_hh.run_directory import record as run_record

# Next to an exported model.
VOCABULARY_FILE = "vocabulary.txt"


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
    named, path = f"--initial_model={path}", pathlib.Path(path)
    if (path / VOCABULARY_FILE).exists():
        words = Vocabulary.read(path / VOCABULARY_FILE)
        check(named, words.fingerprint, vocabulary)
    elif (path / run_record.FACTS_FILE).exists():
        facts = run_files.read_json(path / run_record.FACTS_FILE)
        if isinstance(facts, dict) and isinstance(facts.get("vocabulary"), str):
            check(named, facts["vocabulary"], vocabulary)
