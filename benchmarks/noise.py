"""Measures a round's noise: independent, of a tree, and correlated.

    scripts/run benchmarks.noise

Processor seconds of a round's noise on a model of 2.4 million parameters. The kinds
take turns, so that they share other work on the machine; the best of the rounds, and
their mean. `ratio` is to the best of the independent noise in the same run; `vectors`,
of 8 bytes a parameter, is the size of the state between rounds.
"""

import dataclasses

from absl import app

from benchmarks import harness
from federated_hh.options.fields import option

_SEED = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(harness.Options):
    """Size of the noise, and number of rounds."""

    parameters: int = option(2_400_000, "Parameters of the model.", least=1, most=10**9)
    rounds: int = option(8, "Rounds that are measured.", least=1, most=10**6)
    noise_multiplier: float = option(7.0, "z.", least=0.001, most=10**6)


def kinds():
    """Returns the kinds of noise by name, the independent one first."""
    from federated_hh.privacy.dp_ftrl import blt, correlated_noise
    from federated_hh.randomness import integer_noise

    found = {"independent": integer_noise.Independent(), "tree": integer_noise.Tree()}
    for buffers in (1, 2, 3, 4):
        best = blt.optimal(
            2000, num_buffers=buffers, min_separation=400, max_participation=5
        )
        found[f"BLT, {buffers} buffers"] = correlated_noise.Correlated(best)
    return found


def measure(options: Options, run: harness.Run) -> None:
    """Measures the kinds of noise, turn by turn."""
    import numpy as np
    import pandas as pd

    from federated_hh.randomness import integer_noise, streams
    from federated_hh.rounds import checkpoints

    total = np.zeros(options.parameters, np.int64)
    stddev = options.noise_multiplier * 2**32
    noises = kinds()
    states = dict.fromkeys(noises, integer_noise.NoiseState())
    seconds: dict[str, list[float]] = {name: [] for name in noises}
    for number in range(options.rounds + 1):
        history = number.to_bytes(32, "little")
        for name, noise in noises.items():
            stream = streams.Stream(_SEED, ("benchmark", name), history)

            def add(noise=noise, name=name, stream=stream):
                _, states[name] = noise.add(total, stddev, states[name], stream)

            seconds[name].append(harness.cpu_seconds(add))
    rows = []
    for name, measured in seconds.items():
        arrays: dict[str, np.ndarray] = {}
        checkpoints.encode(states[name], arrays)
        vectors = sum(array.nbytes for array in arrays.values()) / total.nbytes
        # Without the first round, in which tables are made.
        best, mean = min(measured[1:]), np.mean(measured[1:])
        rows.append({"noise": name, "best": best, "mean": mean, "vectors": vectors})
    table = pd.DataFrame(rows)
    run.show("cost", table.assign(ratio=table.best / table.best[0]))


CASE = harness.Case(Options, measure)

if __name__ == "__main__":
    app.run(CASE.main, flags_parser=CASE.parse)
