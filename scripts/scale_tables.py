"""The tables of docs/scaling.md."""

from collections.abc import Callable

from scripts.table_text import RESULTS, table
from simulation import tables

_FOLDER = RESULTS / "benchmark_scale"
_WORKER = "worker"


def benchmark_scale() -> list[str]:
    """Seconds of a round by what computes it, beside those of one worker."""
    found = tables.read(_FOLDER / "cost.csv")
    keys = ["rounds of", "clients"]
    backends = list(dict.fromkeys(found["backend"]))
    seconds = found.pivot(index=keys, columns="backend", values="seconds_per_round")
    memory = found.pivot(index=keys, columns="backend", values="peak_own_gib")
    rows = []
    for place in dict.fromkeys(map(tuple, found[keys].to_numpy().tolist())):
        alone = seconds.loc[place, _WORKER]
        cells = [f"{alone:.3g} s, {memory.loc[place, _WORKER]:.2f} GiB"]
        for backend in backends:
            if backend != _WORKER:
                cells.append(f"× {seconds.loc[place, backend] / alone:.2f}")
        rows.append([place[0], f"{place[1]:,}", *cells])
    others = [name.replace("_", " ") for name in backends if name != _WORKER]
    return table(["a round of", "clients", "one worker", *others], rows)


def benchmark_scale_memory() -> list[str]:
    """The memory of all processes as rounds go by."""
    found = tables.read(_FOLDER / "memory.csv")
    grown = found.pivot(index="backend", columns="after_rounds", values="own_gib")
    rows = [
        [name.replace("_", " "), *(f"{value:.2f} GiB" for value in grown.loc[name])]
        for name in dict.fromkeys(found["backend"])
    ]
    return table(["", *(f"after {rounds} rounds" for rounds in grown)], rows)


def benchmark_scale_projection() -> list[str]:
    """What a round would cost on more cores, by the line through what was measured."""
    found = tables.read(_FOLDER / "projection.csv")
    rows = [
        [
            row["rounds of"],
            f"{row['clients']:,}",
            f"{row['cores']:,}",
            f"{row['fixed_seconds']:.2g} s",
            f"{row['seconds_a_client'] * 1e6:,.3g} µs",
            f"{row['projected_seconds']:,.3g} s",
        ]
        for row in found.to_dict("records")
    ]
    header = ["a round of", "clients", "cores", "fixed", "a client", "the round"]
    return table(header, rows)


TABLES: dict[str, Callable[[], list[str]]] = {
    "benchmark_scale": benchmark_scale,
    "benchmark_scale_memory": benchmark_scale_memory,
    "benchmark_scale_projection": benchmark_scale_projection,
}
