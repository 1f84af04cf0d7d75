"""The tables of docs/masked_sum.md."""

from collections.abc import Callable

from scripts.table_text import table
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


TABLES: dict[str, Callable[[], list[str]]] = {
    "masked_graphs": masked_graphs,
}
