"""What devices' choice of items costs in TFF's worker, step by step.

    scripts/run scripts.benchmark_selection

A level of LDP TrieHH asks a cohort of clients with habits: the second, at which nearly
all words of all of them begin with a candidate. All ways are asked by turns, by the
same round with the same secure sum:

* `nothing`: the round alone, whose cost is taken from all others;
* `read`: each pair of a client and a word, and the candidate of the word, once. No
  selection does less: this is its floor in the worker;
* `merge`: that, and words of a client that share a candidate become one item, whose
  counts the random sampler does not need;
* `random`, `greedy`: the whole of it, as both samplers do it: clients with more than
  60 items choose, and items are counted.

`read, in NumPy` reads the same, one core and a block of clients at a time. What each
way counts is compared with a count in NumPy.

Nanoseconds are of processors, for each pair of a client and a word.
"""

import dataclasses
import functools
import math
import os
import statistics
import string
import tempfile

from absl import app

from options import option_flags
from options.fields import OptionError, check, option
from scripts import benchmark_results, resource_usage
from simulation import startup


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

    num_clients: int = option(
        3_000_000, "Clients of the population.", least=10_000, most=10**9
    )
    cohort_size: int = option(
        1_000_000, "Clients that are asked.", least=1_000, most=10**9
    )
    num_repeats: int = option(5, "Turns.", least=1, most=1000)
    cache_dir: str | None = option(
        None, "Where the population is kept; by default it is not."
    )
    results_dir: str = option("results/benchmark_selection", "Where the table goes.")

    def __post_init__(self):
        check(self)
        if self.cohort_size > self.num_clients:
            raise OptionError(
                self,
                "{cohort_size=}: has to be at most {num_clients=}",
            )


_FLAGS = option_flags.define(Options)
_SEED = 1
_DEPTH = 15
_BOUND = 60
_MAX_PREFIXES = 10_000
_DEVICES_PER_BLOCK = 100_000
_NOTHING, _READ, _MERGE = "nothing", "read", "merge"
_IN_NUMPY = "read, in NumPy"


def prepare(directory: str):
    """Returns clients with the habits of Table 1 of Sun et al. 2024."""
    from scripts import populations
    from simulation import population
    from studies import target_words

    known = target_words.known_words_file(directory, 0.05)
    options = dataclasses.replace(
        populations.HABITS, num_clients=_FLAGS.read().num_clients, known_words=known
    )
    return population.prepare(options, directory)


def second_level(clients):
    """Returns the candidates of the second level, and that of each distinct word.

    Args:
        clients: The population.

    Returns:
        How many candidates there are; and int32, shape [words]: a candidate, or -1.
    """
    import numpy as np

    from federated_hh import alphabet as alphabet_lib
    from federated_hh import ldp_triehh, ldp_triehh_parameters
    from randomness import noise_keys
    from rounds import steps

    alphabet = alphabet_lib.Alphabet(string.printable)
    algorithm = ldp_triehh.LdpTrieHH(
        clients,
        ldp_triehh_parameters.LdpTrieHHParameters(
            cohort_size=min(_FLAGS.read().cohort_size, clients.num_clients // _DEPTH),
            max_depth=_DEPTH,
            max_prefixes=_MAX_PREFIXES,
            contribution_bound=_BOUND,
            epsilon=10.0,
        ),
        alphabet,
    )
    key = noise_keys.NoiseKey.of_seed(_SEED)
    by_hand = steps.Steps(algorithm, seed=_SEED, noise_key=key)
    place = by_hand.begin()
    query = algorithm.next_query(place.state)
    assert query is not None
    drawn = by_hand.draw(place)
    total = by_hand.ask(place, query, drawn.cohort)
    trie = by_hand.update(place, query, drawn, total).place.state.trie
    codes = alphabet.encode(clients.words, _DEPTH + 1)
    return trie.num_candidates, trie.candidates_of(codes).astype(np.int32)


def rounds_of(clients, num_candidates: int):
    """Returns the rounds in TFF, by their names."""
    import tensorflow as tf

    from federated_hh import contributions
    from federated_hh.randomizers import local_randomizer
    from rounds import block_round

    mapped = contributions.MappedItems(clients)
    random, greedy = (
        contributions.ItemSampler.RANDOM,
        contributions.ItemSampler.GREEDY,
    )

    def number(value):
        others = tf.zeros([num_candidates - 1], tf.int64)
        return tf.concat([[tf.cast(value, tf.int64)], others], axis=0)

    def nothing(message, block):
        del message
        return number(tf.size(block["clients"]))

    def read(message, block):
        entries, _ = mapped.entries_of(block["clients"])
        words = mapped.word_ids(entries)
        found = tf.gather(message["candidate_of_word"], words)
        return number(tf.math.count_nonzero(found >= 0))

    def merge(message, block):
        items, _, _ = mapped.distinct_items(
            random, block["clients"], message["candidate_of_word"]
        )
        return number(tf.size(items))

    def whole(sampler):
        def select(message, block):
            items = mapped.items_of_block(
                sampler,
                block["clients"],
                message["candidate_of_word"],
                _BOUND,
                local_randomizer.fold_in(block["seed"], 0),
            )
            votes = tf.math.bincount(
                items, minlength=num_candidates, maxlength=num_candidates
            )
            return tf.cast(votes, tf.int64)

        return select

    works = {_NOTHING: nothing, _READ: read, _MERGE: merge}
    works |= {sampler.value: whole(sampler) for sampler in (random, greedy)}
    blocks = math.ceil(_FLAGS.read().cohort_size / _DEVICES_PER_BLOCK)
    size = block_round.block_size_of(_FLAGS.read().cohort_size, blocks)
    # A client of `read` reports all its pairs, more than any of the others.
    most = int((clients.row_splits[1:] - clients.row_splits[:-1]).max())

    def votes(work, message, block):
        return {"votes": tf.ensure_shape(work(message, block), [num_candidates])}

    return {
        name: block_round.BlockRound(
            functools.partial(votes, work), {"votes": max(1, most)}, block_size=size
        )
        for name, work in works.items()
    }


def read_in_numpy(clients, candidate_of_word, cohort) -> int:
    """Returns how many pairs of a cohort have a candidate."""
    import numpy as np

    splits, bits = clients.row_splits, clients.packing.count_bits
    found = 0
    for first in range(0, len(cohort), _DEVICES_PER_BLOCK):
        block = cohort[first : first + _DEVICES_PER_BLOCK]
        held = splits[block + 1] - splits[block]
        ends = np.cumsum(held)
        places = np.arange(ends[-1]) + np.repeat(splits[block] - ends + held, held)
        words = clients.entries[places] >> bits
        found += np.count_nonzero(candidate_of_word[words] >= 0)
    return int(found)


def expected(clients, candidate_of_word, cohort) -> dict[str, int]:
    """Returns what the ways count, and how many clients and pairs have a choice."""
    import numpy as np

    pairs = items = reported = over = pairs_over = 0
    for first in range(0, len(cohort), _DEVICES_PER_BLOCK):
        block = cohort[first : first + _DEVICES_PER_BLOCK]
        rows = clients.rows(block)
        found = candidate_of_word[rows.word_ids].astype(np.int64)
        devices = np.repeat(np.arange(len(block)), rows.row_lengths)[found >= 0]
        found = found[found >= 0]
        distinct = np.unique(devices * (found.max(initial=0) + 1) + found)
        held = np.bincount(distinct // (found.max(initial=0) + 1), minlength=len(block))
        pairs += len(found)
        items += len(distinct)
        reported += int(np.minimum(held, _BOUND).sum())
        over += int((held > _BOUND).sum())
        pairs_over += int(rows.row_lengths[held > _BOUND].sum())
    return {
        _NOTHING: len(cohort),
        _READ: pairs,
        _MERGE: items,
        "random": reported,
        "greedy": reported,
        _IN_NUMPY: pairs,
        "clients above": over,
        "pairs above": pairs_over,
    }


def measure(directory: str):
    """Returns a row a way."""
    import numpy as np
    import pandas as pd

    from randomness import streams
    from simulation import runtime

    clients = prepare(_FLAGS.read().cache_dir or directory)
    generator = np.random.default_rng(_SEED)
    cohort = generator.permutation(clients.num_clients)[: _FLAGS.read().cohort_size]
    cohort = np.sort(cohort)
    pairs = int(np.diff(clients.row_splits)[cohort].sum())
    stream = streams.Stream(_SEED)
    with runtime.tff_worker(max_concurrent_calls=2):
        num_candidates, candidate_of_word = second_level(clients)
        message = {"candidate_of_word": candidate_of_word}
        rounds = rounds_of(clients, num_candidates)

        def ask(name: str) -> int:
            return int(rounds[name](message, cohort, stream)["votes"].sum())

        ways = {name: functools.partial(ask, name) for name in rounds}
        ways[_IN_NUMPY] = functools.partial(
            read_in_numpy, clients, candidate_of_word, cohort
        )
        # The first time compiles, and reads the disk.
        found = {name: [way()] for name, way in ways.items()}
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(_FLAGS.read().num_repeats):
            for name, way in ways.items():
                with resource_usage.Usage() as usage:
                    found[name].append(way())
                seconds[name].append((usage.cpu_seconds, usage.wall_seconds))
    counts = expected(clients, candidate_of_word, cohort)
    for name, counted in found.items():
        if set(counted) != {counts[name]}:
            raise RuntimeError(f"{name} counts {set(counted)}, not {counts[name]}")
    median = {name: statistics.median(cpu for cpu, _ in seconds[name]) for name in ways}
    rows = []
    for name, taken in seconds.items():
        less = 0.0 if name in (_NOTHING, _IN_NUMPY) else median[_NOTHING]
        each = [1e9 * (cpu - less) / pairs for cpu, _ in taken]
        rows.append(
            {
                "way": name,
                "clients": len(cohort),
                "pairs": pairs,
                "counted": counts[name],
                "cpu_seconds": median[name],
                "wall_seconds": statistics.median(wall for _, wall in taken),
                **benchmark_results.spread("nanoseconds_a_pair", each),
            }
        )
    table = pd.DataFrame(rows)
    about = {
        "candidates": num_candidates,
        "clients_that_choose": counts["clients above"] / len(cohort),
        "pairs_of_clients_that_choose": counts["pairs above"] / pairs,
        "load_average": os.getloadavg(),
    }
    return table, about


def main(argv: list[str]) -> None:
    """Measures, writes and prints."""
    del argv
    startup.silence_tensorflow()
    with tempfile.TemporaryDirectory(prefix="benchmark_selection_") as scratch:
        table, about = measure(scratch)
    print(table.to_string(index=False))
    benchmark_results.write(
        _FLAGS.read().results_dir,
        "scripts.benchmark_selection",
        table,
        data=(
            f"synthetic clients with habits, {_FLAGS.read().num_clients:,}, of the "
            "words of the lowest 5% of English"
        ),
        **about,
    )


if __name__ == "__main__":
    app.run(main, flags_parser=_FLAGS.parse)
