"""Measures TrieHH, against one TFF client a device and against no TFF at all.

    scripts/run benchmarks.triehh

Prepares a synthetic population, runs all rounds, and then gives the same first rounds
to four alternatives in the same process:

* one TFF client a device that carries its words as a `tf.data.Dataset` of strings,
  and the learned prefixes as strings, as TFF's research code does it;
* the project's client computation, but one device a block;
* a loop in plain Python without TFF;
* whole arrays in NumPy, with a draw of the cohort by NumPy's generator.

The first two get a part of the cohort (--devices), as a whole one takes minutes;
devices a second are compared. Peak memory is that of this process and the worker.
"""

import collections
import dataclasses
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

from absl import app

from benchmarks import harness, resource_usage
from federated_hh.options.fields import option

# Repeats of what takes milliseconds; medians count.
_REPEATS = 5
_WAYS = {
    "single": "one device a block",
    "dataset": "one TFF client a device, with a dataset",
    "plain": "plain Python, no TFF",
    "numpy": "NumPy, no TFF",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(harness.Options):
    """Size of the run, and of the alternatives'."""

    num_clients: int = option(1_000_000, "Clients that type.", least=1, most=10**9)
    epsilon: float = option(4.0, "Epsilon of the run.", above=0, most=100)
    max_length: int = option(10, "Maximum length L.", least=1, most=100)
    devices: int = option(1000, "Devices for the alternatives.", least=1, most=10**7)
    rounds: int = option(8, "Rounds for the alternatives.", least=1, most=100)
    seed: int = option(1, "Seed of everything.", least=0, most=2**63 - 1)


def dataset_round(alphabet, capacity: int, length: int):
    """Returns a round in which a TFF client is a device with a dataset of strings.

    Args:
        alphabet: The characters of words; blanks are none.
        capacity: The most prefixes to extend.
        length: The most symbols of a word.
    """
    import numpy as np
    import tensorflow as tf
    import tensorflow_federated as tff

    symbols, padding = [*alphabet.characters, "$"], " " * length
    words_type = tff.SequenceType(np.str_)
    prefixes_type = tff.TensorType(np.str_, [None])

    @tff.tensorflow.computation(words_type, prefixes_type, np.int32)
    def client_votes(words, prefixes, level):
        word = words.reduce(tf.constant(""), lambda _, last: last) + "$" + padding
        # `==` of tensors compares objects here, not values.
        is_mine = tf.equal(prefixes, tf.strings.substr(word, 0, level - 1))
        is_next = tf.equal(symbols, tf.strings.substr(word, level - 1, 1))
        votes = tf.reduce_any(is_mine) & tf.reduce_any(is_next)
        candidate = tf.argmax(tf.cast(is_mine, tf.int32)) * len(symbols) + tf.argmax(
            tf.cast(is_next, tf.int32)
        )
        return tf.cast(votes, tf.int64) * tf.one_hot(
            candidate, capacity * len(symbols), dtype=tf.int64
        )

    @tff.federated_computation(
        tff.FederatedType(words_type, tff.CLIENTS),
        tff.FederatedType(prefixes_type, tff.SERVER),
        tff.FederatedType(np.int32, tff.SERVER),
    )
    def sum_of_votes(words, prefixes, level):
        message = (tff.federated_broadcast(prefixes), tff.federated_broadcast(level))
        return tff.federated_sum(tff.federated_map(client_votes, (words, *message)))

    return sum_of_votes


def plain_python_round(words, prefixes, level, end):
    """Returns the votes of a round, counted one device after the other."""
    votes: collections.Counter[str] = collections.Counter()
    for word in words:
        sequence = word + end
        if len(sequence) >= level and sequence[: level - 1] in prefixes:
            votes[sequence[:level]] += 1
    return votes


def numpy_round(favorites, codes, prefixes, num_symbols: int, cohort):
    """Returns the votes of a round, counted in NumPy: int64 [prefixes * num_symbols].

    Args:
        favorites: Each client's word, as a row of `codes` or -1: int [clients].
        codes: Each word's symbols, with the end symbol; padding is larger: int
            [words, length].
        prefixes: The prefixes to extend: int [prefixes, level - 1].
        num_symbols: Symbols of the alphabet.
        cohort: The clients asked. As many are drawn besides, for the time it takes.
    """
    import numpy as np

    np.random.default_rng().choice(len(favorites), len(cohort), replace=False)
    count, depth = prefixes.shape
    words = favorites[cohort]
    symbols = codes[words[words >= 0], : depth + 1].astype(np.int64)
    # An odd base, so that the keys of long prefixes differ modulo 2**64, too.
    powers = np.cumprod(np.full(depth, (num_symbols + 1) | 1))
    known = prefixes @ powers
    order = np.argsort(known)
    keys, last = symbols[:, :depth] @ powers, symbols[:, depth]
    place = order[np.searchsorted(known, keys, sorter=order).clip(max=count - 1)]
    votes = (known[place] == keys) & (last < num_symbols)
    return np.bincount(
        place[votes] * num_symbols + last[votes], minlength=count * num_symbols
    )


def measure_blocks(algorithm, by_hand):
    """Runs all rounds; returns their seconds, and of each state and cohort."""
    place, seconds, rounds = by_hand.begin(), [], []
    while (query := algorithm.next_query(place.state)) is not None:
        start = time.perf_counter()
        drawn = by_hand.draw(place)
        rounds.append((place.state, drawn.cohort))
        votes = by_hand.ask(place, query, drawn.cohort)
        place = by_hand.update(place, query, drawn, votes).progress
        seconds.append(time.perf_counter() - start)
    return seconds, rounds


def measure_alternatives(algorithm, rounds, devices: int) -> dict[str, float]:
    """Returns devices a second of each alternative.

    Args:
        algorithm: TrieHH.
        rounds: State and cohort of each round.
        devices: Devices of a round for the slow alternatives.
    """
    import numpy as np
    import tensorflow as tf

    from federated_hh.heavy_hitters.triehh import algorithm as triehh
    from federated_hh.randomness import streams

    population, alphabet = algorithm.population, algorithm.alphabet
    one_by_one = triehh.TrieHH(
        population, algorithm.plan, alphabet, algorithm.parameters.cohort_size
    )
    with_datasets = dataset_round(
        alphabet,
        max(len(state.trie.frontier()) for state, _ in rounds),
        algorithm.max_rounds,
    )
    codes = alphabet.encode(population.words, algorithm.max_rounds)
    seconds: dict[str, float] = dict.fromkeys(_WAYS, 0.0)
    seen: dict[str, int] = dict.fromkeys(_WAYS, 0)
    for state, whole in rounds:
        cohort = whole[:devices]
        words = [population.client(i)[0][0] for i in whole]
        frontier = state.trie.frontier()
        prefixes = [alphabet.decode(row) for row in frontier]
        level = state.round_number + 1
        datasets = [tf.data.Dataset.from_tensors(w) for w in words[:devices]]
        query = one_by_one.next_query(state)
        assert query is not None
        asked: dict[str, Callable[[], Any]] = {
            "dataset": functools.partial(
                with_datasets, datasets, prefixes, np.int32(level)
            ),
            "single": functools.partial(query.ask, cohort, streams.Stream(1)),
            "plain": functools.partial(
                plain_python_round, words, {*prefixes}, level, "$"
            ),
            "numpy": functools.partial(
                numpy_round,
                population.favorites,
                codes,
                frontier.astype(np.int64),
                alphabet.num_symbols,
                whole,
            ),
        }
        votes = {}
        for way, ask in asked.items():
            is_fast = way in ("plain", "numpy")
            times = []
            for _ in range(_REPEATS if is_fast else 1):
                start = time.perf_counter()
                votes[way] = ask()
                times.append(time.perf_counter() - start)
            seconds[way] += statistics.median(times)
            seen[way] += len(whole if is_fast else cohort)
        query = algorithm.next_query(state)
        assert query is not None
        votes["ours"] = query.ask(whole, streams.Stream(1))
        symbols = [*alphabet.characters, "$"]
        votes["plain"] = np.array(
            [votes["plain"][p + s] for p in prefixes for s in symbols]
        )
        for way, other in (
            ("dataset", "single"),
            ("numpy", "plain"),
            ("ours", "plain"),
        ):
            if not np.array_equal(votes[way][: votes[other].size], votes[other]):
                raise RuntimeError(f"{way} and {other} differ in round {level}")
    return {way: seen[way] / seconds[way] for way in _WAYS}


def measure(options: Options, run: harness.Run) -> None:
    """Measures and prints."""
    from federated_hh.heavy_hitters import alphabet as alphabet_lib
    from federated_hh.heavy_hitters import selection
    from federated_hh.heavy_hitters.triehh import algorithm as triehh
    from federated_hh.populations import population as population_lib
    from federated_hh.populations.languages import tokenizers
    from federated_hh.privacy.triehh import theorem1 as triehh_theorem1
    from federated_hh.randomness import noise_keys
    from federated_hh.rounds import steps
    from federated_hh.runtime import runtime

    kind = population_lib.PopulationOptions(
        num_clients=options.num_clients, seed=options.seed, tokenizer="triehh"
    )
    with resource_usage.Usage() as memory:
        population = population_lib.prepare(kind, run.scratch)
    n, prepared = population.num_clients, memory.wall_seconds
    print(
        f"population: {options.num_clients:,} clients prepared in "
        f"{prepared:.1f} s, {options.num_clients / prepared:,.0f} a second; peak "
        f"memory {memory.peak_bytes / 2**30:.2f} GiB"
    )
    # The paper's, so that figures of earlier versions compare.
    parameters = triehh_theorem1.solve_parameters(
        population_size=n,
        max_length=options.max_length,
        epsilon=options.epsilon,
        delta=1 / n**2,
    )
    alphabet = alphabet_lib.Alphabet(tokenizers.get_tokenizer("triehh").alphabet)
    plan = triehh.plan_of(parameters, selection.WordSelection.MOST_FREQUENT)
    algorithm = triehh.TrieHH(population, plan, alphabet)
    by_hand = steps.Steps(
        algorithm, seed=1, noise_key=noise_keys.NoiseKey.of_seed(options.seed)
    )
    with resource_usage.Usage() as memory, runtime.tff_worker():
        first, _ = measure_blocks(algorithm, by_hand)
        again = [measure_blocks(algorithm, by_hand) for _ in range(_REPEATS)]
    rounds = again[0][1]
    second = [
        statistics.median(times) for times in zip(*(s for s, _ in again), strict=True)
    ]
    print(
        f"TrieHH, {n:,} clients, epsilon {options.epsilon:g}, delta 1/n^2, cohorts "
        f"of {parameters.cohort_size:,}: {len(first)} rounds in {sum(first):.2f} s "
        f"(again, with the computations built: {sum(second):.2f} s); peak memory "
        f"of all processes {memory.peak_bytes / 2**30:.2f} GiB"
    )
    # The last one may have no prefix left to extend.
    rounds = [r for r in rounds[: options.rounds] if len(r[0].trie.frontier())]
    with runtime.tff_worker():
        measure_alternatives(algorithm, rounds[:1], 10)  # builds them
        rates = measure_alternatives(algorithm, rounds, options.devices)
    ours = len(rounds) * parameters.cohort_size / sum(second[: len(rounds)])
    print(f"devices a second over the first {len(rounds)} rounds:")
    print(f"  {'blocks of devices (ours)':<38} {ours:12,.0f}")
    for way, label in _WAYS.items():
        ratio = ours / rates[way]
        print(f"  {label:<38} {rates[way]:12,.0f}   ours / it: {ratio:8.2f}")


CASE = harness.Case(Options, measure)

if __name__ == "__main__":
    app.run(CASE.main, flags_parser=CASE.parse)
