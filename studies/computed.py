"""Studies that are computed at once: settings as data, rows of each, and a page."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from federated_hh.files import tables
from federated_hh.run_directory import directory as run_directory
from studies import study

Rows = Mapping[str, list[dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Setting:
    """A row of a table, or a line of a plot.

    Attributes:
        name: Name in tables, and of the setting's part of the run directory.
        values: The values for which its rows are computed.
    """

    name: str
    values: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class ComputedStudy:
    """A study whose rows follow from its settings; a `study.Study`.

    Attributes:
        title: The title of its page.
        settings: Its settings.
        compute: Given a setting's values, returns its rows by table.
        show: Given the tables by name, with their settings, returns files by name.
    """

    title: str
    settings: Sequence[Setting]
    compute: Callable[..., Rows]
    show: Callable[[dict[str, pd.DataFrame]], Mapping[str, bytes]]
    num_repeats: int = 1
    data: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def run_part(
        self, setting: Setting, repeat: int, part: run_directory.RunDirectory
    ) -> Rows:
        """Computes a setting; see `study.Study`."""
        del repeat, part
        return self.compute(*setting.values)

    def files(
        self, tables_: study.Tables, directory: pathlib.Path
    ) -> Mapping[str, bytes]:
        """Returns the files of results by name; see `study.Study`."""
        del directory
        return self.show({n: t.drop(columns="repeat") for n, t in tables_.items()})


def prepares(
    title: str,
    settings: Sequence[Setting],
    compute: Callable[..., Rows],
    show: Callable[[Any, dict[str, pd.DataFrame]], Mapping[str, bytes]],
) -> Callable[..., ComputedStudy]:
    """Returns the function `prepare` of a study's module.

    Args:
        title: See `ComputedStudy`.
        settings: See `ComputedStudy`.
        compute: Given options, seed and a setting's values, returns its rows by table.
        show: Given options and the tables by name, returns files by name.
    """

    def prepare(
        name: str, options: Any, *, seed: int, cache: str | os.PathLike[str]
    ) -> ComputedStudy:
        del name, cache
        return ComputedStudy(
            title,
            settings,
            functools.partial(compute, options, seed),
            functools.partial(show, options),
        )

    return prepare


def csv(table: pd.DataFrame, digits: int | None = None) -> bytes:
    """Returns a table as a CSV file, without its settings."""
    shown = table.drop(columns="setting", errors="ignore")
    return tables.write(shown, significant_digits=digits).encode()


def powers_of_ten(first: int, decades: int, per_decade: int) -> tuple[int, ...]:
    """Returns sizes in equal ratios.

    Args:
        first: The first size.
        decades: Number of powers of ten from the first to the last.
        per_decade: Sizes from each to the next.
    """
    sizes = np.geomspace(first, first * 10**decades, decades * per_decade + 1)
    return tuple(sizes.round().astype(int).tolist())
