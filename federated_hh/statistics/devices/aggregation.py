"""The aggregation of reports (McMillan et al. 2022, section 4.4.1).

An aggregator shows nothing of a report but as part of a sum, and the sum of no batch
that is smaller than the minimum that travelled with its reports.
"""

import abc
import contextlib
import functools
from typing import Any

import numpy as np
import tensorflow_federated as tff

from federated_hh.privacy.local.device_reports_plan import Batch
from federated_hh.randomness import streams
from federated_hh.rounds import client_bytes

# Taken out of TFF's way, as in federated_hh.rounds.block_round.
from federated_hh.runtime import runtime


class Aggregator(abc.ABC):
    """Adds up the reports of one query at a time.

    Attributes:
        name: In statements.
    """

    name: str

    def worker(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the context that it works in: by default none."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def begin(
        self, num_cells: int, minimum_cohort: int, stream: streams.Stream
    ) -> None:
        """Begins a batch, and deletes the rest of the last one.

        Args:
            num_cells: The number of cells of each report.
            minimum_cohort: The fewest reports that are released.
            stream: Source of random numbers, if any.
        """

    @abc.abstractmethod
    def add(self, reports: np.ndarray, minimum_cohort: int) -> None:
        """Receives reports.

        Args:
            reports: bool [reports, cells].
            minimum_cohort: Minimum cohort of their devices.
        """

    @abc.abstractmethod
    def close(self) -> Batch:
        """Ends the batch, and returns its sum, if it may be released."""

    def client_bytes(
        self, num_cells: int, num_devices: int
    ) -> client_bytes.ClientBytes:
        """Returns the bytes of a device's report, after `close`, without the recipe.

        Args:
            num_cells: Number of cells of a report.
            num_devices: The most devices of the batch.
        """
        return bytes_in_secure_sum(num_cells, num_devices)


def bytes_in_secure_sum(num_cells: int, num_devices: int) -> client_bytes.ClientBytes:
    """Returns the bytes of a report in a secure sum; see `Aggregator.client_bytes`."""
    vector = client_bytes.of_vector(num_cells, 1, num_devices)
    return client_bytes.ClientBytes(0, vector)


class SecureSum(Aggregator):
    """TFF's secure sum, over clients that are blocks of devices."""

    name = "secure_sum"

    def __init__(self):
        self._delete(1, 0)

    def worker(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the chosen engine's worker."""
        return runtime.computing()

    def begin(
        self, num_cells: int, minimum_cohort: int, stream: streams.Stream
    ) -> None:
        """Begins a batch; see `Aggregator`."""
        del stream
        self._delete(num_cells, minimum_cohort)

    def _delete(self, num_cells: int, minimum_cohort: int) -> None:
        self._num_cells, self._minimum_cohort = num_cells, minimum_cohort
        self._sums: list[np.ndarray] = []
        self._largest = self._reports = 0

    def add(self, reports: np.ndarray, minimum_cohort: int) -> None:
        """Receives reports; see `Aggregator`."""
        if reports.shape[1:] != (self._num_cells,):
            raise ValueError(
                f"reports has the shape {reports.shape}; it has to be [reports, "
                f"{self._num_cells}]"
            )
        self._sums.append(np.count_nonzero(reports, axis=0).astype(np.int64))
        self._largest = max(self._largest, len(reports))
        self._reports += len(reports)
        self._minimum_cohort = max(self._minimum_cohort, minimum_cohort)

    def close(self) -> Batch:
        """Returns the sum, where there are enough reports."""
        counts = None
        if self._reports and self._reports >= self._minimum_cohort:
            # A power of two, so that few computations are compiled.
            most = 1 << (self._largest - 1).bit_length()
            counts = np.asarray(_secure_sum(self._num_cells, most)(self._sums))
        batch = Batch(counts, self._reports, self._minimum_cohort)
        self._delete(1, 0)
        return batch


@functools.lru_cache(maxsize=8)
def _secure_sum(num_cells: int, largest: int):
    sums_type = tff.TensorType(np.int64, [num_cells])

    @tff.federated_computation(tff.FederatedType(sums_type, tff.CLIENTS))
    def total(sums):
        return tff.federated_secure_sum(sums, np.int64(largest))

    return total
