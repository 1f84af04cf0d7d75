"""Shamir's secret sharing of 32-byte secrets, for all of a client's neighbours at once.

A secret is 16 numbers of 16 bits, each shared by its own polynomial over the integers
modulo p = 65537. This fits every secret of 256 bits; the field of its own curve would
not fit every X25519 key. The values of all polynomials at all points are one product of
matrices, exact in float64.
"""

import functools
from collections.abc import Sequence

import numpy as np

from federated_hh.randomness import streams

PRIME = 65537
SECRET_BYTES = 32
_NUMBERS = SECRET_BYTES // 2
# A value is 16 bits; flags for 65536, which has 17, follow after all values.
SHARE_BYTES = SECRET_BYTES + _NUMBERS // 8
_LAST_WORD = 2**32 - 1


def share(
    secrets: Sequence[bytes],
    num_shares: int,
    threshold: int,
    bits: streams.KeyedBits,
) -> list[list[bytes]]:
    """Shares secrets.

    Args:
        secrets: 32 bytes each.
        num_shares: Number of shares, at least `threshold`, below p.
        threshold: Number of shares that open a secret; fewer say nothing of it.
        bits: Random bits for the polynomials.

    Returns:
        Of each secret the shares, of 34 bytes, at the points 1, 2, and so on.
    """
    width = _NUMBERS * len(secrets)
    coefficients = np.empty((threshold, width))
    coefficients[0] = np.frombuffer(b"".join(secrets), "<u2")
    coefficients[1:] = _uniform((threshold - 1) * width, bits).reshape(-1, width)
    # Below 2^34 times the threshold: float64 has all integers up to 2^53.
    values = np.mod(_powers(num_shares, threshold) @ coefficients, PRIME)
    values = values.astype(np.int64).reshape(num_shares, len(secrets), _NUMBERS)
    return [_encode(values[:, number]) for number in range(len(secrets))]


def reconstruct(points: tuple[int, ...], shares: Sequence[bytes]) -> bytes:
    """Opens a secret.

    Args:
        points: Points of the shares: as many as the threshold, distinct.
        shares: From there, in this order.

    Raises:
        ValueError: If they are shares of no secret of 32 bytes.
    """
    rows = np.frombuffer(b"".join(shares), np.uint8).reshape(len(shares), SHARE_BYTES)
    values = np.ascontiguousarray(rows[:, :SECRET_BYTES]).view("<u2").astype(np.int64)
    values += np.unpackbits(rows[:, SECRET_BYTES:], axis=1).astype(np.int64) << 16
    secret = (_weights(points) @ values) % PRIME
    if secret.max() == PRIME - 1:
        raise ValueError("the shares do not belong together: they open no secret")
    return secret.astype("<u2").tobytes()


def _encode(values: np.ndarray) -> list[bytes]:
    largest = np.packbits(values == PRIME - 1, axis=1)
    rows = np.concatenate([values.astype("<u2").view(np.uint8), largest], axis=1)
    return [row.tobytes() for row in rows]


def _uniform(size: int, bits: streams.KeyedBits) -> np.ndarray:
    """Returns uniform numbers modulo p."""
    block = 0
    words = bits.words(block, size, "polynomials")
    # 2^32 - 1 is a multiple of p: one word of 2^32 is too many.
    while np.any(words == _LAST_WORD):
        block += 1
        words = bits.words(block, size, "polynomials")
    return words % PRIME


@functools.lru_cache(maxsize=16)
def _powers(num_points: int, count: int) -> np.ndarray:
    """Returns the powers of 1, 2, and so on modulo p: float64 [points, count]."""
    points = np.arange(1, num_points + 1)
    powers = np.ones((num_points, count), np.int64)
    for exponent in range(1, count):
        powers[:, exponent] = powers[:, exponent - 1] * points % PRIME
    return powers.astype(np.float64)


@functools.lru_cache(maxsize=4096)
def _weights(points: tuple[int, ...]) -> np.ndarray:
    """Returns the shares' weights in the value at 0: int64 [points]."""
    x = np.array(points, np.int64)
    above, below = np.ones_like(x), np.ones_like(x)
    for number, point in enumerate(points):
        others = np.arange(len(points)) != number
        above[others] = above[others] * point % PRIME
        below[others] = below[others] * ((point - x[others]) % PRIME) % PRIME
    inverse = np.array([pow(int(value), -1, PRIME) for value in below], np.int64)
    return above * inverse % PRIME
