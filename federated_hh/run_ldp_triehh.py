"""Finds words with LDP TrieHH: flags, population, process, run directory.

scripts/run ldp_triehh --flagfile=configs/ldp_triehh_demo.flagfile

Prefixes are made of the 100 characters of Python's string.printable, unless --alphabet
says otherwise: a word with another character is an error then, unless
--out_of_alphabet=drop leaves it out.
"""

import functools

from absl import flags, logging

from federated_hh.command_line import experiment_flags, program_flags
from federated_hh.heavy_hitters.deny_list import DenyList, DenyOptions
from federated_hh.heavy_hitters.ldp_triehh import options as ldp_triehh_options
from federated_hh.heavy_hitters.ldp_triehh.options import LdpTrieHHOptions

_PROGRAM = program_flags.Program(
    "federated_hh.run_ldp_triehh",
    ((LdpTrieHHOptions, "The words"), (DenyOptions, "The words")),
    "words",
    first=(
        *("population", "epsilon", "central_epsilon", "cohort_size", "max_depth"),
        *("contribution_bound", "randomizer", "sampler", "output_dir", "resume"),
    ),
)


def _check_flags() -> None:
    _PROGRAM.check()
    population = _PROGRAM.population.read()
    num_characters = len(ldp_triehh_options.characters_of(population))
    missing = _PROGRAM.not_given("cohort_size", "max_prefixes")
    if "max_prefixes" not in missing:
        _PROGRAM.read(LdpTrieHHOptions).check_memory(num_characters)
    # Who says which characters there are is told of words that have others. A resumed
    # run has its answer on record.
    given = [
        name for name in ("alphabet", "out_of_alphabet") if flags.FLAGS[name].present
    ]
    if given == ["alphabet"] and not flags.FLAGS.resume:
        flags.FLAGS.out_of_alphabet = "refuse"
    num_clients = None
    if population.is_synthetic and population.empty_clients == "keep":
        num_clients = population.num_clients
    elif missing:
        num_clients = _PROGRAM.population.prepare_words().num_clients
    if num_clients is not None:
        options = _PROGRAM.read(LdpTrieHHOptions)
        chosen = options.sensible(num_clients, num_characters, missing)
        _PROGRAM.choose(chosen, f"{num_clients:,} clients")
    _PROGRAM.read(LdpTrieHHOptions).check_memory(num_characters)


def _make_algorithm(options, population_options, population):
    from federated_hh.heavy_hitters import alphabet as alphabet_lib
    from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
    from federated_hh.heavy_hitters.ldp_triehh import (
        parameters as ldp_triehh_parameters,
    )

    algorithm = ldp_triehh.LdpTrieHH(
        population,
        options.parameters(),
        alphabet_lib.Alphabet(ldp_triehh_options.characters_of(population_options)),
        report_sampling=ldp_triehh_parameters.ReportSampling(options.report_sampling),
        aggregation=ldp_triehh_parameters.Aggregation(options.aggregation),
        population_has_empty_users=population_options.empty_clients == "keep",
    )
    reports = algorithm.plan.contribution
    if (
        options.central_epsilon is not None
        and reports.replacement_epsilon > reports.epsilon
    ):
        raise ValueError(
            f"--central_epsilon={options.central_epsilon} with --randomizer="
            f"{options.randomizer}: the exchange of an item costs "
            f"{reports.replacement_epsilon / reports.epsilon:g} times its epsilon; "
            "give --epsilon"
        )
    return algorithm


def run(arguments: experiment_flags.Arguments) -> None:
    """Runs the experiment that the flags describe."""
    options = _PROGRAM.read(LdpTrieHHOptions)
    from federated_hh.populations.columns import left_out

    population_options = _PROGRAM.population.read()
    deny = DenyList.read(_PROGRAM.read(DenyOptions), population_options.language)
    characters = ldp_triehh_options.characters_of(population_options)
    if options.central_epsilon is not None:
        print(options.central_forecast(len(characters)))
    population = _PROGRAM.population.prepare_words()
    options.check_population(population.num_clients)
    too_long = left_out.TooLong.of(population, options.max_depth, "max_depth")
    if too_long is not None:
        logging.warning("%s", too_long)
    for warning in (
        options.noise_warning(len(characters)),
        options.size_warning(population.num_clients, len(characters)),
    ):
        if warning:
            logging.warning("%s", warning)

    # TensorFlow comes last: it takes seconds to import.
    from federated_hh.heavy_hitters.ldp_triehh import privacy as ldp_triehh_privacy
    from federated_hh.heavy_hitters.ldp_triehh import report as ldp_triehh_report
    from federated_hh.heavy_hitters.ldp_triehh import results as ldp_triehh_results
    from federated_hh.privacy.triehh import wanted_detection as detection
    from federated_hh.rounds import experiment

    algorithm = _make_algorithm(options, population_options, population)
    findable = ldp_triehh_privacy.what_is_found(algorithm)
    logging.info(
        "%s clients; %d levels with %s clients each; local epsilon %g a report.",
        f"{population.num_clients:,}",
        algorithm.max_rounds,
        f"{options.cohort_size:,}",
        options.local_epsilon,
    )
    logging.info("%s", detection.sentences(findable))

    def report(directory, outcome, statement):
        logging.info("Computing the coverage of the words found.")
        results = ldp_triehh_results.evaluate(
            algorithm,
            [state.found for state in outcome.states],
            directory.metrics(),
            arguments.seed,
            counting_clients=options.counting_clients,
            deny=deny,
        )
        anonymity = ldp_triehh_privacy.anonymity_of(
            algorithm.parameters,
            algorithm.alphabet,
            directory.metrics(),
            options.anonymity_alpha,
        )
        summary = ldp_triehh_report.RunSummary(
            algorithm,
            statement,
            *anonymity,
            findable,
            functools.partial(
                ldp_triehh_privacy.for_longer_words,
                algorithm,
                options.counting_clients or 0,
            ),
            deny.told(word.text for state in outcome.states for word in state.found),
        )
        return ldp_triehh_report.write(directory, results, summary)

    done = experiment.run_experiment(
        algorithm,
        program=_PROGRAM.name,
        repeats=options.num_repeats,
        delta=options.delta,
        report=report,
        facts=deny.facts(),
        **vars(arguments),
    )
    print(done.summary)


if __name__ == "__main__":
    _PROGRAM.main(run, _check_flags)
