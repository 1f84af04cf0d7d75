"""The messages of a block of clients to the two servers."""

import hashlib
from typing import TypeAlias

import numpy as np

from federated_hh.randomness import streams
from federated_hh.statistics.two_servers import messages, proof, server

# Messages for server 0 and for server 1, one a report.
Uploads: TypeAlias = tuple[list[bytes], list[bytes]]


class ClientBlock:
    """The reports of a block of clients, on their way to two servers.

    A client draws the numbers that hide its report, sends each server one share, and,
    when both have it, a share of a proof for the challenge that they then drew.
    """

    def __init__(
        self,
        bit_proof: proof.BitProof,
        reports: np.ndarray,
        *,
        batch: int,
        minimum_cohort: int,
        stream: streams.Stream,
    ):
        """Draws the clients' random numbers.

        Args:
            bit_proof: For the reports.
            reports: bool [reports, cells].
            batch: Batch of the messages.
            minimum_cohort: Minimum cohort of the reports.
            stream: The stream of this block and no other.
        """
        self._proof, self._batch = bit_proof, batch
        self._minimum_cohort = minimum_cohort
        # So that other reports are hidden by other numbers, whatever the stream.
        self._of_reports = hashlib.sha256(np.packbits(reports).tobytes()).digest()
        self._stream = stream
        number = len(reports)
        names = self._bits("identifiers").bytes(0, messages.IDENTIFIER_BYTES * number)
        self._names = np.frombuffer(names, "<u8").reshape(number, 2)
        blinds = bit_proof.field.random(self._bits("blinds"), number, bit_proof.wires)
        self._tables = bit_proof.table(reports, blinds)

    def shares(self) -> Uploads:
        """Returns each server's shares of the reports."""
        tables = self._tables.reshape(len(self._tables), self._proof.table_size)
        header = (self._batch, self._minimum_cohort, self._proof.num_cells)
        first, second = (
            messages.encode(self._names, header, part)
            for part in self._split(tables, "shares of reports")
        )
        return first, second

    def proofs(self, challenge: bytes) -> Uploads:
        """Returns each server's shares of the proofs.

        Args:
            challenge: Challenge that the servers drew when they had the shares.
        """
        gammas = server.gammas_of(self._proof, challenge)
        proofs = self._proof.prove(self._tables, gammas)
        purpose = f"shares of proofs for {challenge.hex()}"
        first, second = (
            messages.encode(self._names, (self._batch,), part)
            for part in self._split(proofs, purpose)
        )
        return first, second

    def _split(self, values: np.ndarray, purpose: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns two shares, each of them uniform, that add up to values."""
        field = self._proof.field
        second = field.random(self._bits(purpose), *values.shape)
        return field.subtract(values, second), second

    def _bits(self, purpose: str) -> streams.KeyedBits:
        return self._stream.bits(purpose, self._of_reports)
