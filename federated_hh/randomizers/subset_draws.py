"""Uniform random subsets for many devices at once, drawn exactly.

Three things that would change the law in silence are kept out:

* *Modulo bias.* A word of 32 or 64 random bits is used only if it lies below the
  largest multiple of the number of items; then each item has as many words.
* *Ties of random keys.* There are no keys: items are drawn with replacement, and
  repeated ones are dropped or the whole row is drawn again.
* *Rejections that favour an outcome.* Whether a row is drawn again depends on which of
  its draws are equal to one another, and not on what they are: the condition is the
  same under any renaming of the items, so all subsets stay equally likely. The coin
  that says whether a device's own item is in its subset is tossed before, and kept.

So a subset is exactly uniform if the words of the generator are.
"""

import bisect
import dataclasses
import math

import tensorflow as tf

from federated_hh.randomizers import local_randomizer
from federated_hh.runtime import compiled

# Below this expected number of repeated draws it is cheaper to draw a row again.
_FEW_REPEATS = 0.5
# Rows to spare: how many standard deviations of the number of distinct draws.
_SPARE_DEVIATIONS = 3.0
# The expected unusable 32-bit words a row from which 64-bit ones are used.
_UNUSABLE_WORDS = 0.1


@dataclasses.dataclass(frozen=True)
class SubsetDraw:
    """Draws, for each device, a uniform subset of given size that has its item or not.

    Attributes:
        domain_size: The number of items, at least 2.
        subset_size: In [1, domain_size - 1].
    """

    domain_size: int
    subset_size: int

    def draw(self, items: tf.Tensor, included: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws the subsets.

        Args:
            items: int32, shape [rows].
            included: bool, shape [rows]: whether the subset has the row's item. The
                rest of the subset is uniform over the other items.
            seed: int32 or int64, shape [2].

        Returns:
            int32, shape [rows, subset_size]; each row ascending, so that the order
            says nothing.
        """
        left_out = self.domain_size - self.subset_size
        if left_out >= self.subset_size:
            return self._draw_rows(items, included, seed)
        # What a subset leaves out is such a subset as well, and the smaller one.
        complement = SubsetDraw(self.domain_size, left_out)
        rows = complement._draw_rows(items, tf.logical_not(included), seed)
        # The i-th item that is not in a row comes after i others, and after those of
        # the row that have at most i others before them.
        others_before = rows - tf.range(left_out)
        index = tf.range(self.subset_size)
        index = tf.broadcast_to(index, [tf.shape(rows)[0], self.subset_size])
        return index + tf.searchsorted(others_before, index, side="right")

    @property
    def draws_per_row(self) -> int:
        """The number of draws, with replacement, that give enough distinct items."""
        others, size = self.domain_size - 1, self.subset_size
        if size * (size - 1) / (2 * others) <= _FEW_REPEATS:
            return size
        high = 2 * size
        while not self._suffice(high):
            high *= 2
        tried = range(high // 2 + 1, high)
        return tried.start + bisect.bisect_left(tried, True, key=self._suffice)

    def _suffice(self, draws: int) -> bool:
        """Says whether so many draws nearly always have enough distinct items."""
        others = self.domain_size - 1
        never = math.exp(draws * math.log1p(-1 / others))
        never_two = math.exp(draws * math.log1p(-2 / others)) if others > 2 else 0.0
        mean = others * (1 - never)
        variance = others * (others - 1) * never_two + others * never
        variance -= (others * never) ** 2
        # The second is a bound that rounding does not spoil where items are many.
        deviation = math.sqrt(max(0.0, min(variance, draws - mean)))
        return mean - _SPARE_DEVIATIONS * deviation >= self.subset_size

    def _draw_rows(
        self, items: tf.Tensor, included: tf.Tensor, seed: tf.Tensor
    ) -> tf.Tensor:
        first_seed = local_randomizer.fold_in(seed, 0)
        attempt = compiled.compiled(self._attempt)
        rows, complete = attempt(items, included, first_seed)
        todo = tf.where(tf.logical_not(complete))

        def draw_again(attempt, todo, rows):
            again, complete = self._attempt(
                tf.gather_nd(items, todo),
                tf.gather_nd(included, todo),
                local_randomizer.fold_in(seed, attempt),
            )
            done = tf.boolean_mask(todo, complete)
            rows = tf.tensor_scatter_nd_update(
                rows, done, tf.boolean_mask(again, complete)
            )
            return attempt + 1, tf.boolean_mask(todo, tf.logical_not(complete)), rows

        _, _, rows = tf.while_loop(
            lambda attempt, todo, rows: tf.size(todo) > 0,
            draw_again,
            [tf.constant(1), todo, rows],
            shape_invariants=[
                tf.TensorShape([]),
                tf.TensorShape([None, 1]),
                rows.shape,
            ],
            parallel_iterations=1,
        )
        return rows

    def _attempt(
        self, items: tf.Tensor, included: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws each row once, and says which rows are complete."""
        draws, usable = self._draw_others(items, seed)
        # A draw's column says nothing about its value: the first may be given away.
        first = tf.where(included, items, draws[:, 0])
        draws = tf.concat([first[:, tf.newaxis], draws[:, 1:]], axis=1)
        if draws.shape[1] > self.subset_size:
            rows, enough = self._first_distinct(draws)
            return rows, tf.logical_and(usable, enough)
        rows = tf.sort(draws, axis=1)
        # TFF's graphs give `==` between tensors its old meaning, of objects.
        distinct = tf.reduce_all(tf.not_equal(rows[:, 1:], rows[:, :-1]), axis=1)
        return rows, tf.logical_and(usable, distinct)

    def _draw_others(
        self, items: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws with replacement from the items other than each row's own.

        Returns:
            int32, shape [rows, draws_per_row]; and whether all of a row's words were
            usable, bool, shape [rows].
        """
        others, columns = self.domain_size - 1, self.draws_per_row
        narrow = others * columns <= _UNUSABLE_WORDS * 2**32
        bits, dtype = (32, tf.uint32) if narrow else (64, tf.uint64)
        shape = [tf.size(items), columns]
        words = tf.random.stateless_uniform(
            shape, seed, minval=None, maxval=None, dtype=dtype, alg="philox"
        )
        largest = 2**bits - 2**bits % others - 1
        usable = tf.reduce_all(words <= tf.constant(largest, dtype), axis=1)
        draws = tf.cast(words % tf.constant(others, dtype), tf.int32)
        skip = tf.cast(draws >= items[:, tf.newaxis], tf.int32)
        return tf.ensure_shape(draws + skip, [None, columns]), usable

    def _first_distinct(self, draws: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Keeps the first `subset_size` distinct draws of each row.

        Returns:
            int32, shape [rows, subset_size], ascending; and whether there were enough.
        """
        columns = draws.shape[1]
        # The largest first; of equal ones the one drawn first comes first.
        values, column = tf.math.top_k(draws, k=columns)
        repeated = tf.equal(values[:, 1:], values[:, :-1])
        repeated = tf.pad(repeated, [[0, 0], [1, 0]])
        enough = tf.math.count_nonzero(~repeated, axis=1) >= self.subset_size
        # Columns of repeated draws go behind all others.
        order = tf.where(repeated, column + columns, column)
        _, first = tf.math.top_k(-order, k=self.subset_size)
        return tf.sort(tf.gather(values, first, batch_dims=1), axis=1), enough
