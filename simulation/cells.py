"""Values as a page shows them."""

import numbers

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
