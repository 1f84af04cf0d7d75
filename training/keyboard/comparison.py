"""Models side by side, on the same sentences and touches."""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from absl import logging

from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.columns import client_text
from federated_hh.populations.synthetic import synthetic_sentences
from federated_hh.randomness import streams
from federated_hh.run_directory import directory as run_directory
from training.baselines import language_law
from training.federated import shared_text
from training.keyboard import evaluation as keyboard_evaluation
from training.keyboard import held_out_clients as held_out_lib
from training.keyboard import layout as keyboard_layout
from training.keyboard import model as keyboard_model
from training.keyboard import ngrams as keyboard_ngrams
from training.keyboard import options as keyboard_options
from training.keyboard import predictions as keyboard_predictions
from training.keyboard import report as keyboard_report
from training.keyboard import target_positions as keyboard_places
from training.keyboard import typing_model as keyboard_typing
from training.keyboard import user as keyboard_user
from training.models import finished_runs as keyboard_runs
from training.models import metric_names
from training.text import examples

_OF_TEXTS = (
    "N-grams of the text of a model came along with it: counted on what it was trained "
    "on, without noise. It is not known whether held-out clients wrote any of that "
    "text."
)


@dataclasses.dataclass(frozen=True)
class Models:
    """Models of one vocabulary.

    Attributes:
        by_name: The models, by what reports call them.
        paths: Their paths, by the same names.
        runs: The runs of training that they are of, where that is known.
        unknown: Names of models of which it is not.
    """

    by_name: Mapping[str, keyboard_model.KeyboardModel]
    paths: Mapping[str, str]
    runs: Sequence[keyboard_runs.TrainingRun]
    unknown: Sequence[str]

    @classmethod
    def read(cls, paths: Sequence[str], custom_models: Sequence[str] = ()) -> Self:
        """Reads models.

        Args:
            paths: See `keyboard_model.read`; at least one.
            custom_models: Likewise.

        Raises:
            ValueError: If one cannot be read, or two have different vocabularies.
        """
        names = _names(paths)
        by_name = {
            name: keyboard_model.read(path, custom_models)
            for name, path in zip(names, paths, strict=True)
        }
        first = by_name[names[0]].vocabulary.fingerprint
        for name, path in zip(names, paths, strict=True):
            other = by_name[name].vocabulary.fingerprint
            if other != first:
                raise ValueError(
                    f"the models {paths[0]} and {path} have different vocabularies "
                    f"(fingerprints {first[:16]} and {other[:16]}): they do not know "
                    "the same words. Evaluate them one by one."
                )
        found = [keyboard_runs.TrainingRun.of_model(path) for path in paths]
        return cls(
            by_name,
            dict(zip(names, paths, strict=True)),
            [run for run in found if run is not None],
            [n for n, run in zip(names, found, strict=True) if run is None],
        )

    @property
    def vocabulary(self) -> vocabulary_lib.Vocabulary:
        """The models' vocabulary."""
        return next(iter(self.by_name.values())).vocabulary

    @property
    def max_words(self) -> int:
        """The most words of a sentence that all of them look at."""
        return min(model.length for model in self.by_name.values()) - 1

    def notes(self) -> list[str]:
        """Returns notes on the models."""
        if not self.unknown:
            return []
        return [
            f"Of {', '.join(self.unknown)} it is not known who trained it: a held-out "
            "client may have."
        ]

    def predictors(self) -> dict[str, keyboard_predictions.Predictor]:
        """Returns the models' predictors, by name."""
        return {
            name: keyboard_predictions.NetworkPredictor(model)
            for name, model in self.by_name.items()
        }

    def max_sentences(self, wanted: int | None) -> int:
        """Returns the number of sentences used of each client.

        Args:
            wanted: None for as many as the run used that has held the clients out.
        """
        if wanted is not None:
            return wanted
        first = keyboard_runs.who_holds_out(self.runs)
        if first is not None:
            return int(first.flags["max_sentences"])
        return examples.ClientLimits().max_sentences


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Models and their evaluation task.

    Attributes:
        predictors: The models by name, and after them their baselines.
        task: The evaluation of all of them.
        population: The fingerprint of the held-out clients' text.
        num_resamples: For intervals.
        seed: The seed of touches and intervals.
        notes: Notes for the reader, a sentence or more each.
    """

    predictors: Mapping[str, keyboard_predictions.Predictor]
    task: keyboard_evaluation.Task
    population: str
    num_resamples: int
    seed: int
    notes: Sequence[str]

    @classmethod
    def of(
        cls,
        models: Models,
        text: client_text.ClientText,
        options: keyboard_options.EvaluationOptions,
        touches: keyboard_options.TouchOptions,
        user: keyboard_options.UserOptions,
        compose: keyboard_options.ComposeOptions,
        seed: int,
        language: synthetic_sentences.SyntheticLanguage | None = None,
    ) -> Self:
        """Chooses the held-out clients, and types their words.

        Args:
            models: The models.
            text: The text of the population, in the models' vocabulary.
            options: The choice of clients.
            touches: The settings of typing.
            user: The simulated user.
            compose: The settings of Smart Compose.
            seed: The seed of touches and intervals.
            language: The language of the text, where it is synthetic.

        Raises:
            ValueError: See `held_out_lib.choose`, `keyboard_layout.KeyboardLayout`,
                `keyboard_typing.TouchTypist` and `keyboard_ngrams.of_texts`.
        """
        vocabulary = models.vocabulary
        layout = keyboard_layout.KeyboardLayout.of(touches.layout, vocabulary.language)
        held_out = held_out_lib.choose(options, models.runs, text, vocabulary, seed)
        log_prior = np.log(held_out.prior.probabilities)
        typist = keyboard_typing.TouchTypist(vocabulary, layout, touches, log_prior)
        places = keyboard_places.Places.of(
            text,
            held_out.clients,
            models.max_sentences(options.max_sentences),
            models.max_words,
            compose.compose_words - 1,
        )
        task = keyboard_evaluation.Task.of(
            places, typist, keyboard_user.SimulatedUser(user), compose, seed
        )
        notes = [
            *held_out.notes,
            f"Of a sentence the first {models.max_words} words are used.",
            f"Keyboard: {layout.name}.",
            *models.notes(),
            *shared_text.of_held_out(models.paths, text),
        ]
        others = keyboard_ngrams.of_texts(models.paths, text.fingerprint, vocabulary)
        notes += [_OF_TEXTS] if others else []
        best, note = _best_possible(language, vocabulary)
        notes += [note] if note else []
        added = {**_predictors_of(held_out, vocabulary), **others, **best}
        predictors = {**models.predictors(), **added}
        return cls(
            predictors, task, text.fingerprint, options.num_resamples, seed, notes
        )

    def facts(self) -> dict[str, Any]:
        """Returns the facts that a resumed run shares with its start."""
        return {
            "population": self.population,
            "vocabulary": next(iter(self.predictors.values())).vocabulary.fingerprint,
        }

    def write(self, directory: run_directory.RunDirectory) -> str:
        """Evaluates the models, and writes tables and page.

        Args:
            directory: See `keyboard_report.write`.

        Returns:
            The scores as a Markdown table, and their summary.
        """
        evaluations, intervals = {}, {}
        for name, predictor in self.predictors.items():
            evaluations[name] = self.task.evaluate(predictor)
            scores = evaluations[name].scores
            known = {k: v for k, v in scores.metrics().items() if not math.isnan(v)}
            logging.info("%s: %s.", name, metric_names.text(known))
            # The same clients for all models: their differences are of models.
            rng = streams.generator(self.seed, "judges drawn again")
            intervals[name] = scores.intervals(rng, self.num_resamples)
        table = keyboard_report.scores_table(evaluations, intervals)
        notes = [*self.notes, *_above_picked_rate(evaluations, self.task.compose)]
        summary = keyboard_report.write(
            directory, evaluations, table, self.task.counts(), notes
        )
        thresholds = {name: e.threshold for name, e in evaluations.items()}
        shown = keyboard_report.to_markdown(keyboard_report.shown(table, thresholds))
        return f"{shown}\n{summary}"


def _above_picked_rate(
    evaluations: Mapping[str, keyboard_evaluation.Evaluation],
    compose: keyboard_options.ComposeOptions,
) -> list[str]:
    """Returns notes on models picked more often than wanted at each threshold."""
    if compose.compose_picked_rate is None:
        return []
    lowest = compose.lowest_threshold
    above = [
        f"{name} ({rate:.1%})"
        for name, evaluation in evaluations.items()
        if evaluation.threshold == lowest
        and (rate := evaluation.scores.metrics()["compose_picked_rate"])
        > compose.compose_picked_rate
    ]
    if not above:
        return []
    return [
        f"At the lowest threshold, {lowest:g} (--lowest_threshold), Smart Compose is "
        f"picked more often than the {compose.compose_picked_rate:.1%} wanted of "
        f"{', '.join(above)}: a lower one would have them offer more, so their trigger "
        "rates cannot be compared with others'."
    ]


def _predictors_of(
    held_out: held_out_lib.HeldOut, vocabulary: vocabulary_lib.Vocabulary
) -> dict[str, keyboard_predictions.Predictor]:
    return {
        name: keyboard_ngrams.NGramPredictor(model, vocabulary)
        for name, model in held_out.baselines.items()
    }


def _best_possible(
    language: synthetic_sentences.SyntheticLanguage | None,
    vocabulary: vocabulary_lib.Vocabulary,
) -> tuple[dict[str, keyboard_predictions.Predictor], str]:
    """Returns the best possible predictor, where it is known, and a note on it."""
    if language is None:
        return {}, ""
    name = metric_names.BEST_POSSIBLE
    law = language_law.LanguageLaw.of(language, vocabulary)
    if law is None:
        return {}, (
            f"{name.capitalize()} is not known: words outside the vocabulary have "
            "followers of their own."
        )
    return {name: keyboard_ngrams.LawPredictor(law, vocabulary)}, (
        f"{name.capitalize()} is the law that the text is drawn from: on average no "
        "model has a lower loss, or suggestions that are right more often."
    )


def _names(paths: Sequence[str]) -> list[str]:
    """Returns models' names in reports: path endings that distinguish them."""
    resolved = [pathlib.Path(path).expanduser().absolute() for path in paths]
    parts = [(p.parent if p.name == "model" else p).parts for p in resolved]
    for path, part in zip(paths, parts, strict=True):
        if parts.count(part) > 1:
            raise ValueError(
                f"model has {path} twice, as a run and as its exported model; give one."
            )
    depth = 1
    while len({part[-depth:] for part in parts}) < len(parts):
        depth += 1
    return ["/".join(part[-depth:]) for part in parts]
