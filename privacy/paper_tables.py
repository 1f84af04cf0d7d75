"""Every privacy number of the four papers, beside the one computed here."""

import dataclasses
import math
from typing import Any

import numpy as np

from privacy import (
    anonymity,
    clones,
    closed_forms,
    conversions,
    shuffling,
    triehh_theorem1,
)
from privacy.shuffling import Randomizer, Reports
from privacy.tree_aggregation import TreeAggregation

# Xu et al. 2023, Tables 1 and 2: model, rounds, MinS, MaxP, printed zCDP.
XU_ZCDP = (
    ("Table 1 de-DE", 930, 212, 4, "0.48"),
    ("Table 1 en-GB", 980, 226, 4, "0.48"),
    ("Table 1 fr-FR", 1280, 180, 5, "0.89"),
    ("Table 1 it-IT", 1620, 303, 5, "0.71"),
    ("Table 1 pt-PT", 530, 54, 8, "1.86"),
    ("Table 1 es-ES", 1900, 526, 3, "0.35"),
    ("Table 1 es-ES*", 1750, 349, 4, "0.52"),
    ("Table 1 en-US", 2800, 371, 7, "1.31"),
    ("Table 1 en-US*", 1360, 622, 2, "0.25"),
    ("Table 1 pt-BR", 3600, 909, 3, "0.45"),
    ("Table 1 en-IN", 1290, 170, 6, "1.14"),
    ("Table 1 es-MX", 1980, 343, 5, "0.64"),
    ("Table 1 es-AR", 640, 90, 5, "0.84"),
    ("Table 1 earlier es-ES", 2000, 313, 6, "0.81"),
    ("Table 2 de-DE", 1170, 206, 5, "0.89"),
    ("Table 2 en-GB", 1220, 206, 5, "0.89"),
    ("Table 2 es-ES", 1280, 197, 5, "0.89"),
    ("Table 2 fr-FR", 1300, 290, 4, "0.61"),
    ("Table 2 it-IT", 1360, 188, 5, "0.89"),
    ("Table 2 ru-RU", 870, 327, 3, "0.32"),
    ("Table 2 pt-PT", 430, 54, 7, "0.99"),
)
XU_NOISE_MULTIPLIER = 7.0
_XU_DELTA = 1e-10

# Printed zCDP, printed epsilon, S2 (for the unrounded zCDP S2 / 98).
_XU_EPSILONS = (
    ("smallest, appendix A", "0.25", "4.49", 24),
    ("largest, appendix A", "1.86", "13.69", 182),
    ("Table 2 de-DE, en-GB, es-ES, it-IT", "0.89", "9.01", 87),
    ("Table 2 fr-FR", "0.61", "7.31", 60),
    ("Table 2 ru-RU", "0.32", "5.13", 31),
    ("Table 2 pt-PT", "0.99", "9.56", 97),
)

# Zhu et al. 2020, Table 1: n, then (theta, gamma) for 1/(300 n) and for 1/n^2.
_ZHU_TABLE_1 = (
    (10**4, (10, "1.81"), (12, "1.51")),
    (10**5, (11, "5.21"), (14, "4.09")),
    (10**6, (12, "15.10"), (15, "12.08")),
    (10**7, (13, "44.09"), (17, "33.71")),
)
_ZHU_SFP = (
    ("Sentiment140 users", 659_774, 1, "4.29"),
    ("Sentiment140 users", 659_774, 4, "4.96"),
    ("OOV sample", 6_000_000, 1, "5.31"),
    ("OOV sample", 6_000_000, 4, "5.99"),
)

_SUN: dict[str, Any] = {"local_epsilon": 10.0, "num_reports": 3 * 10**7, "delta": 1e-10}
_SUN_DOMAINS = (10_001, *(14 * [1_000_001]))


@dataclasses.dataclass(frozen=True)
class TableRow:
    """One number of a paper.

    Attributes:
        paper: Which paper.
        item: Which number.
        printed: As printed; "-" for a number that the paper does not have.
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


def all_rows() -> list[TableRow]:
    """Computes every table.

    Returns:
        The rows of Xu et al. 2023, Zhu et al. 2020, Sun et al. 2024 and McMillan et
        al. 2022.
    """
    return [*xu_rows(), *zhu_rows(), *sun_rows(), *mcmillan_rows()]


def xu_rows() -> list[TableRow]:
    """Computes the zCDPs and epsilons of Xu et al. 2023.

    Returns:
        One row a model, and one for each printed epsilon.
    """
    rows = []
    for model, rounds, separation, most, printed in XU_ZCDP:
        run = TreeAggregation(
            noise_multiplier=XU_NOISE_MULTIPLIER,
            num_rounds=rounds,
            min_separation=separation,
            max_participation=most,
        )
        reason = ""
        if model.endswith("en-US*"):
            reason = (
                f"{run.rho:.4f} without SecAgg's inflation of the clip norm, whose "
                "scale is not published; a ratio of squares of 1.0005 gives 0.25"
            )
        rows.append(
            _row(
                "Xu et al. 2023",
                f"{model}: zCDP",
                printed,
                f"{run.rho:.2f}",
                reason=reason,
            )
        )
    for name, rho, printed, square in _XU_EPSILONS:
        exact = conversions.zcdp_to_epsilon(
            square / (2 * XU_NOISE_MULTIPLIER**2), _XU_DELTA
        )
        found = conversions.zcdp_to_epsilon(float(rho), _XU_DELTA)
        rows.append(
            _row(
                "Xu et al. 2023",
                f"epsilon, {name}",
                printed,
                f"{found:.2f}",
                reason=f"of the printed zCDP {rho}, as in the paper; of the unrounded "
                f"zCDP {square}/98 it is {exact:.4f}",
            )
        )
    return rows


def zhu_rows() -> list[TableRow]:
    """Computes Table 1 and the local epsilons of SFP of Zhu et al. 2020.

    Returns:
        One row a printed pair, and one a local epsilon.
    """
    rows = []
    for n, *printed_pairs in _ZHU_TABLE_1:
        deltas = (("1/(300n)", 1 / (300 * n)), ("1/n^2", 1 / n**2))
        for (name, delta), (theta, gamma) in zip(deltas, printed_pairs, strict=True):
            threshold = triehh_theorem1.smallest_threshold(delta)
            value = triehh_theorem1.largest_gamma(
                population_size=n, threshold=threshold, max_length=10, epsilon=2.0
            )
            rows.append(
                _row(
                    "Zhu et al. 2020",
                    f"Table 1, n = 1e{round(math.log10(n))}, delta <= {name}: "
                    "theta, gamma",
                    f"{theta}, {gamma}",
                    # The paper cuts gamma after two digits.
                    f"{threshold}, {math.floor(value * 100) / 100:.2f}",
                )
            )
    for name, n, epsilon, printed in _ZHU_SFP:
        local = closed_forms.hoeffding_blanket_local_epsilon(epsilon, 1 / n**2, n)
        tighter = shuffling.largest_local_epsilon(
            Randomizer.ARBITRARY, epsilon=epsilon, delta=1 / n**2, num_reports=n
        )
        rows.append(
            _row(
                "Zhu et al. 2020",
                f"local epsilon of SFP, {name} (n = {n}), epsilon = {epsilon}",
                printed,
                f"{local:.2f}",
                reason="by Balle et al. 2019, Theorem 5.3, as in the paper; the clones "
                f"bound of 2021 allows {tighter:.2f}",
            )
        )
    return rows


def sun_rows() -> list[TableRow]:
    """Computes the central epsilon and the k-anonymity of Sun et al. 2024.

    Returns:
        The printed numbers, and the bounds that are proved.
    """
    paper = "Sun et al. 2024"
    tool = tool_2021_epsilon(**_SUN, step=100, iterations=10)
    generic = shuffling.amplify(
        Reports(randomizer=Randomizer.ARBITRARY, local_epsilon=_SUN["local_epsilon"]),
        num_reports=_SUN["num_reports"],
        delta=_SUN["delta"],
    )
    run, level = shuffling.amplify_over_levels(
        _SUN["local_epsilon"],
        _SUN_DOMAINS,
        num_reports=_SUN["num_reports"],
        delta=_SUN["delta"],
    )
    formula = closed_forms.amplified_epsilon(
        _SUN["local_epsilon"], _SUN["num_reports"], _SUN["delta"]
    )
    votes = anonymity.VotingLevel(
        alphabet_size=100,
        kept_prefixes=10_000,
        local_epsilon=_SUN["local_epsilon"],
        num_reports=_SUN["num_reports"],
    )
    lemma, direct = votes.lemma_1(0.95), votes.direct(0.95)
    at_45 = votes.kept_probability(45, votes.other_probability)
    return [
        _row(
            paper,
            "central epsilon at delta = 1e-10",
            "0.315",
            f"{tool:.3f}",
            reason=f"{tool:.5f}, with the settings of the 2021 tool's example (bands "
            "of 100 clones, 10 bisections)",
        ),
        TableRow(
            paper,
            "the same theorem without discretization",
            "-",
            f"{generic.epsilon:.5f}",
            "-",
            "proved for every randomizer",
        ),
        TableRow(
            paper, "equation of Theorem 2", "-", f"{formula:.5f}", "-", "closed form"
        ),
        TableRow(
            paper,
            f"whole run by the blanket of Subset Selection (worst: level {level})",
            "-",
            f"{run.epsilon:.4f}",
            "-",
            "proved, and tight in the shuffle model",
        ),
        _row(
            paper,
            "k-anonymity at alpha = 0.95, Lemma 1: k",
            "45",
            "none" if lemma.k is None else str(lemma.k),
            reason="Lemma 1 as printed fails already at k = 0: kept with probability "
            f"{lemma.kept_probability_at_zero:.4f} > 0.05 (subsets of d - 2 take too "
            "many votes off)",
        ),
        _row(
            paper,
            "k-anonymity at alpha = 0.95, direct evaluation: k",
            "45",
            str(direct.k),
            reason=f"45 holds there ({at_45:.4f} <= 0.05), and so does up to "
            f"{direct.k}; not a proof for all data sets",
        ),
    ]


def mcmillan_rows() -> list[TableRow]:
    """Computes Figure 1 of McMillan et al. 2022 and its one stated number.

    Returns:
        The statement about n = 1,000, and the two curves.
    """
    paper = "McMillan et al. 2022"
    rows = []
    for local, counts in ((3.0, (10**3, 10**4, 10**5)), (6.0, (10**4, 10**5, 10**6))):
        for n in counts:
            generic, one_hot = (
                clones.ClonePair(local, n, stronger=stronger).epsilon(1e-6)
                for stronger in (False, True)
            )
            stated = (local, n) == (3.0, 1000)
            rows.append(
                TableRow(
                    paper,
                    f"Figure 1, local epsilon {local:g}, n = {n}: epsilon at 1e-6",
                    "at most 1" if stated else "-",
                    f"{one_hot:.4f}",
                    ("yes" if one_hot <= 1 else "no") if stated else "-",
                    "by the 2022 theorem, proved for the one-hot encodings; for any "
                    f"randomizer (2021) {generic:.4f}",
                )
            )
    return rows


def _row(
    paper: str, item: str, printed: str, computed: str, *, reason: str = ""
) -> TableRow:
    equal = "yes" if printed == computed else "no"
    return TableRow(paper, item, printed, computed, equal, reason)


def tool_2021_epsilon(
    *, local_epsilon: float, num_reports: int, delta: float, step: int, iterations: int
) -> float:
    """Computes what the public tool of Feldman et al. 2021 computes, discretized alike.

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
