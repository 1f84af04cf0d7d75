"""How fast the local randomizers are, and how they compare.

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
import statistics
import time
from typing import Any

from absl import app

from benchmarks import results as benchmark_results
from federated_hh.options import option_flags
from federated_hh.options.fields import check, option
from federated_hh.runtime.worker import startup


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How much is measured."""

    results_dir: str = option("results/randomizers", "Where to write.")
    repeats: int = option(3, "Repeats; the median time counts.", least=1, most=1000)
    most_one_by_one: int = option(
        10**7, "The most reports to draw one by one.", least=10**4, most=10**9
    )
    client_reports: int = option(
        10**6, "Reports of the TFF client computations.", least=1, most=10**9
    )

    def __post_init__(self):
        check(self)


_FLAGS = option_flags.define(Options)

_GBOARD: dict[str, Any] = {"epsilon": 10.0, "domain_size": 10**6 + 1}
_GBOARD_REPORTS = 6 * 10**7
_DISTINCT_ITEMS = 10**5
_SMALL: dict[str, Any] = {"epsilon": 4.0, "domain_size": 1001}
_SMALL_REPORTS = 10**6
# The numbers that reports drawn one by one have together.
_VALUES_ONE_BY_ONE = 10**8
_EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)


def zipf_histogram(domain_size: int, distinct: int, num_reports: int):
    """Returns how many devices have each item: Zipf's law over some of the items.

    Args:
        domain_size: The items, "no item" (the last, which nobody has here) included.
        distinct: How many items somebody may have; they are spread over the domain.
        num_reports: How many devices there are.
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
    seconds = []
    for repeat in range(repeats):
        start = time.process_time()
        call(repeat)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def time_report_by_report(randomizer, histogram, repeats: int) -> float:
    """Returns the processor seconds of drawing the reports and adding them up."""
    import numpy as np
    import tensorflow as tf

    items = np.repeat(np.arange(len(histogram), dtype=np.int32), histogram)
    in_graph = tf.function(randomizer.sum_per_report).get_concrete_function(
        tf.TensorSpec([None], tf.int32), tf.TensorSpec([2], tf.int32)
    )
    in_graph(tf.constant(items[:100]), tf.constant([0, 0]))
    return median_cpu_seconds(
        lambda repeat: in_graph(tf.constant(items), tf.constant([1, repeat])), repeats
    )


def measure_sums(repeats: int, most_one_by_one: int):
    """Returns processor seconds against the number of reports, at Gboard's scale."""
    import pandas as pd

    from federated_hh.randomizers import subset_selection

    randomizer = subset_selection.SubsetSelection(**_GBOARD)
    rows = []
    numbers = sorted([*(10**k for k in range(4, 10)), _GBOARD_REPORTS])
    for number in numbers:
        histogram = zipf_histogram(randomizer.domain_size, _DISTINCT_ITEMS, number)
        seconds = median_cpu_seconds(
            lambda repeat, h=histogram: randomizer.sum_of_reports(h, repeat), repeats
        )
        rows.append(("sum_of_reports", number, seconds))
        if number <= most_one_by_one:
            seconds = time_report_by_report(randomizer, histogram, 1)
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


def measure_client(num_reports: int, repeats: int):
    """Returns the reports a second and core of TFF client computations."""
    import numpy as np
    import pandas as pd
    import psutil

    from federated_hh.randomizers import subset_selection
    from federated_hh.runtime import runtime

    rows = []
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
            for _ in range(repeats):
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


def randomizers_at(epsilon: float, domain_size: int) -> dict:
    """Returns the randomizers of one epsilon in the replacement model, by name.

    The last is the symmetric encoding with that epsilon in its own, weaker model.
    """
    from federated_hh.randomizers import k_ary, one_hot, subset_selection

    return {
        "Subset Selection": subset_selection.SubsetSelection(epsilon, domain_size),
        "asymmetric one-hot": one_hot.AsymmetricOneHotEncoding(epsilon, domain_size),
        "symmetric one-hot": one_hot.SymmetricOneHotEncoding(epsilon / 2, domain_size),
        "k-ary response": k_ary.KAryRandomizedResponse(epsilon, domain_size),
        "symmetric one-hot, deletion": one_hot.SymmetricOneHotEncoding(
            epsilon, domain_size
        ),
    }


def compare(epsilon, domain_size, distinct, num_reports, *, one_by_one, repeats):
    """Returns a row for each randomizer: bits, error, seconds.

    Args:
        epsilon: The epsilon of the replacement model; of deletion where the name says
            so.
        domain_size: Items, "no item" included.
        distinct: How many items devices have.
        num_reports: Over how many reports the error is.
        one_by_one: Whether to time reports that are drawn one by one as well.
        repeats: How many sums the error and the time are over.
    """
    import numpy as np
    import pandas as pd

    histogram = zipf_histogram(domain_size, distinct, num_reports)
    rows = []
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
        if one_by_one:
            number = min(10**6, _VALUES_ONE_BY_ONE // randomizer.values_per_report)
            part = zipf_histogram(domain_size, distinct, number)
            seconds = time_report_by_report(randomizer, part, 1)
            row["cpu_microseconds_per_report"] = 1e6 * seconds / number
        rows.append(row)
    return pd.DataFrame(rows)


def measure_side_by_side(repeats: int):
    """Returns the comparison over epsilons, with times at the two main settings."""
    import pandas as pd

    tables = []
    for epsilon in _EPSILONS:
        tables.append(
            compare(
                epsilon,
                _SMALL["domain_size"],
                _SMALL["domain_size"] - 1,
                _SMALL_REPORTS,
                one_by_one=epsilon == _SMALL["epsilon"],
                repeats=max(5, repeats),
            )
        )
    tables.append(
        compare(
            **_GBOARD,
            distinct=_DISTINCT_ITEMS,
            num_reports=_GBOARD_REPORTS,
            one_by_one=True,
            repeats=repeats,
        )
    )
    return pd.concat(tables, ignore_index=True)


def plot_sums(table) -> bytes:
    """Draws the cost of a sum against the number of reports."""
    from federated_hh.reports import plots

    figure, axes = plots.single(
        "The sum of Subset Selection reports: a million items, 46 a report",
        "reports",
        "processor seconds",
    )
    looks = {"sum_of_reports": plots.BLUE, "report by report": plots.ORANGE}
    for method, colour in looks.items():
        rows = table[table.method == method]
        axes.plot(rows.reports, rows.cpu_seconds, "o-", color=colour, label=method)
    slow = table[table.method == "report by report"].iloc[-1]
    ends = [slow.reports, 10**9]
    rate = slow.cpu_seconds / slow.reports
    axes.plot(
        ends,
        [rate * n for n in ends],
        "--",
        color=plots.ORANGE,
        label="report by report, extrapolated",
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.legend(frameon=False)
    return plots.png(figure)


def plot_errors(table) -> bytes:
    """Draws the error of the randomizers against epsilon."""
    from federated_hh.reports import plots

    figure, axes = plots.single(
        "Error at equal epsilon: a million reports on a thousand items",
        "epsilon (replacement model, dashed: deletion model)",
        "root mean squared error, devices",
    )
    colours = [plots.BLUE, plots.ORANGE, plots.GREEN, plots.INK, plots.GREEN]
    small = table[table.domain_size == _SMALL["domain_size"]]
    for (name, rows), colour in zip(
        small.groupby("randomizer", sort=False), colours, strict=True
    ):
        dashed = name.endswith("deletion")
        axes.plot(
            rows.epsilon,
            rows.error_of_formula,
            "--" if dashed else "-",
            color=colour,
            label=name,
        )
        axes.plot(rows.epsilon, rows.error, "o", color=colour, markersize=4)
    axes.set_yscale("log")
    axes.legend(frameon=False, title="line: formula; dots: measured")
    return plots.png(figure)


def main(argv: list[str]) -> None:
    """Measures, writes and prints."""
    del argv
    startup.silence_tensorflow()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    options = _FLAGS.read()
    results = benchmark_results.Results(
        options.results_dir,
        "benchmarks.randomizers",
        data="synthetic: Zipf's law, see zipf_histogram",
    )
    results.show(
        "client_reports", measure_client(options.client_reports, options.repeats)
    )
    side_by_side = measure_side_by_side(options.repeats)
    results.show("side_by_side", side_by_side)
    results.write("error.png", plot_errors(side_by_side))
    sums = measure_sums(options.repeats, options.most_one_by_one)
    results.show("sum_of_reports", sums)
    results.write("sum_of_reports.png", plot_sums(sums))
    results.finish()


if __name__ == "__main__":
    app.run(main, flags_parser=_FLAGS.parse)
