"""The vocabulary that a model of an earlier run was trained with. No TensorFlow."""

import os
import pathlib

from federated_hh.populations.vocabulary import Vocabulary
from federated_hh.run_directory import files as run_files
from federated_hh.run_directory import record as run_record

# Beside an exported model.
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
            f"{trained_with[:16]}, the run's {vocabulary.fingerprint[:16]}): its token "
            "ids mean other words. Run with --vocabulary= the file "
            f"{VOCABULARY_FILE} of that model (of a run, in its folder model)."
        )


def check_files(path: str | os.PathLike[str], vocabulary: Vocabulary) -> None:
    """Checks the files of a model to begin with, before anything is prepared.

    That there is no model is left to the reading of it.

    Args:
        path: An exported model, or the directory of a run.
        vocabulary: The run's.

    Raises:
        ValueError: If they name another vocabulary than the run's, or the file of
            one is damaged.
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
