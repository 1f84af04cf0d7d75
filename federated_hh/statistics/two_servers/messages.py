"""A client's messages to a server, in bytes: shares of its report and of the proof.

A message is words of 64 bits, little end first: two words of the report's identifier, a
header, and values modulo p. The header is the batch; for a report also the minimum
cohort and the number of cells.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

IDENTIFIER_BYTES = 16
_IDENTIFIER_WORDS = IDENTIFIER_BYTES // 8


@dataclasses.dataclass(frozen=True)
class Parsed:
    """Messages that have the right length.

    Attributes:
        identifiers: Identifiers of the reports.
        headers: uint64 [messages, header words].
        values: uint64 [messages, values].
        malformed: Number of messages of another length.
    """

    identifiers: list[bytes]
    headers: np.ndarray
    values: np.ndarray
    malformed: int


def encode(
    identifiers: np.ndarray, header: Sequence[int], values: np.ndarray
) -> list[bytes]:
    """Returns a message for each report.

    Args:
        identifiers: uint64 [reports, 2].
        header: Words that all messages have.
        values: uint64 [reports, values]: shares for one server.
    """
    start = _IDENTIFIER_WORDS + len(header)
    words = np.empty((len(values), start + values.shape[1]), "<u8")
    words[:, :_IDENTIFIER_WORDS] = identifiers
    words[:, _IDENTIFIER_WORDS:start] = header
    words[:, start:] = values
    return [row.tobytes() for row in words]


def parse(messages: list[bytes], header_words: int, num_values: int) -> Parsed:
    """Parses messages.

    Args:
        messages: Messages of any length.
        header_words: Number of words of a header.
        num_values: Number of values of a message.
    """
    start = _IDENTIFIER_WORDS + header_words
    width = start + num_values
    right = [message for message in messages if len(message) == 8 * width]
    words = np.frombuffer(b"".join(right), "<u8").reshape(len(right), width)
    return Parsed(
        split_identifiers(words[:, :_IDENTIFIER_WORDS].tobytes()),
        words[:, _IDENTIFIER_WORDS:start],
        words[:, start:],
        len(messages) - len(right),
    )


def split_identifiers(data: bytes) -> list[bytes]:
    """Returns the identifiers that stand one behind the other."""
    size = IDENTIFIER_BYTES
    return [data[first : first + size] for first in range(0, len(data), size)]
