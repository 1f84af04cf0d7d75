"""What the answers of the command line consist of, and what several of them ask."""

from collections.abc import Sequence
from typing import Any

Rows = list[dict[str, Any]]

# Restarts beyond these are as many trees.
_MOST_TREES = 10**6
_SHOWN_TREES = 20


def row(quantity: str, value: Any, basis: str) -> dict[str, Any]:
    """Returns a row of an answer."""
    return {"quantity": quantity, "value": value, "basis": basis}


def zcdp(rho: float, delta: float, unit: str) -> Rows:
    """Returns rho, and epsilon by each conversion.

    Args:
        rho: The rho of zCDP.
        delta: In (0, 1).
        unit: Whom it is for.
    """
    from federated_hh.privacy import conversions

    return [
        row("zCDP (rho)", rho, unit),
        *(
            row(
                f"epsilon at delta = {delta:g}",
                conversions.zcdp_to_epsilon(rho, delta, conversion),
                f"{unit}; {conversion.value}",
            )
            for conversion in conversions.ZcdpConversion
        ),
    ]


def best_zcdp(rho: float, delta: float, unit: str) -> Rows:
    """Returns rho, and the smallest epsilon; see `zcdp`."""
    from federated_hh.privacy import conversions

    epsilon = conversions.zcdp_to_epsilon(rho, delta)
    return [
        row("zCDP (rho)", rho, unit),
        row(f"epsilon at delta = {delta:g}", epsilon, unit),
    ]


def restart_rounds(
    num_rounds: int, first: int | None, period: int | None
) -> tuple[int, ...]:
    """Returns the restarts that flags ask for; none where `first` is None.

    Raises:
        ValueError: An argument is outside its range, or restarts are too many.
    """
    from federated_hh.privacy.dp_ftrl import tree_aggregation

    if first is None:
        if period is not None:
            raise ValueError("restart_period needs restart_first")
        return ()
    period = num_rounds if period is None else period
    if period > 0 and num_rounds / period > _MOST_TREES:
        raise ValueError(
            f"restart_period is {period}; it has to be at least "
            f"{-(-num_rounds // _MOST_TREES)} for num_rounds = {num_rounds}: at most "
            f"{_MOST_TREES} trees"
        )
    return tree_aggregation.restart_schedule(num_rounds, first, period)


def abridged(lengths: Sequence[int]) -> str:
    """Returns the first of many lengths, as text."""
    shown = ", ".join(map(str, lengths[:_SHOWN_TREES]))
    more = len(lengths) - _SHOWN_TREES
    return f"{shown}, and {more} more" if more > 0 else shown
