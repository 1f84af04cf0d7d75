"""Finds words with LDP TrieHH: flags, population, process, run directory.

scripts/run federated_hh.run_ldp_triehh --flagfile=configs/ldp_triehh_demo.flagfile

Text is cut at white space (--tokenizer), and prefixes are made of the 100 characters
of Python's string.printable, unless --alphabet says otherwise: a word with another
character is an error then, unless --out_of_alphabet=drop leaves it out.
"""

import math
from collections.abc import Mapping

from absl import app, flags, logging

from federated_hh import ldp_triehh_options
from simulation import experiment_flags, option_flags, population_flags

_PROGRAM = "federated_hh.run_ldp_triehh"

_OPTIONS = option_flags.define(ldp_triehh_options.LdpTrieHHOptions)
_POPULATION = population_flags.PopulationFlags(
    "words",
    # Gboard's words are whatever is typed between spaces.
    defaults={"tokenizer": "whitespace"},
)
flags.adopt_module_key_flags(experiment_flags)

# A prefix that everybody holds has to stand out by so many standard deviations.
_VISIBLE_DEVIATIONS = 3


def _check_flags() -> None:
    options, population = _OPTIONS.read(), _POPULATION.read()
    options.check_memory(len(ldp_triehh_options.characters_of(population)))
    if population.is_synthetic:
        options.check_population(population.num_clients)
    # Who says which characters there are is told of words that have others. A run that
    # goes on has its answer on record.
    given = [
        name for name in ("alphabet", "out_of_alphabet") if flags.FLAGS[name].present
    ]
    if given == ["alphabet"] and not flags.FLAGS.resume:
        flags.FLAGS.out_of_alphabet = "refuse"


def _warn_of_noise(
    options: ldp_triehh_options.LdpTrieHHOptions, characters: str
) -> None:
    """Says so where no word could be told from noise."""
    if math.isinf(options.local_epsilon):
        return
    try:
        deviation = ldp_triehh_options.estimate_deviation(
            options.clients_per_level,
            options.contribution_bound,
            max_prefixes=options.max_prefixes,
            num_characters=len(characters),
            local_epsilon=options.local_epsilon,
        )
    except ValueError:  # of one report, which the process itself answers
        return
    if options.clients_per_level < _VISIBLE_DEVIATIONS * deviation:
        logging.warning(
            "A prefix that all %s clients of a level hold is estimated with a standard "
            "deviation of %s: what is found will be noise. More --clients_per_level, "
            "a larger --epsilon, a smaller --contribution_bound or fewer "
            "--max_prefixes would help.",
            f"{options.clients_per_level:,}",
            f"{deviation:,.0f}",
        )


def _make_process(options, characters: str, population, seed: int, noise_key: int):
    from federated_hh import alphabet as alphabet_lib
    from federated_hh import ldp_triehh, ldp_triehh_parameters

    return ldp_triehh.build_ldp_triehh_process(
        population,
        options.parameters(),
        alphabet_lib.Alphabet(characters),
        seed=seed,
        noise_key=noise_key,
        report_sampling=ldp_triehh_parameters.ReportSampling(options.report_sampling),
        aggregation=ldp_triehh_parameters.Aggregation(options.aggregation),
    )


def run(arguments: experiment_flags.Arguments) -> None:
    """Runs the experiment that the flags describe."""
    options = _OPTIONS.read()
    if options.central_epsilon is not None:
        print(
            f"Local epsilon {options.local_epsilon:.6g}, for a central epsilon of at "
            f"most {options.central_epsilon:g} at delta {options.delta:g} for an item "
            "in all repeats together."
        )
    characters = ldp_triehh_options.characters_of(_POPULATION.read())
    _warn_of_noise(options, characters)
    population = _POPULATION.prepare_words()
    options.check_population(population.num_clients)

    # TensorFlow comes last: it takes seconds to import.
    from federated_hh import (
        ldp_triehh_experiment,
        ldp_triehh_privacy,
        ldp_triehh_report,
        ldp_triehh_results,
    )
    from simulation import run_directory, runtime

    def make_process(repeat: int):
        return _make_process(
            options,
            characters,
            population,
            ldp_triehh_experiment.seed_of_repeat(arguments.seed, repeat),
            ldp_triehh_experiment.key_of_repeat(arguments.noise_key.value, repeat),
        )

    first = make_process(0)
    facts: Mapping[str, object] = {"population": population.fingerprint}
    with run_directory.open_for(arguments, program=_PROGRAM, facts=facts) as directory:
        with runtime.tff_worker(max_concurrent_calls=2):
            experiment = ldp_triehh_experiment.LdpTrieHHExperiment(
                lambda repeat: make_process(repeat) if repeat else first,
                directory,
                options.num_repeats,
            )
            found = experiment.run()
        logging.info("Counting the coverage, and accounting for privacy.")
        results = ldp_triehh_results.evaluate(
            population,
            first.parameters,
            found,
            [
                ldp_triehh_results.cohorts_of_repeat(
                    population, first.parameters, arguments.seed, repeat
                )
                for repeat in range(options.num_repeats)
            ],
            counting_clients=options.counting_clients,
        )
        summary = ldp_triehh_privacy.summarize(
            first,
            directory.metrics(),
            ldp_triehh_experiment.rounds_of(experiment.records),
            options.delta,
            options.anonymity_alpha,
            has_empty_users=_POPULATION.read().empty_clients == "keep",
        )
        ldp_triehh_report.write(directory, results, summary)
        directory.complete()
    _print_outcome(results)
    print(f"Report: {directory.path / 'report.html'}")


def _print_outcome(results) -> None:
    last = results.coverage.iloc[-1]
    words = results.words
    real = words[words["real"] & (words["repeat"] == 0)]["word"].head(10)
    names = f" The most frequent: {', '.join(real)}." if len(real) else ""
    estimate = last["estimated_coverage"]
    estimated = "" if math.isnan(estimate) else f" (estimated: {estimate:.1%})"
    print(
        f"{last['words_found']:,.0f} words found, {last['words_real']:,.0f} of them "
        f"real; coverage {last['coverage']:.1%}{estimated}.{names}"
    )


def main(argv: list[str]) -> None:
    """Checks the flags and runs."""
    experiment_flags.run_program(
        argv, _PROGRAM, _check_flags, run, is_synthetic=_POPULATION.is_synthetic
    )


if __name__ == "__main__":
    app.run(main, flags_parser=experiment_flags.parse_flags)
