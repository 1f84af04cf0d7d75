"""All devices of a simulation, as an analyst's query reaches them."""

import abc
import contextlib
from typing import Any

import numpy as np

from federated_hh.privacy.local.device_reports_plan import Batch
from federated_hh.randomness import identities, streams
from federated_hh.rounds import client_bytes
from federated_hh.statistics.devices import aggregation, budget, device, device_log
from federated_hh.statistics.recipes import (
    device_table,
    events,
    store,
    verification,
)
from federated_hh.statistics.recipes import recipe as recipe_lib

# Bits of reports that are in memory at once.
_BITS_AT_ONCE = 2**24
# Devices that are charged in one transaction.
_DEVICES_AT_ONCE = 2**14


class Fleet(abc.ABC):
    """Devices that take part in one analysis.

    A resumed simulation may ask a round again. So each query comes with all earlier
    recipes, and the fleet returns to that state if it is in another.
    """

    def __init__(self, num_devices: int):
        self._num_devices = num_devices
        # What every device was asked so far; None where they differ.
        self._asked: tuple[str, ...] | None = ()

    def ask(
        self,
        recipe: recipe_lib.Recipe,
        cohort: np.ndarray,
        earlier: tuple[str, ...],
        stream: streams.Stream,
    ) -> Batch:
        """Returns the aggregation of a query's reports.

        Args:
            recipe: The query's.
            cohort: int64 [devices], ascending: devices asked.
            earlier: The recipes that all of these were asked before, as JSON.
            stream: The stream of the round.
        """
        if self._asked is None or self._asked != earlier:
            self._forget(cohort)
            for text in earlier:
                self._charge(recipe_lib.Recipe.parse(text), cohort)
        is_everybody = len(cohort) == self._num_devices
        self._asked = (*earlier, recipe.to_json()) if is_everybody else None
        chances = stream.generator("which row").random(len(cohort))
        return self._ask(recipe, cohort, chances, stream)

    def worker(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the context that queries are asked in: by default none."""
        return contextlib.nullcontext()

    def client_bytes(
        self, recipe: recipe_lib.Recipe, num_devices: int
    ) -> client_bytes.ClientBytes:
        """Returns the bytes of a device's report, after `ask`; see `Aggregator`."""
        return aggregation.bytes_in_secure_sum(recipe.content.num_cells, num_devices)

    @abc.abstractmethod
    def _forget(self, cohort: np.ndarray) -> None:
        """Resets devices for another repeat."""

    @abc.abstractmethod
    def _charge(self, recipe: recipe_lib.Recipe, cohort: np.ndarray) -> None:
        """Charges devices, and logs their answers, as when they were first asked."""

    @abc.abstractmethod
    def _ask(self, recipe, cohort, chances, stream) -> Batch:
        """Returns the outcome of a query; `chances` are float64 [devices]."""


@identities.identity("DeviceFleet")
class DeviceFleet(Fleet):
    """Devices each with a store, a sandbox, an accountant and a log of its own.

    Attributes:
        devices: The devices.
    """

    def __init__(
        self,
        approval: device.Approval,
        stored: events.NGramEvents | device_table.DeviceTable,
        aggregator: aggregation.Aggregator,
    ):
        """Gives every device its events.

        Args:
            approval: Approval that ships with each device.
            stored: Their events.
            aggregator: Aggregator of the reports.
        """
        super().__init__(stored.num_devices)
        self._approval = approval
        self._aggregator = aggregator
        self._now = stored.now
        events_store = store.EventStore([stored.stream])
        events_store.donate(stored.stream.name, stored.rows())
        events_store.expire(self._now)
        self.devices = device.Devices(
            approval,
            events_store,
            verification.Sandbox(approval.query_class),
            budget.Accountant(approval.policy),
            device_log.DeviceLog(),
        )

    def worker(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the aggregator's context."""
        return self._aggregator.worker()

    def client_bytes(
        self, recipe: recipe_lib.Recipe, num_devices: int
    ) -> client_bytes.ClientBytes:
        """Returns the bytes of a device's report, after `ask`; see `Aggregator`."""
        cells = recipe.content.num_cells
        return self._aggregator.client_bytes(cells, num_devices)

    def _forget(self, cohort: np.ndarray) -> None:
        self.devices.accountant.forget(cohort.tolist())
        self.devices.log.forget(cohort.tolist())

    def _charge(self, recipe: recipe_lib.Recipe, cohort: np.ndarray) -> None:
        for first in range(0, len(cohort), _DEVICES_AT_ONCE):
            block = cohort[first : first + _DEVICES_AT_ONCE]
            admitted = self.devices.admitted(block.tolist(), recipe)
            self.devices.log.answered_before(block[admitted].tolist(), recipe)

    def _ask(self, recipe, cohort, chances, stream) -> Batch:
        num_cells = recipe.content.num_cells
        self._aggregator.begin(
            num_cells, recipe.minimum_cohort, stream.at("aggregation")
        )
        size = min(max(1, _BITS_AT_ONCE // num_cells), _DEVICES_AT_ONCE)
        for first in range(0, len(cohort), size):
            block = slice(first, first + size)
            admitted = self.devices.admitted(cohort[block].tolist(), recipe)
            numbers = cohort[block][admitted].tolist()
            if not numbers:
                continue
            cells = [
                self.devices.true_cell(number, recipe, self._now, chance)
                for number, chance in zip(
                    numbers, chances[block][admitted].tolist(), strict=True
                )
            ]
            seed = stream.stateless_seed("reports", first)
            # A recipe that is admitted has a local epsilon that the policy allows.
            randomizer = device.randomizer_of(self._approval.policy, recipe)
            reports = randomizer.randomize(np.array(cells, np.int32), seed).numpy()
            self.devices.log.answered(numbers, recipe, reports)
            self._aggregator.add(reports, recipe.minimum_cohort)
        return self._aggregator.close()
