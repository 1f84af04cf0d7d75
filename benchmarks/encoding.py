"""What it costs to encode a client's update for a secure sum, and to decode the sum.

    scripts/run benchmarks.encoding

Processor milliseconds of updates of 2.4 million parameters on one thread: of Algorithm
2 of Xu et al. 2023, at several q = s C / sqrt(padded dimension), and of exact integers;
the least and the mean of the repeats. `rotation` is the Hadamard product alone, which
is within a client's part; `server` is what the sum of a round takes. Writes a table to
--results_dir, and prints it.
"""

import dataclasses
import functools
import time
from collections.abc import Callable

from absl import app

from federated_hh.options import option_flags
from federated_hh.options.fields import check, option
from federated_hh.runtime.worker import startup


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is encoded."""

    results_dir: str = option("results/benchmark_encoding", "Where to write.")
    parameters: int = option(2_400_000, "Parameters of the model.", least=1, most=10**9)
    repeats: int = option(10, "Repeats of each measurement.", least=1, most=10**6)

    def __post_init__(self):
        check(self)


_FLAGS = option_flags.define(Options)
_RATIOS = (1.0, 10.0, 1000.0)
_CLIENTS = 6500
_CLIP_NORM = 0.3
_SEED = 1


def _milliseconds(work: Callable[[], object]) -> list[float]:
    work()  # builds the graph
    found = []
    for _ in range(_FLAGS.read().repeats):
        start = time.process_time()
        work()
        found.append(1e3 * (time.process_time() - start))
    return found


def _of_client(encoding, message) -> Callable[[], object]:
    """Returns what encodes one client's update, and adds it to a sum."""
    import tensorflow as tf

    delta = tf.random.stateless_normal([_FLAGS.read().parameters], [_SEED, 0])
    told = {name: tf.constant(value) for name, value in message.items()}
    total = [tf.Variable(part) for part in encoding.begin([delta])]

    @tf.function
    def add():
        parts = [tf.cast(delta, tf.float64)]
        norm = tf.norm(parts[0])
        common = {**encoding.told(told), "place": tf.constant(0, tf.int64)}
        for sum_, new in zip(
            total, encoding.add(total, parts, norm, common), strict=True
        ):
            sum_.assign(new)

    return add


def measure():
    """Returns a table of costs."""
    import numpy as np
    import pandas as pd
    import tensorflow as tf

    from federated_hh.privacy.dp_ftrl import rotated_updates
    from federated_hh.randomness import streams
    from training.federated import rotated_sums, update_sums

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    size = _FLAGS.read().parameters
    rows = []

    def row(what: str, part: str, bits: int, work: Callable[[], object]) -> None:
        found = _milliseconds(work)
        rows.append(
            {
                "encoding": what,
                "part": part,
                "bits": bits,
                "least_milliseconds": min(found),
                "mean_milliseconds": sum(found) / len(found),
            }
        )

    exact = update_sums.SecureSums(size)
    bits = (_CLIENTS * exact.largest["delta"]).bit_length()
    clip_norm = {"clip_norm": np.float64(_CLIP_NORM)}
    row("exact", "client", bits, _of_client(exact, clip_norm))
    for ratio in _RATIOS:
        of = rotated_updates.RotatedUpdate.of(
            clip_norm=_CLIP_NORM, num_values=size, num_clients=_CLIENTS
        )
        scale = of.scale * ratio / rotated_updates.DEFAULT_RATIO
        of = dataclasses.replace(of, scale=scale)
        encoding = rotated_sums.RotatedSums(of)
        message = encoding.message(streams.Stream(_SEED))
        name = f"rotated, q = {ratio:g}"
        row(name, "client", of.bits, _of_client(encoding, message))
        if ratio == rotated_updates.DEFAULT_RATIO:
            values = tf.random.stateless_normal([of.dimension], [_SEED, 1])
            turn = tf.function(rotated_sums.hadamard)
            row(name, "rotation", of.bits, functools.partial(turn, values))
            total = np.random.default_rng(_SEED).integers(0, 1 << 20, of.dimension)
            counts = ("num_below", "num_non_finite", "num_bounded", "num_unrounded")
            sums = {"delta": total, **dict.fromkeys(counts, 0)}

            def decode(encoding=encoding, sums=sums, message=message):
                shapes = {"w": (size,)}
                return encoding.update_sum(sums, shapes, _CLIENTS, _CLIENTS, message)

            row(name, "server", of.bits, decode)
    return pd.DataFrame(rows)


def main(argv: list[str]) -> None:
    """Measures, writes and prints."""
    del argv
    startup.silence_tensorflow()
    from benchmarks import results as benchmark_results

    table = measure()
    options = _FLAGS.read()
    benchmark_results.write(
        options.results_dir,
        "benchmarks.encoding",
        table,
        f"an update of {options.parameters:,} normal numbers",
        significant_digits=4,
    )
    print(table.to_string(index=False))


if __name__ == "__main__":
    app.run(main, flags_parser=_FLAGS.parse)
