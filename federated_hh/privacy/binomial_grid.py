"""Binomial laws cut into few blocks, in ways that keep a bound a bound.

The accounting sums functions of binomial counts whose range can be in the 100,000s.
A block of counts is replaced by one or two of its ends: by the lower end where the
function falls with the count, by a chord over the block where it is convex. Either
makes the sum larger, never smaller.
"""

import math

import numpy as np

# Standard deviations on either side, and a constant for laws close to Poisson's: the
# mass outside is below 1e-25 and is added to the ends.
_DEVIATIONS = 11.0
_MARGIN = 45


def relative_error(trials: int) -> float:
    """Bounds the relative error of SciPy's binomial functions, generously.

    Args:
        trials: Number of trials.

    Returns:
        A relative error that `scipy.stats.binom.pmf` and `.sf` keep: measured up to
        2e-12 at 1e7 trials and 2.3e-8 at 1e9.
    """
    return 1e-10 if trials <= 10**8 else 1e-6


def fair_coins(count: np.ndarray, trials: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Computes point and tail probabilities of fair coin tosses.

    Args:
        count: float or int [nodes], of any value.
        trials: float or int [nodes], at least 0.

    Returns:
        (P(B = count), P(B > count)) for B ~ Binomial(trials, 1/2), float64 [nodes];
        0 beyond 40 standard deviations above the mean, where either is below 1e-347.
    """
    from scipy import stats

    count, trials = np.broadcast_arrays(count, trials)
    near = 2 * count - trials <= 40 * np.sqrt(trials)
    point, tail = np.zeros(count.shape), np.zeros(count.shape)
    point[near] = stats.binom.pmf(count[near], trials[near], 0.5)
    tail[near] = stats.binom.sf(count[near], trials[near], 0.5)
    return point, tail


def band(trials: int, probability: float) -> tuple[int, int]:
    """Finds a range that holds all of a binomial law but a mass below 1e-25.

    Args:
        trials: Number of trials, at least 0.
        probability: Success probability, in [0, 1].

    Returns:
        (lowest, highest) count, both included.
    """
    mean = trials * probability
    reach = _DEVIATIONS * math.sqrt(mean * (1 - probability)) + _MARGIN
    return max(0, math.floor(mean - reach)), min(trials, math.ceil(mean + reach))


def lower_ends(
    trials: int, probability: float, max_blocks: int
) -> tuple[np.ndarray, np.ndarray]:
    """Cuts a binomial law into blocks that are represented by their lower ends.

    Args:
        trials: Number of trials, at least 0.
        probability: Success probability, in [0, 1].
        max_blocks: Largest number of blocks.

    Returns:
        (counts, masses): int64 and float64 [blocks]; E f <= sum masses * f(counts)
        for every f that is non-negative and non-increasing.
    """
    from scipy import stats

    lowest, highest = band(trials, probability)
    width = max(1, math.ceil((highest - lowest + 1) / max_blocks))
    starts = np.arange(lowest, highest + 1, width, dtype=np.int64)
    if width == 1:
        masses = stats.binom.pmf(starts, trials, probability)
    else:
        every = np.arange(lowest, highest + 1, dtype=np.int64)
        masses = np.add.reduceat(
            stats.binom.pmf(every, trials, probability),
            np.arange(0, len(every), width),
        )
    below = stats.binom.cdf(lowest - 1, trials, probability)
    above = stats.binom.sf(highest, trials, probability)
    counts = np.concatenate([[0], starts, [highest]])
    return counts, np.concatenate([[below], masses, [above]])


def chord_nodes(
    trials: np.ndarray, probability: float, max_nodes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Moves binomial laws to few nodes by mean-preserving spreads.

    Args:
        trials: int64 [laws], numbers of trials, at least 0.
        probability: Success probability, in [0, 1].
        max_nodes: Number of blocks a law, at least 1; less where the law is narrow.

    Returns:
        (counts, weights): int64 and float64 [laws, nodes]; E f <= sum over a row of
        weights * f(counts) for every f that is convex, non-negative and
        non-increasing (Edmundson's and Madansky's inequality within each block).
    """
    from scipy import stats

    trials = np.asarray(trials, dtype=np.int64)
    mean = trials * probability
    reach = _DEVIATIONS * np.sqrt(mean * (1 - probability)) + _MARGIN
    lowest = np.maximum(0, np.floor(mean - reach)).astype(np.int64)
    highest = np.minimum(trials, np.ceil(mean + reach)).astype(np.int64)
    width = np.maximum(1, -((lowest - highest) // max_nodes))
    steps = int(np.max(-((lowest - highest) // width)))
    nodes = lowest[:, None] + width[:, None] * np.arange(steps + 1)
    # Block i is [nodes[i], nodes[i + 1]); its mass and its first moment are
    # differences of distribution functions, as k b(k; n, p) = n p b(k - 1; n - 1, p).
    below = stats.binom.cdf(nodes - 1, trials[:, None], probability)
    moments = mean[:, None] * stats.binom.cdf(
        nodes - 2, np.maximum(trials - 1, 0)[:, None], probability
    )
    mass = np.diff(below)
    upper = (np.diff(moments) - mass * nodes[:, :-1]) / width[:, None]
    upper = np.clip(upper, 0.0, mass)
    weights = np.zeros(nodes.shape)
    weights[:, :-1] += mass - upper
    weights[:, 1:] += upper
    # Above the last node the function is at most its value there.
    weights[:, -1] += stats.binom.sf(nodes[:, -1] - 1, trials, probability)
    counts = np.concatenate([np.zeros_like(nodes[:, :1]), nodes], axis=1)
    return counts, np.concatenate([below[:, :1], weights], axis=1)
