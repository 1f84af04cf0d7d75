"""Evaluates trained models as a keyboard would use them: flags, run directory, page.

scripts/run evaluate_keyboard --model=runs/training/...
scripts/run evaluate_keyboard --model=RUN,OTHER_RUN --judges=all \
    --population=messages.csv

Next-word prediction, Smart Compose and rescoring while words are typed; see
`training.keyboard.evaluation`.
"""

import os
import pathlib
from collections.abc import Sequence

from absl import flags, logging

from federated_hh.command_line import experiment_flags, program_flags
from federated_hh.options.fields import fields_of
from federated_hh.populations.languages.words import WordOptions
from federated_hh.populations.options.population_options import (
    LanguageOptions,
    PopulationOptions,
    ResamplingOptions,
)
from training.keyboard.options import (
    HELD_OUT,
    ComposeOptions,
    EvaluationOptions,
    TouchOptions,
    UserOptions,
)

_OF_EVALUATION = (EvaluationOptions, UserOptions, ComposeOptions, TouchOptions)
_PROGRAM = program_flags.Program(
    "training.evaluate_keyboard",
    (
        (EvaluationOptions, "The evaluation"),
        *_OF_EVALUATION[1:],
        LanguageOptions,
        ResamplingOptions,
    ),
    "sentences",
    first=(
        *("model", "population", "judges", "max_judges", "compose_threshold"),
        *("layout", "num_candidates", "num_resamples", "output_dir"),
    ),
)


def _check_flags() -> None:
    """Checks the flags, and takes the population from the run that held clients out."""
    from training.keyboard import layout as keyboard_layout

    models, layout = flags.FLAGS["model"], flags.FLAGS["layout"]
    models.value = list(map(os.path.abspath, models.value))
    if layout.value is not None and layout.value not in keyboard_layout.names():
        layout.value = os.path.abspath(layout.value)
    _PROGRAM.check(*_OF_EVALUATION)
    options = _PROGRAM.read(EvaluationOptions)
    if options.judges == HELD_OUT:
        _take_flags(
            options.model, PopulationOptions, LanguageOptions, ResamplingOptions
        )
    elif not flags.FLAGS["population"].present:
        raise ValueError("--judges=all needs --population, the clients to evaluate on")
    else:
        _take_flags(options.model, WordOptions)
        _take_words(options.model[0])
    _PROGRAM.check()
    language = _PROGRAM.population.read().language
    keyboard_layout.KeyboardLayout.of(layout.value, language)


def _take_flags(models: Sequence[str], *options: type) -> None:
    """Adopts the flags of options from the models' run; given ones stay."""
    from training.models import finished_runs as keyboard_runs

    runs = map(keyboard_runs.TrainingRun.of_model, models)
    first = keyboard_runs.who_holds_out(runs)
    if first is None:
        return
    names = [field.flag for each in options for field in fields_of(each).values()]
    for name in names:
        if name not in first.flags or name not in flags.FLAGS:
            continue
        if not flags.FLAGS[name].present:
            flags.FLAGS[name].parse(first.flags[name])


def _take_words(model: str) -> None:
    """Adopts the options of words that a model was exported with; given ones stay."""
    from training.keyboard import model as keyboard_model

    if not pathlib.Path(model).expanduser().exists():
        return  # the run tells it
    words = keyboard_model.read(model).words
    for name in words.changed():
        flag, trained_with = flags.FLAGS[name], getattr(words, name)
        if not flag.present:
            flag.parse(trained_with)
        elif flag.value != trained_with:
            logging.warning(
                "--%s=%s cuts words in another way than the model was trained with, "
                "--%s=%s.",
                *(name, flag.value, name, trained_with),
            )


def run(arguments: experiment_flags.Arguments) -> None:
    """Evaluates the models."""
    # Imported late: TensorFlow comes with it and takes seconds to import.
    from training.baselines import baselines
    from training.keyboard import comparison as keyboard_comparison
    from training.keyboard import held_out_clients as held_out_lib

    options = _PROGRAM.read(EvaluationOptions)
    models = keyboard_comparison.Models.read(options.model, options.custom_models)
    models.vocabulary.language = _PROGRAM.population.read().language
    # Before a population is prepared.
    held_out_lib.check_known(options, models.runs)
    text = _PROGRAM.prepare_text(models.vocabulary)
    language = baselines.language_of(
        _PROGRAM.population.read(), _PROGRAM.read(LanguageOptions)
    )
    comparison = keyboard_comparison.Comparison.of(
        models,
        text,
        options,
        _PROGRAM.read(TouchOptions),
        _PROGRAM.read(UserOptions),
        _PROGRAM.read(ComposeOptions),
        arguments.seed,
        language,
    )
    with arguments.open_run(_PROGRAM.name, comparison.facts()) as directory:
        table = comparison.write(directory)
        directory.complete()
    print(table)


if __name__ == "__main__":
    _PROGRAM.main(run, _check_flags)
