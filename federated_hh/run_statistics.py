"""Interactive federated statistics: an analyst asks, devices decide what they answer.

scripts/run statistics --flagfile=configs/statistics_ngrams.flagfile
"""

from typing import Any

from absl import logging

from federated_hh.command_line import experiment_flags, program_flags
from federated_hh.populations.options.population_options import LanguageOptions
from federated_hh.statistics.options import StatisticsOptions

_PROGRAM = program_flags.Program(
    "federated_hh.run_statistics",
    ((StatisticsOptions, "The questions"), LanguageOptions),
    "sentences",
    first=(
        *("population", "table", "analysis", "recipe", "policy", "epsilon"),
        *("delta", "cohorts", "output_dir", "resume"),
    ),
    defaults={"empty_clients": "drop"},
    replaced_by="table",
)


def run(arguments: experiment_flags.Arguments) -> None:
    """Runs the analysis that the flags describe."""
    from federated_hh.populations import vocabulary
    from federated_hh.statistics.recipes import events, recipe

    options = _PROGRAM.read(StatisticsOptions)
    recipes = [recipe.Recipe.read(path, True) for path in options.recipe]
    # TensorFlow takes seconds to import: only files that can be read are worth it.
    from federated_hh.rounds import experiment
    from federated_hh.statistics import approvals, preparation
    from federated_hh.statistics import report as statistics_report
    from federated_hh.statistics.devices import policy_file

    policy = approvals.policy_of(options)
    stored: Any = approvals.read_table(options, _PROGRAM.population.read(), policy)
    approval = approvals.approval_of(options, stored, policy)
    if options.print_policy:
        print(policy_file.to_json(approval))
        return
    # Before the population is prepared, which can take minutes.
    approvals.check_recipes(options, approval, recipes, stored)
    if stored is None:
        tokens = vocabulary.Vocabulary.of_language(
            options.num_tokens, _PROGRAM.population.read().language
        )
        text = _PROGRAM.prepare_text(tokens)
        fingerprint = text.fingerprint
        stored = events.NGramEvents.of(
            text, tokens, options.ngram_words, arguments.seed
        )
    else:
        fingerprint = stored.fingerprint
        logging.info("%s", stored.summary)
    prepared = preparation.prepare(options, stored, fingerprint, recipes, policy)
    if options.show_device_log is not None:
        prepared.check_device(options.show_device_log)
    algorithm = prepared.algorithm
    logging.info("%s", preparation.summary(prepared))

    def report(directory, outcome, statement):
        return statistics_report.write(
            directory,
            prepared,
            outcome.states[0],
            statement,
            max_k=options.max_k,
            device=options.show_device_log,
        )

    done = experiment.run_experiment(
        algorithm,
        program=_PROGRAM.name,
        delta=approval.policy.delta,
        report=report,
        **vars(arguments),
    )
    state = done.outcome.states[0]
    if options.show_device_log is not None:
        print(f"The log of device {options.show_device_log}:")
        print(prepared.device_log(options.show_device_log).to_string(index=False))
    print(done.summary)
    for number, reason in prepared.complaints(state):
        raise ValueError(f"{options.recipe[number]}: {reason}")


if __name__ == "__main__":
    _PROGRAM.main(run)
