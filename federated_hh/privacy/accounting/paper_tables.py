"""Every privacy number of the four papers, beside the one computed here.

What is printed is in `paper_tables.csv`, a number a line: what to compute, from which
arguments, and what to say of it, in which names in braces stand for computed values.
"""

import ast
import csv
import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from federated_hh.privacy import conversions
from federated_hh.privacy.dp_ftrl.tree_aggregation import TreeAggregation
from federated_hh.privacy.local import anonymity
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.privacy.shuffle import clones, closed_forms
from federated_hh.privacy.shuffle.amplification import Randomizer
from federated_hh.privacy.triehh import theorem1 as triehh_theorem1

XU_NOISE_MULTIPLIER = 7.0
_XU_DELTA = 1e-10
_SUN: dict[str, Any] = {"local_epsilon": 10.0, "num_reports": 3 * 10**7, "delta": 1e-10}
_SUN_DOMAINS = (10_001, *(14 * [1_000_001]))
_SUN_VOTES = anonymity.VotingLevel(
    alphabet_size=100,
    kept_prefixes=10_000,
    local_epsilon=_SUN["local_epsilon"],
    num_reports=_SUN["num_reports"],
)

# What is computed: the number as it is compared, and what is said beside it.
_Found = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class TableRow:
    """One number of a paper.

    Attributes:
        paper: Name of the paper.
        item: Name of the number.
        printed: Printed number; "-" for one that the paper does not have.
        computed: Ours, in as many digits, or more.
        equal: "yes", "no", or "-" where nothing is printed.
        reason: Why not, or what else there is to know; may be empty.
    """

    paper: str
    item: str
    printed: str
    computed: str
    equal: str
    reason: str = ""


def all_rows(paper: str = "") -> list[TableRow]:
    """Computes every table.

    Args:
        paper: Only those of the papers whose name begins so, such as "Zhu".

    Returns:
        The rows of Xu et al. 2023, Zhu et al. 2020, Sun et al. 2024 and McMillan et
        al. 2022.
    """
    return [_row(one) for one in _printed() if one["paper"].startswith(paper)]


def xu_models() -> list[tuple[str, int, int, int, str]]:
    """Returns name, rounds, MinS, MaxP and printed zCDP of the models of Xu et al."""
    models = (one for one in _printed() if one["quantity"] == "zcdp")
    return [
        (one["item"].removesuffix(": zCDP"), *_arguments(one).values(), one["printed"])
        for one in models
    ]


def _printed() -> list[dict[str, str]]:
    path = pathlib.Path(__file__).with_suffix(".csv")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _arguments(one: Mapping[str, str]) -> dict[str, Any]:
    pairs = (pair.split("=") for pair in one["arguments"].split())
    return {name: ast.literal_eval(value) for name, value in pairs}


def _row(one: Mapping[str, str]) -> TableRow:
    found = _COMPUTED[one["quantity"]](**_arguments(one))
    printed, computed = one["printed"], found["computed"]
    is_equal = printed == computed
    if printed.startswith("at most "):
        is_equal = float(computed) <= float(printed.removeprefix("at most "))
    equal = "-" if printed == "-" else "yes" if is_equal else "no"
    item, reason = (one[name].format(**found) for name in ("item", "reason"))
    return TableRow(one["paper"], item, printed, computed, equal, reason)


def _zcdp(**limits: Any) -> _Found:
    run = TreeAggregation(noise_multiplier=XU_NOISE_MULTIPLIER, **limits)
    return {"computed": f"{run.rho:.2f}", "rho": run.rho}


def _epsilon_of_zcdp(rho: float, square: int) -> _Found:
    # The unrounded zCDP is S2 / 98.
    exact = conversions.zcdp_to_epsilon(
        square / (2 * XU_NOISE_MULTIPLIER**2), _XU_DELTA
    )
    found = conversions.zcdp_to_epsilon(rho, _XU_DELTA)
    return {"computed": f"{found:.2f}", "rho": rho, "square": square, "exact": exact}


def _theta_and_gamma(n: int, inverse_delta: int) -> _Found:
    threshold = triehh_theorem1.smallest_threshold(1 / inverse_delta)
    value = triehh_theorem1.largest_gamma(
        population_size=n, threshold=threshold, max_length=10, epsilon=2.0
    )
    # The paper cuts gamma after two digits.
    return {"computed": f"{threshold}, {math.floor(value * 100) / 100:.2f}"}


def _sfp_local_epsilon(n: int, epsilon: int) -> _Found:
    local = closed_forms.hoeffding_blanket_local_epsilon(epsilon, 1 / n**2, n)
    tighter = shuffling.largest_local_epsilon(
        Randomizer.ARBITRARY, epsilon=epsilon, delta=1 / n**2, num_reports=n
    )
    return {"computed": f"{local:.2f}", "tighter": tighter}


def _tool_2021() -> _Found:
    tool = tool_2021_epsilon(**_SUN, step=100, iterations=10)
    return {"computed": f"{tool:.3f}", "tool": tool}


def _clones_2021() -> _Found:
    found = shuffling.amplify_in_any_level(**_SUN)
    return {"computed": f"{found.epsilon:.5f}"}


def _blanket() -> _Found:
    run, level = shuffling.amplify_over_levels(domain_sizes=_SUN_DOMAINS, **_SUN)
    return {"computed": f"{run.epsilon:.4f}", "level": level}


def _lemma_1() -> _Found:
    lemma = _SUN_VOTES.lemma_1(0.95)
    k = "none" if lemma.k is None else str(lemma.k)
    return {"computed": k, "at_zero": lemma.kept_probability_at_zero}


def _k_directly() -> _Found:
    at_45 = _SUN_VOTES.kept_probability(45, _SUN_VOTES.other_probability)
    return {"computed": str(_SUN_VOTES.direct(0.95).k), "at_45": at_45}


def _one_hot(local_epsilon: float, num_reports: int) -> _Found:
    generic, one_hot = (
        clones.ClonePair(local_epsilon, num_reports, stronger=stronger).epsilon(1e-6)
        for stronger in (False, True)
    )
    return {"computed": f"{one_hot:.4f}", "generic": generic}


_COMPUTED: Mapping[str, Callable[..., _Found]] = {
    "zcdp": _zcdp,
    "epsilon_of_zcdp": _epsilon_of_zcdp,
    "theta_and_gamma": _theta_and_gamma,
    "sfp_local_epsilon": _sfp_local_epsilon,
    "tool_2021": _tool_2021,
    "clones_2021": _clones_2021,
    "theorem_2": lambda: {"computed": f"{closed_forms.amplified_epsilon(**_SUN):.5f}"},
    "blanket": _blanket,
    "lemma_1": _lemma_1,
    "k_directly": _k_directly,
    "one_hot": _one_hot,
}


def tool_2021_epsilon(
    *, local_epsilon: float, num_reports: int, delta: float, step: int, iterations: int
) -> float:
    """Computes the epsilon of Feldman et al.'s public tool (2021), discretized alike.

    The number of clones is cut into bands of `step` from its mean on, each taken at
    its lower end; epsilon is bisected from the closed form of 2021 downwards.

    Args:
        local_epsilon: Local epsilon for replacement.
        num_reports: Reports n.
        delta: In (0, 1).
        step: Clones of a band.
        iterations: Bisections.

    Returns:
        The upper end of the last interval.
    """
    from scipy import stats

    n, growth = num_reports, math.exp(local_epsilon)
    share = math.exp(-local_epsilon)
    mean = (n - 1) * share
    reach = math.ceil(12 * math.sqrt(mean) / step)
    edges = np.clip(np.floor(mean) + step * np.arange(-reach, reach + 1), 0, n - 1)
    masses = np.diff(stats.binom.cdf(edges, n - 1, share))
    outside = 1 - masses.sum()

    def delta_at(epsilon: float) -> float:
        return outside + float(
            np.dot(masses, clones.given_clones(edges[:-1], local_epsilon, epsilon))
        )

    root = math.sqrt(growth * math.log(4 / delta) / n)
    low, high = (
        0.0,
        math.log1p((growth - 1) / (growth + 1) * (8 * root + 8 * growth / n)),
    )
    for _ in range(iterations):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high
