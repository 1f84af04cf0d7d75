"""The tables of what benchmarks measured, from results/."""

from collections.abc import Callable
from typing import Any

from federated_hh.files import tables
from scripts.tables.table_text import RESULTS, of_rows, rows, table

_WAYS = {
    "read": "reading a pair and its candidate",
    "merge": "and merging words with one prefix",
    "random": "the random sampler, counting included",
    "greedy": "the greedy sampler, counting included",
    "read, in NumPy": "reading a pair and its candidate, in NumPy on one core",
}
_ENCODING = {
    "client": "a client's encoding",
    "rotation": "of that, the Hadamard product",
    "server": "the server's decoding of a round",
}


def _seconds(value: float) -> str:
    """Returns a time with two significant digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= 0.1 * size or unit == "µs":
            return f"{float(f'{value / size:.2g}'):g} {unit}"
    raise AssertionError("the last unit takes all")


def _size(num_bytes: float) -> str:
    """Returns how many bytes a client sends or gets."""
    if num_bytes < 1e6:
        return f"{num_bytes / 1e3:.1f} kB"
    return f"{num_bytes / 1e6:.2f} MB"


def _randomizers(epsilon: float, domain_size: int) -> list[str]:
    """Returns the error and the cost of each local randomizer."""

    def guarantee(row: Any) -> str:
        found = f"replacement {row['replacement_epsilon']:g}"
        if row["randomizer"] == "symmetric one-hot":
            return f"{found} = deletion {row['replacement_epsilon'] / 2:g}"
        is_deletion = row["randomizer"].endswith(", deletion")
        return f"deletion {epsilon:g} = {found}" if is_deletion else found

    found = [
        row
        for row in rows("randomizers/side_by_side")
        if (row["epsilon"], row["domain_size"]) == (epsilon, domain_size)
    ]
    reports = int(found[0]["reports"])
    count = "10⁶" if reports == 10**6 else f"{reports / 1e7:g}·10⁷"
    return of_rows(
        found,
        {
            f"at epsilon = {epsilon:g}, {domain_size:,} items, {count} reports": (
                lambda row: (
                    row["randomizer"]
                    .replace("k-ary response", "k-ary randomized response")
                    .removesuffix(", deletion")
                )
            ),
            "guarantee": guarantee,
            "bits a report": "{bits_per_report:,}",
            "error (devices)": "{error:,.0f}",
            "sum of all reports": lambda row: _seconds(row["sum_cpu_seconds"]),
            "one report": _one_report,
        },
    )


def _one_report(row: Any) -> str:
    return _seconds(row["cpu_microseconds_per_report"] / 1e6)


def _selection() -> list[str]:
    """Returns what a pair of client and word costs in TFF's worker, step by step."""
    found = {row["way"]: row for row in rows("benchmark_selection/cost")}
    alone = found["nothing"]["wall_seconds"]

    def wall(row: Any) -> str:
        seconds = row["wall_seconds"] - ("NumPy" not in row["way"]) * alone
        return f"{1e9 * seconds / row['pairs']:.0f} ns"

    return of_rows(
        [found[way] for way in _WAYS],
        {
            "a pair of client and word": lambda row: _WAYS[row["way"]],
            "processor time": "{nanoseconds_a_pair:.0f} ns",
            "of all turns": "{nanoseconds_a_pair_least:.0f} to "
            "{nanoseconds_a_pair_most:.0f} ns",
            "time": wall,
        },
    )


def _training() -> list[str]:
    """Returns what a client's training costs in several ways."""
    found = tables.read(RESULTS / "benchmark_training" / "clients.csv")
    cost = found.groupby(
        ["workload", "way"], sort=False
    ).cpu_seconds_per_client.median()
    names = found["workload"].unique()
    shown = [
        [way, *[_seconds(cost[name, way]) for name in names]]
        for way in found["way"].unique()
    ]
    return table(["processor time a client", *names], shown)


TABLES: dict[str, Callable[[], list[str]]] = {
    "randomizers_thousand": lambda: _randomizers(4, 1001),
    "randomizers_million": lambda: _randomizers(10, 1_000_001),
    "benchmark_selection": _selection,
    "benchmark_training": _training,
    "benchmark_reading": lambda: of_rows(
        rows("benchmark_reading/cost"),
        {
            "": "{way}",
            "processor seconds": "{cpu_seconds:.1f} s",
            "of plain Python's, turn by turn": "{of_plain_python:.2f} "
            "({of_plain_python_least:.2f} to {of_plain_python_most:.2f})",
            "peak memory": "{peak_megabytes:.0f} MB",
        },
    ),
    "benchmark_population": lambda: of_rows(
        rows("benchmark_population/cost"),
        {
            "clients with": "{clients}",
            "distinct words": "{distinct_words_a_client:.0f}",
            "a client": "{microseconds_a_client:.0f} µs",
            "habits to it, turn by turn": "{habits_to_it:.2f} "
            "({habits_to_it_least:.2f} to {habits_to_it_most:.2f})",
        },
    ),
    "benchmark_sfp": lambda: of_rows(
        rows("benchmark_sfp/cost"),
        {
            "clients": "{clients:,.0f}",
            "ours, all": "{ours_cpu_seconds:.1f} s",
            "loop: reports": "{loop_reports_seconds_of_all:,.1f} s",
            "loop: decode": "{loop_decode_seconds_of_all:,.0f} s",
        },
    ),
    "benchmark_secure_sum": lambda: of_rows(
        rows("benchmark_secure_sum/cost"),
        {
            "clients": "{clients:,}",
            "neighbours": "{neighbours:,}",
            "numbers, bits": "{size:,}, {bits}",
            "a client": lambda row: f"{row['client_cpu_seconds'] * 1e3:,.1f} ms",
            "server": "{server_cpu_seconds:.2f} s",
            "altogether": "{cpu_seconds:.1f} s",
            "up": lambda row: _size(row["bytes_up_per_client"]),
            "down": lambda row: _size(row["bytes_down_per_client"]),
        },
    ),
    "benchmark_two_servers": lambda: of_rows(
        rows("benchmark_two_servers/cost"),
        {
            "reports": "{reports:,} of {cells:,} cells",
            "clients": "{clients_cpu_seconds:.1f} s",
            "server 0": "{server_0_cpu_seconds:.1f} s",
            "server 1": "{server_1_cpu_seconds:.1f} s",
            "altogether": "{cpu_seconds:.1f} s",
            "one report": _one_report,
            "values of share and proof": "{values_of_a_share:,} and "
            "{values_of_a_proof}",
            "refused": "{refused}",
        },
    ),
    "secagg_bits": lambda: of_rows(
        rows("xu_secagg/bits"),
        {
            "q": "{ratio:g}",
            "C_inflated / C": "{norm_factor:.5f}",
            "factor of rho": "{rho_factor:.4f}",
            "C_inf": "{largest_coordinate:,}",
            "log2 of M": "{log2_modulus:.2f}",
            "bits, k": "{bits}",
            "MB a client": lambda row: f"{row['upload_bytes'] / 1e6:.1f}",
            "s for C = 0.3": "{scale:,.0f}",
        },
    ),
    "secagg_tradeoff": lambda: of_rows(
        rows("xu_secagg/summary"),
        {
            "s": lambda row: (
                "exact sums" if row["setting"] == "exact" else f"{row['scale']:,.0f}"
            ),
            "bits": "{bits}",
            "kB a client": lambda row: f"{row['upload_bytes'] / 1e3:,.0f}",
            "C_inflated / C": "{norm_factor:.4f}",
            "zCDP": "{rho:.3f}",
            "loss": "{loss:.3f}",
            "one suggestion": "{one_suggestion:.1%}",
        },
    ),
    "secagg_encoding": lambda: of_rows(
        rows("benchmark_encoding/cost"),
        {
            "processor milliseconds": lambda row: (
                f"{row['encoding']}: {_ENCODING[row['part']]}"
            ),
            "bits": "{bits}",
            "least": "{least_milliseconds:.0f}",
            "mean": "{mean_milliseconds:.0f}",
        },
    ),
}
