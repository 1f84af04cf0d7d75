"""Finds heavy hitters with TrieHH: flags, population, process, run directory.

scripts/run triehh --flagfile=configs/triehh_demo.flagfile
"""

import functools
from typing import Any

from absl import logging

from federated_hh.command_line import experiment_flags, program_flags
from federated_hh.heavy_hitters.deny_list import DenyList, DenyOptions
from federated_hh.heavy_hitters.triehh.options import TrieHHOptions
from federated_hh.runtime.worker.engine_options import SecureSumOptions

_PROGRAM = program_flags.Program(
    "federated_hh.run_triehh",
    (
        (TrieHHOptions, "The words"),
        (DenyOptions, "The words"),
        (SecureSumOptions, "The secure sum"),
    ),
    "words",
    first=(
        *("population", "epsilon", "delta", "num_clients", "cohort_size", "threshold"),
        *("max_length", "word_selection", "output_dir", "resume"),
    ),
)


def run(arguments: experiment_flags.Arguments) -> None:
    """Runs the experiment that the flags describe."""
    options = _PROGRAM.read(TrieHHOptions)
    secure_sum = _PROGRAM.read(SecureSumOptions)
    from federated_hh.populations.columns import left_out

    population_options = _PROGRAM.population.read()
    deny = DenyList.read(_PROGRAM.read(DenyOptions), population_options.language)
    population = _PROGRAM.population.prepare_words()
    delta = options.delta_for(population.num_clients)
    too_long = left_out.TooLong.of(
        population, options.max_length - 1, "max_length", added=1
    )
    if too_long is not None:
        logging.warning("%s", too_long)
    parameters = options.parameters_for(population.num_clients)
    if options.threshold is None:
        logging.info(
            "Chosen for %s clients and --epsilon=%g: --threshold=%d%s.",
            f"{population.num_clients:,}",
            options.epsilon,
            parameters.threshold,
            ""
            if options.cohort_size
            else f" with --cohort_size={parameters.cohort_size}",
        )
    from federated_hh.privacy.triehh import detection as triehh_detection
    from federated_hh.privacy.triehh import wanted_detection as detection

    findable = detection.rows(options.what_is_found(parameters))
    logging.info("%s", _summary(parameters, delta))
    logging.info(
        "A client votes with one word, %s. %s",
        "drawn by its own frequencies in each round"
        if options.redraws_each_round
        else "its most frequent one",
        detection.sentences(findable, triehh_detection.HOLDING),
    )
    if not options.redraws_each_round:
        logging.info("%s", _votes(population, findable))

    # TensorFlow comes last: it takes seconds to import.
    from federated_hh.heavy_hitters import alphabet as alphabet_lib
    from federated_hh.heavy_hitters import selection
    from federated_hh.heavy_hitters.triehh import algorithm as triehh
    from federated_hh.heavy_hitters.triehh import report as triehh_report
    from federated_hh.rounds import experiment

    observers: list[Any] = [triehh.vote_metrics]
    masking, facts = None, deny.facts()
    if secure_sum.is_masked:
        from federated_hh.rounds import masked_sums

        masking = masked_sums.MaskedSums(secure_sum)
        facts |= masked_sums.facts(masking)
        observers.append(masking.metrics)
    algorithm = triehh.TrieHH(
        population,
        triehh.plan_of(
            parameters,
            selection.WordSelection(options.word_selection),
            population_has_empty_users=population_options.empty_clients == "keep",
        ),
        alphabet_lib.Alphabet(population_options.characters),
        masking=masking,
    )

    def report(directory, outcome, statement):
        if masking is not None:
            statement = masking.stated(statement, parameters.cohort_size)
        found = [state.trie.words() for state in outcome.states]
        results = triehh_report.evaluate(algorithm, found, options.max_k, deny)
        remark = deny.told(word.text for words in found for word in words)
        at_length = functools.partial(options.for_longer_words, population.num_clients)
        return triehh_report.write(
            directory, algorithm, results, statement, findable, at_length, remark
        )

    done = experiment.run_experiment(
        algorithm,
        program=_PROGRAM.name,
        repeats=options.num_repeats,
        delta=delta,
        observers=observers,
        report=report,
        facts=facts,
        **vars(arguments),
    )
    print(done.summary)


def _votes(population, findable) -> str:
    """Returns how many of the population's words have the votes that they need."""
    import numpy as np

    from federated_hh.heavy_hitters import evaluation, selection

    needed = max((row["holders"] or 0 for row in findable[:2]), default=0)
    votes = evaluation.GroundTruth.of(
        population, selection.WordSelection.MOST_FREQUENT
    ).counts
    return (
        f"Of the clients' {population.num_words:,} words, "
        f"{np.count_nonzero(votes >= needed) if needed else 0:,} have so many votes; "
        "only the simulator knows that."
    )


def _summary(parameters, delta: float) -> str:
    from federated_hh.privacy import rounding

    try:
        epsilon = parameters.voting_rounds().epsilon(delta)
        guarantee = (
            f"each repeat costs epsilon {rounding.rounded_up(epsilon)} at delta "
            f"{rounding.rounded_up(delta)}, one-sided"
        )
    except ValueError:
        guarantee = "nothing is guaranteed"
    return (
        f"{parameters.population_size:,} clients, cohorts of "
        f"{parameters.cohort_size:,}; a prefix needs {parameters.threshold} votes, "
        f"a word has at most {parameters.max_length - 1} characters; {guarantee}."
    )


if __name__ == "__main__":
    _PROGRAM.main(run)
