r"""What a round of DP-FTRL costs: seconds, and memory over cohort sizes and rounds.

    scripts/run scripts.benchmark_training

Clients write synthetic sentences. Writes tables and a plot to --results_dir, and prints
them:

* `noise`: processor seconds of the noise on the model of 10,000 words: of a tree's node
  as integers, and of as many of TensorFlow's float32 normals, which DP-FTRL has in
  tensorflow-privacy; and of all that a round does with noise, averaged over 16 rounds;
* `round`: rounds of 100 clients of the model of 10,000 words (670 units, projection and
  embeddings of 96): seconds of the clients' side (training, clip, encoding and secure
  sum, in TFF) and of the server's (noise tree and momentum);
* `clients`: what a client of the model of 10,000 words costs in this project, with and
  without the gradient that is written out, in plain TensorFlow, and in pfl-research
  where that is installed;
* `memory_over_cohorts`: rounds of a small model with 10, 50 and 200 clients, each with
  a worker of its own, the smallest first;
* `memory_over_rounds`: 300 rounds of the small model.

--parts=noise or --parts=clients measures that part alone and prints it, and writes
nothing.

pfl-research and torch are no dependencies of the project. To have them beside it, in an
environment of their own, with NumPy and TensorFlow as they are locked (torch's build
for processors is in PyTorch's own index):

    python3.11 -m venv env
    env/bin/pip install --no-deps --require-hashes -r requirements.txt
    env/bin/pip install --no-deps torch==2.13.0+cpu pfl==0.6.0 dill==0.4.1 \
        fsspec==2026.9.0 multiprocess==0.70.19 networkx==3.6.1 \
        prv-accountant==0.2.0 sympy==1.14.0 typing-extensions==4.16.0
    PYTHONPATH=. env/bin/python -P -m scripts.benchmark_training --parts=clients

Every part first does a round that is not measured, in which the computation is built.
Memory is that of this process and the worker together, the most within a round, looked
at every 20 ms; with and without pages that are shared, such as those of mapped files.
"""

import dataclasses
import json
import os
import pathlib
import platform
import sys
import tempfile
import time

from absl import app

from options import option_flags
from options.fields import check, option
from simulation import startup


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

    results_dir: str = option("results/benchmark_training", "Where to write.")
    parts: str = option(
        "all",
        "What to measure; noise takes half a minute, clients some three.",
        choices=("all", "noise", "clients"),
    )
    timed_clients: int = option(
        10, "Clients of a round of the part clients.", least=1, most=10**6
    )
    timed_words: int = option(
        10_000, "Vocabulary of the part clients.", least=10, most=100_000
    )
    timed_repeats: int = option(
        3, "Rounds of the part clients, for each way.", least=1, most=1000
    )
    cohort: int = option(
        100, "Clients of a round of the large model.", least=1, most=10**6
    )
    rounds: int = option(4, "Rounds of the large model.", least=1, most=10**6)
    small_cohorts: tuple[str, ...] = option(
        ("10", "50", "200"), "Clients of rounds of the small model."
    )
    small_rounds: int = option(300, "Rounds of the small model.", least=100, most=10**6)
    mean_words_per_client: float = option(
        200.0, "Mean number of words that a client writes.", least=16, most=10_000
    )

    def __post_init__(self):
        check(self)


_FLAGS = option_flags.define(Options)

_NUM_CLIENTS = 20_000
_SEED = 1
_LARGE = {"num_words": 10_000, "num_units": 670, "size": 96}
_SMALL = {"num_words": 1_000, "num_units": 64, "size": 32}
_ROUNDS_OF_A_COHORT = 20
_ROUNDS_OF_A_MEAN = 50
_DRAWS = 8
_ROUNDS_OF_NOISE = 16
# Of the plan: more than are measured.
_PLANNED_ROUNDS = 10_000


def build_algorithm(directory: str, cohort: int, num_words: int, num_units: int, size):
    """Returns DP-FTRL on synthetic sentences, prepared in a directory."""
    from privacy import training_plan, update_noise
    from rounds import timers
    from simulation import (
        client_sentences,
        population_options,
        sentence_tokenizers,
        vocabulary,
    )
    from training import (
        client_update,
        dp_ftrl,
        examples,
        model,
    )

    words = vocabulary.Vocabulary.from_english(num_words)
    text = client_sentences.prepare(
        population_options.PopulationOptions(
            num_clients=_NUM_CLIENTS,
            mean_words_per_client=_FLAGS.read().mean_words_per_client,
        ),
        words,
        sentence_tokenizers.get_sentence_tokenizer("keyboard"),
        directory,
    )
    language_model = model.cifg_language_model(
        words.num_tokens,
        num_units=num_units,
        projection_size=size,
        embedding_size=size,
    )
    rounds = client_update.FederatedRounds(
        language_model,
        examples.MappedText(text, examples.ClientLimits()),
        client_update.LocalTraining(0.5),
    )
    plan = training_plan.plan_of(
        timers.Timers(
            num_clients=_NUM_CLIENTS, cohort_size=cohort, num_rounds=_PLANNED_ROUNDS
        ),
        update_noise.TreeNoise(
            num_rounds=_PLANNED_ROUNDS, clip_norm=0.3, noise_multiplier=1.0
        ),
    )
    return dp_ftrl.DpFtrl(rounds, plan, language_model.initial_weights(_SEED))


def run_rounds(algorithm, num_rounds: int):
    """Yields for each round its clients, its tokens, and what its two sides cost.

    The first one, in which the computation is built, is left out. As in a run, large
    arrays of the noise wait in a file.
    """
    from randomness import noise_keys
    from rounds import steps
    from simulation import run_files
    from simulation.readers import memory

    text = algorithm.rounds.mapped.text
    splits = text.sentence_splits[text.client_splits]
    memory.return_large_at_once()
    with tempfile.TemporaryDirectory() as parked, memory.quick_collections():
        by_hand = steps.Steps(
            algorithm,
            seed=_SEED,
            noise_key=noise_keys.NoiseKey.of_seed(_SEED),
            parking_place=run_files.RunFiles(pathlib.Path(parked)),
        )
        place = by_hand.begin()
        for number in range(num_rounds + 1):
            place, measured = _measured_round(algorithm, by_hand, place, splits)
            if number:
                yield {"round": number, **measured}


def _measured_round(algorithm, by_hand, place, splits):
    """Returns where a round leads, and what it cost.

    Args:
        algorithm: What runs.
        by_hand: Its steps.
        place: Where it stands.
        splits: Of the clients' words: where each client's begin.
    """
    import numpy as np

    from scripts import resource_usage
    from simulation.readers import memory

    drawn = by_hand.draw(place)
    words = int(np.sum(splits[drawn.cohort + 1] - splits[drawn.cohort]))
    with resource_usage.Usage() as usage:
        query = algorithm.next_query(place.state)
        sums = by_hand.ask(place, query, drawn.cohort)
        clients_done = time.perf_counter()
        place = by_hand.update(place, query, drawn, sums).place
        memory.return_freed()
        server_seconds = time.perf_counter() - clients_done
    return place, {
        "clients": len(drawn.cohort),
        "words": words,
        "client_seconds": usage.wall_seconds - server_seconds,
        "server_seconds": server_seconds,
        "cpu_seconds": usage.cpu_seconds,
        "peak_gib": usage.peak_bytes / 2**30,
        "peak_own_gib": usage.peak_own_bytes / 2**30,
    }


def measure_noise():
    """Returns a table of draws: processor seconds of ours and of TensorFlow's."""
    import numpy as np
    import pandas as pd
    import tensorflow as tf

    from privacy import integer_noise
    from randomness import discrete_gaussian, keyed_bits, streams
    from training import memory_needs

    size = memory_needs.cifg_num_parameters(10_004, _LARGE["num_units"], _LARGE["size"])
    sampler = discrete_gaussian.DiscreteGaussian(7.0 * 2**32)
    tree, stream = integer_noise.Tree(), streams.Stream(_SEED, ("benchmark",))
    state, total = integer_noise.NoiseState(), np.zeros(size, np.int64)

    def seconds(work) -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    def rounds():
        nonlocal state
        for number in range(_ROUNDS_OF_NOISE):
            of_round = stream.of(number.to_bytes(32, "little"))
            _, state = tree.add(total, sampler.stddev, state, of_round)

    def float32(number):
        return tf.random.stateless_normal([size], [_SEED, number], stddev=7.0).numpy()

    rows = []
    for number in range(_DRAWS + 1):
        bits = keyed_bits.KeyedBits(_SEED, "benchmark", number)
        ours = seconds(lambda bits=bits: sampler.sample(bits, size))
        theirs = seconds(lambda number=number: float32(number))
        rows.append({"parameters": size, "integer": ours, "float32": theirs})
    table = pd.DataFrame(rows[1:])
    table["ratio"] = table.integer / table.float32
    table["integer_round"] = seconds(rounds) / _ROUNDS_OF_NOISE
    return table


def measure_clients(directory: str):
    """Returns a table of ways to train a client, and how much two cores gain."""
    from scripts import training_ways, training_with_pfl

    if missing := training_with_pfl.missing():
        print(
            f"pfl-research is left out, as {' and '.join(missing)} cannot be imported: "
            f"env/bin/pip install --no-deps {' '.join(training_with_pfl.REQUIREMENTS)}"
        )
    options = _FLAGS.read()
    clients, words = options.timed_clients, options.timed_words
    table = training_ways.measure(clients, words, options.timed_repeats, directory)
    return table, training_ways.threads_gain(clients, words, directory)


def measure_part(directory: str, cohort: int, num_rounds: int, sizes: dict):
    """Returns a table of rounds, with a worker of its own."""
    import pandas as pd

    from simulation import runtime

    algorithm = build_algorithm(directory, cohort, **sizes)
    with runtime.tff_worker():
        return pd.DataFrame(run_rounds(algorithm, num_rounds))


def plot_memory(over_cohorts, over_rounds) -> bytes:
    """Draws memory over rounds, for each cohort size and for the long run; a PNG."""
    from simulation import plots

    figure, axes = plots.single(
        "Memory of all processes, a small model", "round", "GiB, the most in the round"
    )
    axes.plot(
        over_rounds["round"],
        over_rounds.peak_own_gib,
        color=plots.BLUE,
        label=f"{over_rounds.clients[0]} clients",
    )
    colors = (plots.GREEN, plots.ORANGE, plots.MUTED)
    for number, (clients, table) in enumerate(over_cohorts.groupby("clients")):
        axes.plot(
            table["round"],
            table.peak_own_gib,
            color=colors[number % len(colors)],
            label=f"{clients} clients, a worker of their own",
        )
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, labelcolor=plots.INK)
    return plots.png(figure)


def summary(noise, large, over_cohorts, over_rounds) -> dict[str, object]:
    """Returns the figures that the tables come to."""
    seconds = large.client_seconds + large.server_seconds
    first = over_rounds.peak_own_gib[:_ROUNDS_OF_A_MEAN].mean()
    last = over_rounds.peak_own_gib[-_ROUNDS_OF_A_MEAN:].mean()
    peaks = over_cohorts.groupby("clients").peak_own_gib.max()
    return {
        "noise of a node, processor seconds": {
            "integer": noise.integer.mean(),
            "float32": noise.float32.mean(),
            "ratio": noise.integer.mean() / noise.float32.mean(),
        },
        "noise of a round, processor seconds": noise.integer_round.mean(),
        "large model: seconds a round": {
            "mean": seconds.mean(),
            "longest": seconds.max(),
            "of the server": large.server_seconds.mean(),
        },
        "large model: words a second": large.words.sum() / seconds.sum(),
        "large model: peak GiB": large.peak_gib.max(),
        "large model: peak GiB without mapped files": large.peak_own_gib.max(),
        "small model: peak GiB by clients of a round": {
            str(clients): peak for clients, peak in peaks.items()
        },
        f"small model: mean GiB of the first {_ROUNDS_OF_A_MEAN} rounds": first,
        f"small model: mean GiB of the last {_ROUNDS_OF_A_MEAN} rounds": last,
    }


def about() -> dict[str, object]:
    """Returns what made the results."""
    import numpy as np
    import tensorflow as tf

    from scripts import training_with_pfl
    from simulation import software

    return {
        "command": " ".join(["scripts/run scripts.benchmark_training", *sys.argv[1:]]),
        "commit": software.version(),
        "data": (
            f"synthetic sentences, {_NUM_CLIENTS:,} clients who write "
            f"{_FLAGS.read().mean_words_per_client:g} words each on average"
        ),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "cores used": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg(),
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "tensorflow": tf.__version__,
            **training_with_pfl.versions(),
        },
    }


def measure(cache_directory: str, results_directory: str) -> None:
    """Measures, writes and prints."""
    import pandas as pd

    from simulation import atomic_files, tables

    def write(name: str, contents: bytes) -> None:
        atomic_files.write_file(os.path.join(results_directory, name), contents)

    def show(name: str, table, shown: int) -> None:
        print(f"\n{name}\n{table.tail(shown).to_string(index=False)}", flush=True)
        write(f"{name}.csv", tables.write(table, significant_digits=6).encode())

    options = _FLAGS.read()
    if options.parts == "noise":
        print(measure_noise().to_string(index=False))
        return
    if options.parts == "clients":
        clients, gain = measure_clients(cache_directory)
        print(clients.to_string(index=False))
        print(f"two cores are {gain:.2f} times as fast as one")
        return
    origin = about()  # before the results change the repository
    noise = measure_noise()
    show("noise", noise, len(noise))
    # The small model first: the large one would leave its memory to this process.
    parts = []
    for clients in sorted(int(number) for number in _FLAGS.read().small_cohorts):
        parts.append(
            measure_part(cache_directory, clients, _ROUNDS_OF_A_COHORT, _SMALL)
        )
    over_cohorts = pd.concat(parts)
    show("memory_over_cohorts", over_cohorts, len(over_cohorts))
    over_rounds = measure_part(cache_directory, 20, _FLAGS.read().small_rounds, _SMALL)
    show("memory_over_rounds", over_rounds, 5)
    large = measure_part(
        cache_directory, _FLAGS.read().cohort, _FLAGS.read().rounds, _LARGE
    )
    show("round", large, len(large))
    clients, gain = measure_clients(cache_directory)
    show("clients", clients, len(clients))
    write("memory.png", plot_memory(over_cohorts, over_rounds))
    found = origin | {
        "summary": summary(noise, large, over_cohorts, over_rounds),
        "two cores to one": gain,
    }
    text = json.dumps(found, indent=2)
    print(f"\n{text}")
    write("about.json", text.encode() + b"\n")


def main(argv: list[str]) -> None:
    """Makes the directories, and measures."""
    del argv
    startup.silence_tensorflow()
    os.makedirs(_FLAGS.read().results_dir, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="benchmark_training_") as scratch:
        measure(scratch, _FLAGS.read().results_dir)


if __name__ == "__main__":
    app.run(main, flags_parser=_FLAGS.parse)
