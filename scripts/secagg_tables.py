"""The tables of docs/secure_aggregation.md, from results/."""

from scripts.table_text import RESULTS, summary, table
from simulation import tables


def bits() -> list[str]:
    """What secure aggregation takes of the paper's model and report goal."""
    found = tables.read(RESULTS / "xu_secagg" / "bits.csv")
    header = ["q", "C_inflated / C", "factor of rho", "C_inf", "log2 of M", "bits, k"]
    return table(
        [*header, "MB a client", "s for C = 0.3"],
        [
            [
                f"{row['ratio']:g}",
                f"{row['norm_factor']:.5f}",
                f"{row['rho_factor']:.4f}",
                f"{row['largest_coordinate']:,}",
                f"{row['log2_modulus']:.2f}",
                f"{row['bits']}",
                f"{row['upload_bytes'] / 1e6:.1f}",
                f"{row['scale']:,.0f}",
            ]
            for row in found.to_dict("records")
        ],
    )


def tradeoff() -> list[str]:
    """What runs of several scales came to."""
    header = ["s", "bits", "kB a client", "C_inflated / C", "zCDP", "loss"]
    return table(
        [*header, "one suggestion"],
        [
            [
                "exact sums" if row["setting"] == "exact" else f"{row['scale']:,.0f}",
                f"{row['bits']}",
                f"{row['upload_bytes'] / 1e3:,.0f}",
                f"{row['norm_factor']:.4f}",
                f"{row['rho']:.3f}",
                f"{row['loss']:.3f}",
                f"{row['one_suggestion']:.1%}",
            ]
            for row in summary("xu_secagg")
        ],
    )


def encoding() -> list[str]:
    """What encoding and decoding take."""
    parts = {
        "client": "a client's encoding",
        "rotation": "of that, the Hadamard product",
        "server": "the server's decoding of a round",
    }
    found = tables.read(RESULTS / "benchmark_encoding" / "cost.csv")
    return table(
        ["processor milliseconds", "bits", "least", "mean"],
        [
            [
                f"{row['encoding']}: {parts[row['part']]}",
                f"{row['bits']}",
                f"{row['least_milliseconds']:.0f}",
                f"{row['mean_milliseconds']:.0f}",
            ]
            for row in found.to_dict("records")
        ],
    )
