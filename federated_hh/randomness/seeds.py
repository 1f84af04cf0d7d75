"""Random streams that are a function of a run's seed and of what they are for.

A stream is named by a path, such as ("cohort", repeat, round): two streams of one run
never share draws, and a resumed run finds each where an uninterrupted one has it.
"""

import hashlib

import numpy as np


def derive(seed: int, *path: str | int) -> np.random.SeedSequence:
    """Returns the seed sequence of one purpose.

    Args:
        seed: The run's seed, at least 0.
        *path: What the stream is for; words and numbers at least 0.

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
