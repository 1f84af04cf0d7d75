"""Measures the local randomizers' speed, and compares them.

    scripts/run benchmarks.randomizers

Writes tables and plots to --results_dir, and prints them:

* `sum_of_reports`: the sum of Subset Selection reports at the scale of Gboard, drawn at
  once and report by report, against the number of reports;
* `client_reports`: reports that a TFF client computation draws and adds up, a second of
  the worker's processor time;
* `side_by_side`: bits, error and seconds of the randomizers at equal epsilon. Error is
  the root of the mean squared error of the estimates, in devices, beside that of the
  formula.

Times of one core: NumPy and, in this process, TensorFlow run on one thread; of the
worker it is the processor time that counts.
"""

import dataclasses
import functools
import statistics
import time
from typing import Any

from absl import app

from benchmarks import harness
from federated_hh.options.fields import option

_GBOARD: dict[str, Any] = {"epsilon": 10.0, "domain_size": 10**6 + 1}
_GBOARD_REPORTS = 6 * 10**7
_DISTINCT_ITEMS = 10**5
_SMALL: dict[str, Any] = {"epsilon": 4.0, "domain_size": 1001}
_SMALL_REPORTS = 10**6
# The numbers that reports drawn one by one have together.
_VALUES_ONE_BY_ONE = 10**8
_EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(harness.Options):
    """Numbers of repeats and reports."""

    results_dir: str = harness.results_dir("randomizers")
    repeats: int = option(3, "Repeats; the median time counts.", least=1, most=1000)
    most_one_by_one: int = option(
        10**7, "The most reports to draw one by one.", least=10**4, most=10**9
    )
    client_reports: int = option(
        10**6, "Reports of the TFF client computations.", least=1, most=10**9
    )


def zipf_histogram(domain_size: int, distinct: int, num_reports: int):
    """Returns the number of devices with each item: Zipf's law over some of the items.

    Args:
        domain_size: The items, "no item" (the last, which nobody has here) included.
        distinct: Number of items that somebody may have, spread over the domain.
        num_reports: Number of devices.
    """
    import numpy as np

    generator = np.random.default_rng(1)
    weights = 1 / np.arange(1, distinct + 1)
    counts = generator.multinomial(num_reports, weights / weights.sum())
    histogram = np.zeros(domain_size, np.int64)
    histogram[generator.choice(domain_size - 1, distinct, replace=False)] = counts
    return histogram


def median_cpu_seconds(call, repeats: int) -> float:
    """Returns the median processor time of calls with the number of the repeat."""
    return statistics.median(
        harness.cpu_seconds(functools.partial(call, repeat))
        for repeat in range(repeats)
    )


def time_report_by_report(randomizer, histogram) -> float:
    """Returns the processor seconds of drawing the reports and adding them up."""
    import numpy as np
    import tensorflow as tf

    items = np.repeat(np.arange(len(histogram), dtype=np.int32), histogram)
    in_graph = tf.function(randomizer.sum_per_report).get_concrete_function(
        tf.TensorSpec([None], tf.int32), tf.TensorSpec([2], tf.int32)
    )
    in_graph(tf.constant(items[:100]), tf.constant([0, 0]))
    return harness.cpu_seconds(
        lambda: in_graph(tf.constant(items), tf.constant([1, 0]))
    )


def measure_sums(options: Options):
    """Returns processor seconds against the number of reports, at Gboard's scale."""
    import pandas as pd

    from federated_hh.randomizers import subset_selection

    randomizer = subset_selection.SubsetSelection(**_GBOARD)
    rows = []
    for number in sorted([*(10**k for k in range(4, 10)), _GBOARD_REPORTS]):
        histogram = zipf_histogram(randomizer.domain_size, _DISTINCT_ITEMS, number)
        seconds = median_cpu_seconds(
            lambda repeat, h=histogram: randomizer.sum_of_reports(h, repeat),
            options.repeats,
        )
        rows.append(("sum_of_reports", number, seconds))
        if number <= options.most_one_by_one:
            seconds = time_report_by_report(randomizer, histogram)
            rows.append(("report by report", number, seconds))
    return pd.DataFrame(rows, columns=["method", "reports", "cpu_seconds"])


def build_round(randomizer):
    """Returns a TFF computation: a secure sum of the reports of blocks of devices."""
    import numpy as np
    import tensorflow_federated as tff

    items_type = tff.TensorType(np.int32, [None])
    seed_type = tff.TensorType(np.int32, [2])

    @tff.tensorflow.computation(items_type, seed_type)
    def block(items, seed):
        return randomizer.sum_per_report(items, seed)

    @tff.federated_computation(
        tff.FederatedType(items_type, tff.CLIENTS),
        tff.FederatedType(seed_type, tff.CLIENTS),
    )
    def secure_sum(items, seeds):
        counts = tff.federated_map(block, (items, seeds))
        return tff.federated_secure_sum(counts, 2**31)

    return secure_sum


def measure_client(options: Options):
    """Returns the reports a second and core of TFF client computations."""
    import numpy as np
    import pandas as pd
    import psutil

    from federated_hh.randomizers import subset_selection
    from federated_hh.runtime import runtime

    rows = []
    num_reports = options.client_reports
    for epsilon, domain_size in (tuple(_GBOARD.values()), (3.0, 1000)):
        randomizer = subset_selection.SubsetSelection(epsilon, domain_size)
        generator = np.random.default_rng(1)
        blocks = np.array_split(
            generator.integers(0, domain_size - 1, num_reports, np.int32), 10
        )
        seeds = [np.array([1, i], np.int32) for i in range(10)]
        tff_round = build_round(randomizer)
        cpu, wall = [], []
        with runtime.tff_worker() as worker:
            process = psutil.Process(worker.process.pid)
            tff_round(blocks[:1], seeds[:1])  # compiles
            for _ in range(options.repeats):
                before, start = process.cpu_times(), time.perf_counter()
                total = tff_round(blocks, seeds)
                wall.append(time.perf_counter() - start)
                after = process.cpu_times()
                cpu.append(after.user + after.system - before.user - before.system)
        if total.sum() != num_reports * randomizer.subset_size:
            raise RuntimeError(f"the reports have {total.sum()} items")
        rows.append(
            {
                "epsilon": epsilon,
                "domain_size": domain_size,
                "items_per_report": randomizer.subset_size,
                "reports": num_reports,
                "worker_cpu_seconds": statistics.median(cpu),
                "wall_seconds": statistics.median(wall),
                "reports_per_cpu_second": num_reports / statistics.median(cpu),
            }
        )
    return pd.DataFrame(rows)


def randomizers_at(epsilon: float, domain_size: int) -> dict[str, Any]:
    """Returns the randomizers of one epsilon in the replacement model, by name.

    The last is the symmetric encoding with that epsilon in its own, weaker model.
    """
    from federated_hh.randomizers import k_ary, one_hot, subset_selection

    symmetric = one_hot.SymmetricOneHotEncoding
    return {
        "Subset Selection": subset_selection.SubsetSelection(epsilon, domain_size),
        "asymmetric one-hot": one_hot.AsymmetricOneHotEncoding(epsilon, domain_size),
        "symmetric one-hot": symmetric(epsilon / 2, domain_size),
        "k-ary response": k_ary.KAryRandomizedResponse(epsilon, domain_size),
        "symmetric one-hot, deletion": symmetric(epsilon, domain_size),
    }


def compare(epsilon, domain_size, distinct, num_reports, most_one_by_one, repeats):
    """Yields a row for each randomizer: bits, error, seconds.

    Args:
        epsilon: Epsilon of the replacement model; of deletion where the name says so.
        domain_size: Number of items, "no item" included.
        distinct: Number of items that devices have.
        num_reports: Number of reports of a sum.
        most_one_by_one: The most reports to draw one by one, for their time; 0 for
            none.
        repeats: Number of sums for the error and the time.
    """
    import numpy as np

    histogram = zipf_histogram(domain_size, distinct, num_reports)
    for name, randomizer in randomizers_at(epsilon, domain_size).items():
        sums: list[np.ndarray] = []
        seconds = median_cpu_seconds(
            lambda repeat, r=randomizer, s=sums: s.append(
                r.sum_of_reports(histogram, repeat)
            ),
            repeats,
        )
        errors = [randomizer.estimate(s, num_reports) - histogram for s in sums]
        variances = randomizer.variance(histogram, num_reports)
        row = {
            "epsilon": epsilon,
            "domain_size": domain_size,
            "reports": num_reports,
            "randomizer": name,
            "replacement_epsilon": randomizer.guarantee.replacement_epsilon,
            "bits_per_report": randomizer.bits_per_report,
            "error": np.sqrt(np.mean(np.square(errors))),
            "error_of_formula": np.sqrt(variances.mean()),
            "sum_cpu_seconds": seconds,
        }
        if most_one_by_one:
            number = _VALUES_ONE_BY_ONE // randomizer.values_per_report
            number = min(10**6, number, most_one_by_one)
            part = zipf_histogram(domain_size, distinct, number)
            seconds = time_report_by_report(randomizer, part)
            row["cpu_microseconds_per_report"] = 1e6 * seconds / number
        yield row


def measure_side_by_side(options: Options):
    """Returns the comparison over epsilons, with times at the two main settings."""
    import pandas as pd

    size, most = _SMALL["domain_size"], options.most_one_by_one
    rows: list[dict[str, Any]] = []
    for epsilon in _EPSILONS:
        timed = most if epsilon == _SMALL["epsilon"] else 0
        repeats = max(5, options.repeats)
        rows += compare(epsilon, size, size - 1, _SMALL_REPORTS, timed, repeats)
    of_gboard = _DISTINCT_ITEMS, _GBOARD_REPORTS, most, options.repeats
    rows += compare(_GBOARD["epsilon"], _GBOARD["domain_size"], *of_gboard)
    return pd.DataFrame(rows)


def plot_sums(table, run: harness.Run) -> None:
    """Draws the cost of a sum against the number of reports."""
    from federated_hh.reports import plots

    figure, axes = plots.single(
        "The sum of Subset Selection reports: a million items, 46 a report",
        "reports",
        "processor seconds",
    )
    looks = {"sum_of_reports": plots.BLUE, "report by report": plots.ORANGE}
    for method, color in looks.items():
        rows = table[table.method == method]
        label = method.replace("sum_of_reports", "all at once")
        axes.plot(rows.reports, rows.cpu_seconds, "o-", color=color, label=label)
    slow = rows.iloc[-1]
    ends = [slow.reports, 10**9]
    seconds = [slow.cpu_seconds / slow.reports * end for end in ends]
    axes.plot(ends, seconds, "--", color=color, label=f"{method}, extrapolated")
    run.plot("sum_of_reports", figure, axes)


def plot_errors(table, run: harness.Run) -> None:
    """Draws the error of the randomizers against epsilon."""
    from federated_hh.reports import plots

    figure, axes = plots.single(
        "Error at equal epsilon: a million reports on a thousand items",
        "epsilon (replacement model, dashed: deletion model)",
        "root mean squared error, devices",
    )
    colors = [plots.BLUE, plots.ORANGE, plots.GREEN, plots.INK, plots.GREEN]
    small = table[table.domain_size == _SMALL["domain_size"]]
    groups = small.groupby("randomizer", sort=False)
    for (name, rows), color in zip(groups, colors, strict=True):
        line = "--" if name.endswith("deletion") else "-"
        axes.plot(rows.epsilon, rows.error_of_formula, line, color=color, label=name)
        axes.plot(rows.epsilon, rows.error, "o", color=color, markersize=4)
    title = "line: formula; dots: measured"
    run.plot("error", figure, axes, logarithmic="y", title=title)


def measure(options: Options, run: harness.Run) -> None:
    """Measures clients, then the randomizers side by side, then sums."""
    harness.one_thread()
    run.show("client_reports", measure_client(options))
    side_by_side = measure_side_by_side(options)
    run.show("side_by_side", side_by_side)
    plot_errors(side_by_side, run)
    sums = measure_sums(options)
    run.show("sum_of_reports", sums)
    plot_sums(sums, run)


CASE = harness.Case(Options, measure, "synthetic: Zipf's law, see zipf_histogram")

if __name__ == "__main__":
    app.run(CASE.main, flags_parser=CASE.parse)
