"""Which parameters of TrieHH find the rarest words at a wanted guarantee."""

from privacy import argument_checks, hypergeometric, triehh

# Larger thresholds are tried in steps of a 64th at first: the number of holders that
# they need changes by less than that.
_STEPS = 64


def solve_parameters(
    *,
    population_size: int,
    max_length: int,
    epsilon: float,
    delta: float,
    discovery_rate: float = 0.9,
    redraws_each_round: bool = False,
) -> triehh.TrieHHParameters:
    """Chooses threshold and cohort size for a wanted guarantee.

    For each threshold, the smallest K that epsilon allows, and the largest cohort that
    delta allows with it, find the rarest sequences; of all thresholds, the one whose
    sequences need the fewest holders is chosen.

    Args:
        population_size: Users n, at least 2.
        max_length: Symbols L of the longest sequence, end symbol included.
        epsilon: Wanted epsilon of the run, above 0.
        delta: Wanted delta of the run, in (0, 1).
        discovery_rate: Wanted probability that a sequence is found that shares no
            prefix with another (Proposition 1 of Zhu et al. 2020), in (0, 1).
        redraws_each_round: Whether users draw a new word each round.

    Returns:
        Parameters whose `guarantee` at this delta has at most this epsilon, with which
        the fewest holders are found at the wanted rate (`triehh.holders_needed`); of
        several such thresholds the smallest. All thresholds up to 127 are tried, above
        every 64th and then all near the best.

    Raises:
        ValueError: An argument is outside its range, or no parameters find even a
            sequence that all users hold.
    """
    n = argument_checks.integer("population_size", population_size, 2)
    length = argument_checks.integer("max_length", max_length, 1)
    epsilon = argument_checks.positive("epsilon", epsilon)
    delta = argument_checks.probability("delta", delta)
    rate = triehh.rate_of_a_round(discovery_rate, length)
    if rate <= delta:
        raise ValueError(
            f"discovery_rate = {discovery_rate:g} is not above delta = {delta:g}, for "
            f"each of max_length = {length} rounds: ask for a larger rate"
        )
    search = _Search(n, length, epsilon, delta, rate, redraws_each_round)
    theta = 1
    while search.try_threshold(theta):
        theta += max(1, theta // _STEPS)
    if search.best is None:
        raise ValueError(
            f"no parameters for epsilon = {epsilon:g}, delta = {delta:g}, max_length = "
            f"{length} in a population_size of {n} find a word with probability "
            f"{discovery_rate:g}, even if all users hold it. Use a larger population, "
            "a larger epsilon, a smaller max_length or a larger delta"
        )
    theta = search.best.threshold
    step = max(1, theta // _STEPS)
    for near in range(theta - step + 1, theta + step):
        search.try_threshold(near)
    return search.best


class _Search:
    """The best parameters so far, and how many holders they need."""

    def __init__(self, population_size, max_length, epsilon, delta, rate, redraws):
        self.best: triehh.TrieHHParameters | None = None
        self._needed = population_size + 1
        self._n = population_size
        self._length = max_length
        self._epsilon = epsilon
        self._delta = delta
        self._rate = rate
        self._redraws = redraws

    def try_threshold(self, theta: int) -> bool:
        """Takes a threshold if it is better; returns whether larger ones can be.

        A sequence that is found more often than delta has at least K holders, and K
        grows with the threshold.
        """
        holders = triehh.holders_for_epsilon(
            self._epsilon, theta, self._length, self._needed - 1
        )
        if holders is None:
            return False

        def parameters(cohort: int) -> triehh.TrieHHParameters:
            return triehh.TrieHHParameters(self._n, cohort, theta, self._length)

        def allowed(cohort: int) -> bool:
            return parameters(cohort).delta_of(holders, self._redraws) <= self._delta

        if not allowed(theta):
            return True
        cohort = triehh.last_true(allowed, theta, self._n)

        def missed(count: int) -> bool:
            tail = hypergeometric.upper_tail(self._n, count, cohort, theta)
            return tail.low < self._rate

        if not missed(self._needed - 1):
            self._needed = 1 + triehh.last_true(missed, holders - 1, self._needed - 1)
            self.best = parameters(cohort)
        return True
