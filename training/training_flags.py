"""The flags of `run_training`, with their ranges, and what is made of them.

Every number has an upper bound: beyond it a setting means nothing, or cannot be
counted, and would end in an overflow or never.
"""

import math

from absl import flags

# A layer of more cells than this is no keyboard's model. Memory is the closer limit:
# see `memory_needs`.
_LARGEST_LAYER = 2**16
# Of rounds, clients and sentences: what a 32-bit number counts.
_LARGEST_COUNT = 2**31 - 1
# Learning rates above this make any model infinite.
_LARGEST_RATE = 1e6
_DEFAULT_NOISE_MULTIPLIER = 7.0
# More noise would leave no room for sums in 64 bits.
LARGEST_NOISE_MULTIPLIER = 2.0**20
# Less noise guarantees nothing: at 1e-3, one participation has an epsilon of 500,000.
# Its square, by which accounting divides, is far from where floats end.
_LEAST_NOISE = 1e-3

VOCABULARY = flags.DEFINE_string(
    "vocabulary",
    None,
    "A vocabulary file: <pad>, <oov>, <bos>, <eos>, then one word a line. By default "
    "the --vocabulary_size most frequent English words of public text.",
)
VOCABULARY_SIZE = flags.DEFINE_integer(
    "vocabulary_size",
    10_000,
    "Words, where --vocabulary is not given: of the 100,000 most frequent.",
    lower_bound=1,
    upper_bound=100_000,
)
NUM_UNITS = flags.DEFINE_integer(
    "num_units",
    670,
    "Memory cells of the CIFG-LSTM; at most 2^16.",
    lower_bound=1,
    upper_bound=_LARGEST_LAYER,
)
EMBEDDING_SIZE = flags.DEFINE_integer(
    "embedding_size",
    96,
    "Size of the input embeddings, the output embeddings and the projection; at most "
    "2^16.",
    lower_bound=1,
    upper_bound=_LARGEST_LAYER,
)
INITIAL_MODEL = flags.DEFINE_string(
    "initial_model",
    None,
    "Begin with the model of an earlier run of the same vocabulary and sizes: its "
    "directory 'model', or the run's directory for its last checkpoint. The guarantee "
    "takes it for public.",
)
INITIAL_BIAS = flags.DEFINE_enum(
    "initial_bias",
    "zero",
    ["zero", "public"],
    "Output bias to begin with. public: the log of public word frequencies; with the "
    "default vocabulary only.",
)
MAX_SENTENCES = flags.DEFINE_integer(
    "max_sentences",
    256,
    "The first sentences of a client that are used.",
    lower_bound=1,
    upper_bound=_LARGEST_COUNT,
)
MAX_WORDS = flags.DEFINE_integer(
    "max_words",
    20,
    "The first words of a sentence that are used; at most 1,000: the model is built "
    "with a step for each.",
    lower_bound=1,
    upper_bound=1000,
)
BATCH_SIZE = flags.DEFINE_integer(
    "batch_size",
    16,
    "Sentences of a client's batch.",
    lower_bound=1,
    upper_bound=_LARGEST_COUNT,
)
SENTENCE_WORDS = flags.DEFINE_float(
    "mean_sentence_words",
    8.0,
    "Synthetic population: mean number of words of a sentence. A sentence ends after "
    "each word with the same probability.",
)
CONTEXT_STRENGTH = flags.DEFINE_float(
    "context_strength",
    0.7,
    "Synthetic population: probability that a word with followers of its own is "
    "followed by one of them, and not by a word drawn from the frequencies.",
)
NUM_FOLLOWERS = flags.DEFINE_integer(
    "num_followers",
    4,
    "Synthetic population: followers of each word that has some.",
    lower_bound=1,
    upper_bound=1000,
)
CONTEXT_WORDS = flags.DEFINE_integer(
    "context_words",
    1000,
    "Synthetic population: how many words have followers of their own, the most "
    "frequent ones. All should be in the vocabulary, so that they can be learned.",
    lower_bound=1,
    upper_bound=1_000_000,
)
NUM_HELD_OUT = flags.DEFINE_integer(
    "num_held_out_clients",
    100,
    "Clients that train nothing and judge the model.",
    lower_bound=1,
    upper_bound=_LARGEST_COUNT,
)
MECHANISM = flags.DEFINE_enum(
    "mechanism",
    "dp_ftrl",
    ["dp_ftrl", "dp_fedavg", "fedavg"],
    "Tree-aggregated noise, independent noise, or none.",
)
REPORT_GOAL = flags.DEFINE_integer(
    "report_goal",
    None,
    "Clients whose updates a round sums up (m). Has to be given. At most 2^29 - 1: the "
    "secure sum has 62 bits, and an update takes 33.",
    lower_bound=1,
    upper_bound=2**29 - 1,
)
NUM_ROUNDS = flags.DEFINE_integer(
    "num_rounds",
    100,
    "Rounds (T); at most 100,000, some fifty times the longest run of Xu et al. 2023.",
    lower_bound=1,
    upper_bound=100_000,
)
NOISE_MULTIPLIER = flags.DEFINE_float(
    "noise_multiplier",
    None,
    "z of the guarantee; 7 by default. Not used by fedavg. At least 0.001: less "
    "guarantees nothing. At most 2^20: the noise has to fit into 64 bits beside the "
    "sum.",
    lower_bound=_LEAST_NOISE,
    upper_bound=LARGEST_NOISE_MULTIPLIER,
)
EPSILON = flags.DEFINE_float(
    "epsilon",
    None,
    "Instead of --noise_multiplier: the wanted epsilon at --delta. Takes the least "
    "noise with which the worst participation that --num_rounds, --min_separation and "
    "--max_participation allow is within it; at most 1000.",
)
CLIP_NORM = flags.DEFINE_float(
    "clip_norm",
    None,
    "Clip norm C, or C^0 with --adaptive_clip. fedavg: may be unset. "
    "1e-15 to 1e15: squares and sums of updates have to be float32's.",
    upper_bound=1e15,
)
ADAPTIVE_CLIP = flags.DEFINE_bool(
    "adaptive_clip",
    False,
    "Estimate the clip norm as a quantile of the updates' norms (Algorithm 1). With "
    "dp_ftrl it changes after rounds 128 + 1024 i, or --first_restart and so on.",
)
QUANTILE = flags.DEFINE_float("target_quantile", 0.5, "Of --adaptive_clip (gamma).")
CLIP_LEARNING_RATE = flags.DEFINE_float(
    "clip_learning_rate",
    0.2,
    "Of --adaptive_clip (eta_gamma).",
    upper_bound=_LARGEST_RATE,
)
COUNT_STDDEV = flags.DEFINE_float(
    "clipped_count_stddev",
    None,
    "Noise on the clipped counts (sigma_b) of --adaptive_clip. By default a twentieth "
    "of the report goal. At least 0.001; has to be above half of the noise multiplier.",
    lower_bound=_LEAST_NOISE,
    upper_bound=2.0**30,
)
FIRST_RESTART = flags.DEFINE_integer(
    "first_restart",
    128,
    "Round of the first restart with --adaptive_clip.",
    lower_bound=0,
    upper_bound=_LARGEST_COUNT,
)
RESTART_PERIOD = flags.DEFINE_integer(
    "restart_period",
    1024,
    "Rounds between restarts with --adaptive_clip.",
    lower_bound=1,
    upper_bound=_LARGEST_COUNT,
)
CLIENT_LEARNING_RATE = flags.DEFINE_float(
    "client_learning_rate",
    0.5,
    "Of clients' SGD (eta_c).",
    upper_bound=_LARGEST_RATE,
)
CLIENT_EPOCHS = flags.DEFINE_integer(
    "client_epochs",
    1,
    "How often a client goes through its sentences.",
    lower_bound=1,
    upper_bound=10_000,
)
SERVER_LEARNING_RATE = flags.DEFINE_float(
    "server_learning_rate",
    1.0,
    "Of the server (eta_s).",
    upper_bound=_LARGEST_RATE,
)
MOMENTUM = flags.DEFINE_float("momentum", 0.9, "Of the server (beta).")
OVER_SELECTION = flags.DEFINE_float(
    "over_selection",
    1.0,
    "Clients asked to take part, for each that is needed; 1 to 1000.",
    upper_bound=1000,
)
DROP_OUT = flags.DEFINE_float(
    "drop_out", 0.0, "Probability that a client that is asked does not report."
)
TIMER_HOURS = flags.DEFINE_integer(
    "timer_hours",
    24,
    "Simulated hours until a client may be asked again; at most ten years.",
    lower_bound=0,
    upper_bound=10 * 365 * 24,
)
ROUND_MINUTES = flags.DEFINE_integer(
    "round_minutes",
    10,
    "Simulated minutes of a round; at most a week.",
    lower_bound=1,
    upper_bound=7 * 24 * 60,
)
MIN_SEPARATION = flags.DEFINE_integer(
    "min_separation",
    None,
    "MinS that is enforced: rounds strictly between two of a client. Unset: measured.",
    lower_bound=0,
    upper_bound=_LARGEST_COUNT,
)
MAX_PARTICIPATION = flags.DEFINE_integer(
    "max_participation",
    None,
    "MaxP that is enforced. Unset: measured.",
    lower_bound=1,
    upper_bound=_LARGEST_COUNT,
)
DIURNAL = flags.DEFINE_bool(
    "diurnal",
    True,
    "Clients are there while they charge and are idle, mostly at night. Else always.",
)
DELTA = flags.DEFINE_float("delta", 1e-10, "Delta of the guarantee.")
EVALUATE_EVERY = flags.DEFINE_integer(
    "evaluate_every",
    10,
    "Rounds between evaluations on held-out clients.",
    lower_bound=1,
    upper_bound=_LARGEST_COUNT,
)
CHECKPOINT_EVERY = flags.DEFINE_integer(
    "checkpoint_every",
    10,
    "Rounds between checkpoints.",
    lower_bound=1,
    upper_bound=_LARGEST_COUNT,
)
NUM_BLOCKS = flags.DEFINE_integer(
    "num_blocks",
    8,
    "Into how many TFF client values a cohort is cut; at most 10,000: each costs a "
    "quarter of a millisecond and more.",
    lower_bound=1,
    upper_bound=10_000,
)


def language_options():
    """Returns what synthetic clients write."""
    from simulation.readers import synthetic_sentences

    return synthetic_sentences.LanguageOptions(
        mean_sentence_words=SENTENCE_WORDS.value,
        context_strength=CONTEXT_STRENGTH.value,
        num_followers=NUM_FOLLOWERS.value,
        context_words=CONTEXT_WORDS.value,
    )


def server_parameters():
    """Returns the server's side, its noise solved for where --epsilon is given.

    Raises:
        ValueError: If the flags do not fit.
    """
    from privacy import tree_aggregation
    from training import dp_ftrl_parameters as lib

    mechanism = lib.Mechanism(MECHANISM.value)
    private = mechanism is not lib.Mechanism.NONE
    if private and CLIP_NORM.value is None:
        raise ValueError(f"--mechanism={mechanism.value} needs --clip_norm")
    adaptive, restarts = None, ()
    if ADAPTIVE_CLIP.value:
        stddev = COUNT_STDDEV.value
        adaptive = lib.AdaptiveClip(
            REPORT_GOAL.value / 20 if stddev is None else stddev,
            QUANTILE.value,
            CLIP_LEARNING_RATE.value,
        )
        if mechanism is lib.Mechanism.TREE:
            restarts = tree_aggregation.restart_schedule(
                NUM_ROUNDS.value, FIRST_RESTART.value, RESTART_PERIOD.value
            )
    return lib.ServerParameters(
        mechanism=mechanism,
        report_goal=REPORT_GOAL.value,
        num_rounds=NUM_ROUNDS.value,
        noise_multiplier=_noise_multiplier(mechanism, restarts),
        clip_norm=math.inf if CLIP_NORM.value is None else CLIP_NORM.value,
        server_learning_rate=SERVER_LEARNING_RATE.value,
        momentum=MOMENTUM.value,
        adaptive_clip=adaptive,
        restart_rounds=restarts,
    )


def _noise_multiplier(mechanism, restart_rounds: tuple[int, ...]) -> float:
    """Returns z: that of the flag, or the least one for the wanted epsilon."""
    from privacy import noise_calibration, tree_aggregation
    from training import dp_ftrl_parameters as lib

    if EPSILON.value is None:
        if mechanism is lib.Mechanism.NONE:
            return 0.0
        if NOISE_MULTIPLIER.value is None:
            return _DEFAULT_NOISE_MULTIPLIER
        return NOISE_MULTIPLIER.value
    if mechanism is lib.Mechanism.NONE:
        raise ValueError(
            f"--epsilon is {EPSILON.value}, but --mechanism=fedavg adds no noise; take "
            "another mechanism, or leave --epsilon out"
        )
    if NOISE_MULTIPLIER.value is not None:
        raise ValueError(
            f"--epsilon is {EPSILON.value} and --noise_multiplier is "
            f"{NOISE_MULTIPLIER.value}: give one of them, the other follows"
        )
    separation = min(MIN_SEPARATION.value or 0, NUM_ROUNDS.value - 1)
    possible = tree_aggregation.largest_participation(NUM_ROUNDS.value, separation)
    found = noise_calibration.noise_multiplier_for(
        EPSILON.value,
        DELTA.value,
        num_rounds=NUM_ROUNDS.value,
        min_separation=separation,
        max_participation=min(MAX_PARTICIPATION.value or possible, possible),
        restart_rounds=restart_rounds,
        independent_noise=mechanism is lib.Mechanism.GAUSSIAN,
    )
    if found > LARGEST_NOISE_MULTIPLIER:
        raise ValueError(
            f"--epsilon is {EPSILON.value}, which needs a noise multiplier of "
            f"{found:.3g}, above the largest, {LARGEST_NOISE_MULTIPLIER:g}; raise "
            "--epsilon, or lower --num_rounds or --max_participation"
        )
    return found


def delta() -> float:
    """Returns the guarantee's delta.

    Raises:
        ValueError: If it is not between 0 and 1.
    """
    if not 0 < DELTA.value < 1:
        raise ValueError(f"--delta={DELTA.value}: it has to be above 0 and below 1")
    return DELTA.value


def participation_rule(num_clients: int):
    """Returns how the clients of a round come together.

    Args:
        num_clients: Who train.

    Raises:
        ValueError: If the flags do not fit.
    """
    from rounds import timers

    return timers.Timers(
        num_clients=num_clients,
        cohort_size=REPORT_GOAL.value,
        num_rounds=NUM_ROUNDS.value,
        over_selection=OVER_SELECTION.value,
        drop_out=DROP_OUT.value,
        timer_hours=TIMER_HOURS.value,
        round_minutes=ROUND_MINUTES.value,
        min_separation=MIN_SEPARATION.value,
        max_participation=MAX_PARTICIPATION.value,
        availability=timers.DiurnalAvailability() if DIURNAL.value else None,
    )
