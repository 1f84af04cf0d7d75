"""Trains a next-word model: flags, clients, process, run directory.

scripts/run training.run_training --flagfile=configs/training_demo.flagfile
"""

from absl import app, flags, logging

from simulation import experiment_flags, population_flags
from training import training_flags

_PROGRAM = "training.run_training"
_CHECKPOINTS_KEPT = 3

flags.adopt_module_key_flags(training_flags)
flags.adopt_module_key_flags(population_flags)
flags.adopt_module_key_flags(experiment_flags)


def _vocabulary():
    """Returns the vocabulary, and what is public about it."""
    from training import vocabulary as lib

    if training_flags.VOCABULARY.value is not None:
        words = lib.Vocabulary.read(training_flags.VOCABULARY.value)
        return (
            words,
            f"the vocabulary, {training_flags.VOCABULARY.value} (given by the user).",
        )
    words = lib.Vocabulary.from_english(training_flags.VOCABULARY_SIZE.value)
    return words, "the vocabulary, the most frequent English words of wordfreq."


def _memory_needs(parameters, num_tokens: int):
    """Returns the sizes that the run's memory depends on."""
    from privacy import tree_aggregation
    from training import dp_ftrl_parameters, memory_needs

    lengths = (0,)
    if parameters.mechanism is dp_ftrl_parameters.Mechanism.TREE:
        lengths = tree_aggregation.tree_lengths(
            parameters.num_rounds, parameters.restart_rounds
        )
    words = training_flags.MAX_WORDS.value + 1
    return memory_needs.Needs(
        num_parameters=memory_needs.cifg_num_parameters(
            num_tokens,
            training_flags.NUM_UNITS.value,
            training_flags.EMBEDDING_SIZE.value,
        ),
        num_tokens=num_tokens,
        num_units=training_flags.NUM_UNITS.value,
        batch_tokens=training_flags.BATCH_SIZE.value * words,
        num_blocks=training_flags.NUM_BLOCKS.value,
        tree_rounds=max(lengths),
        participations=parameters.report_goal * parameters.num_rounds,
    )


def _best_possible(options, vocabulary, tokenizer):
    """Returns what no model can beat, where the law of the text is known."""
    from simulation import population_options

    if options.source != population_options.SYNTHETIC:
        return None
    from simulation.readers import synthetic_sentences
    from training import best_possible

    language = synthetic_sentences.SyntheticLanguage.english(
        training_flags.language_options(), options.seed, tokenizer
    )
    best = best_possible.best_possible(
        language, vocabulary, training_flags.MAX_WORDS.value
    )
    logging.info(
        "%s: loss %.3f, one suggestion right %.2f%%.",
        "The best possible"
        if best.is_reached
        else "No model can beat (words outside the vocabulary have followers)",
        best.metrics["loss"],
        100 * best.metrics["accuracy_of_suggestion"],
    )
    return best.metrics


def run(arguments: experiment_flags.Arguments) -> None:
    """Runs the experiment that the flags describe."""
    from simulation import run_directory, sentence_tokenizers
    from training import client_sentences

    parameters = training_flags.server_parameters()
    vocabulary, public_data = _vocabulary()
    _memory_needs(parameters, vocabulary.num_tokens).check()
    options = population_flags.options_from_flags()
    tokenizer = sentence_tokenizers.get_sentence_tokenizer("keyboard")
    text = client_sentences.prepare(
        options,
        vocabulary,
        tokenizer,
        flags.FLAGS.population_cache,
        training_flags.language_options(),
    )
    # TensorFlow comes last: it takes seconds to import.
    from rounds import run as engine
    from rounds import steps
    from training import (
        client_update,
        dp_ftrl,
        examples,
        exported_model,
        held_out,
        initial_model,
        model,
        training_report,
    )

    clients = held_out.Clients.split(
        text.num_clients, training_flags.NUM_HELD_OUT.value, arguments.seed
    )
    language_model = model.cifg_language_model(
        vocabulary.num_tokens,
        num_units=training_flags.NUM_UNITS.value,
        projection_size=training_flags.EMBEDDING_SIZE.value,
        embedding_size=training_flags.EMBEDDING_SIZE.value,
    )
    beginning = initial_model.beginning(
        language_model.initial_weights(arguments.seed),
        vocabulary,
        training_flags.INITIAL_MODEL.value,
        has_public_bias=training_flags.INITIAL_BIAS.value == "public",
    )
    limits = examples.ClientLimits(
        training_flags.MAX_SENTENCES.value,
        training_flags.MAX_WORDS.value,
        training_flags.BATCH_SIZE.value,
    )
    rounds = client_update.FederatedRounds(
        language_model,
        examples.MappedText(text, limits),
        client_update.LocalTraining(
            training_flags.CLIENT_LEARNING_RATE.value,
            training_flags.CLIENT_EPOCHS.value,
        ),
        training_flags.NUM_BLOCKS.value,
    )
    algorithm = dp_ftrl.DpFtrl(
        rounds,
        parameters.plan(training_flags.participation_rule(len(clients.training))),
        beginning.weights,
        clients=clients.training,
        learning_rate=parameters.server_learning_rate,
        momentum=parameters.momentum,
    )
    baseline = held_out.unigram_baseline(text, clients, limits, vocabulary.num_tokens)
    logging.info(
        "%s clients train a model of %s parameters, %s judge it. Words by frequency "
        "alone: loss %.3f, one suggestion right %.2f%%.",
        f"{len(clients.training):,}",
        f"{language_model.num_parameters():,}",
        f"{len(clients.held_out):,}",
        baseline["loss"],
        100 * baseline["accuracy_of_suggestion"],
    )
    best = _best_possible(options, vocabulary, tokenizer)
    facts = steps.facts_of(algorithm) | beginning.facts
    facts |= {"vocabulary": vocabulary.fingerprint}
    with run_directory.open_for(arguments, program=_PROGRAM, facts=facts) as directory:
        outcome = engine.run(
            algorithm,
            directory,
            seed=arguments.seed,
            delta=training_flags.delta(),
            save_every=training_flags.CHECKPOINT_EVERY.value,
            keep=_CHECKPOINTS_KEPT,
            observers=[
                dp_ftrl.update_metrics,
                held_out.Evaluation(
                    rounds, clients.held_out, training_flags.EVALUATE_EVERY.value
                ),
            ],
        )
        realised, planned = (
            training_report.with_public_data(
                algorithm.plan.statement(record, training_flags.delta()),
                f"{public_data} {beginning.public_data}".rstrip(),
            )
            for record in (outcome.record, None)
        )
        training_report.write(directory, realised, planned, dict(baseline), best)
        exported_model.export(
            language_model,
            outcome.states[0].weights,
            vocabulary,
            limits.max_words + 1,
            directory.path / "model",
        )
        directory.complete()
        print(f"Model: {directory.path / 'model'}")
        print(f"Report: {directory.path / 'report.html'}")


def _check_flags() -> None:
    if training_flags.REPORT_GOAL.value is None:
        raise ValueError("give --report_goal, the clients of a round")
    if training_flags.INITIAL_BIAS.value == "public":
        for flag in (training_flags.VOCABULARY, training_flags.INITIAL_MODEL):
            if flag.value is not None:
                raise ValueError(
                    f"--initial_bias=public goes with no --{flag.name}: it needs the "
                    "default vocabulary, whose frequencies are known, and is itself "
                    "where a model begins"
                )
    training_flags.server_parameters()
    training_flags.language_options()
    training_flags.delta()


def main(argv: list[str]) -> None:
    """Checks the flags and runs."""
    experiment_flags.run_program(
        argv, _PROGRAM, _check_flags, run, is_synthetic=population_flags.is_synthetic
    )


if __name__ == "__main__":
    app.run(main, flags_parser=experiment_flags.parse_flags)
