"""Measures drawing the words of clients with habits, against independent ones.

    scripts/run benchmarks.population

Prepares populations turn by turn in one process: one with bloggers' habits among seldom
typed words, one whose clients draw as many words independently, and one whose clients
have as many distinct words. Words are drawn, grouped by client, sorted and written.
"""

import dataclasses
import statistics
import tempfile
import time

from absl import app

from benchmarks import harness
from federated_hh.options.fields import option
from federated_hh.populations.options import population_options

# Clients as in Table 1 of Sun et al. 2024 as it is reproduced here: with the habits of
# bloggers among seldom typed words.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(harness.Options):
    """Size of the populations, and number of turns."""

    num_clients: int = option(300_000, "Clients of each.", least=1, most=10**9)
    num_repeats: int = option(5, "Turns.", least=1, most=1000)
    results_dir: str = harness.results_dir("benchmark_population")


def prepare(options: population_options.PopulationOptions) -> tuple[float, float]:
    """Prepares a population once.

    Args:
        options: The population's options.

    Returns:
        Seconds of processor time, all threads together, without those of a population
        of one client with the same word list; and distinct words a client.
    """
    from federated_hh.populations import population

    seconds = []
    for num_clients in (1, options.num_clients):
        sized = dataclasses.replace(options, num_clients=num_clients)
        with tempfile.TemporaryDirectory(prefix="benchmark_population_") as scratch:
            start = time.process_time()
            drawn = population.prepare(sized, scratch)
            seconds.append(time.process_time() - start)
    return seconds[1] - seconds[0], drawn.num_entries / drawn.num_clients


def measure(options: Options, run: harness.Run) -> None:
    """Measures the three populations, turn by turn."""
    import pandas as pd

    habits = dataclasses.replace(_HABITS, num_clients=options.num_clients)
    run.about["data"] = f"{habits.num_clients:,} synthetic clients"
    same_words = dataclasses.replace(habits, client_law="independent")
    more_words = prepare(habits)[1] / prepare(same_words)[1]
    same_distinct = dataclasses.replace(
        same_words, mean_words_per_client=habits.mean_words_per_client * more_words
    )
    kinds = {
        "habits": habits,
        "independent, as many words": same_words,
        "independent, as many distinct": same_distinct,
    }
    distinct: dict[str, float] = {}
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(options.num_repeats):
        for name, kind in kinds.items():
            taken, distinct[name] = prepare(kind)
            seconds[name].append(taken)
    rows = []
    for name, times in seconds.items():
        a_client = statistics.median(times) / habits.num_clients
        ratios = [a / b for a, b in zip(seconds["habits"], times, strict=True)]
        rows.append(
            {
                "clients": name,
                "distinct_words_a_client": distinct[name],
                "microseconds_a_client": 1e6 * a_client,
                **harness.spread("habits_to_it", ratios),
            }
        )
    run.show("cost", pd.DataFrame(rows))


CASE = harness.Case(Options, measure)

if __name__ == "__main__":
    app.run(CASE.main, flags_parser=CASE.parse)
