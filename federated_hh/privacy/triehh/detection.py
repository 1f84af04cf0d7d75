"""The words that TrieHH finds: the exact law of its votes and thresholds.

In the single-word setting a prefix with W holders has Hypergeometric(n, W, m) votes in
a round whose cohort is a uniform sample of m of n users, as long as all its own
prefixes were kept. Rounds have cohorts of their own, so that a word of l characters,
whose prefixes of 1, 2, ..., l + 1 symbols have W_1 >= W_2 >= ... >= W holders, is found
with probability

    product over i of P(Hypergeometric(n, W_i, m) >= theta),

exactly. A word that shares no prefix with another has W_i = W: the worst case, which
with L symbols is Proposition 1 of Zhu et al. 2020. In the multi-word setting users
draw their word again; W is the sum of the shares that it has of each user's words,
and a vote is one of m that are for the word with probability W / n.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from federated_hh.privacy import rounding
from federated_hh.privacy.triehh import guarantees as triehh
from federated_hh.privacy.triehh import wanted_detection as detection

# Verb phrase for the holders of a word that is found: a client has one vote.
HOLDING = "vote with it"


@dataclasses.dataclass(frozen=True)
class TrieHHDetection(detection.Detection):
    """The law by which a TrieHH run finds words.

    Attributes:
        parameters: The parameters of the run.
        redraws_each_round: Whether users draw the word that they vote with.
    """

    parameters: triehh.TrieHHParameters
    redraws_each_round: bool = False

    @property
    def population_size(self) -> int:
        """See `detection.Detection`."""
        return self.parameters.population_size

    @property
    def max_characters(self) -> int:
        """See `detection.Detection`: the end is a symbol too."""
        return self.parameters.max_length - 1

    @property
    def assumptions(self) -> tuple[str, ...]:
        """See `detection.Detection`."""
        found = ["no other word shares a prefix with it, or it is found more often"]
        if self.redraws_each_round:
            found.append(
                "a holder counts with the share that the word has of what it types"
            )
        return tuple(found)

    def rate(self, holders: int, characters: int) -> float:
        """See `detection.Detection`."""
        return float(self.kept_rates(np.array([holders]))[0] ** (characters + 1))

    def kept_rates(self, holders: np.ndarray) -> np.ndarray:
        """Computes the probability of each prefix to be kept in its round.

        Args:
            holders: The holders of each prefix, any shape, 0 to n; sums of shares where
                users redraw.

        Returns:
            The probability that it gets theta votes, given that its own prefixes were
            kept: float64, of the shape of `holders`.
        """
        from scipy import stats

        n, m = self.parameters.population_size, self.parameters.cohort_size
        votes = self.parameters.threshold - 1
        distinct, back = np.unique(holders, return_inverse=True)
        if self.redraws_each_round:
            tails = stats.binom.sf(votes, m, distinct / n)
        else:
            tails = np.zeros(len(distinct))
            possible = distinct > votes
            tails[possible] = stats.hypergeom.sf(votes, n, distinct[possible], m)
        return np.clip(tails, 0.0, 1.0)[back].reshape(np.shape(holders))

    def word_rate(self, prefix_holders: Sequence[float]) -> float:
        """Computes the discovery rate of a word whose prefixes have known holders.

        Args:
            prefix_holders: The holders of its prefixes of 1, 2, ... symbols; the
                last is the word with its end.
        """
        if len(prefix_holders) > self.parameters.max_length:
            return 0.0
        return float(np.prod(self.kept_rates(np.asarray(prefix_holders))))


def alternatives(
    own: TrieHHDetection,
    solve: Callable[..., triehh.TrieHHParameters] | None,
    request: dict[str, Any],
) -> list[detection.Alternative]:
    """Returns a run's detection, and that of settings which would find more.

    Args:
        own: The numbers of the run.
        solve: Finds parameters for a guarantee, by keyword; None where threshold and
            cohort size were given.
        request: Arguments of `solve`: population_size, epsilon and delta, and
            cohort_size where that was given; without `solve`, delta alone, or nothing.

    Returns:
        The run; where parameters were solved for, ten times the clients, with delta
        falling like 1/n^2, twice the epsilon, and the best cohorts where theirs were
        given; else twice the cohort.
    """
    found = [detection.Alternative(detection.AS_GIVEN, own)]
    if solve is None:
        parameters = own.parameters
        size = min(2 * parameters.cohort_size, parameters.population_size)
        larger = dataclasses.replace(parameters, cohort_size=size)
        if size > parameters.cohort_size:
            name = f"cohorts of {size:,}, {spent(larger, request.get('delta'))}"
            found.append(_alternative(name, own, lambda: larger))
        return found
    size, epsilon = request["population_size"], request["epsilon"]
    found.append(
        _alternative(
            "10 times the clients",
            own,
            lambda: solve(**at_population(request, 10 * size)),
        )
    )
    found.append(
        _alternative(
            f"epsilon {2 * epsilon:g}",
            own,
            lambda: solve(**{**request, "epsilon": 2 * epsilon}),
        )
    )
    if request.get("cohort_size") is not None:
        best = _alternative(
            "", own, lambda: solve(**{**request, "cohort_size": None})
        ).detection
        if isinstance(best, TrieHHDetection):
            name = f"cohorts of {best.parameters.cohort_size:,}"
            found.append(detection.Alternative(name, best))
    return found


def spent(parameters: triehh.TrieHHParameters, delta: float | None) -> str:
    """Returns the cost of parameters, such as "at epsilon 2.5".

    Args:
        parameters: Parameters that were not solved for.
        delta: The delta; None where it is not known.
    """
    if delta is None:
        return "at a weaker guarantee"
    try:
        epsilon = parameters.voting_rounds().epsilon(delta)
    except ValueError:
        return "without a guarantee"
    return f"at epsilon {rounding.rounded_up(epsilon)}"


def at_population(request: dict[str, Any], size: int) -> dict[str, Any]:
    """Returns a request for parameters at another population.

    Args:
        request: With population_size and delta.
        size: Users n; delta falls like 1/n^2, as Zhu et al. have it.
    """
    delta = request["delta"] * (request["population_size"] / size) ** 2
    return {**request, "population_size": size, "delta": min(delta, 0.5)}


def _alternative(
    name: str,
    own: TrieHHDetection,
    parameters: Callable[[], triehh.TrieHHParameters],
) -> detection.Alternative:
    try:
        law = dataclasses.replace(own, parameters=parameters())
    except ValueError:  # no parameters have the guarantee and find a word
        return detection.Alternative(name, None)
    return detection.Alternative(name, law)
