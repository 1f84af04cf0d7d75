"""The parameters of TrieHH that find the rarest words at a wanted guarantee."""

import dataclasses

from federated_hh.options import checks
from federated_hh.privacy import hypergeometric, loss_composition
from federated_hh.privacy.triehh import guarantees as triehh

# Larger thresholds are tried in steps of an eighth at first, then those near the best.
_STEPS = 8
# Losses of a round's law, and the relative accuracy of cohorts, while thresholds are
# compared. The chosen cohort is found with all losses of a statement.
_POINTS, _CLOSE = 64, 2**-12
_FINAL_CLOSE = 1e-4

# Relative slack that covers the few roundings of a rate, upwards.
_ROUND_UP = 1 + 2**-50


def solve_parameters(
    *,
    population_size: int,
    max_length: int,
    epsilon: float,
    delta: float,
    discovery_rate: float = 0.9,
    cohort_size: int | None = None,
) -> triehh.TrieHHParameters:
    """Chooses threshold and cohort size for a wanted guarantee.

    For each threshold, the largest cohort that the curve of the rounds allows finds
    the rarest sequences; of all thresholds, the one whose sequences need the fewest
    holders is chosen.

    Args:
        population_size: Clients n, 2 to 2^31 - 1.
        max_length: Symbols L of the longest sequence, end symbol included.
        epsilon: Wanted epsilon of the run, above 0.
        delta: Wanted delta of the run, in (0, 1).
        discovery_rate: Wanted probability that a sequence is found that shares no
            prefix with another (Proposition 1 of Zhu et al. 2020), in (0, 1).
        cohort_size: Clients m of a round, where they are not to be chosen: 1 to n.

    Returns:
        Parameters whose epsilon at this delta is at most this one, with which the
        fewest holders are found at the wanted rate (`holders_needed`), as far
        as that number falls and then rises with the threshold.

    Raises:
        ValueError: An argument is outside its range, or no parameters find even a
            sequence that all clients hold.
    """
    n = checks.integer(population_size=population_size, least=2, most=2**31 - 1)
    length = checks.integer(max_length=max_length, least=1)
    epsilon = checks.positive(epsilon=epsilon)
    delta = checks.probability(delta=delta)
    if cohort_size is not None:
        checks.integer(cohort_size=cohort_size, least=1, most=n, why="population_size")
    rate = rate_of_a_round(discovery_rate, length)
    search = _Search(n, length, epsilon, delta, rate, cohort_size)
    theta, at = 1, 1
    while theta <= (cohort_size or n) and theta < search.needed:
        if search.try_threshold(theta):
            at = theta
        theta += max(1, theta // _STEPS)
    if search.cohort is None:
        chosen = "" if cohort_size is None else f", cohort_size = {cohort_size}"
        raise ValueError(
            f"no parameters for epsilon = {epsilon:g}, delta = {delta:g}, max_length = "
            f"{length}{chosen} in a population_size of {n} find a word with "
            f"probability {discovery_rate:g}, even if all clients hold it. Use a "
            "larger population, a larger epsilon, a smaller max_length or a larger "
            "delta"
        )
    step = max(1, at // _STEPS)
    for near in range(max(1, at - step), at + step + 1, max(1, step // _STEPS)):
        if search.try_threshold(near):
            at = near
    return search.polished(at)


@dataclasses.dataclass
class _Search:
    """The fewest holders so far, and with which cohort.

    Attributes:
        n: Clients.
        length: Rounds.
        epsilon: Wanted epsilon.
        delta: Wanted delta.
        rate: The wanted probability that a round keeps a sequence.
        fixed_cohort: The cohort size, if it is given.
    """

    n: int
    length: int
    epsilon: float
    delta: float
    rate: float
    fixed_cohort: int | None

    def __post_init__(self):
        self.needed = self.n + 1
        self.cohort: int | None = None
        # Clients a vote of the threshold: about the same for the next threshold.
        self._per_vote = 1.0

    def try_threshold(self, theta: int) -> bool:
        """Keeps a threshold if it needs fewer holders; returns whether it does."""
        cohort = self.fixed_cohort
        if cohort is None:
            cohort = self._largest_cohort(theta, _POINTS, _CLOSE)
        elif theta > cohort or not self._allowed(theta, cohort, _POINTS):
            cohort = None
        if cohort is None:
            return False
        self._per_vote = cohort / theta
        if self._missed(self.needed - 1, cohort, theta):
            return False
        self.cohort = cohort
        self.needed = 1 + triehh.last_true(
            lambda count: self._missed(count, cohort, theta), theta - 1, self.needed - 1
        )
        return True

    def polished(self, theta: int) -> triehh.TrieHHParameters:
        """Returns the best parameters, with the cohort that the statement allows."""
        assert self.cohort is not None  # one was found
        self._per_vote = self.cohort / theta
        cohort = self.fixed_cohort or self._largest_cohort(theta, None, _FINAL_CLOSE)
        while self.fixed_cohort and theta > 1:
            # All points may allow a smaller threshold than fewer points did.
            if not self._allowed(theta - 1, self.fixed_cohort, None):
                break
            theta -= 1
        while cohort is None or not self._allowed(theta, cohort, None):
            # Fewer points allowed more than all, by a rounding.
            theta += 1
            cohort = self.cohort
        return triehh.TrieHHParameters(self.n, cohort, theta, self.length)

    def _missed(self, count: int, cohort: int, theta: int) -> bool:
        """Returns whether so many holders are found too seldom."""
        tail = hypergeometric.upper_tail(self.n, count, cohort, theta)
        return tail.low < self.rate

    def _largest_cohort(
        self, theta: int, points: int | None, close: float
    ) -> int | None:
        """Returns the largest cohort that is allowed, or None if there is none.

        Args:
            theta: The threshold.
            points: See `loss_composition.composed_delta`.
            close: The share of itself by which it may be too small.
        """
        low, growth = min(self.n, max(theta, int(self._per_vote * theta))), 1.0625
        while not self._allowed(theta, low, points):
            if low == theta:
                return None
            low, growth = max(theta, int(low / growth**2)), growth**2
        high, growth = low, 1.0625
        while high < self.n and low == high:
            high, growth = min(self.n, 1 + int(high * growth)), growth**2
            if self._allowed(theta, high, points):
                low = high
        while high - low > max(1, low * close):
            middle = (low + high) // 2
            if self._allowed(theta, middle, points):
                low = middle
            else:
                high = middle
        return low

    def _allowed(self, theta: int, cohort: int, points: int | None) -> bool:
        """Returns whether the rounds have the wanted guarantee."""
        parameters = triehh.TrieHHParameters(self.n, cohort, theta, self.length)
        rounds = parameters.voting_rounds()
        if rounds.least_delta > self.delta:
            return False
        if points is None:
            return rounds.epsilon(self.delta) <= self.epsilon
        mechanisms = rounds.mechanisms()
        found = loss_composition.composed_delta([mechanisms], self.epsilon, points)
        return found <= self.delta


def holders_needed(
    parameters: triehh.TrieHHParameters, discovery_rate: float
) -> int | None:
    """Finds the number of holders for which a sequence is found.

    Args:
        parameters: The run's parameters.
        discovery_rate: Wanted probability that all L rounds keep it, in (0, 1), for a
            sequence that shares no prefix with another (Proposition 1).

    Returns:
        The smallest number of holders; None if not even a sequence that all users
        hold is found.
    """
    rate = rate_of_a_round(discovery_rate, parameters.max_length)
    n, m, theta = (
        parameters.population_size,
        parameters.cohort_size,
        parameters.threshold,
    )
    if theta > m:
        return None
    return 1 + triehh.last_true(
        lambda holders: hypergeometric.upper_tail(n, holders, m, theta).low < rate,
        0,
        n,
    )


def rate_of_a_round(discovery_rate: float, max_length: int) -> float:
    """Returns the rate of each of L rounds for a discovery rate, rounded upwards."""
    discovery_rate = checks.probability(discovery_rate=discovery_rate)
    return min(1.0, discovery_rate ** (1 / max_length) * _ROUND_UP)
