"""Judges trained models as a keyboard would use them: flags, run directory, page.

scripts/run evaluate_keyboard --model=runs/training/...
scripts/run evaluate_keyboard --model=RUN,OTHER_RUN --judges=all \
    --population=messages.csv

Next-word prediction, Smart Compose and rescoring while words are typed; see
`keyboard_evaluation`.
"""

import os
from collections.abc import Sequence

from absl import app, flags

from federated_hh.command_line import experiment_flags
from federated_hh.options import help_text, option_flags
from federated_hh.options.fields import fields_of
from federated_hh.populations import population_flags
from federated_hh.populations.options.population_options import (
    LanguageOptions,
    PopulationOptions,
)
from training.keyboard import options as options_lib

_PROGRAM = "training.evaluate_keyboard"

_OPTIONS = option_flags.define(options_lib.EvaluationOptions, title="The evaluation")
_USER = option_flags.define(options_lib.UserOptions)
_COMPOSE = option_flags.define(options_lib.ComposeOptions)
_TOUCHES = option_flags.define(options_lib.TouchOptions)
_LANGUAGE = option_flags.define(LanguageOptions)
help_text.first(
    *("model", "population", "judges", "max_judges", "compose_threshold", "layout"),
    *("num_candidates", "num_resamples", "output_dir"),
)
_POPULATION = population_flags.PopulationFlags("sentences")
flags.adopt_module_key_flags(experiment_flags)


def _check_flags() -> None:
    """Checks the flags, and takes the population from the run that held clients out."""
    for name in ("model", "layout"):
        flag = flags.FLAGS[name]
        if isinstance(flag.value, list):
            flag.value = [os.path.abspath(path) for path in flag.value]
        elif flag.value is not None:
            flag.value = os.path.abspath(flag.value)
    option_flags.check_all(_OPTIONS.read, _USER.read, _COMPOSE.read, _TOUCHES.read)
    options, layout = _OPTIONS.read(), _TOUCHES.read().layout
    if layout is not None:
        from training.keyboard import layout as keyboard_layout

        keyboard_layout.KeyboardLayout.read(layout)
    if options.judges == options_lib.HELD_OUT:
        _take_population(options.model)
    elif not flags.FLAGS["population"].present:
        raise ValueError("--judges=all needs --population, whose clients are to judge")
    option_flags.check_all(_LANGUAGE.read, _POPULATION.read)


def _take_population(models: Sequence[str]) -> None:
    """Takes the flags of the population from the models' run; given ones stay."""
    from training.models import finished_runs as keyboard_runs

    runs = map(keyboard_runs.TrainingRun.of_model, models)
    first = keyboard_runs.who_holds_out(runs)
    if first is None:
        return
    for field in (
        *fields_of(PopulationOptions).values(),
        *fields_of(LanguageOptions).values(),
    ):
        name = field.flag
        if name not in first.flags or name not in flags.FLAGS:
            continue
        if not flags.FLAGS[name].present:
            flags.FLAGS[name].parse(first.flags[name])


def run(arguments: experiment_flags.Arguments) -> None:
    """Judges the models."""
    from federated_hh.populations import client_sentences
    from federated_hh.populations.languages import sentence_tokenizers

    # TensorFlow comes with it: it takes seconds to import.
    from training.baselines import baselines
    from training.keyboard import comparison as keyboard_comparison
    from training.keyboard import held_out_clients as keyboard_judges

    options = _OPTIONS.read()
    models = keyboard_comparison.Models.read(options.model)
    # Before a population is prepared.
    keyboard_judges.check_known(options, models.runs)
    population = _POPULATION.read()
    text = client_sentences.prepare(
        population,
        models.vocabulary,
        sentence_tokenizers.get_sentence_tokenizer("keyboard"),
        _POPULATION.cache,
        _LANGUAGE.read(),
    )
    comparison = keyboard_comparison.Comparison.of(
        models,
        text,
        options,
        _TOUCHES.read(),
        _USER.read(),
        _COMPOSE.read(),
        arguments.seed,
        baselines.language_of(population, _LANGUAGE.read()),
    )
    with arguments.open_run(_PROGRAM, comparison.facts()) as directory:
        table = comparison.write(directory)
        directory.complete()
    print(table)


def main(argv: list[str]) -> None:
    """Checks the flags and runs."""
    experiment_flags.run_program(
        argv, _PROGRAM, _check_flags, run, is_synthetic=_POPULATION.is_synthetic
    )


if __name__ == "__main__":
    app.run(main, flags_parser=option_flags.parse)
