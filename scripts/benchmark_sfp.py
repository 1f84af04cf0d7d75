"""What the Sequence Fragment Puzzle costs, beside a loop over users in plain Python.

    scripts/run scripts.benchmark_sfp

Both find the words of the same clients, with k = 2,048 functions into m = 1,024 cells.
The loop does what the published code of Zhu et al. 2020 does, user by user: hash the
fragment with a salted SHA-256, draw m bits, add the row to a sketch; and to decode, for
each of the 1.9 million fragments hash it with all k functions and add up the cells. Of
its decode a part is timed (--fragments), and the whole of it computed from that. Ours
is a whole run: the client computation in a TFF worker, the sum of the reports, the
decode. Processor seconds, with those of the worker.
"""

import dataclasses
import hashlib
import tempfile
import time

from absl import app

from options import option_flags
from options.fields import check, option
from scripts import benchmark_results, resource_usage
from simulation import startup


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

    clients: tuple[str, ...] = option(
        ("5000", "50000", "659774", "6000000"), "Clients, at each of which."
    )
    most_looped: int = option(
        50_000, "The most clients that the loop is given.", least=1, most=10**9
    )
    fragments: int = option(50, "Fragments that the loop decodes.", least=1, most=10**6)
    epsilon: float = option(4.29, "Local epsilon.", least=0.001, most=40)
    results_dir: str = option("results/benchmark_sfp", "Where the table goes.")

    def __post_init__(self):
        check(self)


_FLAGS = option_flags.define(Options)
_SEED = 1
_FUNCTIONS, _CELLS, _POSITIONS = 2048, 1024, 5


class PlainLoop:
    """The Sequence Fragment Puzzle user by user."""

    def __init__(self, epsilon: float):
        import numpy as np

        self._random = np.random.default_rng(_SEED)
        self._right = np.exp(epsilon / 2) / (np.exp(epsilon / 2) + 1)
        self._sketches = np.zeros((_POSITIONS, _FUNCTIONS, _CELLS))

    def _cell(self, function: int, fragment: str) -> int:
        digest = hashlib.sha256(f"{function}{fragment}".encode()).digest()
        return int.from_bytes(digest[-2:], "big") % _CELLS

    def report(self, word: str) -> None:
        """Adds a user's report to the sketch of its position."""
        import numpy as np

        word = word[: 2 * _POSITIONS].ljust(2 * _POSITIONS, "$")
        position = int(self._random.integers(_POSITIONS))
        function = int(self._random.integers(_FUNCTIONS))
        word_hash = hashlib.sha256(word.encode()).digest()[-1]
        fragment = f"{word_hash}{word[2 * position : 2 * position + 2]}"
        row = -np.ones(_CELLS)
        row[self._cell(function, fragment)] = 1
        row *= 2 * (self._random.random(_CELLS) <= self._right) - 1
        self._sketches[position, function] += row

    def estimate(self, position: int, fragment: str) -> float:
        """Adds up the cells that all functions map a fragment to."""
        sketch = self._sketches[position]
        return sum(
            sketch[function][self._cell(function, fragment)]
            for function in range(_FUNCTIONS)
        )


def time_loop(words: list[str], fragments: int, epsilon: float) -> tuple[float, float]:
    """Returns the seconds of all reports, and of the estimate of a fragment."""
    loop = PlainLoop(epsilon)
    start = time.process_time()
    for word in words:
        loop.report(word)
    reports = time.process_time() - start
    start = time.process_time()
    for number in range(fragments):
        loop.estimate(number % _POSITIONS, f"{number % 256}ab")
    return reports, (time.process_time() - start) / fragments


def time_ours(clients, epsilon: float) -> tuple[float, float, int]:
    """Returns processor and wall seconds of a run, and how many words it found."""
    from federated_hh import alphabet, sfp, sfp_options
    from randomness import noise_keys
    from rounds import steps
    from simulation import tokenizers

    algorithm = sfp.SequenceFragmentPuzzle(
        clients,
        sfp_options.SfpOptions(epsilon=epsilon),
        alphabet.Alphabet(tokenizers.TRIEHH_ALPHABET),
    )
    key = noise_keys.NoiseKey(_SEED, is_secret=False)
    by_hand = steps.Steps(algorithm, seed=_SEED, noise_key=key)
    place = by_hand.begin()
    query = algorithm.next_query(place.state)
    assert query is not None
    with resource_usage.Usage() as usage, algorithm.worker():
        drawn = by_hand.draw(place)
        total = by_hand.ask(place, query, drawn.cohort)
        place = by_hand.update(place, query, drawn, total).place
    return usage.cpu_seconds, usage.wall_seconds, len(place.state.words)


def measure():
    """Returns a row for each number of clients."""
    import pandas as pd

    from simulation import population, population_options
    from studies import resampling

    rows = []
    with tempfile.TemporaryDirectory() as cache:
        typed = population.prepare(
            population_options.PopulationOptions(
                num_clients=20_000, tokenizer="triehh"
            ),
            cache,
        )
        for number in map(int, _FLAGS.read().clients):
            clients = resampling.resampled(
                typed, number, resampling.FAVORITES, seed=_SEED, cache=cache
            )
            cpu, wall, found = time_ours(clients, _FLAGS.read().epsilon)
            row = {
                "clients": number,
                "ours_cpu_seconds": cpu,
                "ours_wall_seconds": wall,
                "words_found": found,
            }
            looped = min(number, _FLAGS.read().most_looped)
            words = [clients.word(i) for i in clients.favorites[:looped]]
            reports, one = time_loop(
                words, _FLAGS.read().fragments, _FLAGS.read().epsilon
            )
            symbols = len(typed.metadata["alphabet"]) + 1
            row |= {
                "loop_clients": looped,
                "loop_reports_seconds": reports,
                "loop_reports_seconds_of_all": reports * number / looped,
                "loop_decode_seconds_of_all": one * _POSITIONS * 256 * symbols**2,
            }
            rows.append(row)
    return pd.DataFrame(rows)


def main(argv: list[str]) -> None:
    """Measures, writes and prints."""
    del argv
    startup.silence_tensorflow()
    table = measure()
    print(table.to_string(index=False))
    benchmark_results.write(
        _FLAGS.read().results_dir,
        "scripts.benchmark_sfp",
        table,
        data="synthetic English: most frequent words of 20,000 clients, resampled",
    )


if __name__ == "__main__":
    app.run(main, flags_parser=_FLAGS.parse)
