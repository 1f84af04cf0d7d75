"""Trains a next-word model: flags, clients, process, run directory.

scripts/run training --flagfile=configs/training_demo.flagfile
"""

import dataclasses
from typing import Any

from absl import flags, logging

from federated_hh.command_line import experiment_flags, program_flags
from federated_hh.populations.options.population_options import (
    LanguageOptions,
    ResamplingOptions,
)
from federated_hh.runtime.worker import engine_options, startup
from federated_hh.runtime.worker.engine_options import SecureSumOptions
from training.baselines.other_models_options import OtherModelsOptions
from training.federated.options import TrainingOptions

_PROGRAM = program_flags.Program(
    "training.run_training",
    (
        (TrainingOptions, "The training"),
        (SecureSumOptions, "The secure sum"),
        (OtherModelsOptions, "Other models"),
        LanguageOptions,
        ResamplingOptions,
    ),
    "sentences",
    first=(
        *("population", "mechanism", "cohort_size", "num_rounds", "noise_multiplier"),
        *("epsilon", "clip_norm", "initial_model", "output_dir", "resume"),
    ),
)
_CHECKPOINTS_KEPT = 3


def _needs(
    options: TrainingOptions, mechanism, rotated, num_tokens: int, num_parameters: int
):
    """Returns the sizes that the run's memory and disk depend on."""
    from federated_hh.privacy.dp_ftrl import tree_aggregation, update_noise
    from training import memory_needs

    lengths: tuple[int, ...] = (0,)
    if isinstance(mechanism, update_noise.TreeNoise):
        lengths = tree_aggregation.tree_lengths(
            mechanism.num_rounds, mechanism.restart_rounds
        )
    matrix = getattr(mechanism, "matrix", None)
    words = options.max_words + 1
    return memory_needs.Needs(
        num_parameters=num_parameters,
        num_tokens=num_tokens,
        # The memory of a custom model, besides its scores, is not known.
        num_units=options.num_units if options.model is None else 0,
        batch_tokens=options.batch_size * words,
        num_blocks=options.num_blocks,
        tree_rounds=max(lengths),
        participations=options.cohort_size * options.num_rounds,
        buffers=0 if matrix is None else matrix.num_buffers,
        padded_values=0 if rotated is None else rotated.dimension,
    )


def _baselines(prepared, text, vocabulary, options, seed):
    """Returns the baselines, and the facts of them that a resumed run shares."""
    from training.baselines import baselines, other_models
    from training.text import windows

    clients, limits = prepared.clients, prepared.limits
    found = baselines.counted(text, clients, limits, vocabulary.num_tokens)
    held_out_text = windows.of_clients(
        text, clients.held_out, limits, vocabulary.num_tokens
    )
    named = _PROGRAM.read(OtherModelsOptions)
    paths = list(named.compare_with)
    others, fingerprints = other_models.evaluated(
        paths,
        vocabulary,
        held_out_text,
        limits.max_words,
        text,
        (text.fingerprint, str(seed), str(options.num_held_out_clients)),
        (*named.custom_models, *filter(None, [options.model])),
    )
    found += others
    if options.initial_model is not None:
        paths.append(options.initial_model)
    found += other_models.evaluated_ngrams(paths, held_out_text, vocabulary)
    language = baselines.language_of(
        _PROGRAM.population.read(), _PROGRAM.read(LanguageOptions)
    )
    found += baselines.of_language(
        language, vocabulary, held_out_text, limits.max_words
    )
    for baseline in found:
        logging.info("%s", baseline)
    return found, {"compared_with": fingerprints} if fingerprints else {}


def run(arguments: experiment_flags.Arguments) -> None:
    """Runs the experiment that the flags describe."""
    from federated_hh.files import freed_memory
    from federated_hh.populations import vocabulary as vocabulary_lib
    from training import memory_needs
    from training.federated import held_out, plans, sizing

    options = _PROGRAM.read(TrainingOptions)
    startup.use_onednn(options.onednn)
    if engine_options.chosen().runtime.runtime is engine_options.Runtime.WORKER:
        # Sums and noise; clients' work, with its many arrays, is elsewhere.
        freed_memory.return_large_at_once()
    vocabulary, public_data = options.read_vocabulary(_PROGRAM.population.read())
    network = options.custom_network(vocabulary.num_tokens, arguments.seed)
    num_parameters = memory_needs.parameters_of(options, vocabulary.num_tokens, network)
    mechanism = plans.mechanism(options, num_parameters)
    rotated = plans.contribution(options, num_parameters)
    needs = _needs(options, mechanism, rotated, vocabulary.num_tokens, num_parameters)
    needs.check()
    if not arguments.resume:
        needs.check_disk(arguments.output_dir, _CHECKPOINTS_KEPT)
    text = _PROGRAM.prepare_text(vocabulary)
    known = 1 - text.share_of(vocabulary_lib.OOV)
    logging.info("%s", sizing.check_vocabulary(options, known))
    split = held_out.Clients.of(text, options.num_held_out_clients, arguments.seed)
    num_training = len(split.training)
    limited = sizing.within_population(options, num_training)
    if limited is not options:
        options, mechanism = limited, plans.mechanism(limited, num_parameters)
    noise = sizing.NoiseCheck.of(options, mechanism, num_training, num_parameters)
    if noise is not None:
        rate = noise.lower_rate
        if rate and _PROGRAM.not_given("server_learning_rate"):
            _PROGRAM.choose({"server_learning_rate": rate}, "the noise of this run")
            options = dataclasses.replace(options, server_learning_rate=rate)
            noise = dataclasses.replace(noise, options=options)
        noise.check()
    if warning := sizing.long_run(options, num_training):
        logging.warning("%s", warning)
    # TensorFlow is imported last, because it takes seconds.
    from federated_hh.privacy.dp_ftrl import plan as plan_lib
    from federated_hh.rounds import experiment, masked_sums
    from training.federated import (
        dp_ftrl,
        initial_model,
        model_average,
        preparation,
        shared_text,
    )
    from training.models import exported_model
    from training.reports import federated as training_report

    masking = masked_sums.MaskedSums.of(_PROGRAM.read(SecureSumOptions))
    prepared = preparation.prepare(
        options, vocabulary, text, arguments.seed, network, masking
    )
    clients, beginning = prepared.clients, prepared.beginning
    first_text = shared_text.examine(
        options.initial_model,
        text,
        weights=initial_model.fingerprint(beginning.weights),
        is_synthetic=_PROGRAM.population.is_synthetic(),
        is_allowed=_PROGRAM.read(OtherModelsOptions).allow_shared_text,
    )
    public_data += f" {beginning.public_data} {first_text.public_data}".rstrip()
    average = model_average.ModelAverage.of(options.model_average)
    algorithm = prepared.algorithm(
        plan_lib.plan_of(
            plans.sampler(options, len(clients.training)), mechanism, rotated
        ),
        options.optimizer(),
        average,
    )
    logging.info(
        "%s clients train a model with %s parameters; %s clients are held out.",
        f"{len(clients.training):,}",
        f"{prepared.network.num_parameters():,}",
        f"{len(clients.held_out):,}",
    )
    if noise is not None:
        logging.info("%s", noise.line())
    found, others = _baselines(prepared, text, vocabulary, options, arguments.seed)

    def report(directory, outcome, statement):
        realised, planned = (
            training_report.with_public_data(
                stated,
                public_data,
                (*filter(None, [text.about]), *first_text.not_counted),
            )
            for stated in (statement, algorithm.plan.statement(None, options.delta))
        )
        if masking is not None:
            realised, planned = (
                masking.stated(stated, options.cohort_size)
                for stated in (realised, planned)
            )
        exported_model.export(
            prepared.network,
            outcome.states[0].model,
            vocabulary,
            prepared.limits.max_words + 1,
            directory.path / "model",
            _PROGRAM.population.read(),
        )
        if first_text.record is not None:
            weights = initial_model.fingerprint(outcome.states[0].model)
            first_text.record.write(directory.path / "model", weights)
        return training_report.write(
            directory,
            realised,
            planned,
            found,
            sampler=algorithm.plan.sampler,
            average=average,
            noise=noise,
            may_know_held_out=first_text.may_know_held_out,
            custom_model=options.model,
            about=text.about,
            begins=training_report.first_words(vocabulary),
        )

    done = experiment.run_experiment(
        algorithm,
        program=_PROGRAM.name,
        facts={
            "vocabulary": vocabulary.fingerprint,
            "num_clients": algorithm.plan.sampler.num_clients,
            **beginning.facts,
            **first_text.facts,
            **others,
            **masked_sums.facts(masking),
        },
        delta=options.delta,
        save_every=options.checkpoint_every,
        keep=_CHECKPOINTS_KEPT,
        observers=[
            dp_ftrl.update_metrics,
            *masked_sums.observers(masking),
            held_out.Evaluation(
                prepared.rounds, clients.held_out, options.evaluate_every
            ),
        ],
        report=report,
        **vars(arguments),
    )
    print(done.summary)


_LIMITS = ("min_separation", "max_participation")
# Flags of a model's size; if one is given, none is chosen.
_MODEL_SIZES = ("vocabulary_size", "num_units", "embedding_size")
_MODEL_GIVEN = (*_MODEL_SIZES, "vocabulary", "model", "initial_model")


def _choose_sizes() -> None:
    """Sets the flags of sizes that are not given, by the number of clients."""
    from training.federated import sizing

    given = flags.FLAGS
    names = [] if given.cohort_size else ["cohort_size", "num_rounds"]
    if given.mechanism != "fedavg":
        names.append("clip_norm")
    if not any(given[name].present for name in _MODEL_GIVEN):
        names += _MODEL_SIZES
    names = _PROGRAM.not_given(*names)
    if not names:
        return
    for name in names:
        # If there are few clients, the text is encoded again with fewer words.
        given[name].value = sizing.sensible(10**6)[name]
    if "cohort_size" in names:
        given["cohort_size"].value = 1
    _PROGRAM.check()  # before data are read
    num_training = _num_training()
    rounds = None if "num_rounds" in names else given.num_rounds
    share = sizing.available_share(given.diurnal, given.over_selection)
    chosen: dict[str, Any] = {**sizing.sensible(num_training, rounds, share)}
    left = ("cohort_size", "num_rounds", "mechanism", *_LIMITS)
    is_few = num_training < sizing.FEW_CLIENTS
    if is_few and given.epsilon and set(_PROGRAM.not_given(*left)) == {*left}:
        options = _PROGRAM.read(TrainingOptions)
        found = sizing.best_settings(options, num_training, given.epsilon)
        if found is not None:
            chosen |= {
                "mechanism": "blt",
                "cohort_size": found.cohort_size,
                "num_rounds": found.num_rounds,
            }
            names = ["mechanism", *names]
    _PROGRAM.choose(
        {name: chosen[name] for name in names}, f"{num_training:,} training clients"
    )


def _num_training() -> int:
    """Returns the number of training clients; their text is prepared for it."""
    from training.federated import held_out

    given, population = flags.FLAGS, _PROGRAM.population.read()
    if population.is_synthetic:
        return max(1, population.num_clients - given.num_held_out_clients)
    vocabulary, _ = _PROGRAM.read(TrainingOptions).read_vocabulary(population)
    text = _PROGRAM.prepare_text(vocabulary)
    split = held_out.Clients.of(text, given.num_held_out_clients, given.seed)
    return len(split.training)


def _check_flags() -> None:
    from training.federated import plans

    _choose_sizes()
    _PROGRAM.check()
    # Settings that do not fit the smallest model fit none.
    plans.mechanism(_PROGRAM.read(TrainingOptions), num_values=1)


if __name__ == "__main__":
    _PROGRAM.main(run, _check_flags)
