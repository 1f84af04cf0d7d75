"""Measures LDP TrieHH: its speed, and its cost by the number of clients of a level.

    scripts/run benchmarks.ldp_triehh

Writes tables and a plot to --results_dir, and prints them:

* `study`: Table 1 of the paper from nothing (`scripts.reproduce --study=oov_table1`,
  with one repeat and --study_scale of its clients): seconds of a run's levels, and of
  the whole, in which the population is prepared and coverage counted;
* `stages`: a run with the paper's D, eta_max, B and epsilon and a fifteenth of the
  clients a level: seconds of drawing the cohort, of selection and secure sum in TFF, of
  drawing the sum of the reports, and of the server's work (top-k and the trie);
* `per_report`: level 2 with each report drawn by the client computation, in reports a
  second; beside it one TFF client a device, and a loop over reports in NumPy such as
  libraries for local privacy have;
* `cost_against_clients`: selection and the sum of the reports at level 2, from 10^4
  clients to all.

All but `study` are of a synthetic population of --num_clients that type the rare end of
English, without words in fashion. Processor seconds and memory: see `resource_usage`.
"""

import dataclasses
import itertools
import math
import os
import pathlib
import shutil
import string
import subprocess
import sys
import time
from typing import Any

from absl import app

from benchmarks import harness, resource_usage
from federated_hh.options.fields import option

_SEED = 1
_EPSILON = 10.0
_BOUND = 60
_MAX_PREFIXES = 10_000
# As large as blocks are by default in the largest cohorts.
_DEVICES_PER_BLOCK = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(harness.Options):
    """Sizes of the population and of the measurements."""

    results_dir: str = harness.results_dir("benchmark_ldp_triehh")
    cache_dir: str | None = option(
        None, "Directory that keeps the population; by default it is not kept."
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
    max_depth: int = option(
        15, "Levels (D); a level has as many clients.", least=2, most=100
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


def measure_study(scale: float, run: harness.Run) -> None:
    """Runs Table 1 from nothing, and shows the seconds of each setting's levels."""
    from federated_hh.files import tables

    folder = pathlib.Path(run.scratch)
    flags = {
        "study": "oov_table1",
        "scale": scale,
        "num_repeats": 1,
        "seed": _SEED,
        "population_cache": folder / "study_population",
        "output_dir": folder / "study",
        "results_dir": folder / "study_results",
    }
    with resource_usage.Usage() as whole:
        subprocess.run(
            [
                *(sys.executable, "-P", "-m", "scripts.reproduce"),
                *(f"--{name}={value}" for name, value in flags.items()),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
        )
    files = [path for path in (folder / "study_population").rglob("*")]
    size = sum(path.stat().st_size for path in files if path.is_file())
    shutil.rmtree(folder / "study_population")
    levels = tables.read(folder / "study_results" / "levels.csv")
    columns = ["clients", "reports", "seconds"]
    run.show(
        "study", levels.groupby("setting", sort=False)[columns].sum().reset_index()
    )
    run.about["study"] = f"{whole}, {size / 1e9:.3g} GB of disk"
    print(f"\nthe whole of Table 1, from nothing: {run.about['study']}", flush=True)


class Benchmark:
    """The measurements on one population.

    Attributes:
        population: The clients.
        progress: State before level 2, once `stages` was measured.
    """

    def __init__(self, options: Options, directory: str):
        """Prepares the population, if the directory does not have it."""
        from federated_hh.populations import population
        from studies.sun_2024 import target_words

        self._options = options
        self.population = population.prepare(
            population.PopulationOptions(
                num_clients=options.num_clients,
                mean_words_per_client=options.mean_words_per_client,
                tokenizer="whitespace",
                known_words=target_words.known_words_file(directory, 0.05),
            ),
            directory,
        )
        self.clients = self.population.num_clients // options.max_depth
        self.progress: Any = None

    def algorithm(self, cohort_size: int, **options):
        """Returns LDP TrieHH with the paper's parameters and the random sampler."""
        from federated_hh.heavy_hitters import alphabet, contributions
        from federated_hh.heavy_hitters.ldp_triehh import algorithm, parameters

        return algorithm.LdpTrieHH(
            self.population,
            parameters.LdpTrieHHParameters(
                cohort_size=cohort_size,
                max_depth=self._options.max_depth,
                max_prefixes=_MAX_PREFIXES,
                contribution_bound=_BOUND,
                epsilon=_EPSILON,
                sampler=contributions.ItemSampler.RANDOM,
            ),
            alphabet.Alphabet(string.printable),
            **options,
        )

    def stages(self):
        """Runs all levels; returns a table of their seconds."""
        import pandas as pd

        algorithm = self.algorithm(self.clients)
        parts, rows = _steps_of(algorithm), []
        progress = parts.begin()
        while (query := algorithm.next_query(progress.state)) is not None:
            with resource_usage.Usage() as usage:
                moments = [time.perf_counter()]
                drawn = parts.draw(progress)
                moments.append(time.perf_counter())
                total = parts.ask(progress, query, drawn.cohort)
                moments.append(time.perf_counter())
                step = parts.update(progress, query, drawn, total)
                moments.append(time.perf_counter())
            # Once more, as the step has the sum of the reports in it.
            algorithm.update(progress.state, step.released)
            top_k = time.perf_counter() - moments[-1]
            cohort, select, update = (b - a for a, b in itertools.pairwise(moments))
            progress = step.progress
            self.progress = self.progress or progress
            counted = ("level", "clients", "reports", "candidates")
            rows.append(
                {
                    **{name: step.metrics[name] for name in counted},
                    "draw_cohort": cohort,
                    "select": select,
                    "sum": update - top_k,
                    "top_k": top_k,
                    "wall_seconds": usage.wall_seconds,
                    "cpu_seconds": usage.cpu_seconds,
                }
            )
        return pd.DataFrame(rows)

    def per_report(self):
        """Returns reports a second: in TFF blocks, TFF clients a device, and NumPy."""
        import numpy as np
        import pandas as pd

        from federated_hh.heavy_hitters.ldp_triehh import parameters

        rows = []

        def add(way, reports, included, size, usage):
            if not 0 <= reports * size - included <= reports:
                raise RuntimeError(f"{included} items in {reports} reports")
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

        single = self._options.single_devices
        for way, devices, num_blocks in (
            ("blocks of devices", self._options.devices, 4),
            ("a TFF client a device", single, single),
        ):
            algorithm = self.algorithm(
                devices,
                num_blocks=num_blocks,
                report_sampling=parameters.ReportSampling.PER_REPORT,
            )
            parts, query = (
                _steps_of(algorithm),
                algorithm.next_query(self.progress.state),
            )
            cohort = parts.draw(parts.begin()).cohort
            parts.ask(self.progress, query, cohort)  # builds the computation
            with resource_usage.Usage() as usage:
                votes = parts.ask(self.progress, query, cohort)
            randomizer = algorithm.parameters.randomizer(len(votes))
            size = randomizer.subset_size
            add(way, devices * _BOUND, votes.sum(), size, usage)
        generator = np.random.default_rng(_SEED)
        items = generator.integers(0, len(votes), 20_000)
        with resource_usage.Usage() as usage:
            counts = numpy_loop(items, len(votes) + 1, randomizer, generator)
        add("NumPy, report by report", len(items), counts.sum(), size, usage)
        table = pd.DataFrame(rows)
        rates = table.reports_per_cpu_second
        return table.assign(times_as_fast_per_core=rates[0] / rates)

    def cost(self):
        """Returns the cost of level 2 by the number of its clients."""
        import numpy as np
        import pandas as pd

        from federated_hh.randomness import streams

        num_blocks = math.ceil(self.clients / _DEVICES_PER_BLOCK)
        algorithm = self.algorithm(self.clients, num_blocks=num_blocks)
        order = np.random.default_rng(_SEED).permutation(self.population.num_clients)
        sizes = [n for k in range(4, 10) for n in (10**k, 3 * 10**k) if n <= len(order)]
        state, stream = self.progress.state, streams.Stream(_SEED)
        randomizer = algorithm.parameters.randomizer(state.trie.num_candidates)
        query = algorithm.next_query(state)
        query.ask(np.sort(order[:1000]), stream)  # builds the computation
        rows = []
        for size in sizes:
            cohort = np.sort(order[:size])
            with resource_usage.Usage() as select:
                items = query.ask(cohort, stream)
            histogram = np.append(items, size * _BOUND - items.sum())
            with resource_usage.Usage() as summing:
                randomizer.sum_of_reports(histogram, _SEED)
            peak = max(select.peak_bytes, summing.peak_bytes)
            own = max(select.peak_own_bytes, summing.peak_own_bytes)
            rows.append(
                {
                    "clients": size,
                    "reports": size * _BOUND,
                    "select_wall_seconds": select.wall_seconds,
                    "select_cpu_seconds": select.cpu_seconds,
                    "sum_wall_seconds": summing.wall_seconds,
                    "sum_cpu_seconds": summing.cpu_seconds,
                    "peak_gib": peak / 2**30,
                    "peak_own_gib": own / 2**30,
                }
            )
        return pd.DataFrame(rows)


def _steps_of(algorithm):
    """Returns the parts of an algorithm's rounds."""
    from federated_hh.randomness import noise_keys
    from federated_hh.rounds import steps

    key = noise_keys.NoiseKey.of_seed(_SEED)
    return steps.Steps(algorithm, seed=_SEED, noise_key=key)


def numpy_loop(items, num_items, randomizer, generator):
    """Returns the sum of reports that are drawn one after the other.

    Args:
        items: True items: int, shape [reports].
        num_items: The domain's size.
        randomizer: Randomizer whose law the reports have.
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


def plot_cost(table, run: harness.Run) -> None:
    """Draws the cost of a level against its clients."""
    from federated_hh.reports import plots

    figure, axes = plots.single(
        "A level of LDP TrieHH: a million candidates, 60 reports a client",
        "clients of the level",
        "processor seconds",
    )
    for column, color, label in (
        ("select_cpu_seconds", plots.BLUE, "selection and secure sum, in TFF"),
        ("sum_cpu_seconds", plots.ORANGE, "sum of the reports"),
    ):
        axes.plot(table.clients, table[column], "o-", color=color, label=label)
    run.plot("cost_against_clients", figure, axes)


def measure(options: Options, run: harness.Run) -> None:
    """Measures the study, then the parts on one population."""
    from federated_hh.runtime import runtime

    if options.study_scale:
        measure_study(options.study_scale, run)
    with resource_usage.Usage() as prepared:
        benchmark = Benchmark(options, options.cache_dir or run.scratch)
    print(f"population prepared in {prepared}", flush=True)
    with runtime.tff_worker(max_concurrent_calls=2), resource_usage.Usage() as whole:
        stages = benchmark.stages()
    run.show("stages", stages)
    print(f"\nall {len(stages)} levels in {whole}", flush=True)
    with runtime.tff_worker(max_concurrent_calls=2):
        run.show("per_report", benchmark.per_report())
    with runtime.tff_worker(max_concurrent_calls=2):
        cost = benchmark.cost()
    run.show("cost_against_clients", cost)
    plot_cost(cost, run)
    found = benchmark.population
    run.about |= {
        "data": "synthetic English, words of the lowest 5% of frequency mass: "
        f"{found.num_clients:,} clients, {found.num_words:,} words, "
        f"{found.num_entries:,} pairs of both",
        "prepared": str(prepared),
        "stages": str(whole),
    }


CASE = harness.Case(Options, measure)

if __name__ == "__main__":
    app.run(CASE.main, flags_parser=CASE.parse)
