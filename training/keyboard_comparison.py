"""Models side by side, judged by the same sentences and the same touches."""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

from absl import logging

from randomness import seeds
from simulation import client_text, run_directory
from simulation import vocabulary as vocabulary_lib
from training import (
    keyboard_evaluation,
    keyboard_judges,
    keyboard_layout,
    keyboard_model,
    keyboard_options,
    keyboard_places,
    keyboard_report,
    keyboard_runs,
    keyboard_typing,
    keyboard_user,
    metric_names,
)


@dataclasses.dataclass(frozen=True)
class Models:
    """Models of one vocabulary.

    Attributes:
        by_name: The models, by what reports call them.
        runs: Of training that they are of, where that is known.
        unknown: Names of models of which it is not.
    """

    by_name: Mapping[str, keyboard_model.KeyboardModel]
    runs: Sequence[keyboard_runs.TrainingRun]
    unknown: Sequence[str]

    @classmethod
    def read(cls, paths: Sequence[str]) -> Self:
        """Reads models.

        Args:
            paths: See `keyboard_model.read`; at least one.

        Raises:
            ValueError: If one cannot be read, or two have different vocabularies.
        """
        names = _names(paths)
        by_name = {
            name: keyboard_model.read(path)
            for name, path in zip(names, paths, strict=True)
        }
        first = by_name[names[0]].vocabulary.fingerprint
        for name, path in zip(names, paths, strict=True):
            other = by_name[name].vocabulary.fingerprint
            if other != first:
                raise ValueError(
                    f"the models {paths[0]} and {path} have different vocabularies "
                    f"(fingerprints {first[:16]} and {other[:16]}): what is a known "
                    "word to one is none to the other. Evaluate them one by one."
                )
        found = [keyboard_runs.TrainingRun.of_model(path) for path in paths]
        return cls(
            by_name,
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


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Models and what they are judged by.

    Attributes:
        models: The models, words by frequency alone last.
        judgement: What all are judged by.
        population: The fingerprint of the judges' text.
        num_resamples: For intervals.
        seed: Of touches and intervals.
        notes: What to know, a sentence or more each.
    """

    models: Mapping[str, keyboard_model.KeyboardModel]
    judgement: keyboard_evaluation.Judgement
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
    ) -> Self:
        """Chooses the judges, and types their words.

        Args:
            models: The models.
            text: Of the population, in the models' vocabulary.
            options: Who judges.
            touches: How words are typed.
            user: Who picks suggestions.
            compose: When Smart Compose is triggered.
            seed: Of touches and intervals.

        Raises:
            ValueError: See `keyboard_judges.choose`, `keyboard_layout.KeyboardLayout`
                and `keyboard_typing.TouchTypist`.
        """
        vocabulary = models.vocabulary
        layout = (
            keyboard_layout.KeyboardLayout.qwerty()
            if touches.layout is None
            else keyboard_layout.KeyboardLayout.read(touches.layout)
        )
        judges = keyboard_judges.choose(options, models.runs, text, vocabulary)
        typist = keyboard_typing.TouchTypist(
            vocabulary, layout, touches, judges.log_prior
        )
        places = keyboard_places.Places.of(
            text,
            judges.clients,
            options.max_sentences,
            models.max_words,
            compose.compose_words - 1,
        )
        by_frequency = keyboard_model.by_frequency(
            vocabulary, judges.log_prior, models.max_words + 1
        )
        notes = [
            *judges.notes,
            f"Of a sentence the first {models.max_words} words are used.",
            f"Keyboard: {layout.name}.",
        ]
        if models.unknown:
            notes.append(
                f"Of {', '.join(models.unknown)} nobody knows here who trained it: a "
                "judge may have."
            )
        return cls(
            {**models.by_name, keyboard_report.BY_FREQUENCY: by_frequency},
            keyboard_evaluation.Judgement.of(
                places, typist, keyboard_user.SimulatedUser(user), compose, seed
            ),
            text.fingerprint,
            options.num_resamples,
            seed,
            notes,
        )

    def facts(self) -> dict[str, Any]:
        """Returns what a run that goes on has to have in common with its start."""
        return {
            "population": self.population,
            "vocabulary": next(iter(self.models.values())).vocabulary.fingerprint,
        }

    def write(self, directory: run_directory.RunDirectory) -> str:
        """Judges the models, and writes tables and page.

        Args:
            directory: See `keyboard_report.write`.

        Returns:
            The scores as a table in Markdown.
        """
        evaluations, intervals = {}, {}
        for name, model in self.models.items():
            evaluations[name] = self.judgement.evaluate(model)
            scores = evaluations[name].scores
            known = {k: v for k, v in scores.metrics().items() if not math.isnan(v)}
            logging.info("%s: %s.", name, metric_names.text(known))
            # The same judges for all models: their differences are of models.
            rng = seeds.generator(self.seed, "judges drawn again")
            intervals[name] = scores.intervals(rng, self.num_resamples)
        table = keyboard_report.scores_table(evaluations, intervals)
        keyboard_report.write(
            directory, evaluations, table, self.judgement.counts(), self.notes
        )
        thresholds = {name: e.threshold for name, e in evaluations.items()}
        return keyboard_report.to_markdown(keyboard_report.shown(table, thresholds))


def _names(paths: Sequence[str]) -> list[str]:
    """Returns what reports call models: the ends of paths that tell them apart."""
    parts = [pathlib.Path(path).expanduser().absolute().parts for path in paths]
    depth = 1
    while len({p[-depth:] for p in parts}) < len(parts) or any(
        p[-depth] in ("model", "/") and len(p) > depth for p in parts
    ):
        depth += 1
    return ["/".join(p[-depth:]) for p in parts]
