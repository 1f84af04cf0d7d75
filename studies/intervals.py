"""Intervals of numbers that lie in [0, 1], and stay there."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

_CONFIDENCE = 0.95


def wilson(
    mean: np.ndarray, standard_error: np.ndarray, quantile: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ends of Wilson's score interval of a mean of numbers in [0, 1].

    A mean m with standard error s says as much as a share among m (1 - m) / s^2 draws:
    for a share of n draws that is n, and the interval is Wilson's of 1927. Inside of
    [0, 1] it is near m - quantile s to m + quantile s; it never leaves [0, 1].

    Args:
        mean: Means, in [0, 1].
        standard_error: The standard error of it, at least 0.
        quantile: The quantile of the standardized mean, above 0.

    Returns:
        The lower and the upper ends. Both are nan where the standard error is 0, or the
        mean 0 or 1: numbers that were all the same do not tell how far off their mean
        may be.
    """
    mean, error = np.broadcast_arrays(
        np.asarray(mean, float), np.asarray(standard_error, float)
    )
    spread = mean * (1 - mean)
    known = (error > 0) & (spread > 0)
    # quantile^2 / draws.
    ratio = np.zeros_like(mean)
    np.divide(quantile**2 * error**2, spread, out=ratio, where=known)
    center = (mean + ratio / 2) / (1 + ratio)
    half = np.sqrt(spread * ratio + ratio**2 / 4) / (1 + ratio)
    low, high = np.clip(center - half, 0, 1), np.clip(center + half, 0, 1)
    return np.where(known, low, np.nan), np.where(known, high, np.nan)


def of_means(
    rows: pd.DataFrame, keys: Sequence[str], columns: Sequence[str]
) -> pd.DataFrame:
    """Averages columns with values in [0, 1], with 95% intervals.

    Args:
        rows: One for each repeat of each key.
        keys: The columns that name what is repeated; in the order of their first rows.
        columns: Columns that are averaged.

    Returns:
        A row a key, with `repeats`, and for each column c: c, c_low and c_high, by
        `wilson` with a quantile of Student's t; empty ends where there is one repeat,
        or all were the same.
    """
    found = []
    for key, group in rows.groupby(list(keys), sort=False, dropna=False):
        row = dict(zip(keys, key if isinstance(key, tuple) else (key,), strict=True))
        row["repeats"] = len(group)
        for column in columns:
            values = group[column].dropna().to_numpy(float)
            row[column] = values.mean() if len(values) else np.nan
            row[f"{column}_low"], row[f"{column}_high"] = of_mean(values)
        found.append(row)
    return pd.DataFrame(found)


def of_mean(values: np.ndarray) -> tuple[float, float]:
    """Returns the 95% interval of a mean, by `wilson` with Student's t.

    Args:
        values: float64 [repeats], in [0, 1], of independent repeats.

    Returns:
        The lower and the upper end; both nan where there are none.
    """
    if len(values) < 2 or (values == values[0]).all():
        return math.nan, math.nan
    error = values.std(ddof=1) / np.sqrt(len(values))
    quantile = stats.t.ppf((1 + _CONFIDENCE) / 2, len(values) - 1)
    low, high = wilson(values.mean(), error, quantile)
    return float(low), float(high)


def half_of_mean(values: np.ndarray) -> float:
    """Returns half of the 95% interval of a mean, by Student's t.

    Args:
        values: One for each repeat; of one the interval is nan.
    """
    if len(values) < 2:
        return math.nan
    error = values.std(ddof=1) / math.sqrt(len(values))
    quantile = stats.t.ppf((1 + _CONFIDENCE) / 2, len(values) - 1)
    return float(quantile * error)


def shown(mean: float, half: float, form: str) -> str:
    """Returns a mean as tables have it: with half of its interval, if it has one.

    Args:
        mean: The mean of the repeats.
        half: Half of the mean, from `half_of_mean`.
        form: Format of both, such as `.3f`.
    """
    text = format(mean, form)
    return text if math.isnan(half) else f"{text} ± {format(half, form)}"
