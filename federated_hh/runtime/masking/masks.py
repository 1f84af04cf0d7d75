"""Key agreement, and masks that are expanded from a key: primitives of `cryptography`.

X25519 for agreement, HKDF with SHA-256 for keys, AES-128 in counter mode for masks.
"""

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import x25519
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from federated_hh.options import checks

KEY_BYTES = 16
# Every key masks one vector of one round, so that all counters begin at 0.
_COUNTER = modes.CTR(bytes(16))
# A part of a mask at a time, which stays in the processor's cache.
_PART_BYTES = 1 << 17
_ZEROS = bytes(_PART_BYTES)


def dtype_of(bits: int) -> np.dtype:
    """Returns the integers that vectors modulo 2^bits are computed in.

    Raises:
        ValueError: If `bits` is not in 1..64.
    """
    checks.integer(bits=bits, least=1, most=64)
    return np.dtype("<u4" if bits <= 32 else "<u8")


def derived_key(secret: bytes, purpose: bytes) -> bytes:
    """Returns a key of 16 bytes of a secret, for a purpose."""
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=purpose).derive(secret)


def agreed_secret(private: x25519.X25519PrivateKey, public: bytes) -> bytes:
    """Returns the common secret of two parties, computed from one's private key.

    Args:
        private: One party's private key.
        public: The other's public key, 32 bytes.
    """
    return private.exchange(x25519.X25519PublicKey.from_public_bytes(public))


def add_mask(total: np.ndarray, key: bytes, *, subtract: bool = False) -> None:
    """Adds or subtracts a key's mask, modulo the integers' own size.

    Args:
        total: uint32 or uint64 [n], little-endian; is changed.
        key: 16 bytes.
        subtract: Whether to subtract it.
    """
    encryptor = Cipher(algorithms.AES(key), _COUNTER).encryptor()
    part = np.empty(min(_PART_BYTES, total.nbytes), np.uint8)
    size = _PART_BYTES // total.itemsize
    for first in range(0, len(total), size):
        piece = total[first : first + size]
        mask = part[: piece.nbytes]
        encryptor.update_into(_ZEROS[: piece.nbytes], mask.data)
        if subtract:
            piece -= mask.view(total.dtype)
        else:
            piece += mask.view(total.dtype)


def packed(vector: np.ndarray, bits: int) -> bytes:
    """Returns a vector modulo 2^bits, each number in as few whole bytes as hold it."""
    reduced = vector & vector.dtype.type((1 << bits) - 1)
    rows = reduced.view(np.uint8).reshape(-1, vector.itemsize)
    return rows[:, : bytes_of(bits)].tobytes()


def unpacked(contents: bytes, bits: int) -> np.ndarray:
    """Returns the vector that `packed` was of."""
    dtype, width = dtype_of(bits), bytes_of(bits)
    numbers = np.frombuffer(contents, np.uint8).reshape(-1, width)
    if width == dtype.itemsize:
        return numbers.reshape(-1).view(dtype)
    rows = np.zeros((len(numbers), dtype.itemsize), np.uint8)
    rows[:, :width] = numbers
    return rows.reshape(-1).view(dtype)


def bytes_of(bits: int) -> int:
    """Returns the number of bytes of a number modulo 2^bits."""
    return -(-bits // 8)
