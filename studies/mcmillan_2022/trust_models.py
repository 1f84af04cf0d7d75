"""Trust models: the noise that a histogram gets for one guarantee, and from whom.

All have the same guarantee against an analyst, who sees no more than what is released,
for an exchange of one device's cell.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np
from scipy import optimize

from federated_hh.privacy import conversions
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.privacy.shuffle import renyi_aggregation
from federated_hh.randomness import discrete_gaussian, streams
from federated_hh.reports import plots

EPSILON, DELTA = 1.0, 1e-6
# As in Figure 4 of McMillan et al. 2022: (1 + 7) (1 + 3 (1 + 1 + 9)).
CELLS = 272
# A replacement takes one from a cell and adds one to another.
_L1, _L2 = 2.0, math.sqrt(2)
# That integer noise has beyond the Gaussian's whose guarantee it has, by
# docs/integer_noise.md.
_ROUNDING_VARIANCE = 5


@dataclasses.dataclass(frozen=True)
class Noise:
    """The noise of a trust model.

    Attributes:
        local_epsilon: The epsilon of what leaves a device, for replacement; None where
            that is the cell itself, or says nothing without the others'.
        variance: The variance of an estimate, averaged over the cells, by the formulas.
        draw: Given a true histogram and a stream, returns estimates: float64 [cells].
    """

    local_epsilon: float | None
    variance: Callable[[np.ndarray], float]
    draw: Callable[[np.ndarray, streams.Stream], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Model:
    """A trust model.

    Attributes:
        name: Name in tables and plots.
        trusted: The trust that it needs, for the page.
        left: The rest of the guarantee where that trust is broken.
        noise: Noise by number of devices.
        look: Color and line in the plot.
    """

    name: str
    trusted: str
    left: str
    noise: Callable[[int], Noise]
    look: tuple[str, str]


def reports(
    kind: shuffling.Randomizer, bound: shuffling.Randomizer | None, devices: int
) -> Noise:
    """Returns the noise of an encoding's reports.

    Args:
        kind: One of the one-hot encodings.
        bound: The bound of their sum; None where a report alone has EPSILON.
        devices: Number of reports.
    """
    from federated_hh.randomizers import (
        one_hot,  # here: TensorFlow takes seconds
    )

    is_symmetric = kind is shuffling.Randomizer.SYMMETRIC_ONE_HOT
    own = EPSILON / (2 if is_symmetric else 1)
    if bound is _SYMMETRIC:
        own = symmetric_epsilon(devices)
    elif bound is not None:
        own = shuffling.largest_local_epsilon(
            bound, epsilon=EPSILON, delta=DELTA, num_reports=devices
        )
    encoding = (
        one_hot.SymmetricOneHotEncoding
        if is_symmetric
        else one_hot.AsymmetricOneHotEncoding
    )
    randomizer = encoding(own, CELLS)

    def draw(histogram: np.ndarray, stream: streams.Stream) -> np.ndarray:
        sums = randomizer.sum_of_reports(histogram, stream.seed_sequence("reports"))
        return randomizer.estimate(sums, devices)

    return Noise(
        own * (2 if is_symmetric else 1),
        lambda histogram: float(np.mean(randomizer.variance(histogram, devices))),
        draw,
    )


@functools.lru_cache(maxsize=16)
def symmetric_epsilon(devices: int) -> float:
    """Returns the largest epsilon of symmetric reports whose sum has the guarantee.

    To a thousandth, downwards: `shuffling.largest_local_epsilon` is closer, and slow.

    Args:
        devices: Number of reports, at least 1000.
    """

    def excess(own: float) -> float:
        found = renyi_aggregation.symmetric_one_hot_epsilon(own, devices, DELTA)
        return math.log(found[0] / EPSILON)

    own = float(optimize.brentq(excess, EPSILON / 2, 20.0, rtol=1e-4, xtol=1e-4))
    while excess(own) > 0:
        own *= 0.9995
    return own


def discrete_laplace(devices: int) -> Noise:
    """Returns discrete Laplace noise with epsilon EPSILON and delta 0.

    The sum of n differences of negative binomial variables with 1/n successes has this
    law, so that n devices can add it together.
    """
    del devices
    ratio = math.exp(-EPSILON / _L1)

    def draw(histogram: np.ndarray, stream: streams.Stream) -> np.ndarray:
        generator = stream.generator("discrete Laplace")
        first, second = generator.geometric(1 - ratio, (2, CELLS))
        return histogram + (first - second).astype(float)

    return Noise(None, lambda histogram: 2 * ratio / (1 - ratio) ** 2, draw)


def gaussian(devices: int) -> Noise:
    """Returns the house's discrete Gaussian noise with (EPSILON, DELTA)."""
    del devices
    sampler = _sampler()

    def draw(histogram: np.ndarray, stream: streams.Stream) -> np.ndarray:
        return histogram + sampler.sample(stream.bits("Gaussian"), CELLS).astype(float)

    variance = sampler.stddev**2 + _ROUNDING_VARIANCE
    return Noise(None, lambda histogram: variance, draw)


@functools.cache
def _sampler() -> discrete_gaussian.DiscreteGaussian:
    return discrete_gaussian.DiscreteGaussian(gaussian_stddev())


def gaussian_stddev() -> float:
    """Returns the least standard deviation of Gaussian noise for the guarantee."""
    low, high = 1.0, 100.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        rho = _L2**2 / (2 * middle**2)
        if conversions.zcdp_to_epsilon(rho, DELTA) <= EPSILON:
            high = middle
        else:
            low = middle
    return high


_ASYMMETRIC = shuffling.Randomizer.ASYMMETRIC_ONE_HOT
_SYMMETRIC = shuffling.Randomizer.SYMMETRIC_ONE_HOT
_LOCAL = "the local epsilon of each report"
MODELS = (
    Model(
        "local",
        "nobody with anything",
        "epsilon 1, delta 0 against everybody",
        lambda n: reports(_ASYMMETRIC, None, n),
        (plots.MUTED, "-"),
    ),
    Model(
        "shuffled",
        "a shuffler not to tell the server whose a report is",
        _LOCAL,
        lambda n: reports(_ASYMMETRIC, shuffling.Randomizer.ARBITRARY, n),
        (plots.PINK, "--"),
    ),
    Model(
        "secure sum, asymmetric reports",
        "the protocol to show the server only the sum of enough reports",
        _LOCAL,
        lambda n: reports(_ASYMMETRIC, _ASYMMETRIC, n),
        (plots.ORANGE, "-"),
    ),
    Model(
        "secure sum, symmetric reports",
        "the same",
        _LOCAL,
        lambda n: reports(_SYMMETRIC, _SYMMETRIC, n),
        (plots.BLUE, "-"),
    ),
    Model(
        "two servers, symmetric reports",
        "one of two servers not to collude with the other",
        _LOCAL + "; one server alone learns nothing of a report",
        lambda n: reports(_SYMMETRIC, _SYMMETRIC, n),
        (plots.TEAL, ":"),
    ),
    Model(
        "secure sum, devices share the noise",
        "the protocol as above, and all devices to add their shares of the noise",
        "little: a device's own share is 0 nearly always",
        discrete_laplace,
        (plots.GREEN, "-"),
    ),
    Model(
        "trusted server, Gaussian noise",
        "the server with every device's cell",
        "nothing",
        gaussian,
        (plots.PURPLE, "-"),
    ),
    Model(
        "trusted server, Laplace noise",
        "the server with every device's cell",
        "nothing",
        discrete_laplace,
        (plots.INK, ":"),
    ),
)
