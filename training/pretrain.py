"""Trains a next-word model centrally, on public text or as a baseline.

scripts/run pretrain --population=messages.csv.xz --vocabulary_size=2000
"""

from absl import logging

from federated_hh.command_line import experiment_flags, program_flags
from federated_hh.populations.options.population_options import LanguageOptions
from federated_hh.runtime.worker import engine_options, startup
from training.central.options import PretrainOptions

_PROGRAM = program_flags.Program(
    "training.pretrain",
    ((PretrainOptions, "The training"), LanguageOptions),
    "sentences",
    first=(
        *("population", "initial_model", "num_epochs", "batch_size", "learning_rate"),
        *("vocabulary", "vocabulary_size", "model", "output_dir", "resume"),
    ),
)


def run(arguments: experiment_flags.Arguments) -> None:
    """Runs the training that the flags describe."""
    from training import memory_needs

    options = _PROGRAM.read(PretrainOptions)
    if engine_options.chosen().runtime.xla:
        raise ValueError("--xla is for clients' work, which pretrain has none of")
    startup.use_onednn(options.onednn)
    population = _PROGRAM.population.read()
    vocabulary, _ = options.read_vocabulary(population)
    network = options.custom_network(vocabulary.num_tokens, arguments.seed)
    memory_needs.check_central(
        options,
        vocabulary.num_tokens,
        memory_needs.parameters_of(options, vocabulary.num_tokens, network),
    )
    text = _PROGRAM.prepare_text(vocabulary)
    # TensorFlow is imported last, because it takes seconds.
    from federated_hh.rounds import experiment
    from training.baselines import baselines
    from training.central import pretraining
    from training.federated import model_average
    from training.models import exported_model
    from training.reports import central as pretraining_report
    from training.reports import federated as federated_report

    prepared = pretraining.prepare(options, vocabulary, text, arguments.seed, network)
    logging.info(
        "%s sentences of %s clients train a model with %s parameters in %s steps; %s "
        "clients are held out. Training is not private.",
        f"{prepared.num_sentences:,}",
        f"{len(prepared.clients.training):,}",
        f"{prepared.network.num_parameters():,}",
        f"{prepared.num_steps:,}",
        f"{len(prepared.clients.held_out):,}",
    )
    language = baselines.language_of(population, _PROGRAM.read(LanguageOptions))
    found = prepared.baselines(language)
    for baseline in found:
        logging.info("%s", baseline)

    def report(directory, outcome, statement):
        path = directory.path / "model"
        length = options.max_words + 1
        weights = outcome.states[0].model
        exported_model.export(
            prepared.network, weights, vocabulary, length, path, population
        )
        record = prepared.record(population.source)
        prepared.write_text(record, weights, path)
        return pretraining_report.write(
            directory,
            statement,
            found,
            record,
            batch_size=options.batch_size,
            average=model_average.ModelAverage.of(options.model_average),
            may_know_held_out=prepared.first_text.may_know_held_out,
            custom_model=options.model,
            begins=federated_report.first_words(vocabulary),
        )

    done = experiment.run_experiment(
        prepared.algorithm,
        program=_PROGRAM.name,
        facts={"vocabulary": vocabulary.fingerprint} | prepared.facts,
        observers=[prepared.evaluation(options.evaluate_every)],
        report=report,
        **vars(arguments),
    )
    print(done.summary)


if __name__ == "__main__":
    _PROGRAM.main(run)
