"""The tables of the studies of Xu et al. 2023: privacy, and what models learn."""

import math
from collections.abc import Callable

import pandas as pd

from scripts.table_text import RESULTS, table
from simulation import tables
from studies import intervals, xu_2023_quality, xu_2023_quality_report
from training import metric_names

# Of the ways of training, by their names.
_LABELS = {step.name: step.label for step in xu_2023_quality.STEPS}


def xu_quality() -> list[str]:
    """What models of 10,000 words are worth on a keyboard, beside n-grams."""
    seeds = sorted(RESULTS.glob("xu_quality/seed_*/judged.csv"))
    judged = map(tables.read, seeds)
    found = pd.concat(map(xu_2023_quality_report.beside_trigram, judged))
    less = xu_2023_quality_report.ABOVE_TRIGRAM
    names = [
        "loss",
        less,
        "one_suggestion",
        "three_suggestions",
        "picked_rate",
        "word_modified_after",
    ]
    rows = []
    models = [*_LABELS, *found["model"].drop_duplicates()]
    kind = pd.CategoricalDtype(list(dict.fromkeys(models)))
    found["model"] = found["model"].astype(kind)
    for model, of_model in found.groupby("model", observed=True):
        rows.append([_LABELS.get(str(model), str(model)), str(len(of_model))])
        for name in names:
            form = ".3f" if name in ("loss", less) else ".1%"
            half = intervals.half_of_mean(of_model[name].to_numpy())
            rows[-1].append(intervals.shown(of_model[name].mean(), half, form))
    shown = [metric_names.KEYBOARD_LABELS.get(name, name) for name in names]
    return table(["held-out bloggers", "seeds", *shown], rows)


def xu_quality_synthetic() -> list[str]:
    """How far models are from the law of the language that clients write."""
    found = tables.read(RESULTS / "xu_quality_synthetic" / "judged.csv")
    rates = ["one_suggestion", "three_suggestions", "picked_rate"]
    rows = [
        [
            _LABELS.get(row["model"], row["model"]),
            f"{row['regret']:.3f}",
            f"{row['loss']:.3f}",
            *[f"{row[rate]:.1%}" for rate in rates],
        ]
        for row in found.to_dict("records")
    ]
    shown = [metric_names.KEYBOARD_LABELS.get(name, name) for name in rates]
    return table(["held-out clients", "regret", "loss", *shown], rows)


def xu_quality_choice() -> list[str]:
    """Which rates of clients and server are best after 100 rounds."""
    runs = tables.read(RESULTS / "xu_quality_choice" / "runs.csv")
    last = runs.groupby("setting", sort=False).last()
    rates: dict[str, dict[str, pd.Series]] = {}
    for setting, row in last.iterrows():
        _, clients, _, server = str(setting).split("_")
        rates.setdefault(clients, {})[server] = row
    servers = list(dict.fromkeys(s for of_rate in rates.values() for s in of_rate))
    return table(
        ["clients' rate", *[f"server's {server}" for server in servers]],
        [
            [
                clients,
                *[_loss_and_suggestion(by_server.get(s)) for s in servers],
            ]
            for clients, by_server in rates.items()
        ],
    )


def _loss_and_suggestion(row: pd.Series | None) -> str:
    if row is None:
        return ""
    return f"{row['held_out_loss']:.3f}, {row['held_out_one_suggestion']:.1%}"


def xu_figure4() -> list[str]:
    """ZCDP by report goal and population, as Figure 4a of Xu et al. has it."""
    found = tables.read(RESULTS / "xu_figure4" / "curves.csv")
    found = found[found["panel"] == "figure_4a"]
    rows = []
    for goal in (500, 1000, 2000, 4000, 6500, 10_000, 20_000):
        of_goal = found[found["report_goal"] == goal]
        noise = of_goal["noise_multiplier"].iloc[0]
        rows.append(
            [f"{goal:,}, z = {noise:.3g}", *of_goal["rho"].map("{:.2g}".format)]
        )
    names = (of_goal["population"] / 1e6).map("{:g} million".format)
    return table(["report goal", *names], rows)


def xu_scaling() -> list[str]:
    """What noise in proportion to the report goal takes from a model."""
    found = tables.read(RESULTS / "xu_scaling" / "summary.csv").set_index("setting")
    rows = []
    for setting, noisy in found[found["rho"] < math.inf].iterrows():
        goal = str(setting).rpartition("_")[2]
        row = [f"{int(goal):,}", str(int(noisy["repeats"]))]
        for name, form in (("loss", ".4f"), ("suggestion", ".1%")):
            for one in (noisy, found.loc[f"fedavg_{goal}"]):
                row.append(intervals.shown(one[name], one[f"{name}_half"], form))
        rows.append(row)
    judged = ("loss", "one suggestion")
    shown = [f"{name}, {noise}" for name in judged for noise in ("noise", "none")]
    return table(["clients a round", "seeds", *shown], rows)


TABLES: dict[str, Callable[[], list[str]]] = {
    "xu_quality": xu_quality,
    "xu_quality_choice": xu_quality_choice,
    "xu_quality_synthetic": xu_quality_synthetic,
    "xu_figure4": xu_figure4,
    "xu_scaling": xu_scaling,
}
