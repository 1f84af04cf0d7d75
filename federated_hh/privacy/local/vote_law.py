"""The law of the votes for one candidate, in a sum of locally private reports.

A report speaks for its true item with probability `own`, and for any one other item
with probability `other` (the "pure" protocols of Wang et al. 2017: Subset Selection,
k-ary response, one-hot encodings). Reports are independent, so a candidate that nobody
holds has Binomial(reports, other) votes, whatever the others hold, and one with k
holders Binomial(k, own) + Binomial(reports - k, other). Nothing is approximated, but
for laws of very many values, which are cut into steps (`threshold_law`).
"""

import dataclasses
import math

import numpy as np

from federated_hh.options import checks

# A law of more values than this is computed at some of them.
_MOST_VALUES = 1 << 17
_STEPS = 1 << 12


@dataclasses.dataclass(frozen=True, kw_only=True)
class VoteLaw:
    """The votes for a candidate, and their estimate.

    Attributes:
        num_reports: Reports that were summed, at least 1.
        own: Probability that a report speaks for its true item, in (0, 1].
        other: Probability that it speaks for one other item, in [0, own).

    Raises:
        ValueError: A value is outside its range.
    """

    num_reports: int
    own: float
    other: float

    def __post_init__(self):
        checks.integer(num_reports=self.num_reports, least=1)
        checks.fraction(own=self.own)
        checks.holds(
            0 <= self.other < self.own,
            f"in [0, {self.own}), below own",
            other=self.other,
        )

    def estimate(self, votes: np.ndarray) -> np.ndarray:
        """Returns the debiased number of holders, float64 of the shape of `votes`."""
        expected = self.num_reports * self.other
        return (np.asarray(votes) - expected) / (self.own - self.other)

    def standard_error(self, holders: np.ndarray) -> np.ndarray:
        """Returns the standard error of the estimate.

        Args:
            holders: The holders of the candidate; any shape, in [0, num_reports].
        """
        gap_squared = (self.own - self.other) ** 2
        of_own = self.own * (1 - self.own) / gap_squared
        of_other = self.other * (1 - self.other) / gap_squared
        holders = np.asarray(holders, np.float64)
        return np.sqrt(holders * of_own + (self.num_reports - holders) * of_other)

    def least_votes(self, standard_errors: float) -> int:
        """Returns the fewest votes whose estimate stands out of the noise.

        Args:
            standard_errors: k, at least 0.

        Returns:
            The fewest votes, at least 1, with an estimate of at least k standard
            errors, as they are where there are as many holders as are estimated; more
            than num_reports where no votes are enough. 0 where k is 0.
        """
        standard_errors = checks.not_negative(standard_errors=standard_errors)
        if standard_errors == 0:
            return 0

        def stands_out(votes: int) -> bool:
            estimate = float(self.estimate(np.array(votes)))
            error = self.standard_error(np.clip(estimate, 0, self.num_reports))
            return estimate >= standard_errors * float(error)

        # The estimate over its error grows with the votes, once it is positive.
        low = max(0, math.floor(self.num_reports * self.other))
        high = self.num_reports + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if stands_out(middle) else (middle, high)
        return high

    def noise_tail(self, votes: int) -> float:
        """Returns the probability that a candidate nobody holds has so many votes."""
        from scipy import stats

        return float(stats.binom.sf(votes - 1, self.num_reports, self.other))


def threshold_law(
    num_reports: int, share: float, candidates: int, kept: int
) -> tuple[np.ndarray, np.ndarray]:
    """Computes the law of the votes that the last of the kept candidates has.

    Args:
        num_reports: Reports that were summed, at least 1.
        share: Probability that a report votes for a candidate, the same for all.
        candidates: Positive.
        kept: Kept candidates, those with the most votes; at least 1.

    Returns:
        Numbers of votes, and their probabilities: int64 and float64, shape [values].
        Candidates' votes are taken as independent, which they are but for the fixed
        size of a report. Of very many values 4,096 stand for all, each for itself and
        those up to the next one.
    """
    from scipy import stats

    def at_least_kept(values: np.ndarray) -> np.ndarray:
        """Returns the chance that `kept` candidates have at least so many votes."""
        above = stats.binom.sf(values - 1, num_reports, share)
        # SciPy warns where a tail underflows to the 0 that it returns.
        with np.errstate(divide="ignore"):
            return stats.binom.sf(kept - 1, candidates, above)

    mean = num_reports * share
    spread = math.sqrt(mean) + 1
    least = max(0, math.floor(mean - 12 * spread))
    end = math.ceil(mean + 40 * spread)
    if end - least > _MOST_VALUES:
        # The steps are between where it is all but certain and all but impossible.
        places = np.linspace(least, end, _STEPS).astype(np.int64)
        chances = at_least_kept(places)
        low = np.count_nonzero(chances >= 1 - 1e-12)
        high = np.count_nonzero(chances > 1e-12)
        least = int(places[max(0, low - 1)])
        end = int(places[min(_STEPS - 1, high)]) + 1
    values = np.unique(
        np.linspace(least, end - 1, min(end - least, _STEPS)).astype(np.int64)
        if end - least > _MOST_VALUES
        else np.arange(least, end)
    )
    at_least = at_least_kept(values)
    law = at_least - np.append(at_least[1:], 0.0)
    used = np.flatnonzero(law > 0)
    part = slice(used[0], used[-1] + 1)
    return values[part], law[part]
