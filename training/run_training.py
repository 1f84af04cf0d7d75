"""Trains a next-word model: flags, clients, process, run directory.

scripts/run training.run_training --flagfile=configs/training_demo.flagfile
"""

from absl import app, flags, logging

from options import option_flags
from simulation import experiment_flags, population_flags, startup
from simulation.population_options import LanguageOptions
from training.other_models_options import OtherModelsOptions
from training.training_options import TrainingOptions

_PROGRAM = "training.run_training"
_CHECKPOINTS_KEPT = 3

_OPTIONS = option_flags.define(TrainingOptions)
_OTHERS = option_flags.define(OtherModelsOptions)
_LANGUAGE = option_flags.define(LanguageOptions)
_POPULATION = population_flags.PopulationFlags("sentences")
flags.adopt_module_key_flags(experiment_flags)


def _own_model(options: TrainingOptions, num_tokens: int, seed: int):
    """Returns a model of the user's own; None where the model is the default one."""
    if options.model is None:
        return None
    from training import preparation  # TensorFlow comes with it, as with the model

    return preparation.network_of(options, num_tokens, seed)


def _memory_needs(options: TrainingOptions, parameters, num_tokens: int, network):
    """Returns the sizes that the run's memory depends on."""
    from privacy import tree_aggregation
    from training import dp_ftrl_parameters, memory_needs

    lengths: tuple[int, ...] = (0,)
    if parameters.mechanism is dp_ftrl_parameters.Mechanism.TREE:
        lengths = tree_aggregation.tree_lengths(
            parameters.num_rounds, parameters.restart_rounds
        )
    words = options.max_words + 1
    # What a model of the user's own keeps of a batch, beside scores, nobody knows.
    num_units = 0
    if network is None:
        num_units = options.num_units
        num_parameters = memory_needs.cifg_num_parameters(
            num_tokens, num_units, options.embedding_size
        )
    else:
        num_parameters = network.num_parameters()
    return memory_needs.Needs(
        num_parameters=num_parameters,
        num_tokens=num_tokens,
        num_units=num_units,
        batch_tokens=options.batch_size * words,
        num_blocks=options.num_blocks,
        tree_rounds=max(lengths),
        participations=parameters.cohort_size * parameters.num_rounds,
        buffers=0 if parameters.matrix is None else parameters.matrix.num_buffers,
    )


def _beside(prepared, text, vocabulary, options, seed):
    """Returns what the model stands beside, and what of it a resumed run has too."""
    from training import baselines, other_models, windows

    clients, limits = prepared.clients, prepared.limits
    found = baselines.counted(text, clients, limits, vocabulary.num_tokens)
    judges = windows.of_clients(text, clients.held_out, limits, vocabulary.num_tokens)
    paths = list(_OTHERS.read().compare_with)
    others, fingerprints = other_models.judged(
        paths,
        vocabulary,
        judges,
        limits.max_words,
        (text.fingerprint, str(seed), str(options.num_held_out_clients)),
    )
    found += others
    if options.initial_model is not None:
        paths.append(options.initial_model)
    found += other_models.judged_ngrams(paths, judges)
    found += baselines.of_language(
        _POPULATION.read(), _LANGUAGE.read(), vocabulary, limits.max_words
    )
    for baseline in found:
        logging.info("%s", baseline)
    return found, {"compared_with": fingerprints} if fingerprints else {}


def run(arguments: experiment_flags.Arguments) -> None:
    """Runs the experiment that the flags describe."""
    from simulation import client_sentences, sentence_tokenizers

    options = _OPTIONS.read()
    if options.onednn:
        startup.use_onednn()
    parameters = options.server_parameters()
    vocabulary, public_data = options.read_vocabulary()
    network = _own_model(options, vocabulary.num_tokens, arguments.seed)
    _memory_needs(options, parameters, vocabulary.num_tokens, network).check()
    tokenizer = sentence_tokenizers.get_sentence_tokenizer("keyboard")
    text = client_sentences.prepare(
        _POPULATION.read(),
        vocabulary,
        tokenizer,
        _POPULATION.cache,
        _LANGUAGE.read(),
    )
    # TensorFlow comes last: it takes seconds to import.
    from rounds import experiment
    from training import (
        dp_ftrl,
        exported_model,
        held_out,
        initial_model,
        preparation,
        shared_text,
        training_report,
    )

    prepared = preparation.prepare(options, vocabulary, text, arguments.seed, network)
    clients, beginning = prepared.clients, prepared.beginning
    first_text = shared_text.examine(
        options.initial_model,
        text,
        weights=initial_model.fingerprint(beginning.weights),
        is_synthetic=_POPULATION.is_synthetic(),
        is_allowed=_OTHERS.read().allow_shared_text,
    )
    public_data += f" {beginning.public_data} {first_text.public_data}".rstrip()
    algorithm = prepared.algorithm(
        parameters.plan(options.participation_rule(len(clients.training))),
        parameters.optimizer,
    )
    logging.info(
        "%s clients train a model of %s parameters, %s judge it.",
        f"{len(clients.training):,}",
        f"{prepared.network.num_parameters():,}",
        f"{len(clients.held_out):,}",
    )
    beside, others = _beside(prepared, text, vocabulary, options, arguments.seed)

    def report(directory, outcome, statement) -> None:
        realised, planned = (
            training_report.with_public_data(
                stated, public_data, first_text.not_counted
            )
            for stated in (statement, algorithm.plan.statement(None, options.delta))
        )
        training_report.write(
            directory,
            realised,
            planned,
            beside,
            may_have_judges=first_text.may_have_judges,
        )
        exported_model.export(
            prepared.network,
            outcome.states[0].weights,
            vocabulary,
            prepared.limits.max_words + 1,
            directory.path / "model",
        )

    done = experiment.run_experiment(
        algorithm,
        program=_PROGRAM,
        facts={
            "vocabulary": vocabulary.fingerprint,
            **beginning.facts,
            **first_text.facts,
            **others,
        },
        delta=options.delta,
        save_every=options.checkpoint_every,
        keep=_CHECKPOINTS_KEPT,
        observers=[
            dp_ftrl.update_metrics,
            held_out.Evaluation(
                prepared.rounds, clients.held_out, options.evaluate_every
            ),
        ],
        report=report,
        **vars(arguments),
    )
    print(f"Model: {done.path}/model")
    print(f"Report: {done.path}/report.html")


def _check_flags() -> None:
    _OPTIONS.read().server_parameters()
    _OTHERS.read()
    _LANGUAGE.read()
    _POPULATION.read()


def main(argv: list[str]) -> None:
    """Checks the flags and runs."""
    experiment_flags.run_program(
        argv, _PROGRAM, _check_flags, run, is_synthetic=_POPULATION.is_synthetic
    )


if __name__ == "__main__":
    app.run(main, flags_parser=option_flags.parse)
