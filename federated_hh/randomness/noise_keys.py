"""The secret that a run's guarantee rests on: the key of its random numbers.

A guarantee holds against whoever does not know the random numbers behind it. So they do
not come from `--seed`, which is written and shown everywhere, but from a key of 128
bits. Where the data are real it comes from the operating system, and is kept in a file
that only the user can read; reports and records have its commitment (SHA-256), by which
a run that somebody repeats with the file can be told to be the same.
"""

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import secrets
from typing import Self

import numpy as np

from federated_hh.randomness import streams

_BITS = 128
_DIGITS = _BITS // 4


class NoiseKeyError(ValueError):
    """A file holds no noise key, or not the one that is expected."""


def derived(key: int, *path: str | int) -> int:
    """Returns the key of a part of what has a key, such as one of several repeats.

    Args:
        key: Nonnegative.
        *path: Which part; see `seeds.derive`.

    Returns:
        128 bits, in [0, 2^128).
    """
    words = streams.derive(key, *path).generate_state(2, np.uint64)
    return int(words[0]) << 64 | int(words[1])


@dataclasses.dataclass(frozen=True)
class NoiseKey:
    """A key.

    Attributes:
        value: In [0, 2^128): what `seeds.derive` takes. Not shown by `repr`.
        is_secret: False where it follows from the seed, as with synthetic data.
    """

    value: int = dataclasses.field(repr=False)
    is_secret: bool

    def __post_init__(self):
        if not 0 <= self.value < 2**_BITS:
            raise ValueError("value is out of range; it has to be in [0, 2^128).")

    @classmethod
    def fresh(cls) -> Self:
        """Returns a key from the operating system's random numbers."""
        return cls(secrets.randbits(_BITS), True)

    @classmethod
    def of_seed(cls, seed: int) -> Self:
        """Returns the key that follows from a seed, for data that belong to nobody."""
        return cls(derived(seed, "noise key"), False)

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, is_secret: bool = True) -> Self:
        """Reads the key that `write` wrote.

        Raises:
            NoiseKeyError: If there is none in the file.
        """
        try:
            path = pathlib.Path(path)
            if path.exists() and not path.is_file():  # a pipe would be waited for
                raise OSError("it is no regular file")
            text = path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise NoiseKeyError(
                f"{path}: the noise key cannot be read ({error}), and the run cannot "
                "continue without it. Restore it, or begin a new run"
            ) from error
        if len(text) != _DIGITS or set(text) - set("0123456789abcdef"):
            raise NoiseKeyError(
                f"{path} holds no noise key; it has to be {_DIGITS} hexadecimal digits"
            )
        return cls(int(text, 16), is_secret)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the key to a file that only the user can read (mode 0600).

        Its directory is made if it is not there (mode 0700).

        Raises:
            OSError: If it cannot be written.
        """
        path = pathlib.Path(path)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(partial, flags, 0o600), "w", encoding="ascii") as file:
            file.write(f"{self.value:0{_DIGITS}x}\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(partial, path)

    def to_bytes(self) -> bytes:
        """Returns the key as 16 bytes, big-endian."""
        return self.value.to_bytes(_BITS // 8, "big")

    @property
    def commitment(self) -> str:
        """SHA-256 of `to_bytes()`, in hexadecimal digits."""
        return hashlib.sha256(self.to_bytes()).hexdigest()
