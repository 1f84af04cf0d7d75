"""Fits a Pitman-Yor process to repetition counts, by maximum likelihood.

The likelihood of a partition of n draws into k kinds with n_1, ..., n_k draws each is

    (a + d) ... (a + (k - 1) d) / ((a + 1) ... (a + n - 1))

times the product over the kinds of (1 - d) ... (n_j - 1 - d). Pitman 2006,
Combinatorial Stochastic Processes, (3.6).
"""

import dataclasses

import numpy as np
from scipy import optimize, special

_LARGEST_LOGIT = 12.0  # of the discount
_LOG_BOUNDS = (-12.0, 20.0)  # of the concentration plus the discount
# With fewer partitions their spread says nothing.
_LEAST_FOR_SANDWICH = 30


@dataclasses.dataclass(frozen=True)
class PitmanYorFit:
    """A fitted process.

    Attributes:
        discount: d.
        concentration: a.
        covariance: float64 [2, 2], of d and a. Of many partitions: by their spread,
            whatever their law is (the sandwich of White 1982). Of few: the inverse of
            the observed information. NaN if the likelihood is flat.
    """

    discount: float
    concentration: float
    covariance: np.ndarray

    @property
    def errors(self) -> tuple[float, float]:
        """Standard errors of discount and concentration."""
        first, second = np.sqrt(np.diag(self.covariance))
        return float(first), float(second)


class _Sums:
    """The derivatives of the log-likelihood, from counts shared by partitions."""

    def __init__(self, counts: np.ndarray, row_splits: np.ndarray):
        self.kinds = np.diff(row_splits)
        before = np.append(0, np.cumsum(counts, dtype=np.int64))
        self.draws = np.diff(before[row_splits])
        self.counts = counts
        # For each number, the count of partitions, or of kinds, that have it.
        self._kinds = np.unique(self.kinds, return_counts=True)
        self._draws = np.unique(self.draws, return_counts=True)
        self._counts = np.unique(counts, return_counts=True)

    def _terms_of_kinds(self, d: float, a: float) -> np.ndarray:
        """Returns, by kinds k from 1 on, sums over j < k: [most kinds, 6].

        Of log(a + d j), its two first and its three second derivatives.
        """
        j = np.arange(1, self._kinds[0][-1], dtype=np.float64)
        value = a + d * j
        terms = np.stack(
            [
                np.log(value),
                j / value,
                1 / value,
                -((j / value) ** 2),
                -j / value**2,
                -1 / value**2,
            ]
        )
        return np.cumsum(np.pad(terms, ((0, 0), (1, 0))), axis=1)

    def _terms_of_draws(self, draws: np.ndarray, a: float) -> np.ndarray:
        """Returns sums over i in [1, n) of log(a + i), and derivatives by a."""
        return np.stack(
            [
                special.gammaln(a + draws) - special.gammaln(a + 1),
                special.digamma(a + draws) - special.digamma(a + 1),
                special.polygamma(1, a + draws) - special.polygamma(1, a + 1),
            ]
        )

    def _terms_of_counts(self, counts: np.ndarray, d: float) -> np.ndarray:
        """Returns sums over i in [1, n) of log(i - d), and derivatives by d."""
        return np.stack(
            [
                special.gammaln(counts - d) - special.gammaln(1 - d),
                special.digamma(1 - d) - special.digamma(counts - d),
                special.polygamma(1, counts - d) - special.polygamma(1, 1 - d),
            ]
        )

    def all(self, d: float, a: float) -> tuple[float, np.ndarray, np.ndarray]:
        """Returns the log-likelihood, its gradient by d and a, and its Hessian."""
        number, times = self._kinds
        kinds = self._terms_of_kinds(d, a)[:, number - 1] @ times
        number, times = self._draws
        draws = self._terms_of_draws(number, a) @ times
        number, times = self._counts
        counts = self._terms_of_counts(number, d) @ times
        gradient = np.array([kinds[1] + counts[1], kinds[2] - draws[1]])
        hessian = np.array([[kinds[3] + counts[2], kinds[4]], [kinds[4], kinds[5]]])
        hessian[1, 1] -= draws[2]
        return kinds[0] - draws[0] + counts[0], gradient, hessian

    def scores(self, d: float, a: float) -> np.ndarray:
        """Returns each partition's part of the gradient: [partitions, 2]."""
        kinds = self._terms_of_kinds(d, a)[1:3, self.kinds - 1]
        owners = np.repeat(np.arange(len(self.kinds)), self.kinds)
        by_count = self._terms_of_counts(self.counts, d)[1]
        by_discount = kinds[0] + np.bincount(owners, by_count, len(self.kinds))
        return np.stack(
            [by_discount, kinds[1] - self._terms_of_draws(self.draws, a)[1]], axis=1
        )


def fit(counts: np.ndarray, row_splits: np.ndarray) -> PitmanYorFit:
    """Fits one law to all partitions.

    Args:
        counts: Integers [kinds], at least 1: number of draws of each.
        row_splits: Integers [partitions + 1]: where each partition's kinds start. A
            partition without kinds is ignored.

    Raises:
        ValueError: If no partition has two draws.
    """
    row_splits = np.append(row_splits[:-1][np.diff(row_splits) > 0], row_splits[-1])
    sums = _Sums(counts, row_splits)
    if not len(sums.draws) or sums.draws.max() < 2:
        raise ValueError(
            "counts: each partition has at most one draw; at least one partition "
            "needs two"
        )

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        d, spare = special.expit(x[0]), np.exp(x[1])
        value, gradient, _ = sums.all(d, spare - d)
        # By logit(d) and log(a + d), in which nothing is out of bounds.
        by_x = [(gradient[0] - gradient[1]) * d * (1 - d), gradient[1] * spare]
        scale = sums.draws.sum()
        return -value / scale, -np.array(by_x) / scale

    limits = [(-_LARGEST_LOGIT, _LARGEST_LOGIT), _LOG_BOUNDS]
    best = optimize.minimize(
        loss,
        [0.0, np.log(10.0)],
        jac=True,
        bounds=limits,
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 500},
    )
    discount = float(special.expit(best.x[0]))
    concentration = float(np.exp(best.x[1])) - discount
    return PitmanYorFit(
        discount, concentration, _covariance(sums, discount, concentration)
    )


def _covariance(sums: _Sums, d: float, a: float) -> np.ndarray:
    """Returns the covariance of a fit; nan where the likelihood has no peak."""
    _, _, hessian = sums.all(d, a)
    if not np.isfinite(hessian).all() or (np.linalg.eigvalsh(-hessian) <= 0).any():
        return np.full((2, 2), np.nan)
    inverse = np.linalg.inv(-hessian)
    if len(sums.draws) < _LEAST_FOR_SANDWICH:
        return inverse
    scores = sums.scores(d, a)
    return inverse @ (scores.T @ scores) @ inverse
