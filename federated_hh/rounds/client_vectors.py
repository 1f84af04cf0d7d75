"""A client's contribution as one vector of integers, and their sum unpacked."""

import collections
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from federated_hh.runtime import runtime


class Layout:
    """The positions of each sum's numbers in a client's vector.

    Attributes:
        size: Numbers of a vector.
    """

    def __init__(self, result: tff.Type, largest: Mapping[str, int]):
        """Reads a TFF type.

        Args:
            result: Type of the client work's result: tensors or lists of tensors, by
                name, with known shapes.
            largest: For each, a client's largest contribution to a number.

        Raises:
            ValueError: If a shape is not known, or numbers are no integers.
        """
        self._largest = dict(largest)
        self._types = {name: getattr(result, name) for name in largest}
        self._sizes = {
            name: sum(math.prod(part.shape) for part in self._tensors(name))
            for name in largest
        }
        self.size = sum(self._sizes.values())

    def vector(self, sent: Mapping[str, Any]) -> np.ndarray:
        """Returns a client's contribution as a vector: uint64 [size].

        Raises:
            SecureSumError: If a number is below 0 or above its bound.
        """
        parts = []
        for name, most in self._largest.items():
            arrays = tf.nest.flatten(sent[name])
            part = np.concatenate([np.asarray(array).reshape(-1) for array in arrays])
            if part.min() < 0 or part.max() > most:
                raise runtime.SecureSumError(
                    f"masked sum: contributions to {name} are from {part.min()} to "
                    f"{part.max()}; they have to be in [0, {most}]"
                )
            parts.append(part)
        return np.concatenate(parts).astype(np.uint64)

    def sums(self, total: np.ndarray) -> collections.OrderedDict[str, Any]:
        """Returns the sums by name, as the work returns a client's.

        Args:
            total: uint64 [size], below 2^63.
        """
        found, first = collections.OrderedDict(), 0
        for name in self._largest:
            arrays = []
            for part in self._tensors(name):
                size = math.prod(part.shape)
                numbers = total[first : first + size].astype(part.dtype)
                arrays.append(numbers.reshape(part.shape))
                first += size
            is_list = isinstance(self._types[name], tff.StructType)
            found[name] = arrays if is_list else arrays[0]
        return found

    def _tensors(self, name: str) -> list[tff.TensorType]:
        """Returns the types of a sum's tensors, in order."""
        kind = self._types[name]
        parts = list(kind) if isinstance(kind, tff.StructType) else [kind]
        for part in parts:
            if None in part.shape or part.dtype != np.int64:
                raise ValueError(
                    f"{name} is {part}; it has to be int64 of a known shape to be "
                    "masked"
                )
        return parts
