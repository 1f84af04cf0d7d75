"""Noise on sums of clipped model updates, and the clip norm that adapts.

Noise is added to the integer sum (`integer_noise`), and what has noise becomes floats:
tree-aggregated noise makes DP-FTRL (Xu et al. 2023, Algorithm 1), independent noise
DP-FedAvg; `correlated_noise` has more. Where the clip norm adapts, each client also
sends whether its update was no longer than the tracked norm.

Independent noise of another scale in each round takes a subclass with one function:

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class DecayingNoise(update_noise.GaussianNoise):
        decay: float

        def multiplier(self, number: int) -> float:
            return self.noise_multiplier * self.decay**number
"""

import abc
import dataclasses
import fractions
import functools
import math
from typing import ClassVar

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import rounding
from federated_hh.privacy.dp_ftrl import (
    model_updates,
    noise_calibration,
    tree_aggregation,
    worst_participation,
)
from federated_hh.randomness import identities, integer_noise, streams

_SENSITIVITY = model_updates.ClippedUpdate.sensitivity
_LEAST_CLIP_NORM = 1e-15
_LEAST_LOG_NORM = -40.0
# What a client's bit, 1/2 or -1/2, is in the integer sum of counts, to which noise is
# added: so large that rounding the noise to integers does not show.
COUNT_UNIT = 1 << 20


class TrackedNormError(RuntimeError):
    """The estimate of the clip norm leaves the numbers that a float32 can square."""


@identities.identity("AdaptiveClip", "count_stddev quantile learning_rate")
@dataclasses.dataclass(frozen=True)
class AdaptiveClip:
    """Quantile-based clip estimation (Andrew et al. 2021; Xu et al. 2023, Algorithm 1).

    Attributes:
        count_stddev: sigma_b, noise on the number of clients below the norm; above 0.
            The paper takes a twentieth of the report goal.
        quantile: gamma, the share of updates that are to be left unclipped; in (0, 1).
        learning_rate: eta_gamma, of the norm's logarithm; above 0.
    """

    count_stddev: float
    quantile: float = 0.5
    learning_rate: float = 0.2

    def __post_init__(self):
        for name in ("count_stddev", "learning_rate"):
            checks.positive(**{name: getattr(self, name)})
        checks.holds(0 < self.quantile < 1, "in (0, 1)", quantile=self.quantile)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddedNoise(model_updates.UpdateMechanism):
    """The base class of mechanisms with noise: `TreeNoise` and `GaussianNoise`.

    Attributes:
        noise_multiplier: z of the guarantee, above 0: that of updates and counts
            together.
        adaptive_clip: None for a fixed clip norm.
    """

    noise_multiplier: float
    adaptive_clip: AdaptiveClip | None = None

    @property
    @abc.abstractmethod
    def kind(self) -> integer_noise.IntegerNoise:
        """The class of the noise on sums, and on counts."""

    def __post_init__(self):
        super().__post_init__()
        checks.positive(clip_norm=self.clip_norm)
        checks.holds(
            self.clip_norm >= _LEAST_CLIP_NORM,
            f"at least {_LEAST_CLIP_NORM}: a float32 holds no squares of less",
            clip_norm=self.clip_norm,
        )
        for multiplier in {self.multiplier(n) for n in range(self.num_rounds)}:
            self._check_multiplier(multiplier)

    def _check_multiplier(self, multiplier: float) -> None:
        checks.positive(noise_multiplier=multiplier)
        if self.adaptive_clip is None:
            return
        limit = 2 * self.adaptive_clip.count_stddev
        checks.holds(
            multiplier < limit,
            f"below {limit:g}, twice the noise of the clip estimation: this part "
            "alone would spend the guarantee. Raise count_stddev",
            noise_multiplier=multiplier,
        )

    def multiplier(self, number: int) -> float:
        """Returns z of a round, from 0."""
        del number
        return self.noise_multiplier

    def delta_multiplier(self, number: int) -> float:
        """Returns z_delta, of the noise on a round's sum of updates.

        With the noise on the counts, whose sensitivity is 1/2, it makes one Gaussian
        mechanism of `multiplier` (Xu et al. 2023, Theorem 1).
        """
        if self.adaptive_clip is None:
            return float(self.multiplier(number))
        return noise_calibration.delta_noise_multiplier(
            self.multiplier(number), self.adaptive_clip.count_stddev
        )

    def prefix_stddev(self, num_rounds: int) -> float:
        """Returns the standard deviation of a coordinate of the worst prefix sum.

        Args:
            num_rounds: Rounds done.

        Returns:
            In units of the clip norm, if that does not change.
        """
        return math.hypot(*(self.delta_multiplier(n) for n in range(num_rounds)))

    @property
    def emptied_factor(self) -> fractions.Fraction:
        """Upper bound on the zCDP of emptying a client over that of zero-out.

        An emptied client sends zeros. Its bit moves by 1 instead of 1/2, which costs
        1 / (2 sigma_b^2) a round instead of 1 / (8 sigma_b^2) (docs/integer_noise.md).
        """
        if self.adaptive_clip is None:
            return fractions.Fraction(1)
        most = max(map(self.multiplier, range(self.num_rounds)))
        sigma = fractions.Fraction(self.adaptive_clip.count_stddev)
        return 1 + fractions.Fraction(3, 4) * (fractions.Fraction(most) / sigma) ** 2

    def restarts_after(self, number: int) -> bool:
        """Returns whether a new tree, or clip norm, starts after a round, from 0."""
        del number
        return self.adaptive_clip is not None  # independent noise can always change

    def parameters(self, num_rounds: int) -> dict[str, float | int | str]:
        """Returns the mechanism's parameters in statements, by name.

        Args:
            num_rounds: Rounds done.
        """
        first, last = self.multiplier(0), self.multiplier(num_rounds - 1)
        values = super().parameters(num_rounds) | {
            "noise multiplier z": first,
            "noise multiplier on updates z_delta": self.delta_multiplier(0),
        }
        if last != first:
            values["noise multiplier of the last round"] = last
        if self.adaptive_clip is not None:
            values["noise on clipped counts sigma_b"] = self.adaptive_clip.count_stddev
            values["target quantile"] = self.adaptive_clip.quantile
        return values

    def check_room(self, cohort_size: int) -> None:
        """Raises `ValueError` where a noisy sum could leave its integers."""
        updates = cohort_size * self.num_rounds
        most = self.delta_multiplier(max(range(self.num_rounds), key=self.multiplier))
        integer_noise.check_room(most * _SENSITIVITY, updates * _SENSITIVITY)
        if self.adaptive_clip is not None:
            integer_noise.check_room(self.count_stddev(), updates * COUNT_UNIT)

    def release(
        self,
        total: model_updates.UpdateSum,
        state: model_updates.UpdateState,
        facts: plan_lib.Facts,
        stream: streams.Stream,
    ) -> plan_lib.Release[model_updates.UpdateState]:
        """Returns `ReleasedUpdate`, of an `UpdateSum`.

        Args:
            total: The total of clipped updates.
            state: State after the last round.
            facts: Has the `clip_norm` that the clients were told.
            stream: The stream of the round.

        Raises:
            ValueError: If the clients were told another clip norm, or the sum is not
                one of integers.
            TrackedNormError: If the clip estimation would run away.
        """
        if facts["clip_norm"] != state.clip_norm:
            raise ValueError(
                f"clients clipped to {facts['clip_norm']}; they have to clip to the "
                f"current clip norm, {state.clip_norm}."
            )
        stddev = self.delta_multiplier(state.round_number)
        value, noise = self._add(total.parts, stddev, state, stream.at("updates"))
        tracked_norm, count_noise = self._track(total, state, stream.at("counts"))
        clip_norm = state.clip_norm
        if self.restarts_after(state.round_number):
            # In the sum's integers the noise is the same for every clip norm.
            noise = self.kind.restart(noise)
            if self.adaptive_clip is not None:
                clip_norm = tracked_norm
                count_noise = self.kind.restart(count_noise)
        after = model_updates.UpdateState(
            state.round_number + 1, clip_norm, tracked_norm, noise, count_noise
        )
        return plan_lib.Release(
            model_updates.ReleasedUpdate(
                value, total.num_clients, clip_norm, tracked_norm
            ),
            after,
            model_updates.metrics_of(
                state.clip_norm, tracked_norm, stddev * state.clip_norm
            ),
        )

    def _add(self, parts, stddev: float, state, stream):
        """Returns a round's sum with noise, as floats, and the noise's next state."""
        flat = np.concatenate([part.reshape(-1) for part in parts.values()])
        if flat.dtype != np.int64:
            raise ValueError(
                f"the sum to which noise is added is {flat.dtype}; it has to be "
                "int64. Clip the updates."
            )
        noisy, noise = self.kind.add(flat, stddev * _SENSITIVITY, state.noise, stream)
        del flat  # As large as the model; what follows needs the room.
        values = np.empty(len(noisy), np.float32)
        unit = model_updates.unit_of(state.clip_norm)
        np.multiply(noisy, unit, out=values, dtype=np.float64, casting="same_kind")
        value, first = {}, 0
        for name, part in parts.items():
            value[name] = values[first : first + part.size].reshape(part.shape)
            first += part.size
        return value, noise

    def _track(
        self,
        total: model_updates.UpdateSum,
        state: model_updates.UpdateState,
        stream: streams.Stream,
    ):
        """Returns the next estimate of the quantile, from a noisy count."""
        adaptive = self.adaptive_clip
        if adaptive is None:
            return state.tracked_norm, state.count_noise
        # Each client counts -1/2 or 1/2, so that one more or less, which counts 0,
        # changes the sum by 1/2 (Andrew et al. 2021). So does one who dropped out.
        goal = total.num_clients
        centred = np.array([(2 * total.num_below - total.num_summed) * COUNT_UNIT])
        noisy, noise = self.kind.add(
            centred, self.count_stddev(), state.count_noise, stream
        )
        share = float(noisy[0]) / (2 * COUNT_UNIT * goal) + 0.5
        exponent = -adaptive.learning_rate * (share - adaptive.quantile)
        # Beyond these a float32 norm, or its square, is 0 or infinite.
        logarithm = math.log(state.tracked_norm) + exponent
        if not _LEAST_LOG_NORM < logarithm < -_LEAST_LOG_NORM:
            raise TrackedNormError(
                f"round {state.round_number}: the tracked norm would become "
                f"exp({logarithm:.4g}); lower the noise of the clip estimation or its "
                "learning rate."
            )
        return state.tracked_norm * math.exp(exponent), noise

    def count_stddev(self) -> float:
        """Returns the deviation of the noise on counts, in their integers' units."""
        assert self.adaptive_clip is not None
        return 2 * self.adaptive_clip.count_stddev * COUNT_UNIT


@dataclasses.dataclass(frozen=True, kw_only=True)
class RestartedNoise(AddedNoise):
    """Noise of one scale that restarts after some rounds; see `TreeNoise`.

    Attributes:
        restart_rounds: Rounds (from 0, increasing) after which the noise restarts;
            the only ones after which an adaptive clip norm changes.
    """

    restart_rounds: tuple[int, ...] = ()

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "restart_rounds", tuple(self.restart_rounds))
        tree_aggregation.tree_lengths(self.num_rounds, self.restart_rounds)
        for number in range(self.num_rounds):
            if self.multiplier(number) != self.noise_multiplier:
                raise ValueError(
                    f"round {number} has the noise multiplier "
                    f"{self.multiplier(number)}; it has to have "
                    f"{self.noise_multiplier}: "
                    f"{self.name} has noise of one scale."
                )

    def parameters(self, num_rounds: int) -> dict[str, float | int | str]:
        """Returns the mechanism's parameters in statements, by name."""
        restarts = [str(r) for r in self.restart_rounds if r < num_rounds]
        return super().parameters(num_rounds) | {
            "restart rounds": ", ".join(restarts) or "none"
        }

    def restarts_after(self, number: int) -> bool:
        """Returns whether the noise restarts after a round, from 0."""
        return number in self.restart_rounds

    def restarts_before(self, num_rounds: int) -> tuple[int, ...]:
        """Returns the restarts that another of so many rounds follows."""
        return tuple(r for r in self.restart_rounds if r < num_rounds - 1)


@identities.identity(
    "TreeNoise",
    "num_rounds clip_norm noise_multiplier adaptive_clip restart_rounds",
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeNoise(RestartedNoise):
    """DP-FTRL: tree-aggregated noise (Kairouz et al. 2021)."""

    kind = integer_noise.Tree()
    name: ClassVar[str] = "dp_ftrl"
    about: ClassVar[str] = (
        "DP-FTRL: Gaussian noise on the integer sums of a tree's nodes; from the nodes "
        "with noise alone, prefix sums of clipped updates in Honaker's efficient form, "
        "released as residuals, with server momentum (Kairouz et al. 2021; Xu et al. "
        "2023, Algorithm 1)"
    )
    planned: ClassVar[str] = (
        "zCDP of the noise trees (Kairouz et al. 2021, appendix D), the worst case "
        "over all participations that MinS and MaxP allow, restarts included."
    )
    realised: ClassVar[str] = (
        "zCDP of the noise trees (Kairouz et al. 2021, appendix D), restarts included, "
        "for the client whose participations, as they were, cost the most."
    )
    verifiability: ClassVar[str] = (
        "The accounting is open source. federated_hh.run_accounting "
        "--mechanism=dp_ftrl "
        "gives the worst case of the parameters below; what was realised, which may "
        "be less, follows from the list of participations in the run's checkpoints "
        "(federated_hh.privacy.dp_ftrl.tree_aggregation.observed_zcdp). "
        "The run itself is a simulation."
    )

    def prefix_stddev(self, num_rounds: int) -> float:
        """See base class; of the estimates that `integer_noise.Tree` makes."""
        lengths = tree_aggregation.tree_lengths(
            num_rounds, self.restarts_before(num_rounds)
        )
        return self.delta_multiplier(0) * tree_aggregation.largest_error(lengths)

    def zcdp(self, limits: plan_lib.Limits, num_rounds: int) -> float:
        """Returns rho in the worst case; see `model_updates.UpdateMechanism`."""
        limits = possible_limits(limits, num_rounds)
        return tree_aggregation.TreeAggregation(
            noise_multiplier=self.noise_multiplier,
            num_rounds=num_rounds,
            min_separation=limits.min_separation,
            max_participation=limits.max_participation,
            restart_rounds=self.restarts_before(num_rounds),
        ).rho

    def observed_zcdp(
        self, clients: np.ndarray, rounds: np.ndarray, num_rounds: int
    ) -> float:
        """Returns rho of what happened; see `model_updates.UpdateMechanism`."""
        return tree_aggregation.observed_zcdp(
            noise_multiplier=self.noise_multiplier,
            clients=clients,
            rounds=rounds,
            num_rounds=num_rounds,
            restart_rounds=self.restart_rounds,
        )


@identities.identity(
    "GaussianNoise",
    "num_rounds clip_norm noise_multiplier adaptive_clip",
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianNoise(AddedNoise):
    """DP-FedAvg: independent noise in each round (McMahan et al. 2018).

    A subclass may have another scale in each round: see this module's docstring.
    """

    kind = integer_noise.Independent()
    name: ClassVar[str] = "dp_fedavg"
    about: ClassVar[str] = (
        "DP-FedAvg: independent Gaussian noise on each round's integer sum of clipped "
        "updates (McMahan et al. 2018), without amplification by sampling"
    )
    planned: ClassVar[str] = (
        "zCDP of Gaussian mechanisms, one a participation: of the MaxP rounds that "
        "cost the most, of all that MinS allows."
    )
    realised: ClassVar[str] = (
        "zCDP of Gaussian mechanisms, one a participation, for the client whose "
        "participations, as they were, cost the most."
    )
    verifiability: ClassVar[str] = (
        "The accounting is open source: a participation costs 1 / (2 z^2) with the "
        "noise multiplier z of its round, which federated_hh.run_accounting has no "
        "mechanism for; the run itself is a simulation."
    )

    def round_rho(self, number: int) -> fractions.Fraction:
        """Returns the zCDP of a participation in a round, counted from 0."""
        return 1 / (2 * fractions.Fraction(self.multiplier(number)) ** 2)

    @functools.cached_property
    def _costs(self) -> tuple[fractions.Fraction, ...]:
        return tuple(
            fractions.Fraction(self.round_rho(number))
            for number in range(self.num_rounds)
        )

    @functools.cached_property
    def _rounded_costs(self) -> np.ndarray:
        return np.array(self._costs, np.float64)

    @functools.cached_property
    def _is_constant(self) -> bool:
        return len(set(self._costs)) == 1

    def zcdp(self, limits: plan_lib.Limits, num_rounds: int) -> float:
        """Returns rho of the costliest rounds; see `model_updates.UpdateMechanism`."""
        limits = possible_limits(limits, num_rounds)
        if self._is_constant:
            return rounding.upwards(limits.max_participation * self._costs[0])
        return worst_participation.largest_sum(
            self._rounded_costs[:num_rounds],
            limits.max_participation,
            limits.min_separation,
        )

    def observed_zcdp(
        self, clients: np.ndarray, rounds: np.ndarray, num_rounds: int
    ) -> float:
        """Returns rho of what happened; see `model_updates.UpdateMechanism`."""
        # Every round is a tree of one node.
        counts = tree_aggregation.observed_square_sums(
            clients, rounds, num_rounds * (1,)
        )
        most = int(counts.max(initial=0))
        if self._is_constant:
            return rounding.upwards(most * self._costs[0])
        sums = np.bincount(clients, weights=self._rounded_costs[rounds], minlength=1)
        return rounding.sum_upwards(float(sums.max()), most)


def possible_limits(limits: plan_lib.Limits, num_rounds: int) -> plan_lib.Limits:
    """Returns limits without what a number of rounds makes impossible."""
    separation = min(limits.min_separation, num_rounds - 1)
    possible = tree_aggregation.largest_participation(num_rounds, separation)
    return plan_lib.Limits(min(limits.max_participation, possible), separation)
