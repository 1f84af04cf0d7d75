"""Sizes of a private run that suit its clients, and the effect of its noise."""

import dataclasses
import math

from federated_hh.options.fields import OptionError
from federated_hh.privacy import conversions
from federated_hh.privacy.dp_ftrl import model_updates, planning, update_noise
from federated_hh.rounds import timers
from training.federated import options as options_lib
from training.federated import plans

# Ratios of the noise on the model after the last round to the longest way that clipped
# updates can take it. Measured with the model of configs/training_demo.flagfile, whose
# loss by word frequencies is 4.21: it ends at 3.75 where the ratio is 0.1, at 4.13
# where it is 1, and at 4.24 where it is 2. On short sentences from templates, a small
# model suggests 66% of the words at 0.4, 30% at 1.4, and none at 2.7.
LEARNS = 0.1
USEFUL = 0.4
DROWNS = 2.0
# Models with fewer parameters are not worth advice.
_FEWEST_PARAMETERS = 10_000
# Of the noise of one round, in clip norms: a few rounds of less leave the model whole.
_LARGE = 4.0
# Standard deviation of the noise on a weight. The same model learns at 0.085; at 0.28
# its loss grows to 141.
_LARGEST_STEP, _GOOD_STEP = 0.15, 0.05
# Share of typed words in the vocabulary: with fewer, a model learns "unknown" first.
_FEWEST_KNOWN = 0.5
# Up to these, a cohort is a third of the clients, and the model small.
FEW_CLIENTS, _SOME_CLIENTS = 10_000, 30_000
# Words, memory cells and embedding size of models for such populations.
_SMALL, _MEDIUM = (1_000, 64, 32), (5_000, 256, 64)
# A run is long where clients train so many times as often as in a sensible one.
_LONG = 10
# Settings that `best` tries: rounds, and participations of a client.
_ROUNDS = (25, 50, 100, 200, 400)
_PASSES = (1, 2, 4, 8)


def available_share(is_diurnal: bool, over_selection: float = 1.0) -> float:
    """Returns the share of the clients that are available to a round's sum.

    Args:
        is_diurnal: True if clients are available mostly at night.
        over_selection: Clients picked per needed report, at least 1.
    """
    share = timers.DiurnalAvailability().dependable_share if is_diurnal else 1.0
    return share / over_selection


def sensible(
    num_clients: int, num_rounds: int | None = None, share: float = 1.0
) -> dict[str, int | float]:
    """Returns settings that make sense for a number of training clients.

    Few clients take part often, in large cohorts and few rounds, because that needs the
    least noise. Of many clients a simulation samples some, for as many rounds as a
    small machine trains in about an hour.

    Args:
        num_clients: Number of training clients.
        num_rounds: Rounds, if given.
        share: Share of the clients that are available in every round.

    Returns:
        Values by the options' names.
    """
    is_few = num_clients < FEW_CLIENTS
    rounds = num_rounds or (25 if is_few else 200)
    most = int(min(1 / 3, share / 2) * num_clients)
    cohort = most if is_few else min(500, num_clients // rounds)
    words, units, embedding = _SMALL if num_clients < _SOME_CLIENTS else _MEDIUM
    return {
        "cohort_size": max(1, cohort),
        "num_rounds": rounds,
        "clip_norm": 0.5,
        "vocabulary_size": words,
        "num_units": units,
        "embedding_size": embedding,
    }


def long_run(options: options_lib.TrainingOptions, num_clients: int) -> str:
    """Returns a warning of a run ten times as long as a sensible one, or nothing.

    Args:
        options: The run's settings.
        num_clients: Number of training clients.
    """
    share = available_share(options.diurnal, options.over_selection)
    sizes = sensible(num_clients, share=share)
    usual = sizes["cohort_size"] * sizes["num_rounds"]
    asked = options.cohort_size * options.num_rounds
    if asked <= _LONG * usual:
        return ""
    return (
        f"{asked:,} times a client trains, {asked / usual:.0f} times as often as with "
        f"--cohort_size={sizes['cohort_size']} --num_rounds={sizes['num_rounds']}, "
        f"which suit {num_clients:,} clients on one machine."
    )


def check_vocabulary(options: options_lib.TrainingOptions, known: float) -> str:
    """Returns the share of typed words in the vocabulary, with advice if it is small.

    Args:
        options: The run's settings.
        known: The share, in [0, 1].

    Raises:
        OptionError: The share is below a half, and `allow_unknown_words` is not set.
    """
    told = f"{known:.1%} of the typed words are in the vocabulary"
    if known >= _FEWEST_KNOWN:
        return f"{told}."
    source = "the file" if options.vocabulary else "wordfreq's most frequent ones"
    if options.allow_unknown_words:
        return (
            f"{told}, {source}: the model learns that the others are unknown. "
            "--language and --vocabulary take other words, --vocabulary_size more."
        )
    raise OptionError(
        options,
        "only {told}, {source}, so that the model would learn that words are unknown. "
        "Give the clients' --language, their words by {vocabulary}, or more words "
        "by {vocabulary_size}; {allow_unknown_words} runs it as it is",
        told=told,
        source=source,
    )


def within_population(
    options: options_lib.TrainingOptions, num_clients: int
) -> options_lib.TrainingOptions:
    """Returns options with the participation limits for a given epsilon.

    If an epsilon is given and MinS is not, clients take part as rarely as the
    population allows, so the realised epsilon is the wanted one.

    Args:
        options: The run's settings.
        num_clients: Number of training clients.
    """
    if options.epsilon is None or options.min_separation is not None:
        return options
    limits = _limits(options, num_clients)
    return dataclasses.replace(
        options,
        min_separation=limits.min_separation,
        max_participation=limits.max_participation,
    )


def _limits(options: options_lib.TrainingOptions, num_clients: int):
    share = available_share(options.diurnal)
    picked = math.ceil(options.cohort_size * options.over_selection)
    # Where not even one round can count on enough clients, they may be asked each time.
    possible = max(share, min(1.0, picked / num_clients))
    return planning.limits_of_population(
        num_clients,
        options.cohort_size,
        options.num_rounds,
        num_picked=min(picked, num_clients),
        available_share=possible,
        max_participation=options.max_participation,
    )


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a run, with its noise ratio.

    Attributes:
        cohort_size: Clients in a round's sum.
        num_rounds: Rounds.
        min_separation: MinS.
        noise_multiplier: z.
        ratio: See `NoiseCheck.ratio`.
        step: See `NoiseCheck.step`.
    """

    cohort_size: int
    num_rounds: int
    min_separation: int
    noise_multiplier: float
    ratio: float
    step: float


@dataclasses.dataclass(frozen=True)
class NoiseCheck:
    """A private run's noise, before its first round.

    Attributes:
        options: The run's settings.
        mechanism: The run's mechanism.
        num_clients: Number of training clients.
        num_parameters: Number of the model's parameters.
    """

    options: options_lib.TrainingOptions
    mechanism: update_noise.AddedNoise
    num_clients: int
    num_parameters: int

    @classmethod
    def of(
        cls,
        options: options_lib.TrainingOptions,
        mechanism: model_updates.UpdateMechanism,
        num_clients: int,
        num_parameters: int,
    ) -> "NoiseCheck | None":
        """Returns the check of a run; None where the mechanism adds no noise."""
        if not isinstance(mechanism, update_noise.AddedNoise):
            return None
        return cls(options, mechanism, num_clients, num_parameters)

    @property
    def ratio(self) -> float:
        """Norm of the noise on the model over the longest way of clipped updates."""
        rounds = self.options.num_rounds
        stddev = self.mechanism.prefix_stddev(rounds)
        way = self.options.cohort_size * rounds
        return stddev * math.sqrt(self.num_parameters) / way

    @property
    def length(self) -> float:
        """Norm of the noise on a round's mean update, in clip norms."""
        stddev = self.mechanism.delta_multiplier(0)
        return stddev * math.sqrt(self.num_parameters) / self.options.cohort_size

    @property
    def epsilon(self) -> float:
        """Epsilon of the worst case that the run's limits allow, for zero-out."""
        if self.options.epsilon is not None:
            return self.options.epsilon
        rounds = self.options.num_rounds
        limits = plans.sampler(self.options, self.num_clients).limits(rounds)
        rho = self.mechanism.zcdp(limits, rounds)
        return conversions.zcdp_to_epsilon(rho, self.options.delta)

    def line(self) -> str:
        """Returns the run's noise in a line."""
        options = self.options
        z = self.mechanism.multiplier(0)
        limits = "MinS and MaxP as measured"
        if options.min_separation is not None or options.max_participation is not None:
            limits = f"MinS {options.min_separation or 0:,}"
            if options.max_participation is not None:
                limits += f", MaxP {options.max_participation:,}"
        return (
            f"Noise multiplier z = {z:.4g}, {limits}. The noise of a round has the "
            f"norm of {self.length:.3g} clipped updates. After {options.num_rounds:,} "
            f"rounds it is {self.ratio:.2g} of the largest possible change of the "
            f"model (a model learns up to {LEARNS:g}, and not above {DROWNS:g})."
        )

    @property
    def step(self) -> float:
        """Standard deviation of the noise on a weight; 0 where it is not known."""
        rounds, cohort = self.options.num_rounds, self.options.cohort_size
        return _step(self.options, self.mechanism.prefix_stddev(rounds) / cohort)

    @property
    def lower_rate(self) -> float | None:
        """A server learning rate that this noise allows; None if the run's own is."""
        if self.step <= _LARGEST_STEP:
            return None
        rate = self.options.server_learning_rate * _GOOD_STEP / self.step
        return float(f"{rate:.1g}")

    def check(self) -> None:
        """Refuses a run whose noise drowns it, or whose steps are too long for it.

        Raises:
            OptionError: The noise is too large, and `allow_useless_noise` is not set.
        """
        if self.options.allow_useless_noise:
            return
        if self.ratio > DROWNS and self.length > _LARGE:
            raise OptionError(
                self.options,
                "the noise drowns this run: {line} {help} {allow_useless_noise} runs "
                "it unchanged",
                line=self.line(),
                help=self.help(),
            )
        if rate := self.lower_rate:
            raise OptionError(
                self.options,
                "{server_learning_rate=} is too high for this noise, which would "
                "have a standard deviation of {step:.2g} on each weight; use "
                "{flag}={rate:g}. {line} {allow_useless_noise} runs it unchanged",
                step=self.step,
                flag="--server_learning_rate",
                rate=rate,
                line=self.line(),
            )

    def advice(self, *, has_public_text: bool) -> str:
        """Returns the change that would help the model most, with its effect.

        Args:
            has_public_text: Whether training began with a public model.
        """
        epsilon = self.epsilon
        if self.ratio <= LEARNS or not 0 < epsilon <= 500:
            if has_public_text:
                return "The noise hardly matters; a larger model may help most."
            return (
                "The noise hardly matters; pretraining on public text (scripts/run "
                "pretrain) would help most."
            )
        best = self.best(epsilon)
        change = f"{self._flags(best)} at the same epsilon"
        ratio = best.ratio
        if ratio > self.ratio / 2:
            change, ratio = "ten times the clients, in cohorts as large", ratio / 10
        return (
            f"The noise is {self.ratio:.2g} of the largest possible change of the "
            f"model. Most helpful change: {change}, for {ratio:.2g}. A further run on "
            "these clients adds its epsilon to this one's."
        )

    def help(self) -> str:
        """Returns the settings that would work, or the changes that would help."""
        epsilon = self.epsilon
        if not 0 < epsilon <= 1000:
            return "A smaller --noise_multiplier would guarantee nothing."
        best = self.best(epsilon)
        told = (
            f"{self.num_clients:,} clients and epsilon {epsilon:.3g}: the best "
            f"settings found, {self._flags(best)}, have {best.ratio:.2g}."
        )
        if best.ratio <= USEFUL:
            return f"{told} They would work."
        hope = "They learn a little" if best.ratio <= DROWNS else "No setting saves it"
        clients = self.num_clients * best.ratio / USEFUL
        parameters = self.num_parameters * (USEFUL / best.ratio) ** 2
        smaller = ""
        if parameters >= _FEWEST_PARAMETERS:
            smaller = (
                f"or at most about {_rounded(parameters):,} parameters instead of "
                f"{self.num_parameters:,} (--vocabulary_size, --num_units, "
                "--embedding_size), "
            )
        return (
            f"{told} {hope}: a useful model needs about {_rounded(clients):,} clients, "
            f"{smaller}or public text to begin with (--initial_model)."
        )

    def _flags(self, settings: Settings) -> str:
        """Returns flags to add to those of the run."""
        flags = [
            "--mechanism=blt",
            f"--cohort_size={settings.cohort_size}",
            f"--num_rounds={settings.num_rounds}",
            f"--min_separation={settings.min_separation}",
        ]
        if self.options.epsilon is None:
            flags.append(f"--noise_multiplier={settings.noise_multiplier:.4g}")
        if settings.step > _LARGEST_STEP:
            rate = self.options.server_learning_rate * _GOOD_STEP / settings.step
            flags.append(f"--server_learning_rate={rate:.1g}")
        return " ".join(flags)

    def best(self, epsilon: float) -> Settings:
        """Returns the settings with the smallest ratio, of some that are usual."""
        found = best_settings(
            self.options, self.num_clients, epsilon, self.num_parameters
        )
        return found or Settings(
            self.options.cohort_size,
            self.options.num_rounds,
            self.options.min_separation or 0,
            self.mechanism.multiplier(0),
            self.ratio,
            self.step,
        )


def best_settings(
    options: options_lib.TrainingOptions,
    num_clients: int,
    epsilon: float,
    num_parameters: int = 1,
) -> Settings | None:
    """Returns the settings with BLT noise whose noise is the smallest, of some tried.

    Args:
        options: The run's settings; its sizes and limits are not used.
        num_clients: Number of training clients.
        epsilon: The wanted epsilon.
        num_parameters: Number of the model's parameters, for the ratio.

    Returns:
        The settings; None if no cohort can be filled.
    """
    share = available_share(options.diurnal, options.over_selection)
    tried = (
        _tried(options, num_clients, cohort, rounds, epsilon, num_parameters)
        for rounds in _ROUNDS
        for passes in _PASSES
        if 1 <= (cohort := passes * num_clients // rounds) <= share * num_clients
    )
    found = [settings for settings in tried if settings is not None]
    return min(found, key=lambda settings: settings.ratio) if found else None


def _tried(
    options: options_lib.TrainingOptions,
    num_clients: int,
    cohort: int,
    rounds: int,
    epsilon: float,
    num_parameters: int,
) -> Settings | None:
    options = dataclasses.replace(
        options,
        cohort_size=cohort,
        num_rounds=rounds,
        min_separation=None,
        max_participation=None,
    )
    try:
        limits = _limits(options, num_clients)
    except ValueError:
        return None
    plan = planning.TrainingPlan(
        mechanism="blt",
        num_rounds=rounds,
        min_separation=limits.min_separation,
        max_participation=limits.max_participation,
    )
    z = plan.noise_multiplier(epsilon, options.delta)
    stddev = z * plan.prefix_error / cohort  # of a weight, in clip norms
    ratio = stddev * math.sqrt(num_parameters) / rounds
    step = _step(options, stddev)
    return Settings(cohort, rounds, limits.min_separation, z, ratio, step)


def _step(options: options_lib.TrainingOptions, stddev: float) -> float:
    """Returns the standard deviation of the noise on a weight; 0 if it is not known.

    Args:
        options: The run's settings.
        stddev: Standard deviation of the noise on the sum of mean updates, in clip
            norms.
    """
    if options.server_optimizer != "sgdm" or options.adaptive_clip:
        return 0.0
    return stddev * (options.clip_norm or 0.0) * options.server_learning_rate


def _rounded(number: float) -> int:
    """Returns a number with two digits."""
    return int(float(f"{number:.2g}"))
