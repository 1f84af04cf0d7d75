"""Client side: a population's columns in the worker's memory.

They are mapped from their files, so a block of devices carries no words, only which
devices it holds.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from federated_hh.populations.columns import client_words


@dataclasses.dataclass(frozen=True)
class MappedColumns:
    """The columns of a population, as the worker reads them.

    Attributes:
        population: The population, whose files have to stay where they are.
    """

    population: client_words.ClientWords

    def favorites(self) -> tf.Tensor:
        """Returns each client's most frequent word: int32, shape [clients]."""
        return self._column("favorites", self.population.favorites)

    def row_splits(self) -> tf.Tensor:
        """Returns the start of each client's entries: int64, shape [clients + 1]."""
        return self._column("row_splits", self.population.row_splits)

    def entries(self) -> tf.Tensor:
        """Returns words with their counts, packed: int32 or int64, shape [entries].

        There has to be one: what is mapped cannot be empty.
        """
        return self._column("entries", self.population.entries)

    def entries_of(self, clients: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the entries of some clients, one client after the other.

        Args:
            clients: int64, shape [block]: indices into the population, which has to
                have an entry.

        Returns:
            The entries: shape [entries of the block]. Where each client's begin, and
            the last one's end: int64, shape [block + 1].
        """
        splits = self.row_splits()
        places = tf.ragged.range(
            tf.gather(splits, clients), tf.gather(splits, clients + 1)
        )
        return tf.gather(self.entries(), places.values), places.row_splits

    def word_ids(self, entries: tf.Tensor) -> tf.Tensor:
        """Returns the words of entries: int32, of the same shape."""
        bits = tf.constant(self.population.packing.count_bits, entries.dtype)
        return tf.cast(tf.bitwise.right_shift(entries, bits), tf.int32)

    def counts(self, entries: tf.Tensor) -> tf.Tensor:
        """Returns the counts of entries' words: int64, likewise."""
        mask = tf.constant(self.population.packing.max_count, entries.dtype)
        return tf.cast(tf.bitwise.bitwise_and(entries, mask), tf.int64)

    def _column(self, name: str, values: np.ndarray) -> tf.Tensor:
        return tf.raw_ops.ImmutableConst(
            dtype=tf.dtypes.as_dtype(values.dtype),
            shape=values.shape,
            memory_region_name=self.population.column_path(name),
        )
