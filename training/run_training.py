"""Trains a next-word model: flags, clients, process, run directory.

scripts/run training.run_training --flagfile=configs/training_demo.flagfile
"""

import math
import os

from absl import app, flags, logging

from simulation import experiment_flags, population_flags

_PROGRAM = "training.run_training"

_VOCABULARY = flags.DEFINE_string(
    "vocabulary",
    None,
    "A vocabulary file: <pad>, <oov>, <bos>, <eos>, then one word a line. By default "
    "the --vocabulary_size most frequent English words of public text.",
)
_VOCABULARY_SIZE = flags.DEFINE_integer(
    "vocabulary_size", 10_000, "Words, where --vocabulary is not given.", lower_bound=1
)
_NUM_UNITS = flags.DEFINE_integer(
    "num_units", 670, "Memory cells of the CIFG-LSTM.", lower_bound=1
)
_EMBEDDING_SIZE = flags.DEFINE_integer(
    "embedding_size",
    96,
    "Size of the input embeddings, the output embeddings and the projection.",
    lower_bound=1,
)
_INITIAL_MODEL = flags.DEFINE_string(
    "initial_model",
    None,
    "Begin with the model of an earlier run of the same vocabulary and sizes: its "
    "directory 'model', or the run's directory for its last checkpoint. The guarantee "
    "takes it for public.",
)
_INITIAL_BIAS = flags.DEFINE_enum(
    "initial_bias",
    "zero",
    ["zero", "public"],
    "Output bias to begin with. public: the log of public word frequencies; with the "
    "default vocabulary only.",
)
_MAX_SENTENCES = flags.DEFINE_integer(
    "max_sentences", 256, "The first sentences of a client that are used."
)
_MAX_WORDS = flags.DEFINE_integer(
    "max_words", 20, "The first words of a sentence that are used."
)
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 16, "Sentences of a client's batch.")
_SENTENCE_WORDS = flags.DEFINE_float(
    "mean_sentence_words",
    8.0,
    "Synthetic population: mean number of words of a sentence. A sentence ends after "
    "each word with the same probability.",
)
_CONTEXT_STRENGTH = flags.DEFINE_float(
    "context_strength",
    0.7,
    "Synthetic population: probability that a word with followers of its own is "
    "followed by one of them, and not by a word drawn from the frequencies.",
)
_NUM_FOLLOWERS = flags.DEFINE_integer(
    "num_followers", 4, "Synthetic population: followers of each word that has some."
)
_CONTEXT_WORDS = flags.DEFINE_integer(
    "context_words",
    1000,
    "Synthetic population: how many words have followers of their own, the most "
    "frequent ones. All should be in the vocabulary, so that they can be learned.",
)
_NUM_HELD_OUT = flags.DEFINE_integer(
    "num_held_out_clients", 100, "Clients that train nothing and judge the model."
)
_MECHANISM = flags.DEFINE_enum(
    "mechanism",
    "dp_ftrl",
    ["dp_ftrl", "dp_fedavg", "fedavg"],
    "Tree-aggregated noise, independent noise, or none.",
)
_REPORT_GOAL = flags.DEFINE_integer(
    "report_goal", None, "Clients whose updates a round sums up (m). Has to be given."
)
_NUM_ROUNDS = flags.DEFINE_integer("num_rounds", 100, "Rounds (T).")
_NOISE_MULTIPLIER = flags.DEFINE_float(
    "noise_multiplier", 7.0, "z of the guarantee; not used by fedavg."
)
_CLIP_NORM = flags.DEFINE_float(
    "clip_norm", None, "Clip norm C, or C^0 with --adaptive_clip. fedavg: may be unset."
)
_ADAPTIVE_CLIP = flags.DEFINE_bool(
    "adaptive_clip",
    False,
    "Estimate the clip norm as a quantile of the updates' norms (Algorithm 1). With "
    "dp_ftrl it changes after rounds 128 + 1024 i, or --first_restart and so on.",
)
_QUANTILE = flags.DEFINE_float("target_quantile", 0.5, "Of --adaptive_clip (gamma).")
_CLIP_LEARNING_RATE = flags.DEFINE_float(
    "clip_learning_rate", 0.2, "Of --adaptive_clip (eta_gamma)."
)
_COUNT_STDDEV = flags.DEFINE_float(
    "clipped_count_stddev",
    None,
    "Noise on the clipped counts (sigma_b) of --adaptive_clip. By default a twentieth "
    "of the report goal.",
)
_FIRST_RESTART = flags.DEFINE_integer(
    "first_restart", 128, "Round of the first restart with --adaptive_clip."
)
_RESTART_PERIOD = flags.DEFINE_integer(
    "restart_period", 1024, "Rounds between restarts with --adaptive_clip."
)
_CLIENT_LEARNING_RATE = flags.DEFINE_float(
    "client_learning_rate", 0.5, "Of clients' SGD (eta_c)."
)
_CLIENT_EPOCHS = flags.DEFINE_integer(
    "client_epochs", 1, "How often a client goes through its sentences."
)
_SERVER_LEARNING_RATE = flags.DEFINE_float(
    "server_learning_rate", 1.0, "Of the server (eta_s)."
)
_MOMENTUM = flags.DEFINE_float("momentum", 0.9, "Of the server (beta).")
_OVER_SELECTION = flags.DEFINE_float(
    "over_selection", 1.0, "Clients asked to take part, for each that is needed."
)
_DROP_OUT = flags.DEFINE_float(
    "drop_out", 0.0, "Probability that a client that is asked does not report."
)
_TIMER_HOURS = flags.DEFINE_integer(
    "timer_hours", 24, "Simulated hours until a client may be asked again."
)
_ROUND_MINUTES = flags.DEFINE_integer(
    "round_minutes", 10, "Simulated minutes of a round."
)
_MIN_SEPARATION = flags.DEFINE_integer(
    "min_separation",
    None,
    "MinS that is enforced: rounds strictly between two of a client. Unset: measured.",
)
_MAX_PARTICIPATION = flags.DEFINE_integer(
    "max_participation", None, "MaxP that is enforced. Unset: measured."
)
_DIURNAL = flags.DEFINE_bool(
    "diurnal",
    True,
    "Clients are there while they charge and are idle, mostly at night. Else always.",
)
_DELTA = flags.DEFINE_float("delta", 1e-10, "Delta of the guarantee.")
_EVALUATE_EVERY = flags.DEFINE_integer(
    "evaluate_every", 10, "Rounds between evaluations on held-out clients."
)
_CHECKPOINT_EVERY = flags.DEFINE_integer(
    "checkpoint_every", 10, "Rounds between checkpoints."
)
_NUM_BLOCKS = flags.DEFINE_integer(
    "num_blocks", 8, "Into how many TFF client values a cohort is cut."
)
flags.adopt_module_key_flags(population_flags)
flags.adopt_module_key_flags(experiment_flags)


def _language_options():
    from simulation.readers import synthetic_sentences

    return synthetic_sentences.LanguageOptions(
        mean_sentence_words=_SENTENCE_WORDS.value,
        context_strength=_CONTEXT_STRENGTH.value,
        num_followers=_NUM_FOLLOWERS.value,
        context_words=_CONTEXT_WORDS.value,
    )


def _server_parameters():
    from privacy import tree_aggregation
    from training import dp_ftrl_parameters as lib

    mechanism = lib.Mechanism(_MECHANISM.value)
    private = mechanism is not lib.Mechanism.NONE
    if private and _CLIP_NORM.value is None:
        raise ValueError(f"--mechanism={mechanism.value} needs --clip_norm")
    adaptive, restarts = None, ()
    if _ADAPTIVE_CLIP.value:
        stddev = _COUNT_STDDEV.value
        adaptive = lib.AdaptiveClip(
            _REPORT_GOAL.value / 20 if stddev is None else stddev,
            _QUANTILE.value,
            _CLIP_LEARNING_RATE.value,
        )
        if mechanism is lib.Mechanism.TREE:
            restarts = tree_aggregation.restart_schedule(
                _NUM_ROUNDS.value, _FIRST_RESTART.value, _RESTART_PERIOD.value
            )
    return lib.ServerParameters(
        mechanism=mechanism,
        report_goal=_REPORT_GOAL.value,
        num_rounds=_NUM_ROUNDS.value,
        noise_multiplier=_NOISE_MULTIPLIER.value if private else 0.0,
        clip_norm=math.inf if _CLIP_NORM.value is None else _CLIP_NORM.value,
        server_learning_rate=_SERVER_LEARNING_RATE.value,
        momentum=_MOMENTUM.value,
        adaptive_clip=adaptive,
        restart_rounds=restarts,
    )


def _rule(num_clients: int, seed: int):
    from simulation import participation_timers as timers

    return timers.ParticipationRule(
        num_clients=num_clients,
        report_goal=_REPORT_GOAL.value,
        num_rounds=_NUM_ROUNDS.value,
        seed=seed,
        over_selection=_OVER_SELECTION.value,
        drop_out=_DROP_OUT.value,
        timer_hours=_TIMER_HOURS.value,
        round_minutes=_ROUND_MINUTES.value,
        min_separation=_MIN_SEPARATION.value,
        max_participation=_MAX_PARTICIPATION.value,
        availability=timers.DiurnalAvailability() if _DIURNAL.value else None,
    )


def _vocabulary():
    """Returns the vocabulary, and what is public about it."""
    from training import vocabulary as lib

    if _VOCABULARY.value is not None:
        words = lib.Vocabulary.read(_VOCABULARY.value)
        return words, f"the vocabulary, {_VOCABULARY.value} (given by the user)."
    words = lib.Vocabulary.from_english(_VOCABULARY_SIZE.value)
    return words, "the vocabulary, the most frequent English words of wordfreq."


def _best_possible(options, vocabulary, tokenizer):
    """Returns what no model can beat, where the law of the text is known."""
    from simulation import population_options

    if options.source != population_options.SYNTHETIC:
        return None
    from simulation.readers import synthetic_sentences
    from training import best_possible

    language = synthetic_sentences.SyntheticLanguage.english(
        _language_options(), options.seed, tokenizer
    )
    best = best_possible.best_possible(language, vocabulary, _MAX_WORDS.value)
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
    from simulation import run_directory, runtime, sentence_tokenizers
    from training import client_sentences

    parameters = _server_parameters()
    vocabulary, public_data = _vocabulary()
    options = population_flags.options_from_flags()
    tokenizer = sentence_tokenizers.get_sentence_tokenizer("keyboard")
    text = client_sentences.prepare(
        options,
        vocabulary,
        tokenizer,
        flags.FLAGS.population_cache,
        _language_options(),
    )
    # TensorFlow comes last: it takes seconds to import.
    from training import (
        client_update,
        dp_ftrl,
        examples,
        exported_model,
        initial_model,
        model,
        training_report,
    )
    from training import training_experiment as experiment

    clients = experiment.Clients.split(
        text.num_clients, _NUM_HELD_OUT.value, arguments.seed
    )
    rule = _rule(len(clients.training), arguments.seed)
    schedule = experiment.Schedule(
        _EVALUATE_EVERY.value, _CHECKPOINT_EVERY.value, delta=_DELTA.value
    )
    language_model = model.cifg_language_model(
        vocabulary.num_tokens,
        num_units=_NUM_UNITS.value,
        projection_size=_EMBEDDING_SIZE.value,
        embedding_size=_EMBEDDING_SIZE.value,
    )
    beginning = initial_model.beginning(
        language_model.initial_weights(arguments.seed),
        vocabulary,
        _INITIAL_MODEL.value,
        has_public_bias=_INITIAL_BIAS.value == "public",
    )
    limits = examples.ClientLimits(
        _MAX_SENTENCES.value, _MAX_WORDS.value, _BATCH_SIZE.value
    )
    facts = {"population": text.fingerprint, "vocabulary": vocabulary.fingerprint}
    facts |= beginning.facts
    process = dp_ftrl.DpFtrlProcess(
        client_update.FederatedRounds(
            language_model,
            examples.MappedText(text, limits),
            client_update.LocalTraining(
                _CLIENT_LEARNING_RATE.value, _CLIENT_EPOCHS.value
            ),
            _NUM_BLOCKS.value,
        ),
        parameters,
        arguments.seed,
        noise_key=arguments.noise_key.value,
    )
    baseline = experiment.unigram_baseline(text, clients, limits, vocabulary.num_tokens)
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
    with run_directory.open_for(arguments, program=_PROGRAM, facts=facts) as directory:
        if arguments.resume and parameters.noise_multiplier:
            _check_versions(directory.run)
        with runtime.tff_worker():
            result = experiment.run_rounds(
                process, rule, clients, directory, schedule, beginning.weights
            )
        training_report.write(
            directory,
            parameters,
            rule,
            result,
            dict(baseline),
            schedule.delta,
            f"{public_data} {beginning.public_data}".rstrip(),
            best,
        )
        exported_model.export(
            language_model,
            result.state.weights,
            vocabulary,
            limits.max_words + 1,
            directory.path / "model",
        )
        directory.complete()
        print(f"Model: {directory.path / 'model'}")
        print(f"Report: {directory.path / 'report.html'}")


def _check_versions(run: dict) -> None:
    """Refuses to go on with other code: it may sum otherwise, with the same noise."""
    from simulation import software

    changed = software.changed_versions(run)
    if changed:
        raise ValueError(
            "rounds after the checkpoint are computed again with the same noise, which "
            "hides nothing if the sums are others; but the run began with "
            f"{'; '.join(changed)}. Continue with those versions, or begin a new run"
        )


def _check_flags() -> None:
    if _REPORT_GOAL.value is None:
        raise ValueError("give --report_goal, the clients of a round")
    if _INITIAL_BIAS.value == "public":
        for flag in (_VOCABULARY, _INITIAL_MODEL):
            if flag.value is not None:
                raise ValueError(
                    f"--initial_bias=public goes with no --{flag.name}: it needs the "
                    "default vocabulary, whose frequencies are known, and is itself "
                    "where a model begins"
                )
    if _INITIAL_MODEL.value is not None:
        # A run is independent of the directory that it was begun in.
        path = os.path.abspath(_INITIAL_MODEL.value)
        flags.FLAGS[_INITIAL_MODEL.name].value = path
    _server_parameters()
    _language_options()


def main(argv: list[str]) -> None:
    """Checks the flags and runs."""
    experiment_flags.run_program(
        argv, _PROGRAM, _check_flags, run, is_synthetic=population_flags.is_synthetic
    )


if __name__ == "__main__":
    app.run(main)
