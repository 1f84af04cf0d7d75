"""The tables of docs/masked_sum.md."""

from collections.abc import Callable

from scripts.table_text import RESULTS, table
from simulation import tables
from simulation.masking import graph

_COHORTS = (100, 1000, 6500, 10**5, 10**6)
# Shares that drop out and that collude.
_SHARES = ((0.05, 0.05), (0.3, 0.05), (0.05, 0.33), (0.33, 0.33))


def masked_graphs() -> list[str]:
    """Neighbours and thresholds, by cohort and what is withstood."""
    rows = []
    for clients in _COHORTS:
        row = [f"{clients:,}"]
        for dropout, corrupt in _SHARES:
            found = graph.choose(graph.Needs.of_shares(clients, dropout, corrupt))
            row.append(f"{found.neighbours}, {found.threshold}")
        rows.append(row)
    shares = [
        f"{dropout:.0%} drop out, {corrupt:.0%} collude" for dropout, corrupt in _SHARES
    ]
    return table(["clients", *shares], rows)


def benchmark_secure_sum() -> list[str]:
    """What a masked sum costs."""
    found = tables.read(RESULTS / "benchmark_secure_sum" / "cost.csv")
    rows = [
        [
            f"{row['clients']:,}",
            f"{row['neighbours']:,}",
            f"{row['size']:,}, {row['bits']}",
            f"{row['client_cpu_seconds'] * 1e3:,.1f} ms",
            f"{row['server_cpu_seconds']:.2f} s",
            f"{row['cpu_seconds']:.1f} s",
            _size(row["bytes_up_per_client"]),
            _size(row["bytes_down_per_client"]),
        ]
        for row in found.to_dict("records")
    ]
    header = ["clients", "neighbours", "numbers, bits", "a client", "server"]
    return table([*header, "altogether", "up", "down"], rows)


def _size(num_bytes: float) -> str:
    """Returns how many bytes a client sends or gets."""
    if num_bytes < 1e6:
        return f"{num_bytes / 1e3:.1f} kB"
    return f"{num_bytes / 1e6:.2f} MB"


TABLES: dict[str, Callable[[], list[str]]] = {
    "masked_graphs": masked_graphs,
    "benchmark_secure_sum": benchmark_secure_sum,
}
