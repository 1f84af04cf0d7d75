"""Fits the law of clients with habits to the words of a population.

scripts/run fit_population --population=posts.jsonl --tokenizer=words

The run directory has a page that shows the data beside the fitted law, and a flagfile
that simulates the law with any number of clients, in any program that takes a
population:

scripts/run ldp_triehh --flagfile=RUN/simulator/population.flagfile \
    --num_clients=1000000
"""

from absl import app, flags, logging

from federated_hh.command_line import experiment_flags
from federated_hh.options import help_text, option_flags
from federated_hh.populations import population_flags
from federated_hh.populations.fit.options import FitOptions

_PROGRAM = "federated_hh.fit_population"

_OPTIONS = option_flags.define(FitOptions, title="The fit")
_POPULATION = population_flags.PopulationFlags(
    "words",
    # The law is of clients who have words.
    defaults={"empty_clients": "drop"},
)
flags.adopt_module_key_flags(experiment_flags)
help_text.first(
    "population",
    "user_column",
    "text_column",
    "known_words",
    "tokenizer",
    "output_dir",
    "resume",
)


def _check_flags() -> None:
    option_flags.check_all(_OPTIONS.read, _POPULATION.read)


def run(arguments: experiment_flags.Arguments) -> None:
    """Fits the population that the flags describe."""
    options, population_options = _OPTIONS.read(), _POPULATION.read()
    population = _POPULATION.prepare_words()

    from federated_hh.populations.fit import fitted_law
    from federated_hh.randomness import seeds
    from federated_hh.reports import fit_report

    rows = fit_report.rows_of(
        population,
        options.max_clients_fitted,
        seeds.generator(arguments.seed, "clients looked at"),
    )
    logging.info("Fitting the law to %s clients.", f"{rows.num_clients:,}")
    facts = {"population": population.fingerprint}
    with arguments.open_run(_PROGRAM, facts) as directory:
        fit = fitted_law.fit(
            rows,
            seeds.generator(arguments.seed, "simulated populations"),
            options.num_simulations,
            own_lengths=options.words_law == "own",
        )
        report = fit_report.FitReport(population, population_options, rows, fit)
        summary = report.write(
            directory,
            options,
            seeds.generator(arguments.seed, "clients drawn again"),
        )
        directory.complete()
    print(summary)


def main(argv: list[str]) -> None:
    """Checks the flags and runs."""
    experiment_flags.run_program(
        argv, _PROGRAM, _check_flags, run, is_synthetic=_POPULATION.is_synthetic
    )


if __name__ == "__main__":
    app.run(main, flags_parser=option_flags.parse)
