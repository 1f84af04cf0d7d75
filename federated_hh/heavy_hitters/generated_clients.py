"""Client side: clients that are drawn where they are asked; see `generated_words`.

A client is a Poisson process on the line of all words, each as long as its chance, at a
rate of the number of words that the client types: a point is a word typed. Both come
from the population's seed and the client's number, so `GeneratedPopulation` gives a
client the same words in every question and round.

At thousands of words a client that is too slow for a level of LDP TrieHH.
`GeneratedItems` draws a client's items alone, by thinning. Each candidate has a score,
of independent candidates: its count plus a uniform number below 1 (greedy), or such a
number (random); a client reports the candidates with the largest scores. Only those
above a threshold are drawn that about twice the contribution bound exceed on average,
as a Poisson process whose points are candidates that may exceed it; each point's
uniform number then decides exactly whether it does, and by how much. With a chance of
10^-12 a client reports fewer candidates than it could.

The client's number of typed words is the same in every question. Its items are not
those of its words in `GeneratedPopulation`, nor those of another round: they have the
same law. A run of LDP TrieHH asks nobody twice, so all of its answers together have the
law of a prepared population's; another repeat asks clients whose words are drawn again.

Draws depend on the client and not on its block, and TensorFlow's sums along a row are
sequential, so a block may be cut anywhere.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf
from scipy import special, stats

from federated_hh.files import progress
from federated_hh.heavy_hitters import contributions, selection
from federated_hh.populations.columns import generated_words
from federated_hh.randomness import streams

# Clients of similar numbers of words share a table, and so do candidates of similar
# chances: that of the largest of each.
_TYPED_STEPS, _CHANCE_STEPS = 4, 8  # an octave
# Probability that a client has more points, or fewer candidates, than there is room.
_NEVER = 1e-12
# Numbers of a matrix, whose rows are clients.
_CELLS = 1 << 18
_CLIENTS_AT_ONCE = 1 << 16
# Candidates that exceed the threshold more often than this are drawn one by one.
_HEAVY = 0.5
# A recurrence from no count on is cheaper than the incomplete gamma function.
_LARGE_COUNT = 64
# Counting further could go beyond means whose chance of no count is 0 in float64.
_COUNTED = 400
_SCORE_BITS = 40
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: SplitMix64


def words_of(
    population: generated_words.Words,
) -> "selection.MappedPopulation | GeneratedPopulation":
    """Returns the words that a population's clients vote with."""
    if isinstance(population, generated_words.GeneratedWords):
        return GeneratedPopulation(population)
    return selection.MappedPopulation(population)


def items_of(
    population: generated_words.Words,
    sampler: contributions.ItemSampler,
    bound: int,
) -> "contributions.ColumnItems | GeneratedItems":
    """Returns the items that a population's clients report on.

    Args:
        population: The population.
        sampler: Choice of a client with more than `bound` items.
        bound: The most items of a client.
    """
    if isinstance(population, generated_words.GeneratedWords):
        return GeneratedItems(population, sampler, bound)
    return contributions.ColumnItems(population, sampler, bound)


def typed_by(
    population: generated_words.GeneratedWords, clients: tf.Tensor
) -> tf.Tensor:
    """Returns the number of words that each client types: int64, shape [clients]."""
    ends = _mapped(population, "typed_ends")
    uniform = _uniform(_keys(population, "typed", clients), 1)[:, 0]
    return 1 + tf.searchsorted(ends[:-1], uniform, "right", tf.int64)


def favorite_counts(population: generated_words.GeneratedWords) -> np.ndarray:
    """Returns how many clients have each word most often: int64 [num_words].

    All clients are drawn for it, once.
    """
    most_frequent = selection.WordSelection.MOST_FREQUENT

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)], autograph=False)
    def favorites(clients):
        words = GeneratedPopulation(population).select(most_frequent, clients, None)
        return tf.boolean_mask(words, words >= 0)

    def count() -> np.ndarray:
        counts, size = np.zeros(population.num_words, np.int64), population.num_clients
        with progress.Progress("Counting favorites", size, "clients") as bar:
            for first in range(0, size, _CLIENTS_AT_ONCE):
                last = min(first + _CLIENTS_AT_ONCE, size)
                found = favorites(np.arange(first, last)).numpy()
                counts += np.bincount(found, minlength=len(counts))
                bar.set(last)
        return counts

    return np.fromfile(population.derived_column("favorite_counts", count), np.int64)


@dataclasses.dataclass(frozen=True)
class GeneratedPopulation:
    """The words that generated clients vote with, drawn in the worker."""

    population: generated_words.GeneratedWords

    def select(
        self,
        selected: selection.WordSelection,
        clients: tf.Tensor,
        bits: tf.Tensor | None,
    ) -> tf.Tensor:
        """Returns each client's word; see `selection.MappedPopulation.select`.

        Of equally frequent words, the favorite is a random one, always the same.
        """
        population = self.population
        ends = _mapped(population, "ends")
        buckets = _Buckets.of(population)
        widths = tf.constant(_room(buckets.last * population.ends[-1]))
        keys = _keys(population, "words", clients)
        ties = _keys(population, "ties", clients)

        def picked(rows, typed, bucket):
            points = _points(tf.gather(keys, rows), widths[bucket])
            points /= tf.cast(typed, tf.float64)[:, None]
            is_word = points < ends[-1]
            words = tf.searchsorted(ends, tf.boolean_mask(points, is_word), "right")
            owners = tf.where(is_word)[:, 0]
            # Points ascend, so that equal words of a client are neighbours.
            is_first = tf.not_equal(words[1:], words[:-1])
            is_first |= tf.not_equal(owners[1:], owners[:-1])
            is_first = tf.concat([tf.ones_like(words[:1], tf.bool), is_first], axis=0)
            firsts = tf.where(is_first)[:, 0]
            after = tf.concat([firsts[1:], [tf.size(words, tf.int64)]], axis=0)
            counts = after[: tf.size(firsts)] - firsts
            words, owners = tf.gather(words, firsts), tf.gather(owners, firsts)
            splits = tf.searchsorted(
                owners, tf.range(tf.size(rows, tf.int64) + 1), "left", tf.int64
            )
            if selected is selection.WordSelection.BY_FREQUENCY:
                drawn = tf.gather(bits, rows)
                return selection.picked_by_count(words, counts, splits, drawn)
            # The largest count, of equal ones the largest random number.
            salt = tf.cast(words, tf.uint64) * tf.constant(_GOLDEN, tf.uint64)
            salt = _mixed(tf.gather(tf.gather(ties, rows), owners) + salt)
            salt = tf.cast(_shifted(salt, 64 - _SCORE_BITS), tf.int64)
            often = tf.bitwise.left_shift(counts, tf.constant(_SCORE_BITS, tf.int64))
            often |= salt
            most = tf.math.unsorted_segment_max(often, owners, tf.size(rows))
            best = tf.where(tf.equal(often, tf.gather(most, owners)))
            return tf.tensor_scatter_nd_max(
                tf.fill(tf.shape(rows), -1),
                tf.gather(owners, best),
                tf.gather(words, best[:, 0]),
            )

        rows, words = _by_bucket(buckets, typed_by(population, clients), widths, picked)
        return tf.scatter_nd(rows[:, None], words, tf.shape(clients, tf.int64))


@dataclasses.dataclass(frozen=True)
class _Buckets:
    """Groups of clients by the number of words that they type.

    Attributes:
        first: int64 [buckets]: the least number of each, ascending.
        last: int64 [buckets]: the largest number of each.
    """

    first: np.ndarray
    last: np.ndarray

    @classmethod
    def of(cls, population: generated_words.GeneratedWords) -> "_Buckets":
        """Returns the groups of a population's clients."""
        possible = 1 + np.flatnonzero(population.typed_chances > 0)
        step = np.floor(_TYPED_STEPS * np.log2(possible))
        starts = np.flatnonzero(np.diff(step, prepend=-1.0))
        stops = np.append(starts[1:], len(possible)) - 1
        return cls(possible[starts], possible[stops])


@dataclasses.dataclass(frozen=True)
class GeneratedItems:
    """The items of generated clients, drawn in the worker by thinning.

    Attributes:
        population: Law of the clients.
        sampler: Choice of a client with more than `bound` items.
        bound: The most items of a client.
    """

    population: generated_words.GeneratedWords
    sampler: contributions.ItemSampler
    bound: int

    growing = frozenset({"candidates", "chances", "firsts", "sizes", "units", "caps"})

    def message(
        self, candidate_of_word: np.ndarray, seed: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Returns the tables of a level; see `contributions.ColumnItems.message`."""
        is_candidate = candidate_of_word >= 0
        chances = np.bincount(
            candidate_of_word[is_candidate],
            self.population.chances[is_candidate],
            minlength=1,
        )
        candidates = np.argsort(-chances, kind="stable")
        candidates = candidates[: max(1, np.count_nonzero(chances))]
        chances = np.maximum(chances[candidates], np.finfo(np.float64).tiny)
        step = np.floor(_CHANCE_STEPS * np.log2(chances[0] / chances))
        firsts = np.flatnonzero(np.diff(step, prepend=-1.0))
        sizes = np.diff(firsts, append=len(chances))
        buckets = _Buckets.of(self.population)
        least = np.outer(chances[firsts + sizes - 1], buckets.first)
        most = np.outer(chances[firsts], buckets.last)
        wanted = float(special.pdtri(self.bound - 1, _NEVER))
        if self.sampler is contributions.ItemSampler.RANDOM:
            held = sizes @ -np.expm1(-least)
            whole, part = np.zeros(len(held)), 1 - wanted / np.maximum(held, wanted)
            caps = (1 - part) * -np.expm1(-most)
        else:
            whole, part = _threshold(least, sizes, wanted)
            caps = _exceeding(whole, part, most)
        caps = np.minimum(caps * (1 + 1e-9), 1.0)
        is_heavy = caps > _HEAVY
        units = -np.log1p(-np.where(is_heavy, 0.0, caps))
        return {
            "candidates": candidates.astype(np.int32),
            "chances": chances,
            "firsts": firsts.astype(np.int64),
            "sizes": sizes.astype(np.int64),
            "units": units,
            "caps": caps,
            "whole": whole,
            "part": part,
            "heavy": (sizes @ is_heavy).astype(np.int32),
            "light": _room(sizes @ units),
            "seed": seed,
        }

    def items_of_block(
        self, message: Mapping[str, tf.Tensor], block: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Returns the clients' items; see `contributions.ColumnItems`."""
        clients = block["clients"]
        keys = _keys(self.population, "items", clients, message["seed"])
        is_random = self.sampler is contributions.ItemSampler.RANDOM
        scores = _random_scores if is_random else _greedy_scores

        def drawn(rows, typed, bucket):
            light, heavy = message["light"][bucket], message["heavy"][bucket]
            own = tf.gather(keys, rows)
            points = _points(own, light)
            unit = message["units"][:, bucket]
            ends = tf.cumsum(unit * tf.cast(message["sizes"], tf.float64))
            starts = tf.concat([[_float(0.0)], ends], axis=0)
            # Points ascend, and so do their places among the candidates.
            group = tf.searchsorted(ends[:-1], tf.reshape(points, [-1]), "right")
            group = tf.reshape(group, tf.shape(points))
            within = (points - tf.gather(starts, group)) / tf.gather(unit, group)
            last = tf.gather(message["sizes"], group) - 1
            within = tf.minimum(within, tf.cast(last, tf.float64))
            places = tf.gather(message["firsts"], group) + tf.cast(within, tf.int64)
            is_new = tf.not_equal(places[:, 1:], places[:, :-1])
            is_new = tf.pad(is_new, [[0, 0], [1, 0]], constant_values=True)
            is_new &= points < ends[-1]
            caps = tf.gather(message["caps"][:, bucket], group)
            uniform = _uniform(own, heavy + light, light)
            uniform = tf.concat(
                [
                    uniform[:, :heavy],
                    tf.where(is_new, caps * uniform[:, heavy:], _float(2.0)),
                ],
                axis=1,
            )
            every = tf.range(tf.cast(heavy, tf.int64)) + tf.zeros_like(typed)[:, None]
            places = tf.concat([every, places], axis=1)
            means = tf.cast(typed, tf.float64)[:, None]
            means *= tf.gather(message["chances"], places)
            whole, part = message["whole"][bucket], message["part"][bucket]
            score = scores(uniform, means, whole, part, self.bound)
            best = tf.math.top_k(
                score, tf.minimum(self.bound, heavy + light), sorted=False
            )
            places = tf.gather(places, best.indices, batch_dims=1)
            places = tf.boolean_mask(places, best.values > 0)
            return tf.gather(message["candidates"], places)

        return _by_bucket(
            _Buckets.of(self.population),
            typed_by(self.population, clients),
            message["light"] + message["heavy"],
            drawn,
        )[1]


def _threshold(
    means: np.ndarray, sizes: np.ndarray, wanted: float
) -> tuple[np.ndarray, np.ndarray]:
    """Returns scores that `wanted` candidates, or all held ones, exceed on average.

    Args:
        means: float64 [groups, buckets]: mean counts.
        sizes: Integers [groups]: how many candidates have each.
        wanted: Number of candidates.

    Returns:
        The score's whole part, at least 1, and the part behind the point: float64
        [buckets].
    """

    def holders(count: np.ndarray) -> np.ndarray:
        return sizes @ special.pdtrc(count - 1, means)

    low = np.ones(means.shape[1])
    most = means.max(axis=0)
    high = np.ceil(most + 40 * np.sqrt(most) + 100)
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        is_enough = holders(middle) >= wanted
        low, high = np.where(is_enough, middle, low), np.where(is_enough, high, middle)
    above, equal = holders(low + 1), holders(low)
    missing = np.clip((wanted - above) / np.maximum(equal - above, 1e-300), 0.0, 1.0)
    return low, 1 - missing


def _exceeding(whole: np.ndarray, part: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Returns the probability of a score above a threshold, by mean count."""
    above = special.pdtrc(whole, means)
    return above + (1 - part) * (special.pdtrc(whole - 1, means) - above)


def _random_scores(uniform, means, whole, part, bound):
    """Returns scores above 0 of the candidates that are held, and above a threshold.

    A candidate is drawn if its uniform number is at most its chance of that.
    """
    del whole, bound
    share = uniform / ((1 - part) * -tf.math.expm1(-means))
    return _as_integers(tf.where(share <= 1, 1 - share, _float(-1.0)))


def _greedy_scores(uniform, means, whole, part, bound):
    """Returns scores, above 0 if they exceed a threshold: counts, ties by chance.

    A candidate's count is the largest one that is reached with a chance of at least its
    uniform number. Counting ends where at most `bound` candidates have more; where that
    takes long, counts are bisected.
    """

    def chance_of(count):
        log = count * tf.math.log(means) - means - tf.math.lgamma(count + 1)
        return tf.exp(log), tf.math.igamma(count + 1, means)

    def next_count(count, chance, above):
        chance *= means / (count + 1)
        return count + 1, chance, above - chance

    def from_none():
        none = tf.exp(-means)
        return tf.while_loop(
            lambda count, *_: count < whole,
            next_count,
            (tf.zeros_like(whole), none, 1 - none),
        )[1:]

    def behind_the_point(chance, above):
        share = tf.math.divide_no_nan(above + chance - uniform, chance)
        return tf.where(uniform <= above, _float(1.0), share)

    def has_too_many(above):
        more = tf.math.count_nonzero(uniform <= above, axis=1, dtype=tf.int32)
        return tf.reduce_max(more) > bound

    def count_on(count, chance, above, score):
        has_more = uniform <= above
        count, chance, above = next_count(count, chance, above)
        counted = count + behind_the_point(chance, above)
        return count, chance, above, tf.where(has_more, counted, score)

    chance, above = tf.cond(
        whole < _LARGE_COUNT, from_none, functools.partial(chance_of, whole)
    )
    is_drawn = uniform <= above + (1 - part) * chance
    score = tf.where(is_drawn, whole + behind_the_point(chance, above), _float(-1.0))
    _, _, above, score = tf.while_loop(
        lambda count, _, above, __: (count < whole + _COUNTED) & has_too_many(above),
        count_on,
        (whole, chance, above, score),
    )

    def bisected():
        most = tf.reduce_max(means)
        low = tf.fill(tf.shape(means), whole)
        steps = tf.math.log(most + 40 * tf.sqrt(most) + 100) / np.log(2)

        def halve(step, low):
            middle = low + step
            reached = uniform <= tf.math.igamma(middle, means)
            return step / 2, tf.where(reached, middle, low)

        step = tf.pow(_float(2.0), tf.math.ceil(steps))
        _, count = tf.while_loop(lambda step, _: step >= 1, halve, (step, low))
        counted = count + behind_the_point(*chance_of(count))
        return tf.where(is_drawn, counted, score)

    return _as_integers(tf.cond(has_too_many(above), bisected, lambda: score))


def _as_integers(scores: tf.Tensor) -> tf.Tensor:
    """Returns scores that sort fast: int64, above 0 where `scores` are at least 0."""
    found = tf.cast(scores * 2.0**_SCORE_BITS, tf.int64) + 1
    return tf.where(scores >= 0, found, tf.zeros_like(found))


def _room(means: np.ndarray) -> np.ndarray:
    """Returns a number of points that almost never suffices not: int32, at least 1."""
    return np.maximum(stats.poisson.isf(_NEVER, means), 0).astype(np.int32) + 1


def _by_bucket(
    buckets: _Buckets,
    typed: tf.Tensor,
    widths: tf.Tensor,
    draw: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor],
) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws for clients of one bucket at a time, in matrices of limited size.

    Args:
        buckets: The groups of clients.
        typed: int64, shape [clients]: the number of words that each types.
        widths: int32, shape [buckets]: a client's numbers, by bucket.
        draw: Returns int32 [n] of some clients' places in `typed`, their numbers of
            words, and their bucket.

    Returns:
        The clients' places in the order of drawing, and what was drawn for them.
    """
    bucket = tf.searchsorted(tf.constant(buckets.first), typed, "right") - 1
    order = tf.argsort(bucket, stable=True)
    bucket, typed = tf.gather(bucket, order), tf.gather(typed, order)
    order = tf.cast(order, tf.int64)
    ends = tf.searchsorted(bucket, tf.range(len(buckets.first)), "right")

    def draw_some(first, found):
        here = bucket[first]
        after = tf.minimum(first + tf.maximum(_CELLS // widths[here], 1), ends[here])
        some = draw(order[first:after], typed[first:after], here)
        return after, tf.concat([found, some], axis=0)

    return order, tf.while_loop(
        lambda first, _: first < tf.size(order),
        draw_some,
        [tf.constant(0), tf.zeros([0], tf.int32)],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
        parallel_iterations=1,
    )[1]


def _points(keys: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Returns Poisson processes of rate 1: float64, shape [keys, number], ascending."""
    return tf.cumsum(-tf.math.log(_uniform(keys, number)), axis=1)


def _uniform(
    keys: tf.Tensor, number: tf.Tensor | int, first: tf.Tensor | int = 0
) -> tf.Tensor:
    """Returns numbers of clients' streams, in (0, 1): float64, shape [keys, number]."""
    places = tf.cast(first + tf.range(number), tf.uint64)
    bits = _mixed(keys[:, None] + places * tf.constant(_GOLDEN, tf.uint64))
    return (tf.cast(_shifted(bits, 11), tf.float64) + 0.5) * 2.0**-53


def _keys(
    population: generated_words.GeneratedWords,
    purpose: str,
    clients: tf.Tensor,
    seed: tf.Tensor | None = None,
) -> tf.Tensor:
    """Returns a key of each client's random stream: uint64, shape [clients].

    A stream is SplitMix64's (Steele, Lea and Flood 2014) from that key.

    Args:
        population: Its seed counts.
        purpose: Tells streams of a client apart.
        clients: int64, shape [clients].
        seed: int32, shape [2]; None for streams that are always the same.
    """
    derived = streams.derive(population.metadata["seed"], "generated", purpose)
    key = tf.constant(derived.generate_state(1, np.uint64)[0], tf.uint64)
    if seed is not None:
        key = _mixed(key + tf.cast(tf.bitcast(seed, tf.int64), tf.uint64))
    salt = tf.cast(clients, tf.uint64) * tf.constant(_GOLDEN, tf.uint64)
    return _mixed(key + salt)


def _mixed(bits: tf.Tensor) -> tf.Tensor:
    """Returns SplitMix64's function of 64 bits."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = tf.bitwise.bitwise_xor(bits, _shifted(bits, shift))
        bits *= tf.constant(factor, tf.uint64)
    return tf.bitwise.bitwise_xor(bits, _shifted(bits, 31))


def _float(value: float) -> tf.Tensor:
    return tf.constant(value, tf.float64)


def _shifted(bits: tf.Tensor, number: int) -> tf.Tensor:
    return tf.bitwise.right_shift(bits, tf.constant(number, tf.uint64))


def _mapped(population: generated_words.GeneratedWords, name: str) -> tf.Tensor:
    """Returns a column of a law, mapped by the worker."""
    column = population.map(name)
    return tf.raw_ops.ImmutableConst(
        dtype=tf.dtypes.as_dtype(column.dtype),
        shape=column.shape,
        memory_region_name=population.column_path(name),
    )
