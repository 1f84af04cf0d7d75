"""Updates as small integers, for secure aggregation (Xu et al. 2023, Algorithm 2).

A client scales its update by s, clips it to s C, rotates it by random signs and a
normalized Hadamard matrix, bounds its coordinates by C_inf, rounds them at random until
the integers' squared norm is within a limit, and sends them shifted, modulo 2^k. The
limit, which is checked in integers, is the accounting's replacement for C:
docs/secure_aggregation.md has the proof.
"""

import dataclasses
import fractions
import functools
import math

from federated_hh.options import checks
from federated_hh.privacy import rounding
from federated_hh.privacy.dp_ftrl import model_updates, update_noise
from federated_hh.randomness import identities

# q = s C / sqrt(padded dimension) where no scale is asked for: a client's coordinate
# has this deviation in the integers. Rounding then costs 0.13% of noise.
DEFAULT_RATIO = 10.0
# A larger model than 2^31 - 1 numbers has no sum (`integer_noise`).
_LARGEST_DIMENSION = 2**31 - 1
# Largest inflation of the norm by rounding that is still allowed.
_LARGEST_FACTOR = 16
# Relative error of the server's floats before rounding: of eight operations, each by
# 2^-53.
_FLOAT_ERROR = fractions.Fraction(1, 2**50)


@identities.identity(
    "RotatedUpdate",
    "clip_norm scale num_values num_clients",
    without="population_has_empty_clients",
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class RotatedUpdate(model_updates.Update):
    """A client's model update as small integers of a bounded norm.

    Attributes:
        clip_norm: C, to which an update is clipped; above 0.
        scale: s, above 0: an integer stands for 1 / s.
        num_values: d, the numbers of an update; at least 1.
        num_clients: m, the clients of every round, for which the modulus is made.
    """

    clip_norm: float
    scale: float
    num_values: int
    num_clients: int

    def __post_init__(self):
        checks.positive(clip_norm=self.clip_norm)
        checks.positive(scale=self.scale)
        checks.integer(num_values=self.num_values, least=1, most=_LARGEST_DIMENSION)
        checks.integer(num_clients=self.num_clients, least=1)
        self._check_least()
        self._check_width()

    @classmethod
    def of(
        cls,
        *,
        clip_norm: float,
        num_values: int,
        num_clients: int,
        scale: float | None = None,
    ) -> "RotatedUpdate":
        """Returns the contribution of a scale; None for the one of `DEFAULT_RATIO`."""
        if scale is None:
            checks.positive(clip_norm=clip_norm)
            scale = DEFAULT_RATIO * math.sqrt(_padded(num_values)) / clip_norm
        return cls(
            clip_norm=clip_norm,
            scale=scale,
            num_values=num_values,
            num_clients=num_clients,
        )

    @property
    def dimension(self) -> int:
        """The padded size of updates, for which a Hadamard matrix is known.

        The least of 4, 5, 6 and 7 times a power of two that is not below their size.
        """
        return _padded(self.num_values)

    @property
    def ratio(self) -> float:
        """The size of a coordinate of the longest update: q = s C / sqrt(dimension).

        Rounding moves it by half of one.
        """
        return self.scale * self.clip_norm / math.sqrt(self.dimension)

    @property
    def largest_coordinate(self) -> int:
        """C_inf = ceil(2 s C log(dimension) / sqrt(dimension))."""
        return math.ceil(2 * self.ratio * math.log(self.dimension))

    @property
    def bits(self) -> int:
        """k: the modulus 2^k is the least that holds all sums, 0 to 2 C_inf m."""
        return (2 * self.largest_coordinate * self.num_clients).bit_length()

    @property
    def num_bytes(self) -> int:
        """The bytes that a client sends in a round: dimension times k bits."""
        return -(-self.dimension * self.bits // 8)

    @functools.cached_property
    def squared_limit(self) -> int:
        """The most that the squared norm of a client's integers is.

        s^2 C^2 + D / 4 + sqrt(2 log(1 / alpha)) (s C + sqrt(D) / 2), rounded downwards,
        with alpha = exp(-0.5), so that the root is 1.
        """
        scaled = self._scaled_norm
        dimension = fractions.Fraction(self.dimension)
        root = fractions.Fraction(math.sqrt(self.dimension))
        return math.floor(scaled**2 + dimension / 4 + scaled + root / 2)

    @functools.cached_property
    def norm_factor(self) -> fractions.Fraction:
        """C_inflated / C plus the server's rounding error, as an upper bound.

        The server rotates a sum back in integers and rounds it once to units of
        C / 2^32, which moves two neighbouring sums by sqrt(d) of them at most.
        """
        floats = 1 + 2 * self.num_clients * _FLOAT_ERROR
        unit = 1 << model_updates.FRACTION_BITS
        return (
            _root_upwards(self.squared_limit) / self._scaled_norm * floats
            + _root_upwards(self.num_values) / unit
        )

    @property
    def _scaled_norm(self) -> fractions.Fraction:
        return fractions.Fraction(self.scale) * fractions.Fraction(self.clip_norm)

    def _check_least(self) -> None:
        # Below this the limit is more than `_LARGEST_FACTOR` clip norms.
        least = 1 / (2 * _LARGEST_FACTOR)
        if self.ratio < least:
            needed = least * math.sqrt(self.dimension) / self.clip_norm
            raise ValueError(
                f"scale is {self.scale:g}; it has to be at least {needed:.4g}: with "
                f"{self.num_values:,} values and a clip norm of {self.clip_norm:g}, a "
                "smaller scale leaves only rounding noise."
            )

    def _check_width(self) -> None:
        # Of the integers' squared norm, and of their sum when it is rotated back.
        room = min(
            math.isqrt((2**63 - 1) // self.dimension),
            (2**63 - 1) // (self.dimension * self.num_clients),
        )
        if math.isfinite(self.ratio) and self.largest_coordinate <= room:
            return
        root = math.sqrt(self.dimension)
        most = room * root / (2 * self.clip_norm * math.log(self.dimension))
        raise ValueError(
            f"scale is {self.scale:g}; it has to be at most {most:.4g}: with "
            f"{self.num_values:,} values, {self.num_clients:,} clients and a clip "
            f"norm of {self.clip_norm:g}, the computation would not fit into 64-bit "
            "integers."
        )

    def check(self, cohort_size: int, mechanism: model_updates.UpdateMechanism) -> None:
        """Raises `ValueError` where a round has another cohort or clip norm."""
        if cohort_size != self.num_clients:
            raise ValueError(
                f"cohort_size is {cohort_size:,}; it has to be {self.num_clients:,}: "
                "the modulus of secure aggregation was chosen for that number."
            )
        if mechanism.clip_norm != self.clip_norm:
            raise ValueError(
                f"clip_norm is {mechanism.clip_norm}; it has to be {self.clip_norm}, "
                "for which the scale of secure aggregation was chosen."
            )
        adaptive = None
        if isinstance(mechanism, update_noise.AddedNoise):
            adaptive = mechanism.adaptive_clip
        if adaptive is not None:
            raise ValueError(
                f"adaptive_clip is {adaptive}; it has to be unset: "
                "secure aggregation by Algorithm 2 has a fixed clip norm."
            )
        super().check(cohort_size, mechanism)

    def parameters(self) -> dict[str, float | int | str]:
        """Returns the encoding's parameters in statements, by name."""
        return {
            "scale s of secure aggregation": self.scale,
            "padded dimension": self.dimension,
            "bound of a coordinate C_inf": self.largest_coordinate,
            "C_inflated / C": rounding.upwards(self.norm_factor),
            "factor of rho, (C_inflated / C)^2": rounding.upwards(self.rho_factor),
            "bits of the modulus, a parameter": self.bits,
            "bytes that a client sends in a round": self.num_bytes,
        }

    def metrics(self) -> dict[str, int]:
        """Returns the size of a number that a client sends."""
        return {"bits_per_parameter": self.bits}


def _padded(num_values: int) -> int:
    unit = 1 << max(2, (num_values - 1).bit_length() - 3)
    return -(-num_values // unit) * unit


def _root_upwards(number: int) -> fractions.Fraction:
    """Returns an upper bound on a square root, right to 2^-64."""
    return fractions.Fraction(math.isqrt(number << 128) + 1, 2**64)
