"""Values as a page shows them."""

import decimal
import numbers
from collections.abc import Sequence

import pandas as pd


def cell(value: object) -> str:
    """Returns a value as a page shows it: large numbers in groups of three digits."""
    if isinstance(value, float):
        if pd.isna(value):
            return "–"
        whole = value.is_integer() or abs(value) >= 10_000
        return f"{value:,.0f}" if whole and abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return f"{int(value):,}"
    return str(value)


def aligned(printed: Sequence[str]) -> list[str]:
    """Gives the printed numbers of a column one format.

    Args:
        printed: Numbers of at most 15 digits, such as bounds that were rounded upwards.

    Returns:
        The same numbers, with as many decimals as each other; with an exponent where
        one of them has one. What is 0 or infinite stays as it is.
    """
    known = {text: decimal.Decimal(text).normalize() for text in printed}
    known = {text: each for text, each in known.items() if each and each.is_finite()}
    has_exponent = any("e" in text for text in known)
    decimals = [
        len(each.as_tuple().digits) - 1
        if has_exponent
        else -int(each.as_tuple().exponent)
        for each in known.values()
    ]
    form = f".{max([0, *decimals])}{'e' if has_exponent else 'f'}"
    return [f"{float(text):{form}}" if text in known else text for text in printed]
