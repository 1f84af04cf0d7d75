"""Checks whether an initial model has seen the clients' text.

A run's guarantee does not cover its initial weights. So a model is refused if its
record shares clients or a dozen consecutive words with the run's population, or if it
comes from a run of the same population. With `--allow_shared_text` the run starts, and
the statement says that text is shared. The statement also says if nothing is known. For
synthetic clients, who are nobody, nothing is refused, but it is still reported: a model
that has read held-out clients' text looks better than it is. They are numbered, so any
two of their populations share ids.

The amount of shared text is an exact count on private text, so it goes only to the log
and the simulator's part.
"""

import dataclasses
import re
import shlex
from collections.abc import Mapping
from typing import Any

from absl import logging

from federated_hh.populations.columns import client_text
from training.federated import initial_model
from training.models import finished_runs as keyboard_runs
from training.text import text_record

_SAME = "all of its text: it is the same population"
_WORDS = f"{text_record.NUM_WORDS} known words in a row"
# Of the sentences of a text: where fewer have so many words, to find none of them in
# another text says next to nothing.
_LEAST_COMPARED = 0.1
# Clients that an error names, so that they can be left out.
_NAMED = 100
_NOT_KNOWN = (
    "What the model that training began with may have learned from text of this run's "
    "clients: whether there was any is not known."
)
_COMPARED = (
    "That the text of the model that training began with was compared with the "
    "clients' text, and what this statement says of it: it was found without noise."
)


@dataclasses.dataclass(frozen=True)
class Finding:
    """Findings about the initial model's text.

    Attributes:
        public_data: A sentence to add to other public data; or empty.
        not_counted: Limits of the guarantee, a sentence each.
        found: The shared text, with numbers.
        may_know_held_out: Whether the model may have learned from any of the clients.
        record: The record for the run's own model: that of the initial model. None if
            there is none, or if it has text of the run's clients, because hashes of
            their text are not released with a private model.
    """

    public_data: str = ""
    not_counted: tuple[str, ...] = ()
    found: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    may_know_held_out: bool = False
    record: text_record.TextRecord | None = dataclasses.field(
        default=None, compare=False
    )

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that a resumed run shares; none where it began with no model.

        Only the simulator knows them.
        """
        if not self.found:
            return {}
        is_of_others = not self.may_know_held_out
        return {"initial_text": self.found, keyboard_runs.OF_OTHERS: is_of_others}


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
        path: The initial model; None for none.
        text: The text of all clients, prepared with the model's vocabulary.
        weights: Fingerprint of the initial weights.
        is_synthetic: Whether the clients are synthetic; then nothing is refused.
        is_allowed: Whether the initial model may share text with the run.

    Raises:
        ValueError: If they share real clients' text without permission; or the record
            is damaged, or of another model.
        RunDirectoryError: If the record of the model's run is.
    """
    if path is None:
        return Finding()
    record = text_record.TextRecord.read(path, weights)
    same = (text.fingerprint, text.people.fingerprint)
    is_of_same_run = keyboard_runs.population_of(path) in same
    text = text.people
    shared = None if record is None else record.shared_with(text)
    facts = {
        "record": None if record is None else record.digest,
        "is_of_same_run": is_of_same_run,
        "shared": None if shared is None else dataclasses.asdict(shared),
    }
    if is_of_same_run or (shared is not None and shared.is_same):
        found = stated = _SAME
        found += f" of {text.num_clients:,} clients"
    elif record is None or shared is None or not shared:
        if shared is not None:
            logging.info(
                "The initial model's text shares no client id and none of the %s of %s "
                "sentences of this run's population that have %s.",
                f"{shared.compared:,}",
                f"{text.num_sentences:,}",
                _WORDS,
            )
        public_data, is_known = _nothing_shared(record, shared, text.num_sentences)
        not_counted = () if is_known or is_synthetic else (_NOT_KNOWN,)
        not_counted += () if record is None else (_COMPARED,)
        passed_on = None if record is None else record.passed_on()
        return Finding(public_data, not_counted, facts, not is_known, passed_on)
    else:
        found = _counted(shared, text.num_clients)
        stated = f"ids, or sentences with the same {_WORDS}"
    if not (is_allowed or is_synthetic):
        raise ValueError(
            f"--initial_model={path}: {_made_of(record)}, and it shares with this "
            f"run's population {found}. No guarantee of this run would cover what the "
            "model already learned from them. Start from a model of other text, drop "
            f"those clients (--drop_users{_who_shares(record, text)}), or give "
            "--allow_shared_text, and the statement will say that text is shared."
        )
    logging.warning(
        "The initial model was trained on data of this run's population: %s.", found
    )
    return Finding(
        f"{_made_of(record)}, and it shares with this run's clients {stated}.",
        (
            "What the model that training began with had learned from text that it "
            f"shares with this run's clients: {stated}. For the clients whose it is "
            "the guarantees do not hold.",
            _COMPARED,
        ),
        facts,
        may_know_held_out=True,
    )


def of_held_out(models: Mapping[str, str], text: client_text.ClientText) -> list[str]:
    """Returns notes on the text that models share with the held-out clients.

    A model that has read held-out clients' text looks better than it is.

    Args:
        models: The paths of the models, by what reports call them.
        text: The text of the held-out clients' population, prepared with the
            vocabulary of the models.

    Returns:
        A sentence for each model that has a record of its text. And one for each model
        of a run of this population that began with a model without such a record.

    Raises:
        ValueError: If a record is damaged, or of another model.
        RunDirectoryError: If the record of a model's run is.
    """
    notes = []
    for name, path in models.items():
        if keyboard_runs.population_of(path) == text.fingerprint:
            run = keyboard_runs.TrainingRun.of_model(path)
            if run is not None and run.may_have_read_held_out:
                notes.append(
                    f"{name} began with a model that has text of this population, or "
                    "it is not known that it has none. Whoever wrote it evaluates both "
                    "too kindly."
                )
            continue
        file = text_record.find(path)
        if file is None:
            continue
        weights = initial_model.read(file.parent).fingerprint
        record = text_record.TextRecord.read(file.parent, weights)
        assert record is not None
        shared = record.shared_with(text.people)
        if shared.is_same:
            found = _SAME
        elif shared:
            found = _counted(shared, text.people.num_clients)
        else:
            found = f"neither an id nor {_WORDS}"
        begun = "" if record.is_whole else ", but for what its record does not have,"
        notes.append(
            f"The text that {name} was trained on{begun} shares with the held-out "
            f"clients' population {found}."
            + (" Their scores flatter the model." if shared else "")
        )
    return notes


def _who_shares(
    record: text_record.TextRecord | None, text: client_text.ClientText
) -> str:
    """Returns the value of --drop_users for an error, if it is short."""
    if record is None:
        return ""
    clients = record.sharing_clients(text).tolist()
    if len(clients) > _NAMED:
        return f"; there are {len(clients):,} of them"
    users = "|".join(re.escape(text.client_ids[i].as_py()) for i in clients)
    return f"={shlex.quote(users)}"


def _made_of(record: text_record.TextRecord | None) -> str:
    if record is None:
        return "By the record of its run it was trained on these clients"
    texts = ", before that on ".join(map(str, reversed(record.texts)))
    return f"By its record it was trained on {texts}"


def _nothing_shared(
    record: text_record.TextRecord | None,
    shared: text_record.Shared | None,
    num_sentences: int,
) -> tuple[str, bool]:
    """Returns a note on no shared text, and whether there is none.

    Args:
        record: The record of the initial model.
        shared: The shared text.
        num_sentences: Number of the clients' sentences.
    """
    if record is None or shared is None:
        return (
            "It has no record of its text, as training.pretrain makes one: whether "
            "text of this run's clients is in it is not known."
        ), False
    if not record.is_whole:
        return (
            f"{_made_of(record)}, and on text that is not in the record: whether text "
            "of this run's clients is in it is not known."
        ), False
    if not shared.compared:
        return (
            f"{_made_of(record)}, which share no id with this run's clients. No "
            f"sentence could be compared, as not both have {_WORDS}: whether they "
            "share sentences is not known."
        ), False
    recorded = sum(one.num_sentences for one in record.texts)
    if (
        shared.compared < _LEAST_COMPARED * num_sentences
        or len(record.windows) < _LEAST_COMPARED * recorded
    ):
        return (
            f"{_made_of(record)}, which share no id with this run's clients, and no "
            f"{_WORDS}. But few of the sentences have so many: whether they share "
            "others is not known."
        ), False
    return (
        f"{_made_of(record)}, which share with this run's clients neither an id nor "
        f"{_WORDS}. Shorter sentences were not compared."
    ), True


def _counted(shared: text_record.Shared, num_clients: int) -> str:
    parts = []
    if shared.ids:
        parts.append(
            f"{shared.ids:,} of {num_clients:,} clients' ids (names of other people, "
            "maybe, if the sources differ)"
        )
    if shared.sentences:
        parts.append(
            f"{shared.sentences:,} sentences with the same {_WORDS}, which "
            f"{shared.writers:,} clients wrote"
        )
    return " and ".join(parts)
