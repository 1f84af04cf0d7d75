"""Finds words by set union at a trusted aggregator: the weighted Gaussian, in passes.

scripts/run set_union --epsilon=4 --num_passes=2
"""

import itertools

from absl import logging

from federated_hh.command_line import experiment_flags, program_flags
from federated_hh.heavy_hitters.deny_list import DenyList, DenyOptions
from federated_hh.heavy_hitters.set_union import options as set_union_options
from federated_hh.heavy_hitters.set_union.options import SetUnionOptions

_PROGRAM = program_flags.Program(
    "federated_hh.run_set_union",
    ((SetUnionOptions, "The words"), (DenyOptions, "The words")),
    "words",
    first=(
        *("population", "epsilon", "delta", "num_clients", "contribution_bound"),
        *("num_passes", "output_dir", "resume"),
    ),
    # The aggregator needs no alphabet.
    defaults={"out_of_alphabet": "keep"},
)


def run(arguments: experiment_flags.Arguments) -> None:
    """Runs the experiment that the flags describe."""
    options = _PROGRAM.read(SetUnionOptions)
    population_options = _PROGRAM.population.read()
    deny = DenyList.read(_PROGRAM.read(DenyOptions), population_options.language)
    population = _PROGRAM.population.prepare_columns()
    passes = options.passes_for(population.num_clients)
    findable = options.what_is_found(population.num_clients)
    logging.info("%s", set_union_options.sentences(findable))

    # TensorFlow comes last: it takes seconds to import.
    from federated_hh.heavy_hitters.set_union import algorithm as set_union
    from federated_hh.heavy_hitters.set_union import report as set_union_report
    from federated_hh.privacy.sets import plan as sets_plan
    from federated_hh.rounds import experiment, samplers

    algorithm = set_union.SetUnion(
        population,
        sets_plan.plan_of(
            samplers.Everybody(population.num_clients),
            passes,
            population_has_empty_users=population_options.empty_clients == "keep",
        ),
    )

    def report(directory, outcome, statement):
        found = [algorithm.results(s)["heavy_hitters"]["word"] for s in outcome.states]
        results = set_union_report.evaluate(
            algorithm, outcome.states, options.max_k, deny
        )
        remark = deny.told(itertools.chain(*found))
        return set_union_report.write(
            directory, algorithm, results, statement, findable, remark
        )

    done = experiment.run_experiment(
        algorithm,
        program=_PROGRAM.name,
        repeats=options.num_repeats,
        delta=options.delta_for(population.num_clients),
        observers=[set_union.sent_metrics],
        report=report,
        facts=deny.facts(),
        **vars(arguments),
    )
    print(done.summary)


if __name__ == "__main__":
    _PROGRAM.main(run)
