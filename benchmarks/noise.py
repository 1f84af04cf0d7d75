"""What a round's noise costs: independent, of a tree, and correlated.

    scripts/run benchmarks.noise

Processor seconds of a round's noise on a model of 2.4 million parameters, the kinds in
turn so that other work on the machine is shared by all; the best of the rounds, and the
mean over them. `ratio` is to the best of the independent noise, of the same run;
`vectors`, of 8 bytes a parameter, are what is remembered between rounds.
"""

import dataclasses
import time

from absl import app

from federated_hh.options import option_flags
from federated_hh.options.fields import check, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What noise is drawn."""

    parameters: int = option(2_400_000, "Parameters of the model.", least=1, most=10**9)
    rounds: int = option(8, "Rounds that are measured.", least=1, most=10**6)
    noise_multiplier: float = option(7.0, "z.", least=0.001, most=10**6)

    def __post_init__(self):
        check(self)


_FLAGS = option_flags.define(Options)
_SEED = 1


def kinds():
    """Returns the kinds of noise by name, the independent one first."""
    from federated_hh.privacy.dp_ftrl import blt, correlated_noise
    from federated_hh.randomness import integer_noise

    limits = {"min_separation": 400, "max_participation": 5}
    return {
        "independent": integer_noise.Independent(),
        "tree": integer_noise.Tree(),
    } | {
        f"BLT, {buffers} buffers": correlated_noise.Correlated(
            blt.optimal(2000, num_buffers=buffers, **limits)
        )
        for buffers in (1, 2, 3, 4)
    }


def measure():
    """Returns a table of the kinds of noise."""
    import numpy as np
    import pandas as pd

    from federated_hh.randomness import integer_noise, streams
    from federated_hh.rounds import codec

    total = np.zeros(_FLAGS.read().parameters, np.int64)
    stddev = _FLAGS.read().noise_multiplier * 2**32
    noises = kinds()
    states = dict.fromkeys(noises, integer_noise.NoiseState())
    seconds: dict[str, list[float]] = {name: [] for name in noises}
    for number in range(_FLAGS.read().rounds + 1):
        history = number.to_bytes(32, "little")
        for name, noise in noises.items():
            stream = streams.Stream(_SEED, ("benchmark", name), history)
            start = time.process_time()
            _, states[name] = noise.add(total, stddev, states[name], stream)
            seconds[name].append(time.process_time() - start)
    rows = []
    for name, measured in seconds.items():
        arrays: dict[str, np.ndarray] = {}
        codec.encode(states[name], arrays)
        # Without the first round, in which tables are made.
        rows.append(
            {
                "noise": name,
                "best": min(measured[1:]),
                "mean": np.mean(measured[1:]),
                "vectors": sum(a.nbytes for a in arrays.values()) / total.nbytes,
            }
        )
    table = pd.DataFrame(rows)
    table["ratio"] = table.best / table.best[0]
    return table


def main(argv: list[str]) -> None:
    """Measures and prints."""
    del argv
    print(measure().to_string(index=False))


if __name__ == "__main__":
    app.run(main, flags_parser=_FLAGS.parse)
