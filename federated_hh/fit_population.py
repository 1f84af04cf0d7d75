"""Fits the law of clients with habits to the words of a population.

scripts/run fit_population --population=posts.jsonl --tokenizer=words

The run directory has a page that compares the data with the fitted law, and a flagfile
that simulates the law with any number of clients, in any program that takes a
population:

scripts/run ldp_triehh --flagfile=RUN/simulator/population.flagfile \
    --num_clients=1000000
"""

from absl import logging

from federated_hh.command_line import experiment_flags, program_flags
from federated_hh.populations.fit.options import FitOptions

_PROGRAM = program_flags.Program(
    "federated_hh.fit_population",
    ((FitOptions, "The fit"),),
    "words",
    first=(
        *("population", "user_column", "text_column", "known_words", "tokenizer"),
        *("output_dir", "resume"),
    ),
    # The law is of clients who have words.
    defaults={"empty_clients": "drop"},
)


def _check_flags() -> None:
    _PROGRAM.population.check_columns()
    _PROGRAM.check()


def run(arguments: experiment_flags.Arguments) -> None:
    """Fits the population that the flags describe."""
    options = _PROGRAM.read(FitOptions)
    population_options = _PROGRAM.population.read()
    population = _PROGRAM.population.prepare_columns()

    from federated_hh.populations.fit import fitted_law
    from federated_hh.randomness import streams
    from federated_hh.reports import fit_report

    rows = fit_report.rows_of(
        population,
        options.max_clients_fitted,
        streams.generator(arguments.seed, "clients looked at"),
    )
    logging.info("Fitting the word law to %s clients.", f"{rows.num_clients:,}")
    facts = {"population": population.fingerprint}
    with arguments.open_run(_PROGRAM.name, facts) as directory:
        fit = fitted_law.fit(
            rows,
            streams.generator(arguments.seed, "simulated populations"),
            options.num_simulations,
            own_lengths=options.words_law == "own",
        )
        report = fit_report.FitReport(population, population_options, rows, fit)
        summary = report.write(
            directory,
            options,
            streams.generator(arguments.seed, "clients drawn again"),
        )
        directory.complete()
    print(summary)


if __name__ == "__main__":
    _PROGRAM.main(run, _check_flags)
