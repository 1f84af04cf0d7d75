"""Measures the encoding of a client's update for a secure sum, and its decoding.

    scripts/run benchmarks.encoding

Processor milliseconds on one thread for updates of 2.4 million parameters: minimum and
mean over the repeats. Measured are exact integers and Algorithm 2 of Xu et al. 2023, at
several q = s C / sqrt(padded dimension). `rotation` is the Hadamard product alone, a
part of the client's time; `server` is the decoding of a round's sum.
"""

import dataclasses
import functools
from collections.abc import Callable

from absl import app

from benchmarks import harness
from federated_hh.options.fields import option

_RATIOS = (1.0, 10.0, 1000.0)
_CLIENTS = 6500
_CLIP_NORM = 0.3
_SEED = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(harness.Options):
    """Size of the update, and number of repeats."""

    results_dir: str = harness.results_dir("benchmark_encoding")
    parameters: int = option(2_400_000, "Parameters of the model.", least=1, most=10**9)
    repeats: int = option(10, "Repeats of each measurement.", least=1, most=10**6)


def _of_client(encoding, message, size: int) -> Callable[[], object]:
    """Returns a function that encodes one client's update and adds it to a sum."""
    import tensorflow as tf

    delta = tf.random.stateless_normal([size], [_SEED, 0])
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


def measure(options: Options, run: harness.Run) -> None:
    """Measures clients and server, encoding by encoding."""
    import numpy as np
    import pandas as pd
    import tensorflow as tf

    from federated_hh.privacy.dp_ftrl import rotated_updates
    from federated_hh.randomness import streams
    from training.federated import rotated_sums, update_sums

    harness.one_thread()
    run.about["data"] = f"an update of {options.parameters:,} normal numbers"
    size = options.parameters
    rows = []

    def row(encoding: str, part: str, bits: int, work: Callable[[], object]) -> None:
        work()  # builds the graph
        found = [1e3 * harness.cpu_seconds(work) for _ in range(options.repeats)]
        rows.append(
            {
                "encoding": encoding,
                "part": part,
                "bits": bits,
                "least_milliseconds": min(found),
                "mean_milliseconds": sum(found) / len(found),
            }
        )

    exact = update_sums.SecureSums(size)
    bits = (_CLIENTS * exact.largest["delta"]).bit_length()
    clip_norm = {"clip_norm": np.float64(_CLIP_NORM)}
    row("exact", "client", bits, _of_client(exact, clip_norm, size))
    for ratio in _RATIOS:
        of = rotated_updates.RotatedUpdate.of(
            clip_norm=_CLIP_NORM, num_values=size, num_clients=_CLIENTS
        )
        scale = of.scale * ratio / rotated_updates.DEFAULT_RATIO
        of = dataclasses.replace(of, scale=scale)
        encoding = rotated_sums.RotatedSums(of)
        message = encoding.message(streams.Stream(_SEED))
        name = f"rotated, q = {ratio:g}"
        row(name, "client", of.bits, _of_client(encoding, message, size))
        if ratio != rotated_updates.DEFAULT_RATIO:
            continue
        values = tf.random.stateless_normal([of.dimension], [_SEED, 1])
        turn = tf.function(rotated_sums.hadamard)
        row(name, "rotation", of.bits, functools.partial(turn, values))
        total = np.random.default_rng(_SEED).integers(0, 1 << 20, of.dimension)
        counts = ("num_below", "num_non_finite", "num_bounded", "num_unrounded")
        arguments = (
            {"delta": total, **dict.fromkeys(counts, 0)},
            {"w": (size,)},
            *(_CLIENTS, _CLIENTS, message),
        )
        decode = functools.partial(encoding.update_sum, *arguments)
        row(name, "server", of.bits, decode)
    run.show("cost", pd.DataFrame(rows), digits=4)


CASE = harness.Case(Options, measure)

if __name__ == "__main__":
    app.run(CASE.main, flags_parser=CASE.parse)
