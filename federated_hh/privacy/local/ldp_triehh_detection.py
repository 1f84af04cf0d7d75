"""The words that LDP TrieHH finds: the law of their votes against the threshold.

A level's votes for a prefix are those of its holders in the cohort, a hypergeometric
number of the word's holders, and of all other reports, which speak for it with a known
probability (`federated_hh.privacy.local.vote_law`). It is kept if it has as many votes
as the eta_max-th of the other candidates, whose law is computed as if nobody held them,
but for `competing` of them that always have more; and a word is released if its
estimate is above the cut by standard errors. Levels ask cohorts of their own: the
chances multiply.

Two things are not known before a run, and pull in opposite directions: prefixes that
the word shares with others are easier to keep, and other people's prefixes compete for
the eta_max places. Where noise decides, as it does for small cohorts, neither matters.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy.local import ldp_triehh_settings, vote_law
from federated_hh.privacy.shuffle import blanket
from federated_hh.privacy.triehh import wanted_detection as detection

# Standard deviations beyond which a law is cut off: less than 1e-9 is lost.
_REACH = 6
_MOST_CANDIDATES = 2**31 - 1
# From this standard deviation on, votes are taken as normal: 1e-3 of it is one vote.
_NORMAL_FROM = 5_000
# Of the most prefixes that so large a share of clients can hold, those that are worth
# a place: on synthetic English, 1,000 and 100,000 clients find most words of all with
# 100 and 3,000 places, which are a third.
_WORTH_A_PLACE = 1 / 3
# Of a level: the fewest, a middle number, and those of Sun et al. 2024.
_LEAST_PLACES, _TYPICAL_PLACES, _MOST_PLACES = 10, 1_000, 10_000
# More clients find rarer words, and take a small machine longer.
_LARGEST_CHOSEN_COHORT = 200_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class LdpTrieHHDetection(detection.Detection):
    """The law by which an LDP TrieHH run finds words.

    Attributes:
        settings: The run's settings.
        num_clients: Clients of the population (n), enough for all levels.
        num_characters: Characters of the alphabet, the end of a word not counted.
        probabilities: For a domain size, "no item" included: the probabilities that a
            report speaks for its true item, and for any one other.
        reported_share: Probability that a client with a prefix reports on it, in
            (0, 1]: below 1 if clients have more than B items.
        competing: Candidates of every level that always have more votes than the
            word, at least 0 and below max_prefixes.

    Raises:
        ValueError: A value is outside its range.
    """

    settings: ldp_triehh_settings.LdpTrieHHSettings
    num_clients: int
    num_characters: int
    probabilities: Callable[[int], tuple[float, float]]
    reported_share: float = 1.0
    competing: int = 0

    def __post_init__(self):
        checks.integer(
            least=1, num_clients=self.num_clients, num_characters=self.num_characters
        )
        most = self.settings.max_prefixes - 1
        checks.integer(competing=self.competing, least=0, most=most)
        checks.fraction(reported_share=self.reported_share)
        self.settings.check_clients(self.num_clients)

    @property
    def population_size(self) -> int:
        """See `detection.Detection`."""
        return self.num_clients

    @property
    def max_characters(self) -> int:
        """See `detection.Detection`."""
        return self.settings.max_depth

    @property
    def assumptions(self) -> tuple[str, ...]:
        """See `detection.Detection`."""
        compete = (
            f"{self.competing:,} prefixes of other words have more votes at every level"
            if self.competing
            else "all that competes with it for the places of a level is noise; where "
            "people share more prefixes than there are places, words have to be more "
            "frequent"
        )
        share = (
            "each holder reports on it"
            if self.reported_share == 1
            else f"a holder reports on it with probability {self.reported_share:.3g}"
        )
        return (
            "no other word shares a prefix with it, or it is found more often",
            compete,
            share,
        )

    def rate(self, holders: int, characters: int) -> float:
        """See `detection.Detection`; passes are taken as independent."""
        checks.integer(holders=holders, least=0, most=self.num_clients)
        checks.integer(characters=characters, least=1)
        if characters > self.settings.max_depth:
            return 0.0
        *first, last = self._levels[:characters]
        reached = 1.0
        for level, number in collections.Counter(first).items():
            reached *= self._kept(level, holders, is_last=False) ** number
        released = reached * self._kept(last, holders, is_last=True)
        # A pass's words are not asked for again, whether they are released or not.
        found = reached * self._kept(last, holders, is_last=False)
        return released * sum((1 - found) ** i for i in range(self.settings.num_passes))

    @property
    def num_candidates(self) -> int:
        """Candidates of all levels, if noise and ties alone decide about them."""
        return self.settings.num_passes * sum(each.candidates for each in self._levels)

    @functools.cached_property
    def _levels(self) -> list["_Level"]:
        """The levels of a pass, with as many candidates as noise leaves them."""
        levels, prefixes = [], self.num_characters
        known: dict[int, _Level] = {}
        for _ in range(self.settings.max_depth):
            candidates = prefixes * (self.num_characters + 1)
            if candidates > _MOST_CANDIDATES:
                raise ValueError(
                    f"with {self.settings.reports_per_level:,} reports a level, ties "
                    f"leave {prefixes:,} prefixes of noise, too many to number. Use "
                    "more reports, or a larger epsilon"
                )
            if candidates not in known:
                known[candidates] = self._level(candidates)
            level = known[candidates]
            levels.append(level)
            # One in num_characters + 1 noise prefixes ends a word.
            growing = self.num_characters / (self.num_characters + 1)
            prefixes = max(1, round(level.kept * growing))
        return levels

    def _level(self, candidates: int) -> "_Level":
        own, other = self.probabilities(candidates + 1)
        reports = self.settings.reports_per_level
        law = vote_law.VoteLaw(num_reports=reports, own=own, other=other)
        cut = law.least_votes(self.settings.min_standard_errors)
        others = candidates - 1 - self.competing
        places = self.settings.max_prefixes - self.competing
        # Nothing is kept without a vote, and all else where there are places enough.
        values, chances = np.array([1]), np.array([1.0])
        if others >= places and other > 0:
            values, chances = vote_law.threshold_law(reports, other, others, places)
            values = np.maximum(values, 1)
        typical = int(values[np.searchsorted(np.cumsum(chances), 0.5)])
        kept = self.competing + max(others, 0) * law.noise_tail(typical)
        return _Level(candidates, law, values, chances, cut, kept)

    def _kept(self, level: "_Level", holders: int, *, is_last: bool) -> float:
        """Computes the probability that a level keeps a prefix, or releases a word."""
        needed = (
            np.maximum(level.least_votes, level.cut) if is_last else (level.least_votes)
        )
        reporting = (
            holders * self.settings.cohort_size / self.num_clients * self.reported_share
        )
        rest = max(0, level.law.num_reports - round(reporting))
        mean, variance = self._own_moments(holders, level.law.own)
        other = level.law.other
        whole = math.sqrt(variance + rest * other * (1 - other))
        if whole > _NORMAL_FROM:
            return level.reached_normally(mean + rest * other, whole, needed)
        votes, chances = self._own_votes(holders, level.law.own)
        return level.reached(votes, chances, needed, rest)

    def _own_moments(self, holders: int, own: float) -> tuple[float, float]:
        """Returns mean and variance of the votes that holders in a cohort give."""
        n, size = self.num_clients, self.settings.cohort_size
        share = own * self.reported_share
        there = holders * size / n
        spread = there * (1 - holders / n) * (n - size) / max(1, n - 1)
        mean = there * share
        return mean, mean * (1 - share) + share**2 * spread

    def _own_votes(self, holders: int, own: float) -> tuple[np.ndarray, np.ndarray]:
        """Returns the law of the votes that holders in a cohort give for their word.

        The holders in a cohort are hypergeometric, their votes among them binomial: the
        binomial law of the same mean and variance is theirs to 1e-3, and mostly 1e-4.
        """
        from scipy import stats

        mean, variance = self._own_moments(holders, own)
        if variance <= 1e-9 * mean:  # all or none hold it, and every vote is true
            return np.array([round(mean)]), np.array([1.0])
        trials = max(math.ceil(mean), round(mean**2 / max(mean - variance, 1e-9)))
        reach = _REACH * math.sqrt(variance) + _REACH
        least, most = math.floor(mean - reach), math.ceil(mean + reach)
        votes = np.arange(max(0, least), min(trials, most) + 1)
        return votes, stats.binom.pmf(votes, trials, mean / trials)


@dataclasses.dataclass(frozen=True, eq=False)
class _Level:
    """A level of a pass.

    Attributes:
        candidates: Number of its candidates.
        law: The law of a candidate's votes.
        least_votes: Possible votes of the last kept candidate, ascending.
        chances: The chances of each of them.
        cut: Votes that a word needs to be released.
        kept: Mean number of candidates that noise leaves.
    """

    candidates: int
    law: vote_law.VoteLaw
    least_votes: np.ndarray
    chances: np.ndarray
    cut: int
    kept: float

    def reached(
        self, votes: np.ndarray, chances: np.ndarray, needed: np.ndarray, rest: int
    ) -> float:
        """Computes the probability that a candidate has the votes that it needs.

        Args:
            votes: Possible votes of its holders, consecutive.
            chances: The chances of each.
            needed: The votes that it needs, for each of `least_votes`.
            rest: The reports of all others.
        """
        from scipy import stats

        # A tail a difference; most of `needed` are equal or consecutive.
        distinct, places = np.unique(needed, return_inverse=True)
        weights = np.bincount(places, self.chances)
        missing = np.arange(distinct[0] - votes[-1], distinct[-1] - votes[0] + 1)
        with np.errstate(divide="ignore"):
            tails = stats.binom.sf(missing - 1, rest, self.law.other)
        reached = np.convolve(tails, chances, "valid")
        return float(np.clip(weights @ reached[distinct - distinct[0]], 0.0, 1.0))

    def reached_normally(self, mean: float, spread: float, needed: np.ndarray) -> float:
        """Computes `reached` for very many votes.

        Args:
            mean: The mean of the candidate's votes.
            spread: Their standard deviation.
            needed: See `reached`.
        """
        from scipy import stats

        tails = stats.norm.sf(needed - 0.5, mean, spread)
        return float(np.clip(tails @ self.chances, 0.0, 1.0))


def probabilities_of(
    randomizer: str, epsilon: float
) -> Callable[[int], tuple[float, float]]:
    """Returns the probabilities that a randomizer's reports speak for items.

    Args:
        randomizer: Its name: "subset_selection", "k_ary", "asymmetric_one_hot" or
            "symmetric_one_hot".
        epsilon: Its local epsilon, above 0; infinite for true votes.

    Returns:
        Of the size of a domain: the probabilities that a report speaks for its true
        item, and for any one other.

    Raises:
        ValueError: Nothing is known of a randomizer with that name.
    """
    if math.isinf(epsilon):
        return lambda size: (1.0, 0.0)
    weight = math.exp(-epsilon)

    def subset(size: int, chosen: int) -> tuple[float, float]:
        own = chosen / (chosen + (size - chosen) * weight)
        return own, (chosen - own) / (size - 1)

    laws: dict[str, Callable[[int], tuple[float, float]]] = {
        "subset_selection": lambda size: subset(
            size, blanket.best_subset_size(epsilon, size)
        ),
        "k_ary": lambda size: subset(size, 1),
        "asymmetric_one_hot": lambda size: (0.5, weight / (1 + weight)),
        "symmetric_one_hot": lambda size: (1 / (1 + weight), weight / (1 + weight)),
    }
    checks.one_of(laws, randomizer=randomizer)
    return laws[randomizer]


def with_places(own: LdpTrieHHDetection, places: int) -> LdpTrieHHDetection:
    """Returns a run's detection with another `max_prefixes`."""
    settings = dataclasses.replace(own.settings, max_prefixes=places)
    return dataclasses.replace(own, settings=settings)


def sensible_cohort(num_clients: int, levels: int, counting: int | None = None) -> int:
    """Returns the cohort size that a run chooses for a population.

    Args:
        num_clients: Clients of the population.
        levels: Levels of all passes.
        counting: Clients of the counting task; by default a tenth of the population.
    """
    counting = num_clients // 10 if counting is None else counting
    possible = max(0, num_clients - counting) // levels
    return min(max(1, possible), _LARGEST_CHOSEN_COHORT)


def sensible_places(own: LdpTrieHHDetection) -> int | None:
    """Returns the number of a level's prefixes above the noise.

    Clients of B items each hold at most B / s prefixes that a share s of them holds.
    Places for those that are found less than half the time go to noise.

    Args:
        own: The numbers of a run; its `max_prefixes` does not matter.

    Returns:
        A round number from 10 to 10,000; None where the run finds no word that all
        clients hold.
    """
    least = with_places(own, _LEAST_PLACES)
    if least.holders_needed(0.5, min(2, own.max_characters)) is None:
        return None
    length = min(detection.USUAL_CHARACTERS, own.max_characters)
    try:
        holders = with_places(own, _TYPICAL_PLACES).holders_needed(0.5, length)
    except ValueError:  # ties leave more than can be numbered
        holders = None
    share = 1.0 if holders is None else max(1, holders) / own.num_clients
    filled = _WORTH_A_PLACE * own.settings.contribution_bound / share
    return max(_LEAST_PLACES, min(_MOST_PLACES, int(float(f"{filled:.1g}"))))


def clients_needed(own: LdpTrieHHDetection) -> int | None:
    """Returns how many clients let a run find anything, as a power of two times its.

    Args:
        own: The numbers of a run that finds nothing.
    """
    size = own.num_clients
    while (size := 2 * size) < ldp_triehh_settings.MOST:
        larger = at_population(own, size)
        if larger is not None and sensible_places(larger) is not None:
            return size
    return None


def alternatives(
    own: LdpTrieHHDetection,
    *,
    epsilon: float,
    with_epsilon: Callable[[float], Callable[[int], tuple[float, float]]] | None,
) -> list[detection.Alternative]:
    """Returns a run's detection, and that of settings which would find more.

    Args:
        own: The numbers of the run.
        epsilon: Its local epsilon.
        with_epsilon: Returns the `probabilities` of another local epsilon; None where
            they are not known.

    Returns:
        The run; ten times the clients in cohorts ten times as large; the largest
        cohorts that these clients allow, where those are larger by half; and a local
        epsilon larger by 2.
    """
    cohort, clients = own.settings.cohort_size, own.num_clients
    largest = clients // own.settings.levels
    changed = {
        "10 times the clients, in cohorts 10 times as large": _resized(
            own, 10 * clients, 10 * cohort
        )
    }
    if 2 * largest >= 3 * cohort:
        name = f"cohorts of {largest:,}, the largest for these clients"
        changed[name] = _resized(own, clients, largest)
    found = [detection.Alternative(*each) for each in changed.items()]
    if with_epsilon is not None and not math.isinf(epsilon):
        law = dataclasses.replace(own, probabilities=with_epsilon(epsilon + 2))
        found.append(detection.Alternative(f"local epsilon {epsilon + 2:g}", law))
    return [detection.Alternative(detection.AS_GIVEN, own), *found]


def at_population(own: LdpTrieHHDetection, size: int) -> LdpTrieHHDetection | None:
    """Returns a run's detection at another population, its cohorts in proportion.

    Args:
        own: The numbers of the run.
        size: Clients.

    Returns:
        None where a level would have no client.
    """
    cohort = min(
        round(own.settings.cohort_size * size / own.num_clients),
        size // own.settings.levels,
    )
    return None if cohort < 1 else _resized(own, size, cohort)


def _resized(own: LdpTrieHHDetection, clients: int, cohort: int) -> LdpTrieHHDetection:
    settings = dataclasses.replace(own.settings, cohort_size=cohort)
    return dataclasses.replace(own, num_clients=clients, settings=settings)
