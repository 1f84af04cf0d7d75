"""Random streams of one round: a function of key, run, round and all sums so far."""

import dataclasses

import numpy as np

from federated_hh.randomness import keyed_bits, seeds

HISTORY_BYTES = 32


@dataclasses.dataclass(frozen=True)
class Stream:
    """A source of random numbers for one purpose.

    What is drawn depends on the key, the path and the history. Where a run is
    computed again with other sums, its history differs, and so does everything that
    is drawn from then on: with the same noise over other sums, the difference of two
    runs would have none.

    Attributes:
        key: A secret in [0, 2^128), or a public seed. Not shown by `repr`.
        path: Purpose of the stream.
        history: A digest of the sums that the run had until then; may be empty.
    """

    key: int = dataclasses.field(repr=False)
    path: tuple[str | int, ...] = ()
    history: bytes = b""

    def at(self, *path: str | int) -> "Stream":
        """Returns the stream of a part of this purpose."""
        return dataclasses.replace(self, path=(*self.path, *path))

    def of(self, history: bytes) -> "Stream":
        """Returns the stream of the same purpose after another history."""
        return dataclasses.replace(self, history=history)

    def seed_sequence(self, *path: str | int) -> np.random.SeedSequence:
        """Returns NumPy's seed sequence; see `seeds.derive`."""
        return seeds.derive(self.key, *self._whole(path))

    def generator(self, *path: str | int) -> np.random.Generator:
        """Returns NumPy's generator."""
        return np.random.default_rng(self.seed_sequence(*path))

    def stateless_seed(self, *path: str | int) -> np.ndarray:
        """Returns a seed for TensorFlow's stateless operations: int32 [2]."""
        return seeds.stateless_seed(self.key, *self._whole(path))

    def bits(self, *path: str | int | bytes) -> keyed_bits.KeyedBits:
        """Returns bits that only the holder of the key can tell from chance."""
        return keyed_bits.KeyedBits(self.key, *self.path, self.history, *path)

    def _whole(self, path: tuple[str | int, ...]) -> tuple[str | int, ...]:
        return (*self.path, "history", int.from_bytes(self.history, "big"), *path)
