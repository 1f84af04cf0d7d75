"""One ledger for all that was done to the same data."""

import collections
import dataclasses
import math
from typing import Any

from privacy import argument_checks, loss_composition
from privacy.statement import Guarantee

# Share of delta that is left to larger losses of the events.
_BEYOND = 1e-4


@dataclasses.dataclass(frozen=True)
class Entry:
    """One mechanism in a ledger.

    Attributes:
        name: What ran.
        event: Its `dp_accounting` event; None where there is only a guarantee.
        guarantee: Its (epsilon, delta); None where there is an event.
    """

    name: str
    event: Any | None
    guarantee: Guarantee | None


class Ledger:
    """Composes mechanisms that ran on the same data, adaptively.

    Mechanisms with a `dp_accounting` event are composed by its PLD accountant, which
    is tight. Of the others only an (epsilon, delta) is known: they are composed as the
    worst mechanisms that have it (`loss_composition`), with the events and each other.
    Guarantees of one direction only say too little for that: they are added to the
    result (basic composition).
    """

    def __init__(self, *, unit: str, adjacency: str):
        """Makes an empty ledger.

        Args:
            unit: Unit of privacy that all entries share, such as "device".
            adjacency: Definition of neighbouring data sets that all entries share.

        Raises:
            ValueError: A text is empty.
        """
        if not unit.strip() or not adjacency.strip():
            raise ValueError("unit and adjacency must not be empty")
        self.unit = unit
        self.adjacency = adjacency
        self._entries: list[Entry] = []

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, in the order in which they were added."""
        return tuple(self._entries)

    def add_event(self, name: str, event: Any, *, unit: str, adjacency: str):
        """Adds a mechanism that has a `dp_accounting` event.

        Args:
            name: What ran.
            event: The event, for example `TreeAggregation.dp_event()`.
            unit: The unit that the event's noise multiplier is for.
            adjacency: The adjacency that it is for.

        Raises:
            ValueError: Unit or adjacency are not the ledger's, or the PLD accountant
                does not support the event.
        """
        from dp_accounting import pld

        self._check(name, unit, adjacency)
        if not pld.PLDAccountant().supports(event):
            raise ValueError(f"{name}: no sound accountant for the event {event!r}")
        self._entries.append(Entry(name, event, None))

    def add_guarantee(self, name: str, guarantee: Guarantee):
        """Adds a mechanism of which an (epsilon, delta) is all that is known.

        Args:
            name: What ran.
            guarantee: Its guarantee, which has to be an upper bound.

        Raises:
            ValueError: Unit or adjacency are not the ledger's, or the guarantee is no
                upper bound.
        """
        self._check(name, guarantee.unit, guarantee.adjacency)
        if not guarantee.is_upper_bound:
            raise ValueError(f"{name}: only upper bounds can be composed")
        self._entries.append(Entry(name, None, guarantee))

    def _check(self, name: str, unit: str, adjacency: str):
        for what, mine, other in (
            ("unit", self.unit, unit),
            ("adjacency", self.adjacency, adjacency),
        ):
            if mine != other:
                raise ValueError(
                    f"{name}: {what} is {other!r}, this ledger's is {mine!r}; convert "
                    "the guarantee first (see conversions), or use another ledger"
                )

    def total(self, delta: float) -> Guarantee:
        """Composes all entries.

        Args:
            delta: Wanted delta, in (0, 1), above the sum of the deltas of the
                entries without events. What is above it makes epsilon smaller than
                the sum of the epsilons.

        Returns:
            The guarantee of everything together.

        Raises:
            ValueError: The ledger is empty, or delta is outside its range.
        """
        delta = argument_checks.probability("delta", delta)
        if not self._entries:
            raise ValueError("the ledger is empty: nothing to compose")
        events = [entry.event for entry in self._entries if entry.event is not None]
        known = [e.guarantee for e in self._entries if e.guarantee is not None]
        spent = sum(guarantee.delta for guarantee in known)
        if spent > delta or (events and spent == delta):
            raise ValueError(
                f"delta = {delta:g} must be above {spent:g}, the sum of the deltas of "
                f"{[e.name for e in self._entries if e.guarantee is not None]}"
            )
        epsilon = _composed_epsilon(events, known, delta)
        bounds = []
        if events:
            bounds.append("PLD accountant of dp_accounting")
        if known:
            bounds.append("composition of the worst privacy losses of the guarantees")
        assumptions = {text: None for g in known for text in g.assumptions}
        return Guarantee(
            epsilon=epsilon,
            delta=delta,
            bound=" and ".join(bounds),
            is_upper_bound=True,
            one_sided=any(g.one_sided for g in known),
            unit=self.unit,
            adjacency=self.adjacency,
            assumptions=tuple(assumptions),
        )


def _composed_epsilon(events: list[Any], known: list[Guarantee], delta: float) -> float:
    if any(math.isinf(guarantee.epsilon) for guarantee in known):
        return math.inf
    # An epsilon of 0 has nothing to compose but its delta. What holds in one direction
    # only bounds the loss at one epsilon, and no loss of the other direction.
    composed: list[Guarantee] = []
    added: list[Guarantee] = []
    for guarantee in known:
        alone = guarantee.epsilon == 0 or guarantee.one_sided
        (added if alone else composed).append(guarantee)
    sum_of_added = math.fsum(guarantee.epsilon for guarantee in added)
    delta -= math.fsum(guarantee.delta for guarantee in added)
    counts = collections.Counter((each.epsilon, each.delta) for each in composed)
    mechanisms = [
        loss_composition.of_guarantee(*pair, count) for pair, count in counts.items()
    ]
    if events:
        from dp_accounting import pld

        accountant = pld.PLDAccountant()
        for event in events:
            accountant.compose(event)
        if not mechanisms:
            return sum_of_added + accountant.get_epsilon(delta)
        left = delta - math.fsum(count * pair[1] for pair, count in counts.items())
        farthest = accountant.get_epsilon(_BEYOND * left)
        if math.isinf(farthest):
            return math.inf
        mechanisms.append(
            loss_composition.Mechanisms(accountant.get_delta, max(farthest, 1e-9))
        )
    if not mechanisms:
        return sum_of_added
    if delta <= 0:
        return sum_of_added + math.fsum(
            each.count * each.largest for each in mechanisms
        )
    return sum_of_added + loss_composition.composed_epsilon(mechanisms, delta)
