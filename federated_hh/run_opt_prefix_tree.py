"""Finds words with OptPrefixTree: flags, population, process, run directory.

scripts/run opt_prefix_tree --epsilon=8 --max_depth=10
"""

from absl import logging

from federated_hh.command_line import experiment_flags, program_flags
from federated_hh.heavy_hitters.deny_list import DenyList, DenyOptions
from federated_hh.heavy_hitters.opt_prefix_tree.options import OptPrefixTreeOptions

_PROGRAM = program_flags.Program(
    "federated_hh.run_opt_prefix_tree",
    (
        (OptPrefixTreeOptions, "The words"),
        (DenyOptions, "The words"),
        (program_flags.RepeatOptions, "Privacy"),
    ),
    "words",
    first=(
        *("population", "epsilon", "num_rounds", "num_passes", "max_depth"),
        *("randomizer", "selection", "output_dir", "resume"),
    ),
)


def run(arguments: experiment_flags.Arguments) -> None:
    """Runs the experiment that the flags describe."""
    options = _PROGRAM.read(OptPrefixTreeOptions)
    repeats = _PROGRAM.read(program_flags.RepeatOptions)
    from federated_hh.populations.columns import left_out

    population = _PROGRAM.population.read()
    deny = DenyList.read(_PROGRAM.read(DenyOptions), population.language)
    clients = _PROGRAM.population.prepare_columns()
    too_long = left_out.TooLong.of(clients, options.max_depth, "max_depth")
    if too_long is not None:
        logging.warning("%s", too_long)

    # TensorFlow comes last: it takes seconds to import.
    from federated_hh.heavy_hitters import alphabet, scored_run
    from federated_hh.heavy_hitters.opt_prefix_tree import algorithm

    made = algorithm.OptPrefixTree(
        clients,
        options,
        alphabet.Alphabet(population.characters),
        population_has_empty_users=population.empty_clients == "keep",
    )
    made.check_detection()
    logging.info(
        "%s clients; at most %d rounds with %s clients each.",
        f"{clients.num_clients:,}",
        made.max_rounds,
        f"{made.plan.sampler.cohort_size:,}",
    )
    done = scored_run.run(
        made,
        deny=deny,
        program=_PROGRAM.name,
        repeats=repeats.num_repeats,
        delta=repeats.delta,
        **vars(arguments),
    )
    print(done.summary)


if __name__ == "__main__":
    _PROGRAM.main(run)
