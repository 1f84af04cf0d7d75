"""The clients that evaluate a model: those that did not train it."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.columns import client_text
from federated_hh.populations.languages import languages
from federated_hh.randomness import streams
from training.baselines import baselines, ngrams
from training.federated import held_out, initial_model
from training.keyboard import options as keyboard_options
from training.models import finished_runs as keyboard_runs
from training.models import metric_names
from training.text import examples

PUBLIC = "public word frequencies"


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Held-out clients, and word frequencies that are known without them.

    Attributes:
        clients: int64, indices into the population.
        prior: The frequencies of tokens.
        baselines: The baselines by name, the prior among them.
        notes: Notes on both, a sentence or more each.
    """

    clients: np.ndarray
    prior: ngrams.Unigram
    baselines: Mapping[str, ngrams.Model]
    notes: Sequence[str]


def check_known(
    options: keyboard_options.EvaluationOptions,
    runs: Sequence[keyboard_runs.TrainingRun],
) -> None:
    """Raises `ValueError` where the held-out clients are unknown.

    Args:
        options: The wanted clients, and the models.
        runs: Those of the models that are known.
    """
    if options.judges == keyboard_options.HELD_OUT and not runs:
        raise ValueError(
            f"--model={','.join(options.model)}: none belongs to a run, so its "
            "held-out clients are unknown; give the run's directory, or --judges=all "
            "with a population that trained none of them"
        )


def choose(
    options: keyboard_options.EvaluationOptions,
    runs: Sequence[keyboard_runs.TrainingRun],
    text: client_text.ClientText,
    vocabulary: vocabulary_lib.Vocabulary,
    seed: int,
) -> HeldOut:
    """Returns the clients that evaluate models.

    Args:
        options: The wanted clients and prior.
        runs: Those of the models that are known.
        text: The text of the population.
        vocabulary: The vocabulary of the text and the models.
        seed: Draws clients, if there are more than wanted.

    Raises:
        ValueError: If a client trained one of the models.
    """
    if options.judges == keyboard_options.ALL:
        _check_nobody_trained(runs, text)
        without = [run.path.name for run in runs if not run.is_pretraining]
        keep = "keeps" if len(without) == 1 else "keep"
        of_them = f" ({', '.join(without)} {keep} none, as federated runs do)"
        notes = [
            f"The held-out clients are of the {text.num_clients:,} of the population "
            "that was given. A model of the very same population is refused; whether "
            "one of them trained a model as part of another only the records of "
            f"models' text tell{of_them if without else ''}.",
        ]
        everyone = np.arange(text.num_clients)
        chosen = _some(everyone, options.max_judges, seed)
        return _with_public_prior(chosen, vocabulary, notes)
    check_known(options, runs)
    # A model of public text does not know the private run's held-out clients.
    public = [r for r in runs if r.is_pretraining and r.population != text.fingerprint]
    runs = [run for run in runs if run not in public] or runs
    first = runs[0]
    if text.fingerprint != first.population:
        raise ValueError(
            f"the population is not that of the run {first.path} (fingerprint "
            f"{text.fingerprint[:16]}, the run's {first.population[:16]}), so its "
            "held-out clients are not in it; give the run's files and "
            "--empty_clients, or judges=all."
        )
    for other in runs[1:]:
        if other.split != first.split:
            raise ValueError(
                f"the runs {first.path} and {other.path} differ in population, seed "
                "or num_held_out_clients: clients held out by one trained the other. "
                "Give models of the same clients, or judges=all with a population "
                "that trained none of them."
            )
    _, run_seed, num_held_out = first.split
    clients = held_out.Clients.of(text, int(num_held_out), int(run_seed))
    chosen = _some(clients.held_out, options.max_judges, seed)
    notes = [
        f"The held-out clients are of the {len(clients.held_out):,} clients that the "
        "runs held out; "
        f"none of the {len(clients.training):,} that could train is among them.",
        *(
            f"The model of {run.path.name} is of another population, by central "
            "training."
            for run in public
        ),
    ]
    if options.prior == "public":
        return _with_public_prior(chosen, vocabulary, notes)
    limits = examples.ClientLimits(
        int(first.flags["max_sentences"]), int(first.flags["max_words"])
    )
    models = baselines.ngrams_of(text, clients, limits, vocabulary.num_tokens)
    notes.append(
        "Frequencies, which are the prior, and n-grams are counted on the clients that "
        "train, without noise: no guarantee covers them."
    )
    prior = models[metric_names.UNIGRAM]
    assert isinstance(prior, ngrams.Unigram)
    return HeldOut(chosen, prior, models, notes)


def _check_nobody_trained(
    runs: Sequence[keyboard_runs.TrainingRun], text: client_text.ClientText
) -> None:
    for run in runs:
        if run.population == text.fingerprint:
            raise ValueError(
                f"judges is all, but clients of this population trained {run.path}; "
                "give judges=held_out, or another population."
            )


def _some(clients: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Returns clients, or as many as are wanted of them, drawn uniformly."""
    if len(clients) <= most:
        return clients
    rng = streams.generator(seed, "judges")
    return np.sort(rng.choice(clients, most, replace=False))


def _with_public_prior(
    clients: np.ndarray, vocabulary: vocabulary_lib.Vocabulary, notes: Sequence[str]
) -> HeldOut:
    try:
        frequencies = initial_model.public_probabilities(
            vocabulary, others_are_rare=True
        )
    except ValueError as error:
        raise ValueError(
            f"prior is public, and {error} Give judges=held_out and "
            "prior=training_clients, where frequencies are counted."
        ) from error
    prior = ngrams.Unigram(frequencies)
    note = f"The prior, {PUBLIC}, is wordfreq's."
    if rare := initial_model.words_not_public(vocabulary):
        note += (
            f" {len(rare):,} of the {len(vocabulary.words):,} words are not in its "
            f"{languages.get(vocabulary.language).name} list ({rare[0]!r} for one), "
            "and are taken to be as rare as the rarest that are."
        )
    return HeldOut(clients, prior, {PUBLIC: prior}, (*notes, note))
