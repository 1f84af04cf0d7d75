"""What it costs to draw the words of clients with habits, against independent ones.

    scripts/run benchmarks.population

Prepares populations anew, turn by turn in one process: one with habits as bloggers have
them among the words that are seldom typed, one whose clients draw as many words
independently, and one whose clients have as many distinct words. Words are drawn,
grouped by client, put in order and written.
"""

import dataclasses
import os
import statistics
import tempfile
import time

from absl import app

from benchmarks import results as benchmark_results
from federated_hh.options import option_flags
from federated_hh.options.fields import check, option
from federated_hh.populations.options import population_options


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is drawn."""

    num_clients: int = option(300_000, "Clients of each.", least=1, most=10**9)
    num_repeats: int = option(5, "Turns.", least=1, most=1000)
    results_dir: str = option("results/benchmark_population", "Where the table goes.")

    def __post_init__(self):
        check(self)


_FLAGS = option_flags.define(Options)
# Clients as in Table 1 of Sun et al. 2024 as it is reproduced here: with the habits of
# bloggers among the words that are seldom typed.
_HABITS = population_options.PopulationOptions(
    tokenizer="whitespace",
    mean_words_per_client=132,
    words_per_client_sigma=1.11,
    client_law="pitman_yor",
    client_discount=0.81,
    client_concentration=22.0,
    common_law="pitman_yor",
    common_discount=0.095,
    common_concentration=15_030.0,
)


def measure(options: population_options.PopulationOptions) -> tuple[float, float]:
    """Prepares a population once.

    Args:
        options: What it is made of.

    Returns:
        Seconds of processor time, all threads together, without those of a population
        of one client with the same word list; and distinct words a client.
    """
    from federated_hh.populations import population

    seconds = []
    for num_clients in (1, options.num_clients):
        with tempfile.TemporaryDirectory(prefix="benchmark_population_") as scratch:
            sized = dataclasses.replace(options, num_clients=num_clients)
            start = time.process_time()
            drawn = population.prepare(sized, scratch)
            seconds.append(time.process_time() - start)
    return seconds[1] - seconds[0], drawn.num_entries / drawn.num_clients


def main(argv: list[str]) -> None:
    """Measures, writes and prints."""
    import pandas as pd

    del argv
    habits = dataclasses.replace(_HABITS, num_clients=_FLAGS.read().num_clients)
    same_words = dataclasses.replace(habits, client_law="independent")
    _, distinct = measure(habits)
    _, independent = measure(same_words)
    kinds = {
        "habits": habits,
        "independent, as many words": same_words,
        "independent, as many distinct": dataclasses.replace(
            same_words,
            mean_words_per_client=same_words.mean_words_per_client
            * distinct
            / independent,
        ),
    }
    distinct_of: dict[str, float] = {}
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(_FLAGS.read().num_repeats):
        for name, options in kinds.items():
            taken, distinct_of[name] = measure(options)
            seconds[name].append(taken)
    rows = []
    for name, times in seconds.items():
        ratios = [a / b for a, b in zip(seconds["habits"], times, strict=True)]
        rows.append(
            {
                "clients": name,
                "distinct_words_a_client": distinct_of[name],
                "microseconds_a_client": 1e6
                * statistics.median(times)
                / habits.num_clients,
                **benchmark_results.spread("habits_to_it", ratios),
            }
        )
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    benchmark_results.write(
        _FLAGS.read().results_dir,
        "benchmarks.population",
        table,
        data=f"{habits.num_clients:,} synthetic clients",
        load_average=os.getloadavg(),
    )


if __name__ == "__main__":
    app.run(main, flags_parser=_FLAGS.parse)
