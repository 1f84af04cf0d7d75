"""How fast the privacy accounting is, beside other ways to the same numbers.

    scripts/run scripts.benchmark_accounting

Prints a table: the squared sensitivity of DP-FTRL beside TensorFlow Privacy's, and the
clones bound of shuffling beside a literal implementation of the numerical procedure of
2021 (Feldman, McMillan, Talwar, "Hiding among the clones"), which goes through the
number of clones band by band, over its whole range, at each of some bisections. Ours is
the median of --repeats, theirs is run once. One core each: pin it (`taskset -c 0`).
"""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable

import numpy as np
from absl import app

from options import option_flags
from options.fields import check, option
from privacy import clones, paper_tables, worst_participation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is computed."""

    repeats: int = option(5, "Repeats of ours.", least=1, most=1000)
    num_rounds: int = option(930, "Rounds T of DP-FTRL.", least=1, most=10**6)
    min_separation: int = option(212, "MinS.", least=0, most=10**6)
    max_participation: int = option(4, "MaxP.", least=1, most=1000)
    num_reports: int = option(10**5, "Reports to shuffle.", least=2, most=10**9)
    local_epsilon: float = option(
        4.0, "Local epsilon of the reports.", above=0, most=40
    )
    delta: float = option(1e-6, "Delta.", above=0, below=1)
    step: int = option(100, "Clones of a band of the procedure.", least=1, most=10**6)
    bisections: int = option(10, "Bisections of the procedure.", least=1, most=100)

    def __post_init__(self):
        check(self)


_FLAGS = option_flags.define(Options)


def main(argv):
    """Measures, and prints the table."""
    del argv
    # Imported before the clock runs, as theirs is.
    clones.ClonePair(1.0, 100, stronger=False).epsilon(1e-3)
    print(
        f"{'what':56} {'ours':>12} {'theirs':>12} {'ours s':>9} {'theirs s':>9} ratio"
    )
    _print_row(*_tree_aggregation())
    _print_row(*_shuffling())
    seconds, rows = _timed(paper_tables.all_rows)
    print(f"\nAll {len(rows)} rows of --paper_tables: {seconds:.2f} s")


def _tree_aggregation():
    from tensorflow_privacy.privacy.analysis import (
        tree_aggregation_accountant as accountant,
    )

    rounds, separation = _FLAGS.read().num_rounds, _FLAGS.read().min_separation
    most = _FLAGS.read().max_participation
    ours = _median(lambda: worst_participation.square_sum((rounds,), most, separation))
    theirs = _timed(
        lambda: round(
            2
            * accountant.compute_zcdp_single_tree(
                noise_multiplier=1.0,
                total_steps=rounds,
                max_participation=most,
                min_separation=separation,
            )
        )
    )
    name = f"S2 of DP-FTRL {rounds}/{separation}/{most}, TensorFlow Privacy"
    return name, ours, theirs


def _shuffling():
    local, n, delta = (
        _FLAGS.read().local_epsilon,
        _FLAGS.read().num_reports,
        _FLAGS.read().delta,
    )
    ours = _median(lambda: clones.ClonePair(local, n, stronger=False).epsilon(delta))
    theirs = _timed(
        lambda: _procedure_of_2021(
            local, n, delta, _FLAGS.read().step, _FLAGS.read().bisections
        )
    )
    name = f"epsilon of {n:g} reports of {local:g}-LDP, procedure of 2021"
    return name, ours, theirs


def _procedure_of_2021(
    local: float, n: int, delta: float, step: int, bisections: int
) -> float:
    """Bisects epsilon; at each, sums the bands of clones over their whole range."""
    from scipy import stats

    share = math.exp(-local)
    honest = 1 / (1 + share)
    mean = (n - 1) * share

    def divergence(count: int, epsilon: float) -> float:
        # P - e^epsilon Q over the first counts whose likelihood ratio is larger.
        ratio = math.exp(epsilon)
        tilt = 0.5 + 0.5 * math.tanh(epsilon / 2) / math.tanh(local / 2)
        first = math.floor((count + 1) * tilt) + 1
        with_one = stats.binom.sf(first - 2, count, 0.5)
        without = stats.binom.sf(first - 1, count, 0.5)
        return (honest - ratio * (1 - honest)) * with_one + (
            (1 - honest) - ratio * honest
        ) * without

    def delta_at(epsilon: float) -> float:
        total, covered = 0.0, 0.0
        for band in range(math.ceil(n / step)):
            for low in (mean + band * step, mean - (band + 1) * step):
                low, high = max(math.floor(low), -1), min(math.floor(low) + step, n - 1)
                if high <= low:
                    continue
                mass = stats.binom.cdf(high, n - 1, share) - stats.binom.cdf(
                    low, n - 1, share
                )
                covered += mass
                total += mass * divergence(max(low, 0), epsilon)
        return total + 1 - covered

    low, high = 0.0, local
    # SciPy warns where a tail underflows to the 0 that it returns.
    with np.errstate(divide="ignore"):
        for _ in range(bisections):
            middle = (low + high) / 2
            low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high


def _median(call: Callable[[], float]) -> tuple[float, float]:
    runs = [_timed(call) for _ in range(_FLAGS.read().repeats)]
    return statistics.median(seconds for seconds, _ in runs), runs[0][1]


def _timed(call: Callable):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def _print_row(name: str, ours: tuple[float, float], theirs: tuple[float, float]):
    print(
        f"{name:56} {ours[1]:12.6g} {theirs[1]:12.6g} {ours[0]:9.4f} {theirs[0]:9.2f} "
        f"{theirs[0] / ours[0]:.0f}"
    )


if __name__ == "__main__":
    app.run(main, flags_parser=_FLAGS.parse)
