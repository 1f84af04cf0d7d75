"""The guarantee of the production setting of Sun et al. 2024, Section 4.1."""

import pandas as pd

from federated_hh.files import tables
from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters.ldp_triehh import parameters as ldp_triehh_parameters
from federated_hh.heavy_hitters.ldp_triehh import privacy as ldp_triehh_privacy
from federated_hh.privacy import guarantee, rounding
from federated_hh.privacy import statement as statement_lib
from studies.sun_2024 import coverage_study

# Of the central guarantees, and of the approximate k-anonymity.
_DELTA = 1e-10
_ALPHA = 0.95


def guarantees(
    parameters: ldp_triehh_parameters.LdpTrieHHParameters,
    alphabet: alphabet_lib.Alphabet,
    levels: pd.DataFrame,
) -> dict[str, bytes]:
    """Returns the guarantees of the production setting, and the paper's.

    Args:
        parameters: The parameters of the production setting.
        alphabet: The alphabet of its words.
        levels: A row a level of each repeat; see `CoverageStudy.run_part`.

    Returns:
        Files by name: a table, and a page with it and the statement.
    """
    statement = coverage_study.realised_statement(parameters, levels, _DELTA)
    anonymity, text = ldp_triehh_privacy.anonymity_of(
        parameters, alphabet, levels, _ALPHA
    )
    rows = [_guarantee_row(found, parameters.epsilon) for found in statement.guarantees]
    rows += [
        {
            "guarantee": f"approximate k-anonymity, alpha {_ALPHA:g}: {found.name}",
            "here": "none" if pd.isna(found.k) else f"k = {int(found.k)}",
            "paper": "k = 45 by Lemma 1",
        }
        for found in anonymity.itertuples()
    ]
    lines = [
        "### Guarantees of the production setting",
        "",
        "| guarantee | here | paper |",
        "|---|---|---|",
        *[f"| {' | '.join(row.values())} |" for row in rows],
        "",
        text,
        "",
        *statement.to_markdown().splitlines()[2:],
    ]
    table = pd.DataFrame(rows).replace("", None)
    return {
        "guarantees.csv": tables.write(table).encode(),
        "privacy.md": ("\n".join(lines) + "\n").encode(),
    }


def _guarantee_row(
    found: statement_lib.Guarantee, local_epsilon: float
) -> dict[str, str]:
    paper = ""
    if found.unit is guarantee.Unit.ITEM:
        if found.delta == 0 and found.epsilon == local_epsilon:
            paper = "epsilon 10"
        if found.bound.startswith("clones"):
            paper = "epsilon 0.315 (same bound, from a coarser computation)"
    epsilon, estimate = f"{found.epsilon:.4g}", " (no proved upper bound)"
    if found.is_upper_bound:
        epsilon, estimate = rounding.rounded_up_to(found.epsilon, 4), ""
    return {
        "guarantee": f"{found.unit.value} level: {found.bound}"
        + ("; of one repeat" if found.of_one_repeat else ""),
        "here": f"epsilon {epsilon}, delta {found.delta:.3g}{estimate}",
        "paper": paper,
    }
