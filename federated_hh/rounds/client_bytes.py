"""The bytes that a client downloads and uploads in a round.

Counted are the contents of a deployment's messages: the question with all that a client
needs for it, and the answer in the form that its aggregation takes. Not counted are
transport, encryption, compression, the application itself and a round's few numbers,
such as its level. Words and prefixes are lines of UTF-8.
"""

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # most algorithms have no local reports
    from federated_hh.privacy.local import reports as local_reports


@dataclasses.dataclass(frozen=True)
class ClientBytes:
    """The bytes of one client in one round.

    Attributes:
        download: Bytes that the client receives.
        upload: Bytes that the client sends. The mean over the cohort, if clients send
            messages of different sizes.
    """

    download: int
    upload: int

    def metrics(self) -> dict[str, int]:
        """Returns the two numbers as metrics."""
        return {"download_bytes": self.download, "upload_bytes": self.upload}


def of_words(words: Iterable[str]) -> int:
    """Returns the bytes of words, one a line."""
    return sum(len(word.encode()) + 1 for word in words)


def of_bits(bits: int) -> int:
    """Returns the fewest bytes that hold so many bits."""
    return -(-bits // 8)


def of_vector(size: int, largest: int, num_clients: int) -> int:
    """Returns the bytes of a client's vector in a secure sum.

    Its numbers are modulo the smallest power of two that holds the sum of all clients.
    A protocol's own messages, such as keys and shares, come on top.

    Args:
        size: Numbers of the vector.
        largest: The most that one of them is, at least 1; none is below 0.
        num_clients: Clients of the sum, at least 1.
    """
    return of_bits(size * (largest * num_clients).bit_length())


def of_reports(
    reports: "local_reports.LdpTrieHHReports | local_reports.OneReport",
    candidates: int,
    num_clients: int,
) -> int:
    """Returns the bytes of a client's local reports.

    A secure sum takes a vector over the candidates, whatever the randomizer. Without
    one, a client sends its reports as the randomizer writes them.

    Args:
        reports: The plan's reports.
        candidates: Items of the round, "no item" not counted.
        num_clients: Clients of the round.
    """
    if reports.aggregation == "secure_sum":
        return of_vector(candidates, reports.bound, num_clients)
    return of_single_reports(reports, candidates)


def of_single_reports(
    reports: "local_reports.LdpTrieHHReports | local_reports.OneReport",
    candidates: int,
) -> int:
    """Returns the bytes of a client's local reports where no secure sum takes them.

    Args:
        reports: The plan's reports.
        candidates: Items of the round, "no item" not counted.
    """
    made = reports.made(candidates)
    bits = candidates.bit_length() if made is None else made.bits_per_report
    return of_bits(reports.bound * bits)
