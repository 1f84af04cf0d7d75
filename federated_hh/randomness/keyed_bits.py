"""Random bits that only the holder of a key can tell from chance: SHAKE256, keyed.

NumPy's generators are made for speed: who sees enough of their output can find their
state, and with it all that follows. The noise of training comes from here instead; the
draws of TrieHH and LDP TrieHH, of which nobody sees the generator's output itself, come
from NumPy's and TensorFlow's, as their statements say. The stream of a key and a path
is SHAKE256 (FIPS 202) of their encoding, which as KMAC (NIST SP 800-185) is a
pseudo-random function of the path for a secret key. So the path may hold what is
private itself, such as a digest of the sums that noise is
added to: other sums then have independent noise.
"""

import hashlib

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

KEY_LIMIT = 2**128
# Tells these streams apart from any other use of SHAKE256.
_DOMAIN = b"federated simulation, keyed bits, version 1"
# SHAKE256 takes in blocks of this many bytes: a block of its own for the key.
_RATE = 136


class KeyedBits:
    """A stream of random bits, readable in blocks and in any order."""

    def __init__(self, key: int, *path: str | int | bytes):
        """Names a stream.

        Args:
            key: The secret, in [0, 2^128).
            *path: What the stream is for. Different paths, types included, have
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
