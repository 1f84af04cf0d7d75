"""How fast LDP TrieHH runs, and how its cost grows with the clients of a level.

    scripts/run benchmarks.ldp_triehh

Writes tables and a plot to --results_dir, and prints them:

* `study`: Table 1 of the paper from nothing (`scripts.reproduce --study=oov_table1`,
  with one repeat and --study_scale of its clients): seconds of the levels of a run, and
  of the whole, in which the population is prepared and coverage counted;
* `stages`: a run with the paper's D, eta_max, B and epsilon and a fifteenth of the
  clients a level: seconds of drawing the cohort, of selection and secure sum in TFF, of
  drawing the sum of the reports, and of the server's work (top-k and the trie);
* `per_report`: level 2 with each report drawn by the client computation, in reports a
  second; beside it one TFF client a device, and a loop over reports in NumPy such as
  libraries for local privacy have;
* `cost_against_clients`: selection and the sum of the reports at level 2, from 10^4
  clients to all.

The others are of a synthetic population of --num_clients that type the rare end of
English, without words in fashion.

Processor seconds are those of this process and all below it. Peak memory is the largest
sum of their resident memory, looked at every 20 ms, with and without the pages of
mapped files, which the system may drop at any time.
"""

import dataclasses
import itertools
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from absl import app

from benchmarks import resource_usage
from benchmarks import results as benchmark_results
from federated_hh.options import option_flags
from federated_hh.options.fields import check, option
from federated_hh.runtime.worker import startup


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Where to measure, and how much."""

    results_dir: str = option("results/benchmark_ldp_triehh", "Where to write.")
    cache_dir: str | None = option(
        None, "Where the population is kept; by default it is not."
    )
    study_scale: float = option(
        1.0,
        "Part of the paper's clients in `study`: takes 6 GB of disk meanwhile. 0 "
        "leaves it out.",
        least=0,
        most=1,
    )
    num_clients: int = option(
        10_100_000,
        "Clients that type; not all of them type a target word.",
        least=100_000,
        most=10**9,
    )
    mean_words_per_client: float = option(
        1000.0, "Mean number of words that a client types.", least=1, most=10_000
    )
    devices: int = option(
        5_000,
        "Devices of the measurements with reports one by one.",
        least=100,
        most=10**7,
    )
    single_devices: int = option(
        100, "Devices with a TFF client each.", least=1, most=10**5
    )

    def __post_init__(self):
        check(self)


_FLAGS = option_flags.define(Options)

_SEED = 1
_EPSILON = 10.0
_DEPTH = 15
_BOUND = 60
_MAX_PREFIXES = 10_000
# As large as blocks are by default in the largest cohorts.
_DEVICES_PER_BLOCK = 100_000


def measure_study(directory: str):
    """Runs Table 1 from nothing.

    Args:
        directory: For the population and the run.

    Returns:
        A row a setting, with the seconds of its levels; the usage of the whole; and
        the bytes of its populations on disk.
    """
    from federated_hh.files import tables

    arguments = {
        "study": "oov_table1",
        "scale": str(_FLAGS.read().study_scale),
        "num_repeats": "1",
        "seed": str(_SEED),
        "population_cache": os.path.join(directory, "study_population"),
        "output_dir": os.path.join(directory, "study"),
        "results_dir": os.path.join(directory, "study_results"),
    }
    with resource_usage.Usage() as whole:
        subprocess.run(
            [
                *(sys.executable, "-P", "-m", "scripts.reproduce"),
                *(f"--{name}={value}" for name, value in arguments.items()),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
        )
    population = pathlib.Path(arguments["population_cache"])
    size = sum(p.stat().st_size for p in population.rglob("*") if p.is_file())
    shutil.rmtree(population)
    levels = tables.read(os.path.join(arguments["results_dir"], "levels.csv"))
    columns = {
        "clients": "clients",
        "reports": "reports",
        "seconds": "seconds",
    }
    sums = levels.groupby("setting", sort=False)[[*columns]].sum().reset_index()
    return sums.rename(columns=columns), whole, size


def build_algorithm(population, alphabet, cohort_size, **options):
    """Returns LDP TrieHH with the paper's parameters and the random sampler."""
    from federated_hh.heavy_hitters import contributions
    from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
    from federated_hh.heavy_hitters.ldp_triehh import (
        parameters as ldp_triehh_parameters,
    )

    parameters = ldp_triehh_parameters.LdpTrieHHParameters(
        cohort_size=cohort_size,
        max_depth=_DEPTH,
        max_prefixes=_MAX_PREFIXES,
        contribution_bound=_BOUND,
        epsilon=_EPSILON,
        sampler=contributions.ItemSampler.RANDOM,
    )
    return ldp_triehh.LdpTrieHH(population, parameters, alphabet, **options)


def steps_of(algorithm):
    """Returns the parts of its rounds."""
    from federated_hh.randomness import noise_keys
    from federated_hh.rounds import steps

    key = noise_keys.NoiseKey.of_seed(_SEED)
    return steps.Steps(algorithm, seed=_SEED, noise_key=key)


def measure_stages(algorithm):
    """Runs all levels; returns seconds by level, and where it stands before level 2."""
    import pandas as pd

    parts, rows, second = steps_of(algorithm), [], None
    place = parts.begin()
    while (query := algorithm.next_query(place.state)) is not None:
        with resource_usage.Usage() as usage:
            moments = [time.perf_counter()]
            drawn = parts.draw(place)
            moments.append(time.perf_counter())
            total = parts.ask(place, query, drawn.cohort)
            moments.append(time.perf_counter())
            step = parts.update(place, query, drawn, total)
            moments.append(time.perf_counter())
        # Once more, as the step has the sum of the reports in it.
        algorithm.update(place.state, step.released)
        top_k = time.perf_counter() - moments[-1]
        cohort, select, update = (b - a for a, b in itertools.pairwise(moments))
        place = step.progress
        second = second or place
        rows.append(
            {
                "level": step.metrics["level"],
                "clients": step.metrics["clients"],
                "reports": step.metrics["reports"],
                "candidates": step.metrics["candidates"],
                "draw_cohort": cohort,
                "select": select,
                "sum": update - top_k,
                "top_k": top_k,
                "wall_seconds": usage.wall_seconds,
                "cpu_seconds": usage.cpu_seconds,
            }
        )
    return pd.DataFrame(rows), second


def numpy_loop(items, num_items, randomizer, generator):
    """Returns the sum of reports that are drawn one after the other.

    Args:
        items: True items: int, shape [reports].
        num_items: The domain's size.
        randomizer: Whose law the reports have.
        generator: NumPy's.
    """
    import numpy as np

    own, size = float(randomizer.own_probability), randomizer.subset_size
    counts = np.zeros(num_items, np.int64)
    for item in items.tolist():
        included = generator.random() < own
        others = generator.choice(
            num_items - 1, size - included, replace=False, shuffle=False
        )
        counts[others + (others >= item)] += 1
        counts[item] += included
    return counts


def measure_per_report(population, alphabet, place):
    """Returns reports a second in TFF blocks, in a TFF client a device, and in NumPy.

    Args:
        population: The clients.
        alphabet: The alphabet of the trie.
        place: Before the level that is measured.
    """
    import numpy as np
    import pandas as pd

    from federated_hh.heavy_hitters.ldp_triehh import (
        parameters as ldp_triehh_parameters,
    )

    per_report = ldp_triehh_parameters.ReportSampling.PER_REPORT
    rows = []

    def add(way, reports, usage):
        rows.append(
            {
                "way": way,
                "reports": reports,
                "wall_seconds": usage.wall_seconds,
                "cpu_seconds": usage.cpu_seconds,
                "reports_per_second": reports / usage.wall_seconds,
                "reports_per_cpu_second": reports / usage.cpu_seconds,
            }
        )

    for way, devices, num_blocks in (
        ("blocks of devices", _FLAGS.read().devices, 4),
        (
            "a TFF client a device",
            _FLAGS.read().single_devices,
            _FLAGS.read().single_devices,
        ),
    ):
        algorithm = build_algorithm(
            population,
            alphabet,
            devices,
            num_blocks=num_blocks,
            report_sampling=per_report,
        )
        parts, query = steps_of(algorithm), algorithm.next_query(place.state)
        cohort = parts.draw(parts.begin()).cohort
        parts.ask(place, query, cohort)  # builds the computation
        with resource_usage.Usage() as usage:
            votes = parts.ask(place, query, cohort)
        add(way, devices * _BOUND, usage)
        randomizer = algorithm.parameters.randomizer(len(votes))
        expected = devices * _BOUND * randomizer.subset_size
        if not 0 <= expected - votes.sum() <= devices * _BOUND:
            raise RuntimeError(f"{votes.sum()} items in {devices * _BOUND} reports")
    generator = np.random.default_rng(_SEED)
    items = generator.integers(0, len(votes), 20_000)
    with resource_usage.Usage() as usage:
        counts = numpy_loop(items, len(votes) + 1, randomizer, generator)
    if counts.sum() != len(items) * randomizer.subset_size:
        raise RuntimeError(f"{counts.sum()} items in {len(items)} reports")
    add("NumPy, report by report", len(items), usage)
    table = pd.DataFrame(rows)
    rates = table.reports_per_cpu_second
    table["times_as_fast_per_core"] = rates[0] / rates
    return table


def measure_cost(population, alphabet, place):
    """Returns the cost of a level against the number of its clients.

    Args:
        population: The clients.
        alphabet: The alphabet of the trie.
        place: Before the level that is measured.
    """
    import numpy as np
    import pandas as pd

    from federated_hh.randomness import streams

    clients = population.num_clients // _DEPTH
    algorithm = build_algorithm(
        population,
        alphabet,
        clients,
        num_blocks=math.ceil(clients / _DEVICES_PER_BLOCK),
    )
    generator = np.random.default_rng(_SEED)
    order = generator.permutation(population.num_clients)
    sizes = [n for k in range(4, 10) for n in (10**k, 3 * 10**k) if n <= len(order)]
    randomizer = algorithm.parameters.randomizer(place.state.trie.num_candidates)
    query, stream = algorithm.next_query(place.state), streams.Stream(_SEED)
    query.ask(np.sort(order[:1000]), stream)  # builds the computation
    rows = []
    for size in sizes:
        cohort = np.sort(order[:size])
        with resource_usage.Usage() as select:
            items = query.ask(cohort, stream)
        histogram = np.append(items, size * _BOUND - items.sum())
        with resource_usage.Usage() as summing:
            randomizer.sum_of_reports(histogram, _SEED)
        rows.append(
            {
                "clients": size,
                "reports": size * _BOUND,
                "select_wall_seconds": select.wall_seconds,
                "select_cpu_seconds": select.cpu_seconds,
                "sum_wall_seconds": summing.wall_seconds,
                "sum_cpu_seconds": summing.cpu_seconds,
                "peak_gib": max(select.peak_bytes, summing.peak_bytes) / 2**30,
                "peak_own_gib": max(select.peak_own_bytes, summing.peak_own_bytes)
                / 2**30,
            }
        )
    return pd.DataFrame(rows)


def plot_cost(table) -> bytes:
    """Draws the cost of a level against its clients."""
    from federated_hh.reports import plots

    figure, axes = plots.single(
        "A level of LDP TrieHH: a million candidates, 60 reports a client",
        "clients of the level",
        "processor seconds",
    )
    axes.plot(
        table.clients,
        table.select_cpu_seconds,
        "o-",
        color=plots.BLUE,
        label="selection and secure sum, in TFF",
    )
    axes.plot(
        table.clients,
        table.sum_cpu_seconds,
        "o-",
        color=plots.ORANGE,
        label="sum of the reports",
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.legend(frameon=False)
    return plots.png(figure)


def prepare(directory: str):
    """Returns the population; it is prepared if it is not in the directory."""
    from federated_hh.populations import population as population_lib
    from studies.sun_2024 import target_words

    return population_lib.prepare(
        population_lib.PopulationOptions(
            num_clients=_FLAGS.read().num_clients,
            mean_words_per_client=_FLAGS.read().mean_words_per_client,
            tokenizer="whitespace",
            known_words=target_words.known_words_file(directory, 0.05),
        ),
        directory,
    )


def measure(scratch: str, results_directory: str) -> None:
    """Measures, writes and prints.

    Args:
        scratch: A directory that is removed in the end.
        results_directory: Takes the results.
    """
    import string

    from federated_hh.heavy_hitters import alphabet as alphabet_lib
    from federated_hh.runtime import runtime

    results = benchmark_results.Results(results_directory, "benchmarks.ldp_triehh")
    cache_directory = _FLAGS.read().cache_dir or scratch
    origin = {}
    if _FLAGS.read().study_scale:
        study, whole, size = measure_study(scratch)
        results.show("study", study)
        origin["study"] = f"{whole}, {size / 1e9:.3g} GB of disk"
        print(f"\nthe whole of Table 1, from nothing: {origin['study']}", flush=True)
    with resource_usage.Usage() as prepared:
        population = prepare(cache_directory)
    print(f"population prepared in {prepared}", flush=True)
    alphabet = alphabet_lib.Alphabet(string.printable)
    algorithm = build_algorithm(population, alphabet, population.num_clients // _DEPTH)
    with runtime.tff_worker(max_concurrent_calls=2), resource_usage.Usage() as whole:
        stages, place = measure_stages(algorithm)
    results.show("stages", stages)
    print(f"\nall {len(stages)} levels in {whole}", flush=True)
    with runtime.tff_worker(max_concurrent_calls=2):
        results.show("per_report", measure_per_report(population, alphabet, place))
    with runtime.tff_worker(max_concurrent_calls=2):
        cost = measure_cost(population, alphabet, place)
    results.show("cost_against_clients", cost)
    results.write("cost_against_clients.png", plot_cost(cost))
    data = (
        f"synthetic English, words of the lowest 5% of frequency mass: "
        f"{population.num_clients:,} clients, {population.num_words:,} words, "
        f"{population.num_entries:,} pairs of both"
    )
    results.finish(data=data, **origin, prepared=str(prepared), stages=str(whole))


def main(argv: list[str]) -> None:
    """Makes a directory for what is not kept, and measures."""
    del argv
    startup.silence_tensorflow()
    with tempfile.TemporaryDirectory(prefix="benchmark_ldp_triehh_") as scratch:
        measure(scratch, _FLAGS.read().results_dir)


if __name__ == "__main__":
    app.run(main, flags_parser=_FLAGS.parse)
