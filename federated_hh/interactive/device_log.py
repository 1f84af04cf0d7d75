"""What a device can show its owner: every query, what became of it, and what left."""

import contextlib
import sqlite3
from collections.abc import Iterable

import numpy as np
import pandas as pd

from federated_hh.interactive import recipe as recipe_lib

ANSWERED = "answered"
_COLUMNS = (
    "device",
    "recipe",
    "query",
    "outcome",
    "reason",
    "local_epsilon",
    "aggregate_epsilon",
    "minimum_cohort",
    "report",
)


class DeviceLog(contextlib.AbstractContextManager):
    """The logs of a block of devices, in the order of what happened."""

    def __init__(self, path: str = ":memory:"):
        """Opens what is on file, or begins."""
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute(
            "create table if not exists log (number integer primary key, "
            "device integer not null, recipe text, query text, outcome text not null, "
            "reason text, local_epsilon real, aggregate_epsilon real, "
            "minimum_cohort integer, report text)"
        )
        self._database.execute("create index if not exists devices on log (device)")

    def refused(self, device: int, recipe: recipe_lib.Recipe, reason: str) -> None:
        """Writes down that a device refused a query, and why."""
        self._add(device, recipe, "refused", reason, None)

    def answered(
        self, device: int, recipe: recipe_lib.Recipe, report: np.ndarray
    ) -> None:
        """Writes down the bits that a device sends: bool [cells], as hexadecimals."""
        bits = np.packbits(report).tobytes().hex()
        self._add(device, recipe, ANSWERED, "", bits)

    def answered_before(self, device: int, recipe: recipe_lib.Recipe) -> None:
        """Writes down an answer that was given before a simulation was interrupted."""
        self._add(device, recipe, ANSWERED, "in a simulation that was interrupted", "")

    def of(self, device: int) -> pd.DataFrame:
        """Returns a device's log, a row a query."""
        rows = self._database.execute(
            f"select {', '.join(_COLUMNS)} from log where device = ? order by number",
            (device,),
        )
        return pd.DataFrame(rows.fetchall(), columns=[*_COLUMNS])

    def forget(self, devices: Iterable[int]) -> None:
        """Takes devices back to the beginning: of another simulated repeat."""
        self._database.executemany(
            "delete from log where device = ?", ((device,) for device in devices)
        )

    def _add(self, device, recipe, outcome: str, reason: str, report) -> None:
        self._database.execute(
            f"insert into log ({', '.join(_COLUMNS)}) "
            "values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                device,
                recipe.identifier,
                recipe.query,
                outcome,
                reason,
                recipe.local_epsilon,
                recipe.aggregate_epsilon,
                recipe.minimum_cohort,
                report,
            ),
        )

    def __exit__(self, *exception) -> None:
        self._database.close()
