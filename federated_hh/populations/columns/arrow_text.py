"""Moves text between Arrow and Python.

Arrow's own functions import pandas first, which costs a quarter of a second and 40 MB.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def strings(column: pa.StringArray | pa.LargeStringArray) -> list[str]:
    """Returns the values of a column of text.

    Args:
        column: Without missing values.

    Raises:
        UnicodeDecodeError: If a value is not UTF-8.
        ValueError: If a value is missing.
    """
    if column.null_count:
        raise ValueError(f"{column.null_count} values are missing.")
    if not len(column):
        return []
    _, offsets, data = column.buffers()
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    ends = np.frombuffer(offsets, width)[column.offset :][: len(column) + 1]
    joined = bytes(data[ends[0] : ends[-1]]) if data else b""
    places = (ends - ends[0]).tolist()
    if joined.isascii():
        text = joined.decode("ascii")
        return [text[start:end] for start, end in itertools.pairwise(places)]
    return [joined[start:end].decode() for start, end in itertools.pairwise(places)]


def column(values: Sequence[str] | pa.Array) -> pa.LargeStringArray:
    """Returns texts as a column; one of other text is converted.

    Raises:
        UnicodeEncodeError: If a value has a lone surrogate.
    """
    if isinstance(values, pa.Array):
        return values.cast(pa.large_string())
    joined = "".join(values)
    if joined.isascii():
        lengths, data = list(map(len, values)), joined.encode("ascii")
    else:
        encoded = list(map(str.encode, values))
        lengths, data = list(map(len, encoded)), b"".join(encoded)
    ends = np.zeros(len(values) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    return pa.LargeStringArray.from_buffers(
        len(values), pa.py_buffer(ends), pa.py_buffer(data)
    )
