"""Whether a model that private training begins with has seen the clients' text.

Nothing that a run guarantees covers what its first weights have learned. So a model
whose record shares clients or long sentences with a run's population is refused, as is
one of a run of the same population, unless the user says to go on: then the statement
has it.
"""

import dataclasses

from simulation import client_text
from training import keyboard_runs, text_record

_SAME = "all of its text: it is the same population of {} clients"


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a privacy statement says of the text of the model that a run begins with.

    Attributes:
        public_data: A sentence beside what else is public; or empty.
        not_counted: What no guarantee covers: a sentence each.
    """

    public_data: str = ""
    not_counted: tuple[str, ...] = ()


def examine(
    path: str | None,
    text: client_text.ClientText,
    *,
    weights: str,
    is_synthetic: bool,
    is_allowed: bool,
) -> Finding:
    """Compares the text of a model with a run's population.

    Args:
        path: The model that the run begins with; None where there is none.
        text: Of all clients, prepared with the model's vocabulary.
        weights: The fingerprint of the weights that the run begins with.
        is_synthetic: Whether the clients are nobody.
        is_allowed: Whether a run begins with a model that shares text with it.

    Raises:
        ValueError: If they share text, and that is not allowed; or the record is
            damaged, or of another model.
        RunDirectoryError: If the record of the model's run is.
    """
    if path is None or is_synthetic:
        return Finding()
    record = text_record.TextRecord.read(path, weights)
    if keyboard_runs.population_of(path) == text.fingerprint:
        made_of = "By the record of its run it was trained on these clients"
        found = _SAME.format(f"{text.num_clients:,}")
        return _shares(path, made_of, found, is_allowed)
    if record is None:
        return Finding(
            "It has no record of its text, as training.pretrain makes one: whether "
            "text of this run's clients is in it is not known."
        )
    shared = record.shared_with(text)
    texts = ", before that on ".join(map(str, reversed(record.texts)))
    made_of = f"By its record it was trained on {texts}"
    if not shared and not record.is_whole:
        return Finding(
            f"{made_of}, and began with a model that has no record of its text: "
            "whether text of this run's clients is in it is not known."
        )
    if not shared:
        return Finding(
            f"{made_of}, which share with this run's clients neither an id nor a "
            f"sentence of {record.least_words} known words or more."
        )
    found = _described(shared, text.num_clients, record.least_words)
    return _shares(path, made_of, found, is_allowed)


def _shares(path: str, made_of: str, found: str, is_allowed: bool) -> Finding:
    """Returns what is said of a model that shares text, if that is allowed."""
    if not is_allowed:
        raise ValueError(
            f"--initial_model={path}: {made_of}, and it shares with this run's "
            f"population {found}. What it learned of them no guarantee of this run "
            "would count. Begin with a model of other text, leave those clients out "
            "(--drop_users), or give --allow_shared_text, which puts this into the "
            "statement."
        )
    return Finding(
        f"{made_of}, and it shares with this run's clients {found}.",
        (
            f"What the model that training began with had learned from text that it "
            f"shares with this run's clients: {found}. For these clients the "
            "guarantees do not hold.",
        ),
    )


def _described(shared: text_record.Shared, num_clients: int, least_words: int) -> str:
    if shared.is_same:
        return _SAME.format(f"{num_clients:,}")
    parts = []
    if shared.ids:
        parts.append(
            f"{shared.ids:,} of {num_clients:,} clients' ids (names of other people, "
            "maybe, if the sources differ)"
        )
    if shared.sentences:
        parts.append(
            f"{shared.sentences:,} sentences of {least_words} known words or more, "
            f"which {shared.writers:,} clients wrote"
        )
    return " and ".join(parts)
