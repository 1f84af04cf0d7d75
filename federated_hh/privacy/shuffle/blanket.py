"""Amplification by shuffling of Subset Selection, through its privacy blanket.

Balle, Bell, Gascon, Nissim 2019 ("The privacy blanket of the shuffle model", Lemma
5.3): where every input's report is, with probability gamma, drawn from one and the same
law W (the blanket), n shuffled reports are (epsilon, delta)-DP with

    delta = E[(L_1 + ... + L_M)_+] / (gamma n),      M ~ Binomial(n, gamma),
    L = (R_x0(Y) - e^epsilon R_x1(Y)) / W(Y),        Y ~ W,

for replacement of one report's input x_0 by x_1. No claim is made about what the
victim's report does to the others, so this is an upper bound for any randomizer; for
Subset Selection it is tight, as lower bounds show.

Subset Selection over s items (Sun et al. 2024, Algorithm 1) sends each d-subset with
one of two probabilities w and w e^epsilon_0, the larger where it holds the input. So
the blanket is a uniform d-subset and gamma = s / (d e^epsilon_0 + s - d). With a =
e^epsilon, kappa = (a - 1) / (e^epsilon_0 - 1), and among the M blanket reports N with
exactly one of x_0 and x_1 (N_1 of them with x_0), N_3 with both and N_0 with neither,

    delta = (e^epsilon_0 - 1) / n * E[((1 + a) N_1 - a N - b)_+],
    b = (a - 1 + kappa) N_3 + kappa N_0 + kappa N,      N_1 | N ~ Binomial(N, 1/2).

The inner mean over N_1 is a closed form in binomial tails; the law of (N, N_3, N_0) is
multinomial, summed exactly where it is narrow and over blocks, upwards, where it is
wide. k-ary randomized response is the case d = 1, s = k.
"""

import decimal
import fractions
import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import binomial_grid, loss_composition
from federated_hh.privacy.shuffle import clones

_DIGITS = 60

# A node whose share of delta cannot exceed this is left out, and accounted for.
_NEGLIGIBLE = 1e-24


def best_subset_size(local_epsilon: float, domain_size: int) -> int:
    """Computes the number of items of a Subset Selection report.

    Args:
        local_epsilon: Local epsilon, in (0, 100].
        domain_size: Items s a report is drawn from, the "no item" symbol included;
            at least 2.

    Returns:
        d = ceil(s / (e^epsilon_0 + 1)) (Sun et al. 2024, Algorithm 1), from 60 decimal
        digits: in float64 a share that is nearly an integer may end on its other
        side.

    Raises:
        ValueError: An argument is outside its range.
    """
    local_epsilon = checks.positive(
        local_epsilon=local_epsilon, most=clones.LARGEST_LOCAL_EPSILON
    )
    size = checks.integer(domain_size=domain_size, least=2)
    with decimal.localcontext(prec=_DIGITS):
        share = size / (decimal.Decimal(local_epsilon).exp() + 1)
        return int(share.to_integral_value(decimal.ROUND_CEILING))


class SubsetSelectionBlanket:
    """Upper bounds of delta for shuffled Subset Selection reports.

    Attributes:
        local_epsilon: Local epsilon of the randomizer.
        domain_size: Items s, the "no item" symbol included.
        num_reports: Reports n, the victim's included.
        subset_size: Items d of a report.
        blanket_mass: gamma, the probability that a report is a blanket report.
    """

    def __init__(
        self,
        local_epsilon: float,
        domain_size: int,
        num_reports: int,
        subset_size: int | None = None,
    ):
        """Prepares the law of the blanket reports.

        Args:
            local_epsilon: Local epsilon for replacement, in (0, 100].
            domain_size: Items s, the "no item" symbol included; at least 2.
            num_reports: Reports n, the victim's included; at least 2.
            subset_size: Items d of a report, 1 to s - 1; None for
                `best_subset_size`. 1 is k-ary randomized response.

        Raises:
            ValueError: An argument is outside its range.
        """
        if subset_size is None:
            subset_size = best_subset_size(local_epsilon, domain_size)
        self.local_epsilon = checks.positive(
            local_epsilon=local_epsilon, most=clones.LARGEST_LOCAL_EPSILON
        )
        self.domain_size = checks.integer(domain_size=domain_size, least=2)
        self.subset_size = checks.integer(
            subset_size=subset_size,
            least=1,
            most=self.domain_size - 1,
            why="domain_size - 1",
        )
        self.num_reports = checks.integer(num_reports=num_reports, least=2)
        s, d = self.domain_size, self.subset_size
        self.blanket_mass = s / (s + d * math.expm1(self.local_epsilon))
        pairs = s * (s - 1)
        one = self.blanket_mass * 2 * d * (s - d) / pairs
        both = self.blanket_mass * d * (d - 1) / pairs
        neither = self.blanket_mass * (s - d) * (s - d - 1) / pairs
        self._spread = math.expm1(self.local_epsilon)
        self._prepare(one, both, neither)
        self._error = binomial_grid.relative_error(self.num_reports)

    def _prepare(self, one: float, both: float, neither: float):
        """Lays out the nodes of (N, N_3, N_0) and their weights.

        Given N, the counts (N_3, N_0) come from the other n - N reports. The mean of
        the inner function falls with either and is convex in N_3 (each step puts a
        certain a - 1 + kappa in the place of a chance of kappa) and in N_0, so chords
        bound it. A chunk of neighbouring N shares one law, that of the smallest
        number of other reports: fewer reports make the mean larger.
        """
        n = self.num_reports
        ends, actual, weights, self._outside = _nodes_of_one(n, one)
        # The loss of sharing a law is about z^2 times the shift of N over n.
        deviation = math.sqrt(n * one * (1 - one))
        chunks = min(len(actual), max(4, math.ceil(1e5 * deviation / n)))
        parts = np.array_split(np.argsort(actual, kind="stable"), chunks)
        rest = np.array([n - int(actual[part].max()) for part in parts])
        both_counts, both_weights = binomial_grid.chord_nodes(
            rest, both / (1 - one), _enough_nodes(n * both)
        )
        # [chunks * nodes of N_3, nodes of N_0].
        counts, chances = binomial_grid.chord_nodes(
            np.maximum(rest[:, None] - both_counts, 0).ravel(),
            min(1.0, neither / (1 - one - both)),
            _enough_nodes(n * neither),
        )
        shape = (*both_counts.shape, counts.shape[1])
        counts = counts.reshape(shape)
        chances = chances.reshape(shape) * both_weights[:, :, None]
        columns: list[list[np.ndarray]] = [[], [], [], [], []]
        for index, part in enumerate(parts):
            product = weights[part, None, None] * chances[index]
            # What a node adds to delta is at most this.
            kept = product * ends[part, None, None] * self._spread / n > _NEGLIGIBLE
            left_out = (product * ends[part, None, None])[~kept].sum() / n
            self._outside += float(left_out)
            for column, values in zip(
                columns,
                (
                    ends[part, None, None],
                    actual[part, None, None],
                    both_counts[index, None, :, None],
                    counts[index, None],
                    product,
                ),
                strict=True,
            ):
                column.append(np.broadcast_to(values, kept.shape)[kept])
        self._ends, self._one, self._both, self._neither, self._weights = (
            np.concatenate(column).astype(np.float64) for column in columns
        )

    def delta(self, epsilon: float) -> float:
        """Computes an upper bound of delta.

        Args:
            epsilon: Nonnegative.

        Returns:
            delta; the epsilons of given deltas are tight to about 1e-4 (relative).
        """
        epsilon = checks.not_negative(epsilon=epsilon)
        if epsilon >= self.local_epsilon:
            return 0.0
        gain = math.expm1(epsilon)
        kappa = gain / self._spread
        ends = self._ends
        drift = (
            (gain + kappa) * self._both
            + kappa * (self._neither + self._one)
            - (ends - self._one) * gain / 2
        )
        # First count of x_0 that makes the sum positive.
        first = np.floor(((1 + gain) * ends + drift) / (2 + gain)) + 1
        others = np.maximum(ends - 1, 0)
        point, tail = binomial_grid.fair_coins(first - 1, others)
        positive = 0.5 * (ends - drift) * point
        negative = (0.5 * gain * ends + drift) * tail
        value = (
            positive
            - negative
            + 2 * self._error * (np.abs(positive) + np.abs(negative))
        )
        value = np.where(ends > 0, value, -drift)
        total = float(np.dot(self._weights, np.maximum(value, 0.0)))
        # N_1 - b is at most N (1 + gain / 2) at any node that was left out.
        outside = self._outside * (1 + gain)
        return min(1.0, self._spread * (total / self.num_reports + outside))

    def epsilon(self, delta: float) -> float:
        """Computes the smallest epsilon for a delta.

        Args:
            delta: In (0, 1).

        Returns:
            An upper bound of the central epsilon, at most the local one.

        Raises:
            ValueError: delta is outside its range.
        """
        delta = checks.probability(delta=delta)
        # The proved bound for any randomizer is cheap, and near.
        guess = clones.ClonePair(
            self.local_epsilon, self.num_reports, stronger=False
        ).epsilon(delta)
        return loss_composition.smallest_epsilon(
            self.delta, delta, self.local_epsilon, guess=guess
        )


class WorstSize:
    """The largest delta of several domain sizes, from few of their bounds.

    Deltas fall as epsilon rises. A bound at a smaller epsilon thus holds at a larger
    one, and a size whose bound there is below another size's delta cannot be the worst.
    Its delta is not computed, and the result is the maximum over all sizes.

    Attributes:
        sizes: Blankets of the sizes.
    """

    def __init__(self, sizes: Sequence[SubsetSelectionBlanket]):
        """Stores the blankets; at least one."""
        self.sizes = sizes
        # By size: epsilons and deltas so far.
        self._known: list[dict[float, float]] = [{} for _ in sizes]

    def delta(self, epsilon: float) -> float:
        """Computes an upper bound of delta that holds for each size.

        Args:
            epsilon: Nonnegative.
        """
        limits = [
            min((known[at] for at in known if at <= epsilon), default=1.0)
            for known in self._known
        ]
        worst = 0.0
        for index in sorted(range(len(limits)), key=limits.__getitem__, reverse=True):
            if limits[index] <= worst:
                break
            known = self._known[index]
            if epsilon not in known:
                known[epsilon] = self.sizes[index].delta(epsilon)
            worst = max(worst, known[epsilon])
        return worst


def sizes_that_matter(
    local_epsilon: float, domain_sizes: Iterable[int]
) -> tuple[int, ...]:
    """Leaves out domain sizes whose delta another one's exceeds at every epsilon.

    A report is a blanket report with x_0 alone with chance p, with x_1 alone with the
    same, with both with chance q and with neither with the r that is left of the law
    of x_0's report, (e^epsilon_0 + 1) p + e^epsilon_0 q + r = 1. Its term L / gamma is
    e^epsilon_0 - a, 1 - a e^epsilon_0, e^epsilon_0 (1 - a) or 1 - a, and 0 for others:
    of mean 1 - a for any size. delta is E[(sum of n such terms)_+] / n, which rises if
    a term is spread around its mean. Two changes do that: a larger q moves mass from
    1 - a to 0 and e^epsilon_0 (1 - a), on either side of it; and p and q that rise by
    one factor take mass from 1 - a, the mean itself. So a size is exceeded where
    another has no smaller p and no smaller q / p. With d items in a report,

        p = d (s - d) / ((s - 1) (s + d (e^epsilon_0 - 1))),    q / p = (d - 1)/(s - d).

    Args:
        local_epsilon: Local epsilon, in (0, 100].
        domain_sizes: Items s, the "no item" symbol included; at least 2 each.

    Returns:
        The sizes that are left, the largest p first; at least one where any is given.
        Up to float rounding of p.
    """
    found = []
    for s in set(domain_sizes):
        d = best_subset_size(local_epsilon, s)
        alone = d * (s - d) / (s - 1) / (s + d * math.expm1(local_epsilon))
        found.append((alone, fractions.Fraction(d - 1, s - d), s))
    left: list[int] = []
    largest = fractions.Fraction(-1)
    # Floats of p tie where epsilon_0 is large; of two sizes the smaller one has more.
    found.sort(key=lambda size: (size[0], size[1], -size[2]), reverse=True)
    for _, both, s in found:
        if both > largest:
            left.append(s)
            largest = both
    return tuple(left)


@functools.lru_cache(maxsize=8)
def worst_size(
    local_epsilon: float, domain_sizes: frozenset[int], num_reports: int
) -> WorstSize:
    """Returns the largest delta over domain sizes, kept with the deltas so far.

    Args:
        local_epsilon: Local epsilon, as in `SubsetSelectionBlanket`.
        domain_sizes: Domain sizes, likewise; at least one.
        num_reports: Number of reports, likewise.
    """
    return WorstSize(
        [
            subset_selection(local_epsilon, size, num_reports)
            for size in sizes_that_matter(local_epsilon, domain_sizes)
        ]
    )


@functools.lru_cache(maxsize=256)
def subset_selection(
    local_epsilon: float, domain_size: int, num_reports: int
) -> SubsetSelectionBlanket:
    """Returns the blanket of Subset Selection, kept for the next who needs it.

    Args:
        local_epsilon: Local epsilon, as in `SubsetSelectionBlanket`.
        domain_size: Domain size, likewise.
        num_reports: Number of reports, likewise.
    """
    return SubsetSelectionBlanket(local_epsilon, domain_size, num_reports)


def _nodes_of_one(
    n: int, one: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Cuts the law of N, the reports with exactly one of x_0 and x_1, into blocks.

    One more such report adds a term of mean -(a - 1)/2, so that by Jensen's
    inequality the positive part at N is at most that at the block's last N with b
    lowered by (last - N) (a - 1)/2. This is convex in N: a chord over the block
    bounds it in turn.

    Args:
        n: Reports.
        one: Probability that a report is such a blanket report.

    Returns:
        (ends, actual, weights, outside): each node stands for N = actual, evaluated
        at the block's last N, `ends`; and the mean of N / n outside of all blocks,
        which bounds what is left out in units of e^epsilon_0 - 1.
    """
    from scipy import stats

    lowest, highest = binomial_grid.band(n, one)
    # The variance grows by about width / N; 1e-4 of epsilon is spent on it.
    max_blocks = min(1100, max(64, math.ceil(8e4 / math.sqrt(n * one + 1))))
    width = max(1, math.ceil((highest - lowest + 1) / max_blocks))
    every = np.arange(lowest, highest + 1, dtype=np.int64)
    masses = stats.binom.pmf(every, n, one)
    outside = float(
        lowest / n * stats.binom.cdf(lowest - 1, n, one)
        + one * stats.binom.sf(highest - 1, n - 1, one)
    )
    if width == 1:
        return every, every, masses, outside
    starts = np.arange(0, len(every), width)
    first = every[starts]
    last = np.append(every[starts[1:] - 1], highest)
    mass = np.add.reduceat(masses, starts)
    steps = every - np.repeat(first, width)[: len(every)]
    moment = np.add.reduceat(masses * steps, starts)
    upper = np.clip(moment / np.maximum(last - first, 1), 0.0, mass)
    return (
        np.concatenate([last, last]),
        np.concatenate([first, last]),
        np.concatenate([mass - upper, upper]),
        outside,
    )


def _enough_nodes(mean: float) -> int:
    """Chooses how many nodes a count's law gets.

    The drift of a count of mean m is at most z standard deviations of the whole, so
    that its own deviation is z / sqrt(m) of those: wide laws need few nodes.
    """
    most = 32 if mean < 2000 else 24
    return min(most, max(3, math.ceil(3e3 / math.sqrt(mean + 1))))
