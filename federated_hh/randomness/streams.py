"""Random streams: keyed bits, a seed's streams, and those of one round.

The streams of a round are a function of key, run, round and all sums so far. A seed's
stream is named by a path, such as ("cohort", repeat, round): two streams of one run
never share draws, and a resumed run finds each where an uninterrupted one has it.

NumPy's generators are made for speed: who sees enough of their output can find their
state, and with it all that follows. The noise of training comes from `KeyedBits`
instead; the draws of TrieHH and LDP TrieHH, of which nobody sees the generator's output
itself, come from NumPy's and TensorFlow's, as their statements say. The stream of a key
and a path is SHAKE256 (FIPS 202) of their encoding, which as KMAC (NIST SP 800-185) is
a pseudo-random function of the path for a secret key. So the path may hold what is
private itself, such as a digest of the sums that noise is added to: other sums then
have independent noise.
"""

import dataclasses
import hashlib

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

KEY_LIMIT = 2**128
# Tells these streams apart from any other use of SHAKE256.
_DOMAIN = b"federated simulation, keyed bits, version 1"
# SHAKE256 takes in blocks of this many bytes: a block of its own for the key.
_RATE = 136


class KeyedBits:
    """A keyed stream of random bits, readable in blocks and in any order.

    Only the holder of the key can tell them from chance.
    """

    def __init__(self, key: int, *path: str | int | bytes):
        """Names a stream.

        Args:
            key: The secret, in [0, 2^128).
            *path: Purpose of the stream. Different paths, types included, have
                independent streams.

        Raises:
            ValueError: If the key is out of range.
        """
        if not 0 <= key < KEY_LIMIT:
            raise ValueError("noise_key is out of range; it has to be in [0, 2^128).")
        secret = _DOMAIN + key.to_bytes(16, "little")
        self._start = hashlib.shake_256(secret.ljust(_RATE, b"\0"))
        for part in path:
            self._start.update(_encode(part))

    def words(self, block: int, size: int, purpose: str = "") -> np.ndarray:
        """Returns random words.

        Args:
            block: Number of the stream's block, at least 0.
            size: Number of bytes; a block's first ones do not depend on it.
            purpose: Tells apart several blocks of a number.

        Returns:
            uint32 [size], uniform and independent.
        """
        return np.frombuffer(self.bytes(block, 4 * size, purpose), "<u4")

    def bytes(self, block: int, size: int, purpose: str = "") -> bytes:
        """Returns random bytes; see `words`."""
        stream = self._start.copy()
        stream.update(_encode(purpose) + _encode(block))
        return stream.digest(size)

    def encrypted(self, numbers: np.ndarray) -> np.ndarray:
        """Encrypts numbers, or decrypts them again; for one array a stream.

        They are combined with AES-256 in counter mode, whose key is the stream's block
        0 of the purpose "cipher".

        Args:
            numbers: int64 [n].

        Returns:
            int64 [n]; encrypted again, they are `numbers`.
        """
        cipher = Cipher(
            algorithms.AES(self.bytes(0, 32, "cipher")), modes.CTR(bytes(16))
        )
        found = np.empty(len(numbers), np.int64)
        data = np.ascontiguousarray(numbers).data.cast("B")
        cipher.encryptor().update_into(data, found.data.cast("B"))
        return found


def _encode(part: str | int | bytes) -> bytes:
    """Returns a part of a path such that no two paths look alike."""
    if isinstance(part, str):
        kind, data = b"s", part.encode()
    elif isinstance(part, bytes):
        kind, data = b"b", part
    else:
        kind, data = b"i", str(int(part)).encode()
    return kind + len(data).to_bytes(8, "little") + data


def derive(seed: int, *path: str | int) -> np.random.SeedSequence:
    """Returns the seed sequence of one purpose.

    Args:
        seed: The run's seed, at least 0.
        *path: Purpose of the stream; words and nonnegative numbers.

    Raises:
        ValueError: If the seed or a number of the path is negative.
    """
    if seed < 0:
        raise ValueError(f"seed is {seed}; it has to be at least 0")
    key = []
    for part in path:
        if isinstance(part, str):
            digest = hashlib.sha256(part.encode()).digest()
            key.append(int.from_bytes(digest[:8], "little"))
        elif part >= 0:
            key.append(int(part))
        else:
            raise ValueError(f"{part} in the path {path} is negative")
    return np.random.SeedSequence(seed, spawn_key=_words(key))


def _words(numbers: list[int]) -> tuple[int, ...]:
    """Writes each number as the count of its 32-bit words, and the words.

    Without the counts two paths could look the same to `SeedSequence`.
    """
    words = []
    for number in numbers:
        parts: list[int] = []
        while number or not parts:
            number, low = divmod(number, 2**32)
            parts.append(low)
        words += [len(parts), *parts]
    return tuple(words)


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """Returns NumPy's generator for one purpose; see `derive`."""
    return np.random.default_rng(derive(seed, *path))


def stateless_seed(seed: int, *path: str | int) -> np.ndarray:
    """Returns a seed for TensorFlow's stateless operations.

    Args:
        seed: Seed, as in `derive`.
        *path: See `derive`.

    Returns:
        An int32 array of shape [2], 64 random bits.
    """
    return derive(seed, *path).generate_state(2, np.uint32).view(np.int32)


HISTORY_BYTES = 32


@dataclasses.dataclass(frozen=True)
class Stream:
    """A source of random numbers for one purpose.

    Draws depend on the key, the path and the history. Where a run is computed again
    with other sums, its history differs, and so does everything that is drawn from then
    on: with the same noise over other sums, the difference of two runs would have none.

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
        """Returns NumPy's seed sequence; see `derive`."""
        return derive(self.key, *self._whole(path))

    def generator(self, *path: str | int) -> np.random.Generator:
        """Returns NumPy's generator."""
        return np.random.default_rng(self.seed_sequence(*path))

    def stateless_seed(self, *path: str | int) -> np.ndarray:
        """Returns a seed for TensorFlow's stateless operations: int32 [2]."""
        return stateless_seed(self.key, *self._whole(path))

    def bits(self, *path: str | int | bytes) -> KeyedBits:
        """Returns bits that only the holder of the key can tell from chance."""
        return KeyedBits(self.key, *self.path, self.history, *path)

    def _whole(self, path: tuple[str | int, ...]) -> tuple[str | int, ...]:
        return (*self.path, "history", int.from_bytes(self.history, "big"), *path)
