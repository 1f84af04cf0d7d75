"""How fast TrieHH runs, against one TFF client a device and against no TFF at all.

    scripts/run benchmarks.triehh

Prepares a synthetic population anew, runs all rounds, and then gives the same first
rounds to three alternatives in the same process:

* one TFF client a device that carries its words as a `tf.data.Dataset` of strings,
  and the learned prefixes as strings, as TFF's research code does it;
* our own client computation, but one device a block;
* a loop in plain Python without TFF.

The first two get a part of the cohort (--devices), as a whole one takes minutes; what
is compared is devices a second. Peak memory is the largest sum of the resident sizes
of this process and the worker, looked at every 20 ms.
"""

import collections
import dataclasses
import tempfile
import time

from absl import app

from benchmarks import resource_usage
from federated_hh.options import option_flags
from federated_hh.options.fields import check, option
from federated_hh.runtime.worker import startup


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is run."""

    num_clients: int = option(1_000_000, "Clients that type.", least=1, most=10**9)
    epsilon: float = option(4.0, "Epsilon of the run.", above=0, most=100)
    max_length: int = option(10, "Maximum length L.", least=1, most=100)
    devices: int = option(1000, "Devices for the alternatives.", least=1, most=10**7)
    rounds: int = option(3, "Rounds for the alternatives.", least=1, most=100)
    seed: int = option(1, "Seed of everything.", least=0, most=2**63 - 1)

    def __post_init__(self):
        check(self)


_FLAGS = option_flags.define(Options)


def build_dataset_round(alphabet, capacity: int):
    """Returns a round in which a TFF client is a device with a dataset of strings.

    Args:
        alphabet: The characters of words.
        capacity: The most prefixes that there are to extend.
    """
    import numpy as np
    import tensorflow as tf
    import tensorflow_federated as tff

    symbols = [*alphabet.characters, "$"]
    words_type = tff.SequenceType(np.str_)
    prefixes_type = tff.TensorType(np.str_, [None])

    @tff.tensorflow.computation(words_type, prefixes_type, np.int32)
    def client_votes(words, prefixes, level):
        word = words.reduce(tf.constant(""), lambda _, last: last) + "$"
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


def measure_alternatives(algorithm, rounds, devices):
    """Returns the seconds of each alternative, by name, and how many devices it had."""
    import numpy as np
    import tensorflow as tf

    from federated_hh.heavy_hitters.triehh import algorithm as triehh
    from federated_hh.randomness import streams

    population, alphabet = algorithm.population, algorithm.alphabet
    one_by_one = triehh.TrieHH(
        population, algorithm.plan, alphabet, algorithm.parameters.cohort_size
    )
    dataset_round = build_dataset_round(
        alphabet, max(len(state.trie.frontier()) for state, _ in rounds)
    )
    seconds: dict[str, float] = collections.defaultdict(float)
    seen: dict[str, int] = collections.defaultdict(int)
    for state, whole in rounds:
        cohort = whole[:devices]
        words = [population.client(i)[0][0] for i in whole]
        prefixes = [alphabet.decode(row) for row in state.trie.frontier()]
        level = state.round_number + 1

        datasets = [tf.data.Dataset.from_tensors(w) for w in words[:devices]]
        start = time.perf_counter()
        dataset_votes = dataset_round(datasets, prefixes, np.int32(level))
        seconds["dataset"] += time.perf_counter() - start
        seen["dataset"] += len(cohort)

        start = time.perf_counter()
        query = one_by_one.next_query(state)
        assert query is not None
        block_votes = query.ask(cohort, streams.Stream(1))
        seconds["single"] += time.perf_counter() - start
        seen["single"] += len(cohort)

        start = time.perf_counter()
        plain = plain_python_round(words, set(prefixes), level, "$")
        seconds["plain"] += time.perf_counter() - start
        seen["plain"] += len(whole)
        if not (dataset_votes.sum() == block_votes.sum() <= sum(plain.values())):
            raise RuntimeError(
                "the alternatives do not agree: "
                f"{dataset_votes.sum()}, {block_votes.sum()}, {sum(plain.values())}"
            )
    return seconds, seen


def main(argv: list[str]) -> None:
    """Measures and prints."""
    del argv
    options = _FLAGS.read()
    startup.silence_tensorflow()
    from federated_hh.heavy_hitters import alphabet as alphabet_lib
    from federated_hh.heavy_hitters import selection
    from federated_hh.heavy_hitters.triehh import algorithm as triehh
    from federated_hh.populations import population as population_lib
    from federated_hh.populations.languages import tokenizers
    from federated_hh.privacy.triehh import theorem1 as triehh_theorem1
    from federated_hh.randomness import noise_keys
    from federated_hh.rounds import steps
    from federated_hh.runtime import runtime

    with tempfile.TemporaryDirectory(prefix="benchmark_triehh_") as scratch:
        with resource_usage.Usage() as memory:
            start = time.perf_counter()
            population = population_lib.prepare(
                population_lib.PopulationOptions(
                    num_clients=options.num_clients,
                    seed=options.seed,
                    tokenizer="triehh",
                ),
                scratch,
            )
            prepared = time.perf_counter() - start
        n = population.num_clients
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
            second, rounds = measure_blocks(algorithm, by_hand)
        print(
            f"TrieHH, {n:,} clients, epsilon {options.epsilon:g}, delta 1/n^2, cohorts "
            f"of {parameters.cohort_size:,}: {len(first)} rounds in {sum(first):.2f} s "
            f"(again, with the computations built: {sum(second):.2f} s); peak memory "
            f"of all processes {memory.peak_bytes / 2**30:.2f} GiB"
        )
        with runtime.tff_worker():
            measure_alternatives(algorithm, rounds[:1], 10)  # builds them
            seconds, seen = measure_alternatives(
                algorithm, rounds[: options.rounds], options.devices
            )
        measured = min(options.rounds, len(rounds))
        ours = measured * parameters.cohort_size / sum(second[:measured])
        print(f"devices a second over the first {measured} rounds:")
        print(f"  blocks of devices (ours)               {ours:12,.0f}")
        for name, label in (
            ("single", "one device a block                    "),
            ("dataset", "one TFF client a device, with a dataset"),
            ("plain", "plain Python, no TFF                   "),
        ):
            rate = seen[name] / seconds[name]
            print(f"  {label.ljust(38)} {rate:12,.0f}   ours / it: {ours / rate:8.1f}")


if __name__ == "__main__":
    app.run(main, flags_parser=_FLAGS.parse)
