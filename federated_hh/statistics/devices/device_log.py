"""A device's log for its owner: every query, its outcome, and the data that left."""

import contextlib
import hashlib
import sqlite3
from collections.abc import Iterable

import numpy as np
import pandas as pd

from federated_hh.statistics.recipes import recipe as recipe_lib

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
# Cells of a report that is kept whole: 16 kB a device.
_MOST_SHOWN = 2**16


class DeviceLog(contextlib.AbstractContextManager):
    """The logs of a block of devices, in the order of events."""

    def __init__(self, path: str = ":memory:"):
        """Opens the database, or makes it."""
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute(
            "create table if not exists log (number integer primary key, "
            "device integer not null, recipe text, query text, outcome text not null, "
            "reason text, local_epsilon real, aggregate_epsilon real, "
            "minimum_cohort integer, report text)"
        )
        self._database.execute("create index if not exists devices on log (device)")

    def refused(
        self, reasons: Iterable[tuple[int, str]], recipe: recipe_lib.Recipe
    ) -> None:
        """Writes down that devices refused a query, each with its reason."""
        self._add(
            recipe, "refused", ((device, reason, None) for device, reason in reasons)
        )

    def answered(
        self, devices: Iterable[int], recipe: recipe_lib.Recipe, reports: np.ndarray
    ) -> None:
        """Writes down the bits that devices send: bool [devices, cells].

        They are shown as hexadecimals; reports of very many cells by their SHA-256.
        """
        packed = np.packbits(reports, axis=1)
        is_long = reports.shape[1] > _MOST_SHOWN
        self._add(
            recipe,
            ANSWERED,
            (
                (device, "", _shown(bits.tobytes(), is_long))
                for device, bits in zip(devices, packed, strict=True)
            ),
        )

    def answered_before(
        self, devices: Iterable[int], recipe: recipe_lib.Recipe
    ) -> None:
        """Writes down answers that were given before a simulation was interrupted."""
        reason = "in a simulation that was interrupted"
        self._add(recipe, ANSWERED, ((device, reason, "") for device in devices))

    def of(self, device: int) -> pd.DataFrame:
        """Returns a device's log, a row a query."""
        rows = self._database.execute(
            f"select {', '.join(_COLUMNS)} from log where device = ? order by number",
            (device,),
        )
        return pd.DataFrame(rows.fetchall(), columns=[*_COLUMNS])

    def forget(self, devices: Iterable[int]) -> None:
        """Deletes devices' logs for another simulated repeat."""
        self._database.executemany(
            "delete from log where device = ?", ((device,) for device in devices)
        )

    def _add(
        self,
        recipe: recipe_lib.Recipe,
        outcome: str,
        entries: Iterable[tuple[int, str, str | None]],
    ) -> None:
        """Adds entries of a device, a reason and a report, in one transaction."""
        asked = (recipe.identifier, recipe.query, outcome)
        epsilons = (recipe.local_epsilon, recipe.aggregate_epsilon)
        self._database.execute("begin")
        with self._database:
            self._database.executemany(
                f"insert into log ({', '.join(_COLUMNS)}) "
                f"values ({', '.join('?' * len(_COLUMNS))})",
                (
                    (device, *asked, reason, *epsilons, recipe.minimum_cohort, report)
                    for device, reason, report in entries
                ),
            )

    def __exit__(self, *exception) -> None:
        self._database.close()


def _shown(packed: bytes, is_long: bool) -> str:
    return "SHA-256 " + hashlib.sha256(packed).hexdigest() if is_long else packed.hex()
