"""A ledger of all runs on the same clients."""

import collections
import dataclasses
import fractions
import math
from collections.abc import Iterable, Sequence

from federated_hh.options import checks
from federated_hh.privacy import conversions, drawn_noise, loss_composition, rounding
from federated_hh.privacy.guarantee import Adjacency, Guarantee

# Share of delta that is left to larger losses of Gaussian noise.
_BEYOND = 1e-4
# For such large epsilons composition is no better than addition, and exp may overflow.
_LARGEST_COMPOSED = 100.0
# The adjacencies whose pairs are among those of another one.
_SPECIAL_CASES = {
    Adjacency.REPLACE_CLIENT: (Adjacency.EMPTIED, Adjacency.REPLACE_ONE_ITEM)
}
# Those under which all data sets that differ in one client have a common neighbour.
_WITH_MIDDLE = (Adjacency.ZERO_OUT, Adjacency.EMPTIED)


def converted(guarantee: Guarantee, adjacency: Adjacency) -> Guarantee:
    """Converts a guarantee to another adjacency.

    Two conversions are proved for any mechanism M, and their combination.

    *A special case.* D' of "emptied" is D with what a client holds exchanged for
    nothing; D' of "replace_one_item" is D with what it holds exchanged for the same but
    for an item. Both are pairs of "replace_client" too, in either order: a bound for
    all of its pairs, in one direction or in both, holds for them.

    *Two steps.* Let D' be D with all that a client holds exchanged. Take away what it
    holds ("emptied") or its contributions ("zero_out"): as the client takes part in the
    same rounds and nothing else differs, D and D' become the same Z, which is a
    neighbour of both. Where M is (epsilon, delta)-DP in both directions,

        P(M(D) in S) <= e^epsilon P(M(Z) in S) + delta
                     <= e^(2 epsilon) P(M(D') in S) + (1 + e^epsilon) delta.

    Where M adds Gaussian noise of zCDP rho, the sums of D and of D' are at most twice
    as far from each other as those of D and Z: 4 rho.

    There is no way from "emptied" in one direction, as the second step goes in the
    other one; none to "zero_out", as a client may have no data that makes it
    contribute zeros; and none from an item to a client, who may have any number.

    Args:
        guarantee: Guarantee.
        adjacency: Wanted adjacency.

    Raises:
        ValueError: There is no such conversion, or it would leave no guarantee.
    """
    if guarantee.adjacency is adjacency:
        return guarantee
    if guarantee.adjacency in _WITH_MIDDLE and adjacency is not Adjacency.ZERO_OUT:
        if guarantee.one_sided:
            raise ValueError(
                f"a guarantee for {guarantee.adjacency.value!r} in one direction has "
                f"no sound conversion to {adjacency.value!r}"
            )
        return converted(_in_two_steps(guarantee), adjacency)
    if adjacency in _SPECIAL_CASES.get(guarantee.adjacency, ()):
        return dataclasses.replace(guarantee, adjacency=adjacency)
    raise ValueError(
        f"a guarantee for {guarantee.adjacency.value!r} has no sound conversion to "
        f"{adjacency.value!r}"
    )


def _in_two_steps(guarantee: Guarantee) -> Guarantee:
    epsilon, delta, rho = guarantee.epsilon, guarantee.delta, guarantee.rho
    proved, how = guarantee.is_upper_bound, ""
    if rho is not None and guarantee.noise_rounds is not None:
        rho, how = conversions.group_zcdp(rho, 2), ", 4 rho"
        drawn = drawn_noise.zcdp_to_epsilon(rho, delta, guarantee.noise_rounds)
        epsilon, proved = drawn.epsilon, proved and drawn.is_proved
    elif delta:
        epsilon, delta = conversions.group_privacy(epsilon, delta, 2)
    else:
        epsilon = rounding.upwards(2 * fractions.Fraction(epsilon))
    return dataclasses.replace(
        guarantee,
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        is_upper_bound=proved,
        bound=f"{guarantee.bound}; two steps from {guarantee.adjacency.value}{how}",
        adjacency=Adjacency.REPLACE_CLIENT,
    )


@dataclasses.dataclass(frozen=True)
class Entry:
    """One mechanism in a ledger.

    Attributes:
        name: Name of the program.
        guarantee: The guarantee of all that it released, for the ledger's adjacency.
    """

    name: str
    guarantee: Guarantee


class Ledger:
    """Composes mechanisms that ran on the same clients, adaptively.

    Gaussian noise of known zCDP is composed as one Gaussian, and rounds of votes by
    their curve, which is tight. Of the others only an (epsilon, delta) is known: they
    are composed as the worst mechanisms that have it. All are composed with each other
    (`loss_composition`); with a curve from D to D' in it, the total is from D to D'.
    Other guarantees of one direction say too little for that: they are added to the
    result (basic composition).
    """

    def __init__(self, adjacency: Adjacency):
        """Makes an empty ledger.

        Args:
            adjacency: Adjacency of the total.
        """
        self.adjacency = adjacency
        self._entries: list[Entry] = []

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, in the order in which they were added."""
        return tuple(self._entries)

    def add(self, name: str, guarantee: Guarantee) -> None:
        """Adds a mechanism, converted to the ledger's adjacency.

        Args:
            name: Name of the program.
            guarantee: The guarantee of all that it released.

        Raises:
            ValueError: The guarantee is not a proved upper bound, is infinite, leaves
                out repeats, or has no sound conversion to the ledger's adjacency.
        """
        if guarantee.of_one_repeat:
            raise ValueError(
                f"{name}: a guarantee of one repeat leaves out the other repeats' "
                "releases; give one of all repeats"
            )
        try:
            guarantee = converted(guarantee, self.adjacency)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        if not guarantee.is_upper_bound:
            raise ValueError(
                f"{name}: its epsilon is not a proved upper bound, and only those can "
                "be composed"
            )
        if math.isinf(guarantee.epsilon):
            raise ValueError(
                f"{name}: its epsilon is infinite, which guarantees nothing; leave it "
                "out"
            )
        self._entries.append(Entry(name, guarantee))

    def total(self, delta: float) -> Guarantee:
        """Composes all entries.

        Args:
            delta: Wanted delta, in (0, 1), at least the sum of the deltas of the
                entries without zCDP, and above it where there are others. What is
                above it makes epsilon smaller than the sum of the epsilons.

        Returns:
            The guarantee of everything together.

        Raises:
            ValueError: The ledger is empty, or delta is outside its range.
        """
        delta = checks.probability(delta=delta)
        if not self._entries:
            raise ValueError("the ledger is empty; add at least one guarantee")
        rhos = [e.guarantee.rho for e in self._entries if e.guarantee.rho is not None]
        others = [e.guarantee for e in self._entries if e.guarantee.rho is None]
        spent = fractions.Fraction()
        for guarantee in others:
            spent += fractions.Fraction(_least_delta(guarantee))
        left = fractions.Fraction(delta) - spent
        if left < 0 or (rhos and left < delta * 2**-20):
            names = [e.name for e in self._entries if e.guarantee.rho is None]
            raise ValueError(
                f"delta is {delta:g}; it has to be {'above' if rhos else 'at least'} "
                f"{rounding.upwards(spent):.4g}, the sum of the least deltas of "
                f"{', '.join(names)}"
            )
        rho, rounds, bounds = None, None, list[str]()
        if others:
            bounds.append("composition of the worst privacy losses of the guarantees")
            if any(guarantee.voting is not None for guarantee in others):
                bounds[-1] += " and the curves of rounds of votes"
        if not rhos:
            epsilon = _epsilon(None, others, delta)
        else:
            exact = sum(map(fractions.Fraction, rhos), fractions.Fraction())
            rho = rounding.upwards(exact)
            rounds = sum(e.guarantee.noise_rounds or 0 for e in self._entries)
            bounds.insert(0, "the sum of zCDP as one Gaussian")
            epsilon = _with_noise(rho, rounds, others, delta)
        return Guarantee(
            epsilon=epsilon,
            delta=delta,
            bound=" and ".join(bounds),
            is_upper_bound=True,
            one_sided=any(e.guarantee.one_sided for e in self._entries),
            adjacency=self.adjacency,
            assumptions=tuple(
                dict.fromkeys(
                    text for e in self._entries for text in e.guarantee.assumptions
                )
            ),
            rho=None if others else rho,
            noise_rounds=None if others else rounds,
        )


def _with_noise(
    rho: float, num_rounds: int, others: Sequence[Guarantee], delta: float
) -> float:
    """Composes drawn noise with other guarantees."""
    besides = math.fsum(map(_least_delta, others))
    drawn = drawn_noise.of_gaussian(
        lambda left: _epsilon(rho, others, besides + left),
        delta - besides,
        num_rounds,
        besides,
    )
    if not drawn.is_proved:
        raise ValueError(
            f"delta = {delta:g} is too small: nothing is proved for the integer noise "
            "that is drawn instead of the Gaussian. Give a larger delta"
        )
    return drawn.epsilon


def _epsilon(rho: float | None, known: Sequence[Guarantee], delta: float) -> float:
    """Composes Gaussian noise, if any, with other guarantees.

    Args:
        rho: The rho of the noise.
        known: The others.
        delta: The delta of all together, at least the sum of theirs.
    """
    # An epsilon of 0 has nothing to compose but its delta. What holds in one direction
    # and has no curve only bounds the loss at one epsilon.
    curves = [each.voting.mechanisms() for each in known if each.voting is not None]
    composed: list[Guarantee] = []
    added: list[Guarantee] = []
    for each in known:
        if each.voting is None:
            alone = each.one_sided or not 0 < each.epsilon <= _LARGEST_COMPOSED
            (added if alone else composed).append(each)
    sum_of_added = _sum_upwards(each.epsilon for each in added)
    if spent := _sum_upwards(each.delta for each in added):
        delta = max(0.0, math.nextafter(delta - spent, 0.0))
    counts = collections.Counter((each.epsilon, each.delta) for each in composed)
    mechanisms = [
        loss_composition.of_guarantee(*pair, count) for pair, count in counts.items()
    ] + curves
    if rho is not None:
        if not mechanisms:
            return _sum_upwards([sum_of_added, conversions.zcdp_to_epsilon(rho, delta)])
        left = delta - math.fsum(each.count * each.least_delta for each in mechanisms)
        farthest = conversions.zcdp_to_epsilon(rho, _BEYOND * left)
        mechanisms.append(
            loss_composition.Mechanisms(
                lambda at: conversions.gaussian_delta(rho, at), max(farthest, 1e-9)
            )
        )
    if not mechanisms:
        return sum_of_added
    if delta <= 0:
        largest = [each.largest for each in mechanisms for _ in range(each.count)]
        return _sum_upwards([sum_of_added, *largest])
    epsilon = loss_composition.composed_epsilon(mechanisms, delta)
    return _sum_upwards([sum_of_added, epsilon])


def _least_delta(guarantee: Guarantee) -> float:
    """Returns the delta that is spent at any epsilon of the total."""
    if guarantee.voting is not None:
        return guarantee.voting.least_delta
    return guarantee.delta


def _sum_upwards(values: Iterable[float]) -> float:
    values = list(values)
    if any(map(math.isinf, values)):
        return math.inf
    return rounding.upwards(sum(map(fractions.Fraction, values), fractions.Fraction()))
