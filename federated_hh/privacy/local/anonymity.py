"""Approximate k-anonymity of LDP TrieHH (Sun et al. 2024, Definition 3 and Lemma 1).

A heavy prefix is alpha-approximately k-anonymous if a prefix that fewer than k users
hold is kept with probability at most 1 - alpha. At a level with s candidates (the "no
item" symbol included) each of n reports holds d of them; the server keeps the eta
candidates with most votes. Let f(k) be the votes of a candidate that k reports hold,
and tau the vote count that eta of the others reach: the probability that f(k) >= tau
grows with k, so the guarantee is the largest k for which it is at most 1 - alpha.

* Lemma 1 as printed bounds tau through subsets of d - 2 items. That takes up to two
  votes off every report, far more than the noise: for the paper's parameters the
  probability is 0.14 already at k = 0, above 1 - alpha = 0.05, and the lemma shows
  nothing.
* The direct evaluation takes tau as it is when all other reports hold "no item": each
  other candidate is in a report with probability q. This is the case of least
  competition among inputs that hold none of the candidates; it is an evaluation of one
  data set, and not a proof for all. It gives k = 49 for the paper's parameters, where
  the paper states 45.

Both are of one level with eta |X| candidates. In a run, prefixes that end as words
leave the trie, and a level with fewer candidates has a lower tau; and in several passes
a word has several chances to be found, with the holders anywhere among their cohorts.
Where a run is repeated with the same users, all holders may take part in each repeat.
`live_prefixes`, `num_passes` and `num_repeats` take the direct evaluation there.

No evaluation is a proof to the last digit: the counts of different candidates are
taken as independent, which they are but for the fixed size of a report.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy.local import vote_law
from federated_hh.privacy.shuffle import blanket

LARGEST_REPORTS = 10**11

_PARTS = 4  # of the holders, which several passes share


@dataclasses.dataclass(frozen=True)
class AnonymityResult:
    """The result of one way to evaluate tau.

    Attributes:
        name: The evaluation.
        expected_threshold: Mean of tau, in votes.
        k: Largest k with a probability of at most 1 - alpha; None if not even 0.
        kept_probability_at_zero: The probability that a candidate nobody holds is
            kept.
        kept_probability: The same for a candidate held k times; at 0 if k is None.
        all_data_sets: True for all data sets, as in Lemma 1; False for one.
            Either takes candidates' counts as independent, which they nearly are.
    """

    name: str
    expected_threshold: float
    k: int | None
    kept_probability_at_zero: float
    kept_probability: float
    all_data_sets: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class VotingLevel:
    """A level of LDP TrieHH.

    Attributes:
        alphabet_size: Symbols |X|, at least 2.
        kept_prefixes: Prefixes eta_max that a level keeps, at least 1.
        local_epsilon: Local epsilon of Subset Selection, in (0, 100].
        num_reports: Reports N B of the level, at least 2.
        live_prefixes: Prefixes that the level extends, at least 1; None for
            kept_prefixes, as many as a level ever has but for ties.

    Raises:
        ValueError: A value is outside its range, or the level keeps all candidates.
    """

    alphabet_size: int
    kept_prefixes: int
    local_epsilon: float
    num_reports: int
    live_prefixes: int | None = None

    def __post_init__(self):
        checks.integer(alphabet_size=self.alphabet_size, least=2)
        checks.integer(kept_prefixes=self.kept_prefixes, least=1)
        checks.integer(
            num_reports=self.num_reports,
            least=2,
            most=LARGEST_REPORTS,
            why="the threshold's law has as many values as 50 times its root",
        )
        if self.live_prefixes is not None:
            checks.integer(live_prefixes=self.live_prefixes, least=1)
        if self.domain_size - 1 <= self.kept_prefixes:
            raise ValueError(
                f"kept_prefixes is {self.kept_prefixes}: a level of "
                f"{self.domain_size - 1} candidates keeps all of them"
            )
        checks.positive(local_epsilon=self.local_epsilon)

    @property
    def domain_size(self) -> int:
        """Candidates of the level and the "no item" symbol: s."""
        return (self.live_prefixes or self.kept_prefixes) * self.alphabet_size + 1

    @property
    def subset_size(self) -> int:
        """Items of a report: d."""
        return blanket.best_subset_size(self.local_epsilon, self.domain_size)

    @property
    def include_probability(self) -> float:
        """Probability p that a report holds its input."""
        weight = self.subset_size * math.exp(self.local_epsilon)
        return weight / (weight + self.domain_size - self.subset_size)

    @property
    def other_probability(self) -> float:
        """Probability q that a report holds a given other item."""
        return (self.subset_size - self.include_probability) / (self.domain_size - 1)

    def lemma_1(self, alpha: float) -> AnonymityResult:
        """Evaluates Lemma 1 as printed.

        Args:
            alpha: In (0, 1), such as 0.95.

        Returns:
            The largest k it proves, if any.

        Raises:
            ValueError: alpha is outside its range, or a report holds fewer than two
                items, for which Lemma 1 has nothing to say.
        """
        if self.subset_size < 2:
            raise ValueError(
                f"local_epsilon = {self.local_epsilon:g} makes reports of one item "
                f"(domain of {self.domain_size}): Lemma 1 needs two; use a smaller "
                f"local_epsilon, below {math.log(self.domain_size - 1):.4g}"
            )
        share = (self.subset_size - 2) / (self.domain_size - 1)
        return self._evaluate("Lemma 1 as printed (subsets of d - 2)", share, alpha)

    def direct(
        self, alpha: float, num_passes: int = 1, num_repeats: int = 1
    ) -> AnonymityResult:
        """Evaluates the data set in which all other reports hold "no item".

        Args:
            alpha: In (0, 1), such as 0.95.
            num_passes: Passes in which the candidate may be kept, at least 1. The
                holders are those in all cohorts together, spread over them as makes
                it most likely, in quarters of their number.
            num_repeats: Number of repeats of all passes, with all holders in the
                cohorts of each repeat; at least 1.

        Returns:
            The largest k there; not a proof for other data sets.

        Raises:
            ValueError: An argument is outside its range.
        """
        checks.integer(num_passes=num_passes, least=1)
        checks.integer(num_repeats=num_repeats, least=1)
        name = "direct evaluation (others hold no item)"
        return self._evaluate(
            name, self.other_probability, alpha, num_passes, num_repeats
        )

    def kept_probability(self, holders: int, vote_share: float) -> float:
        """Computes the probability that a candidate is kept.

        Args:
            holders: Reports k that hold the candidate, 0 to num_reports.
            vote_share: Probability that a report votes for a given other candidate.

        Returns:
            P(f(k) >= tau), with tau independent of f(k).

        Raises:
            ValueError: An argument is outside its range.
        """
        checks.integer(holders=holders, least=0, most=self.num_reports)
        checks.fraction(vote_share=vote_share)
        return self._kept(holders, *self._threshold_law(vote_share))

    def _evaluate(
        self,
        name: str,
        share: float,
        alpha: float,
        num_passes: int = 1,
        num_repeats: int = 1,
    ) -> AnonymityResult:
        alpha = checks.probability(alpha=alpha)
        if share == 0:
            # Reports of two items have nothing left: every candidate passes.
            values, law = np.array([0]), np.array([1.0])
        else:
            values, law = self._threshold_law(share)

        def kept_in_a_pass(holders: int) -> float:
            return self._kept(holders, values, law)

        def kept_with(holders: int) -> float:
            kept = _kept_in_some_pass(kept_in_a_pass, holders, num_passes)
            return kept if num_repeats == 1 else 1 - (1 - kept) ** num_repeats

        at_zero = kept_with(0)
        k, kept = None, at_zero
        if at_zero <= 1 - alpha:
            low, high = 0, 1
            while high < self.num_reports and kept_with(high) <= 1 - alpha:
                low, high = high, min(2 * high, self.num_reports)
            while high - low > 1:
                middle = (low + high) // 2
                passes = kept_with(middle) <= 1 - alpha
                low, high = (middle, high) if passes else (low, middle)
            k, kept = low, kept_with(low)
        return AnonymityResult(
            name=name,
            expected_threshold=float(np.dot(values, law)),
            k=k,
            kept_probability_at_zero=at_zero,
            kept_probability=kept,
            all_data_sets=name.startswith("Lemma 1"),
        )

    def _threshold_law(self, share: float) -> tuple[np.ndarray, np.ndarray]:
        """Computes the law of tau, the eta-th largest of s - 1 vote counts."""
        return vote_law.threshold_law(
            self.num_reports, share, self.domain_size - 1, self.kept_prefixes
        )

    def _kept(self, holders: int, values: np.ndarray, law: np.ndarray) -> float:
        """Computes P(f(holders) >= tau)."""
        from scipy import stats

        # The holders' own votes are elsewhere with a chance below 1e-25.
        mean = holders * self.include_probability
        reach = 12 * math.sqrt(mean) + 12
        fewest = max(0, math.floor(mean - reach))
        most = min(holders, math.ceil(mean + reach))
        own_law = stats.binom.pmf(
            np.arange(fewest, most + 1), holders, self.include_probability
        )
        # P(f >= t) for each t depends on t less the holders' votes alone.
        missing = np.arange(values[0] - most, values[-1] - fewest + 1)
        with np.errstate(divide="ignore"):
            rest = stats.binom.sf(
                missing - 1, self.num_reports - holders, self.other_probability
            )
        return float(law @ np.convolve(rest, own_law, "valid"))


def _kept_in_some_pass(
    kept_in_a_pass: Callable[[int], float], holders: int, num_passes: int
) -> float:
    """Computes the probability that a candidate is kept in some pass.

    Args:
        kept_in_a_pass: The same for one pass and its number of holders.
        holders: In all passes together; quarters of them go to the passes as makes it
            most likely.
        num_passes: Positive.
    """
    if num_passes == 1:
        return kept_in_a_pass(holders)
    missed = [
        1 - kept_in_a_pass(number)
        for number in (math.ceil(part * holders / _PARTS) for part in range(_PARTS + 1))
    ]
    # Of some passes, by how many parts they have: the least chance to be missed.
    least = missed
    for _ in range(num_passes - 1):
        least = [
            min(least[part - last] * missed[last] for last in range(part + 1))
            for part in range(_PARTS + 1)
        ]
    return 1 - least[-1]
