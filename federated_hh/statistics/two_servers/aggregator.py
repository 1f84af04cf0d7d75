"""Two non-colluding servers as an aggregator of reports."""

import contextlib
import itertools
from typing import Any

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy.local.device_reports_plan import Batch, CheckedBatch
from federated_hh.randomness import streams
from federated_hh.rounds import client_bytes
from federated_hh.statistics.devices import aggregation
from federated_hh.statistics.two_servers import client, field, pair, proof, server

# Values of the shares that a block of clients sends a server.
_VALUES_AT_ONCE = 2**21


class TwoServers(aggregation.Aggregator):
    """Clients that share reports between two servers, and the sum of their two sums."""

    name = "two_servers"

    def __init__(self, servers: pair.Pair | None = None, *, drop_out: float = 0.0):
        """Begins without a batch.

        Args:
            servers: The two; by default processes, which run within `worker`.
            drop_out: The share of the clients that are gone after their first message,
                in [0, 1).
        """
        checks.holds(0 <= drop_out < 1, "in [0, 1)", drop_out=drop_out)
        self._servers = pair.ProcessPair() if servers is None else servers
        self._drop_out = drop_out
        self._batches = 0

    def worker(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the servers' processes, as a context."""
        if isinstance(self._servers, pair.ProcessPair):
            return self._servers
        return contextlib.nullcontext()

    def begin(
        self, num_cells: int, minimum_cohort: int, stream: streams.Stream
    ) -> None:
        """Begins a batch; see `Aggregator`."""
        self._number, self._batches = self._batches, self._batches + 1
        self._minimum_cohort = minimum_cohort
        self._stream = stream
        self._proof = proof.BitProof(num_cells, field.Field())
        self._blocks = self._sent = self._bytes_up = self._bytes_down = 0
        keys = (stream.bits("server", i, self._number).bytes(0, 16) for i in range(2))
        first, second = (
            server.Terms(
                self._number, num_cells, minimum_cohort, int.from_bytes(key, "little")
            )
            for key in keys
        )
        self._servers.step("open", first, second)

    def add(self, reports: np.ndarray, minimum_cohort: int) -> None:
        """Receives reports; see `Aggregator`."""
        if reports.shape[1:] != (self._proof.num_cells,):
            raise ValueError(
                f"reports has the shape {reports.shape}; it has to be [reports, "
                f"{self._proof.num_cells}]"
            )
        size = max(1, _VALUES_AT_ONCE // self._proof.table_size)
        for first in range(0, len(reports), size):
            self._add_block(reports[first : first + size], minimum_cohort)

    def _add_block(self, reports: np.ndarray, minimum_cohort: int) -> None:
        stream = self._stream.at("block", self._blocks)
        self._blocks, self._sent = self._blocks + 1, self._sent + len(reports)
        block = client.ClientBlock(
            self._proof,
            reports,
            batch=self._number,
            minimum_cohort=minimum_cohort,
            # By the batch too: a round that is asked again is no replay.
            stream=stream.at("clients", self._number),
        )
        chances = stream.generator("who drops out").random(len(reports))
        stays = (chances >= self._drop_out).tolist()
        first, second = block.shares()
        second = [*itertools.compress(second, stays)]
        self._bytes_up += sum(map(len, first)) + sum(map(len, second))
        challenge = self._servers.step("shares", first, second)[0].challenge
        assert challenge is not None
        self._bytes_down += sum(stays) * len(challenge)
        first, second = block.proofs(challenge)
        first, second = ([*itertools.compress(part, stays)] for part in (first, second))
        self._bytes_up += sum(map(len, first)) + sum(map(len, second))
        self._servers.step("proofs", first, second)

    def client_bytes(
        self, num_cells: int, num_devices: int
    ) -> client_bytes.ClientBytes:
        """Returns the mean bytes of the devices that answered; see `Aggregator`."""
        del num_cells, num_devices  # the messages are counted
        sent = max(1, self._sent)
        down, up = (round(n / sent) for n in (self._bytes_down, self._bytes_up))
        return client_bytes.ClientBytes(down, up)

    def close(self) -> Batch:
        """Returns the sum, where there are enough reports and the servers agree."""
        first, second = self._servers.step("close")
        counts = None
        if first.sum_share is not None and second.sum_share is not None:
            total = self._proof.field.add(first.sum_share, second.sum_share)
            counts = total.astype(np.int64)
        return CheckedBatch(
            counts,
            first.accepted,
            self._minimum_cohort,
            self._sent - first.accepted,
        )
