r"""Measures a round of DP-FTRL: seconds, and memory over cohort sizes and rounds.

    scripts/run benchmarks.training

Clients write synthetic sentences. Prints tables, and writes them, with a plot and how
they were made, to --results_dir. --parts=NAME measures a part alone, and writes only
where --results_dir is given. The parts are:

* `noise`: processor seconds of the noise on the model of 10,000 words: of a tree's node
  as integers, and of as many of TensorFlow's float32 normals, which DP-FTRL has in
  tensorflow-privacy; and of all noise of a round, averaged over 16 rounds;
* `small_memory`: rounds of a small model with 10, 50 and 200 clients, each with a
  worker of its own, the smallest first; and 300 rounds of it;
* `large_memory`: 40 rounds of 30 clients of the model of 10,000 words (670 units,
  projection and embeddings of 96);
* `round`: rounds of 100 clients of that model: seconds of the clients' side (training,
  clip, encoding and secure sum, in TFF) and of the server's (noise tree and momentum);
* `clients`: a client's cost on four jobs: in this project, in TFF's worker and in the
  program's own TensorFlow, in plain TensorFlow, and in pfl-research where that is
  installed; TensorFlow's with oneDNN and without; and the matrix products alone;
* `threads`: seconds of a round of 20 clients on one core and on two.

pfl-research and torch are no dependencies of the project. To have them beside it, in an
environment of their own, with NumPy and TensorFlow as they are locked (torch's build
for processors is in PyTorch's own index):

    python3.11 -m venv env
    env/bin/pip install --no-deps --require-hashes -r requirements.txt
    env/bin/pip install --no-deps torch==2.13.0+cpu pfl==0.6.0 dill==0.4.1 \
        fsspec==2026.9.0 multiprocess==0.70.19 networkx==3.6.1 \
        prv-accountant==0.2.0 sympy==1.14.0 typing-extensions==4.16.0
    PYTHONPATH=. env/bin/python -P -m benchmarks.training --parts=clients

Each part is measured in a process of its own. Before rounds are measured, one is done
in which the computation is built. Memory: see `resource_usage`, the most of a round.
"""

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from absl import app

from benchmarks import harness, training_rounds
from federated_hh.options.fields import option

if TYPE_CHECKING:
    import pandas as pd

_ALL = "all"
_PARTS = ("noise", "small_memory", "large_memory", "round", "clients", "threads")
_LARGE = training_rounds.Sizes(num_words=10_000, num_units=670, size=96)
_SMALL = training_rounds.Sizes(num_words=1_000, num_units=64, size=32)
_ROUNDS_OF_A_COHORT = 20
_DRAWS = 8
_ROUNDS_OF_NOISE = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(harness.Options):
    """Parts that are measured, and their sizes."""

    results_dir: str | None = option(
        None,
        "Folder of the results; by default results/benchmark_training where all parts "
        "are measured, and none where one is.",
    )
    parts: str = option(
        _ALL,
        "Parts that are measured; noise takes half a minute, clients some ten, "
        "threads some five.",
        choices=(_ALL, *_PARTS),
    )
    timed_repeats: int = option(
        5, "Rounds of the part clients, for each way.", least=1, most=1000
    )
    timed_jobs: int = option(
        4,
        "Number of jobs measured by the part clients, in the table's order.",
        least=1,
        most=4,
    )
    timed_ways: tuple[str, ...] = option(
        (), "Ways of the part clients, by their names in the table; by default all."
    )
    timed_divisor: int = option(
        1,
        "Makes vocabularies, models and rounds of the parts clients and threads as "
        "many times smaller.",
        least=1,
        most=1000,
    )
    thread_repeats: int = option(
        9, "Rounds of the part threads, on each number of cores.", least=1, most=1000
    )
    cohort: int = option(
        100, "Clients of a round of the part round.", least=1, most=10**6
    )
    rounds: int = option(4, "Rounds of the part round.", least=1, most=10**6)
    memory_cohort: int = option(
        30, "Clients of a round of the part large_memory.", least=1, most=10**6
    )
    memory_rounds: int = option(
        40, "Rounds of the part large_memory.", least=1, most=10**6
    )
    small_cohorts: tuple[str, ...] = option(
        ("10", "50", "200"), "Clients of rounds of the small model."
    )
    small_rounds: int = option(300, "Rounds of the small model.", least=100, most=10**6)
    mean_words_per_client: float = option(
        200.0, "Mean number of words that a client writes.", least=16, most=10_000
    )


# A part's tables by name, and the summary of its figures.
Found = tuple[Mapping[str, "pd.DataFrame"], Mapping[str, Any]]


def measure_noise(options: Options, scratch: str) -> Found:
    """Measures draws: processor seconds of integers and of TensorFlow's normals."""
    del options, scratch
    import numpy as np
    import pandas as pd
    import tensorflow as tf

    from federated_hh.randomness import discrete_gaussian, integer_noise, streams
    from training import memory_needs

    seed = training_rounds.SEED
    size = memory_needs.cifg_num_parameters(10_004, _LARGE.num_units, _LARGE.size)
    sampler = discrete_gaussian.DiscreteGaussian(7.0 * 2**32)
    tree, stream = integer_noise.Tree(), streams.Stream(seed, ("benchmark",))
    state, total = integer_noise.NoiseState(), np.zeros(size, np.int64)

    def rounds():
        nonlocal state
        for number in range(_ROUNDS_OF_NOISE):
            of_round = stream.of(number.to_bytes(32, "little"))
            _, state = tree.add(total, sampler.stddev, state, of_round)

    def integers(number):
        sampler.sample(streams.KeyedBits(seed, "benchmark", number), size)

    def float32(number):
        tf.random.stateless_normal([size], [seed, number], stddev=7.0).numpy()

    rows = [
        {
            "parameters": size,
            "integer": harness.cpu_seconds(functools.partial(integers, number)),
            "float32": harness.cpu_seconds(functools.partial(float32, number)),
        }
        for number in range(_DRAWS + 1)
    ]
    table = pd.DataFrame(rows[1:])
    table["ratio"] = table.integer / table.float32
    of_round = harness.cpu_seconds(rounds) / _ROUNDS_OF_NOISE
    means = table.mean()
    return {"noise": table.assign(integer_round=of_round)}, {
        "noise of a node, processor seconds": {
            "integer": means.integer,
            "float32": means.float32,
            "ratio": means.integer / means.float32,
        },
        "noise of a round, processor seconds": of_round,
    }


def measure_small_memory(options: Options, scratch: str) -> Found:
    """Measures memory over cohort sizes and over rounds, of the small model."""
    import pandas as pd

    words = options.mean_words_per_client
    over_cohorts = pd.concat(
        training_rounds.measure(scratch, clients, _ROUNDS_OF_A_COHORT, _SMALL, words)
        for clients in sorted(map(int, options.small_cohorts))
    )
    over_rounds = training_rounds.measure(
        scratch, 20, options.small_rounds, _SMALL, words
    )
    peaks = over_cohorts.groupby("clients").peak_own_gib.max()
    return {"memory_over_cohorts": over_cohorts, "memory_over_rounds": over_rounds}, {
        "small model: peak GiB by clients of a round": {
            str(clients): peak for clients, peak in peaks.items()
        },
        **_over_rounds("small model", over_rounds, 50),
    }


def measure_large_memory(options: Options, scratch: str) -> Found:
    """Measures memory over rounds, of the large model."""
    table = training_rounds.measure(
        scratch,
        options.memory_cohort,
        options.memory_rounds,
        _LARGE,
        options.mean_words_per_client,
    )
    name = f"large model, {options.memory_cohort} clients"
    return {"large_memory_over_rounds": table}, _over_rounds(name, table, 10)


def _over_rounds(name: str, table: "pd.DataFrame", num_rounds: int) -> dict[str, float]:
    """Returns the memory of the first rounds and of the last ones, and the most."""
    own = table.peak_own_gib
    return {
        f"{name}: peak GiB": table.peak_gib.max(),
        f"{name}: peak GiB without mapped files": own.max(),
        f"{name}: mean GiB of the first {num_rounds} rounds": own[:num_rounds].mean(),
        f"{name}: mean GiB of the last {num_rounds} rounds": own[-num_rounds:].mean(),
    }


def measure_round(options: Options, scratch: str) -> Found:
    """Measures rounds of the large model."""
    table = training_rounds.measure(
        scratch, options.cohort, options.rounds, _LARGE, options.mean_words_per_client
    )
    seconds = table.client_seconds + table.server_seconds
    return {"round": table}, {
        "large model: seconds a round": {
            "mean": seconds.mean(),
            "longest": seconds.max(),
            "of the server": table.server_seconds.mean(),
        },
        "large model: words a second": table.words.sum() / seconds.sum(),
        "large model: peak GiB": table.peak_gib.max(),
        "large model: peak GiB without mapped files": table.peak_own_gib.max(),
    }


def measure_clients(options: Options, scratch: str) -> Found:
    """Measures ways to train a client."""
    from benchmarks import training_turns, training_ways, training_with_pfl

    if missing := training_with_pfl.missing():
        print(
            f"pfl-research is left out, as {' and '.join(missing)} cannot be imported: "
            f"env/bin/pip install --no-deps {' '.join(training_with_pfl.REQUIREMENTS)}"
        )
    names = [way.name for way in training_ways.ways()]
    if unknown := [name for name in options.timed_ways if name not in names]:
        raise ValueError(
            f"timed_ways has {unknown[0]!r}; it has to be some of: {'; '.join(names)}"
        )
    jobs = [
        job.smaller(options.timed_divisor)
        for job in training_ways.WORKLOADS[: options.timed_jobs]
    ]
    table = training_turns.measure(
        jobs, options.timed_ways or names, options.timed_repeats, scratch
    )
    return {"clients": table}, {
        "a client's processor time to pfl-research's": training_turns.ratios(table)
    }


def measure_threads(options: Options, scratch: str) -> Found:
    """Measures rounds on one core and on two."""
    from benchmarks import training_turns, training_ways

    # A round is cut into four blocks, and two cores have the same work only where these
    # are equal, as they are of 20 clients and not of ten.
    job = dataclasses.replace(training_ways.WORKLOADS[0], clients=20)
    threads = training_turns.measure_threads(
        job.smaller(options.timed_divisor), options.thread_repeats, scratch
    )
    return {"threads": threads}, training_turns.threads_gain(threads)


def plot_memory(over_cohorts, over_rounds, run: harness.Run) -> None:
    """Draws memory over rounds, for each cohort size and for the long run."""
    from federated_hh.reports import plots

    figure, axes = plots.single(
        "Memory of all processes, a small model", "round", "GiB, the most in the round"
    )
    colors = (plots.GREEN, plots.ORANGE, plots.MUTED)
    lines = [(over_rounds, plots.BLUE, "")]
    for number, (_, table) in enumerate(over_cohorts.groupby("clients")):
        lines.append((table, colors[number % len(colors)], ", a worker of their own"))
    for table, color, ending in lines:
        label = f"{table.clients.iloc[0]} clients{ending}"
        axes.plot(table["round"], table.peak_own_gib, color=color, label=label)
    axes.set_ylim(bottom=0)
    run.plot("memory", figure, axes, logarithmic="", labelcolor=plots.INK)


_MEASURES = {
    "noise": measure_noise,
    "small_memory": measure_small_memory,
    "large_memory": measure_large_memory,
    "round": measure_round,
    "clients": measure_clients,
    "threads": measure_threads,
}


def measure(options: Options, run: harness.Run) -> None:
    """Measures the parts, each in a process of its own."""
    from benchmarks import training_turns, training_with_pfl

    is_all = options.parts == _ALL
    if is_all and options.results_dir is None:
        run.use("results/benchmark_training")
    run.about["versions"] |= training_with_pfl.versions()
    run.about |= {
        "data": f"synthetic sentences, {training_rounds.NUM_CLIENTS:,} clients who "
        f"write {options.mean_words_per_client:g} words each on average",
        "cores used": len(os.sched_getaffinity(0)),
    }
    summary: dict[str, Any] = {}
    for name in _PARTS if is_all else (options.parts,):
        part = functools.partial(_MEASURES[name], options, run.scratch)
        # Memory that one part leaves in its process would count as the next one's.
        tables, figures = training_turns.in_a_process(part) if is_all else part()
        for table_name, table in tables.items():
            run.show(table_name, table)
        if name == "small_memory":
            over_cohorts, over_rounds = tables.values()
            plot_memory(over_cohorts, over_rounds, run)
        summary |= figures
    if not is_all:
        run.about_name = f"about_{options.parts}.json"
    run.about["summary"] = summary
    print(f"\n{run.text()}", end="")


CASE = harness.Case(Options, measure)

if __name__ == "__main__":
    app.run(CASE.main, flags_parser=CASE.parse)
