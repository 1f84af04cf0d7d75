"""The tables of docs/scaling.md."""

from collections.abc import Callable

import pandas as pd

from federated_hh.files import tables
from scripts.tables.table_text import RESULTS, table

_VOTES, _TRAINING = "TrieHH's votes", "training, exact sum"
_FOLDER = "benchmark_scale"
_OTHERS = ("in_process", "ray 1", "ray 2", "ray 4")


def _read(name: str, folder: str = _FOLDER) -> pd.DataFrame:
    return tables.read(RESULTS / folder / f"{name}.csv")


def _cost(rounds_of: str, *folders: str) -> list[str]:
    """Seconds of a round by clients: of one worker, and the others' against it."""
    found = pd.concat([_read("cost", folder) for folder in folders])
    found = found[found["rounds of"] == rounds_of]
    by_backend = {"index": "clients", "columns": "backend"}
    seconds = found.pivot(**by_backend, values="seconds_per_round")
    memory = found.pivot(**by_backend, values="peak_own_gib")
    rows = []
    for clients, row in seconds.iterrows():
        others = [
            f"{row[name]:.2f} s ({row[name] / row['worker']:.2f})"
            if name in row.dropna()
            else ""
            for name in _OTHERS
        ]
        worker = [f"{row['worker']:.2f} s", f"{memory.loc[clients, 'worker']:.2f} GiB"]
        rows.append([f"{clients:,}", *worker, *others])
    return table(["clients", "worker", "its memory", *_OTHERS], rows)


def memory() -> list[str]:
    """Memory of all processes after half of the rounds and after all."""
    found = _read("memory").pivot(
        index="backend", columns="after_rounds", values="own_gib"
    )
    rows = [
        [name, *(f"{found.loc[name, after]:.2f} GiB" for after in found.columns)]
        for name in ("worker", *_OTHERS)
    ]
    return table(["", *(f"after {after} rounds" for after in found.columns)], rows)


def projection() -> list[str]:
    """What larger rounds would take."""
    found = _read("projection")
    rows = []
    for _, of_cores in found.groupby("rounds of", sort=False):
        first = of_cores.iloc[0]
        seconds = [_duration(each) for each in of_cores["projected_seconds"]]
        a_client = f"{first['seconds_a_client'] * 1e6:,.1f} µs"
        rows.append([f"{first['rounds of']}, {first['clients']:,}", a_client, *seconds])
    cores = [f"on {each}" for each in dict.fromkeys(found["cores"])]
    return table(["a round of, clients", "a client", *cores], rows)


def _duration(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"


TABLES: dict[str, Callable[[], list[str]]] = {
    "scale_votes": lambda: _cost(_VOTES, _FOLDER),
    "scale_training": lambda: _cost(_TRAINING, _FOLDER, f"{_FOLDER}_training"),
    "scale_memory": memory,
    "scale_projection": projection,
}
