"""A client's messages to a server, in bytes: shares of its report and of the proof.

A message is words of 64 bits, little end first: two words of the report's identifier,
the batch; for a report also the minimum cohort and the number of cells; then values
modulo p.
"""

import dataclasses

import numpy as np

IDENTIFIER_BYTES = 16
_IDENTIFIER_WORDS = IDENTIFIER_BYTES // 8
_BATCH, _MINIMUM, _CELLS = 2, 3, 4
_SHARE_HEADER, _PROOF_HEADER = 5, 3


@dataclasses.dataclass(frozen=True)
class Parsed:
    """Messages that have the right length.

    Attributes:
        identifiers: The identifiers of the reports.
        batches: uint64 [messages].
        minima: uint64 [messages]; None of proofs.
        cells: uint64 [messages]; None of proofs.
        values: uint64 [messages, values].
        malformed: Number of the others.
    """

    identifiers: list[bytes]
    batches: np.ndarray
    minima: np.ndarray | None
    cells: np.ndarray | None
    values: np.ndarray
    malformed: int


def encode_shares(
    identifiers: np.ndarray,
    batch: int,
    minimum_cohort: int,
    num_cells: int,
    values: np.ndarray,
) -> list[bytes]:
    """Returns a message for each report.

    Args:
        identifiers: uint64 [reports, 2].
        batch: Batch of the messages.
        minimum_cohort: Minimum cohort of the reports.
        num_cells: The number of cells of each.
        values: uint64 [reports, values]: shares for one server.
    """
    words = np.empty((len(values), _SHARE_HEADER + values.shape[1]), "<u8")
    words[:, :_IDENTIFIER_WORDS] = identifiers
    words[:, _BATCH], words[:, _MINIMUM], words[:, _CELLS] = (
        batch,
        minimum_cohort,
        num_cells,
    )
    words[:, _SHARE_HEADER:] = values
    return [row.tobytes() for row in words]


def encode_proofs(
    identifiers: np.ndarray, batch: int, values: np.ndarray
) -> list[bytes]:
    """Returns a message for each report's proof; see `encode_shares`."""
    words = np.empty((len(values), _PROOF_HEADER + values.shape[1]), "<u8")
    words[:, :_IDENTIFIER_WORDS] = identifiers
    words[:, _BATCH] = batch
    words[:, _PROOF_HEADER:] = values
    return [row.tobytes() for row in words]


def parse_shares(messages: list[bytes], num_values: int) -> Parsed:
    """Parses messages of so many values."""
    words = _words(messages, _SHARE_HEADER + num_values)
    return Parsed(
        _identifiers(words),
        words[:, _BATCH],
        words[:, _MINIMUM],
        words[:, _CELLS],
        words[:, _SHARE_HEADER:],
        len(messages) - len(words),
    )


def parse_proofs(messages: list[bytes], num_values: int) -> Parsed:
    """Parses messages of so many values."""
    words = _words(messages, _PROOF_HEADER + num_values)
    return Parsed(
        _identifiers(words),
        words[:, _BATCH],
        None,
        None,
        words[:, _PROOF_HEADER:],
        len(messages) - len(words),
    )


def _words(messages: list[bytes], width: int) -> np.ndarray:
    size = 8 * width
    right = [message for message in messages if len(message) == size]
    return np.frombuffer(b"".join(right), "<u8").reshape(len(right), width)


def _identifiers(words: np.ndarray) -> list[bytes]:
    data = words[:, :_IDENTIFIER_WORDS].tobytes()
    return split_identifiers(data)


def split_identifiers(data: bytes) -> list[bytes]:
    """Returns the identifiers that stand one behind the other."""
    size = IDENTIFIER_BYTES
    return [data[first : first + size] for first in range(0, len(data), size)]
