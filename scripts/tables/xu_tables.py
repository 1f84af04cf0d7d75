"""The tables of the studies of Xu et al. 2023: privacy, and what models learn."""

import math
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
import pandas as pd

from federated_hh.files import tables
from federated_hh.privacy import printed_numbers
from scripts.tables import quality_results
from scripts.tables.table_text import RESULTS, table
from studies import intervals, training_runs
from studies.xu_2023 import quality_report as xu_2023_quality_report
from studies.xu_2023 import quality_steps as xu_2023_quality_steps
from training.models import metric_names

# Of the ways of training, by their names.
_LABELS = {setting.name: setting.label for setting in quality_results.TRAINED}
# Studies of report goals, by their noise a client.
_SCALING = {"noise_1": "the paper's", "noise_5": "5 times", "noise_20": "20 times"}
_LESS = xu_2023_quality_report.ABOVE_TRIGRAM
_IN_NATS = (metric_names.REGRET, "loss", _LESS)
_SUGGESTIONS = ("one_suggestion", "three_suggestions", "picked_rate")
_JUDGED = ("loss", _LESS, *_SUGGESTIONS)
_OF_BLOGGERS = (*_JUDGED, "trigger_rate", "compose_accuracy", "word_modified_after")
# Of the tables beside the best count of words: what is better the lower it is, first
# and last.
_BESIDE = (
    "loss",
    *_SUGGESTIONS,
    "keystrokes_saved",
    "trigger_rate",
    "word_modified_after",
)

# What differences are of, and how they are written.
_COMPARED = {"loss": "+.3f", "one_suggestion": "+.2%"}
# What a model is compared with another for.
_DIFFERENCES = {
    "the noise": (
        ("dp_ftrl", "fedavg"),
        ("dp_ftrl_pretrained", "fedavg_pretrained"),
    ),
    "independent noise, not a tree's": (
        ("dp_fedavg", "dp_ftrl"),
        ("dp_fedavg_pretrained", "dp_ftrl_pretrained"),
        ("dp_fedavg_rate_1", "dp_ftrl"),
        ("dp_fedavg_pretrained_rate_1", "dp_ftrl_pretrained"),
    ),
    "a clip norm that adapts": (
        ("dp_ftrl_adaptive", "dp_ftrl"),
        ("dp_ftrl_adaptive_pretrained", "dp_ftrl_pretrained"),
    ),
    "the chat": tuple(
        (step.name, step.name.replace(xu_2023_quality_steps.PRETRAINED, ""))
        for step in quality_results.TRAINED
        if step.begins_with == xu_2023_quality_steps.CHAT
    ),
    "more rounds": ((xu_2023_quality_steps.PLATEAU, xu_2023_quality_steps.FEDAVG),),
    "central training": (
        ("central", "fedavg"),
        ("central_pretrained", "fedavg_pretrained"),
    ),
}


def _judged(
    folder: str,
    names: Sequence[str],
    judges: str = "held-out bloggers",
    models: Collection[str] | None = None,
) -> list[str]:
    """Returns what judges found of each model, over the seeds that a folder has.

    Args:
        folder: As of `quality_results.judged_by_seed`.
        names: The columns.
        judges: What the judges are called.
        models: Those that are shown; None for all.
    """
    seeds = quality_results.judged_by_seed(folder).values()
    found = pd.concat([of_seed.reset_index() for of_seed in seeds])
    if models is not None:
        found = found[found["model"].isin(models)]
    rows = []
    for label, of_model in _by_model(found):
        cells = ["none"] * len(names)
        for i, name in enumerate(names):
            # None where the model is never sure enough of what follows, or a seed was
            # not judged beside what it is less than.
            values = of_model[name].dropna().to_numpy()
            if len(values) and (name not in _IN_NATS or len(values) == len(of_model)):
                half = intervals.half_of_mean(values)
                form = ".3f" if name in _IN_NATS else ".1%"
                cells[i] = intervals.shown(values.mean(), half, form)
        rows.append([label, str(len(of_model)), *_unless_diverged(of_model, cells)])
    return table([judges, "seeds", *_titles(names)], rows)


def _beside(folder: str) -> list[str]:
    """Returns what models are above the best count of words, seed by seed."""
    differences = []
    for found in quality_results.judged_by_seed(folder).values():
        values = found[[*_BESIDE]].astype(float)
        less = values - values.loc[metric_names.KNESER_NEY]
        is_shown = found.index.isin([*_LABELS, metric_names.TRIGRAM])
        differences.append(less[is_shown].reset_index())
    rows = []
    for label, of_model in _by_model(pd.concat(differences)):
        cells = []
        for name in _BESIDE:
            form = "+.3f" if name in _IN_NATS else "+.2%"
            cells.append(_mean_difference(of_model[name].to_numpy(), form))
        rows.append([label, str(len(of_model)), *_unless_diverged(of_model, cells)])
    of_trigram = f"less the {metric_names.KNESER_NEY}'s"
    return table([of_trigram, "seeds", *_titles(_BESIDE)], rows)


def _by_model(found: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yields the rows of each model, and what it is called, in the order of tables."""
    models = [*_LABELS, *metric_names.NGRAMS, *found["model"].drop_duplicates()]
    kind = pd.CategoricalDtype(list(dict.fromkeys(models)))
    groups = found.groupby(found["model"].astype(kind), observed=True)
    for model, of_model in groups:
        yield _LABELS.get(str(model), str(model)), of_model


def _unless_diverged(of_model: pd.DataFrame, cells: Sequence[str]) -> Sequence[str]:
    """Returns the cells of a model, or none of them if its loss says nothing more."""
    if not _diverges(of_model["loss"]):
        return cells
    return ["diverges", *[""] * (len(cells) - 1)]


def _diverges(losses: Sequence[float] | pd.Series) -> bool:
    """Returns whether a model's losses, of each seed, say nothing more on average."""
    return bool(np.mean(losses) >= training_runs.DIVERGED)


def _titles(names: Sequence[str]) -> list[str]:
    return [metric_names.KEYBOARD_LABELS.get(name, name) for name in names]


def _differences(folder: str) -> list[str]:
    """Returns what models of the same seed have less than others, as means."""
    judged = quality_results.judged_by_seed(folder).values()
    rows = []
    for what, pairs in _DIFFERENCES.items():
        for model, other in pairs:
            both = [found for found in judged if {model, other} <= {*found.index}]
            if not both:
                continue
            rows.append([what, f"{_LABELS[model]} less {_LABELS[other]}"])
            rows[-1].append(str(len(both)))
            if _diverges([found["loss"][model] for found in both]):
                rows[-1] += ["diverges", ""]
                continue
            for name, form in _COMPARED.items():
                less = [found[name][model] - found[name][other] for found in both]
                rows[-1].append(_mean_difference(less, form))
    return table(["", "", "seeds", "loss", "one suggestion"], rows)


def _mean_difference(less: Sequence[float], form: str) -> str:
    """Returns the mean of differences, with a sign, and its interval without one."""
    half = intervals.half_of_mean(np.array(less))
    text = intervals.shown(float(np.mean(less)), half, form)
    return text.replace("± +", "± ")


def xu_quality_sizes() -> list[str]:
    """What the paper's model is worth, beside a smaller one of the same seeds."""
    smaller = quality_results.judged_by_seed("xu_quality")
    larger = quality_results.judged_by_seed("xu_quality_paper_size")
    rows = []
    for model, label in _LABELS.items():
        seeds = [
            seed
            for seed, found in larger.items()
            if model in found.index and model in smaller[seed].index
        ]
        if not seeds or _diverges([larger[s]["loss"][model] for s in seeds]):
            continue
        rows.append([label, str(len(seeds))])
        for name, form in _COMPARED.items():
            sizes = [
                np.array([of_size[seed][name][model] for seed in seeds])
                for of_size in (smaller, larger)
            ]
            rows[-1] += [format(of.mean(), form.lstrip("+")) for of in sizes]
            rows[-1].append(_mean_difference(sizes[1] - sizes[0], form))
    of_each = ("256 units", "670 units", "difference")
    shown = [f"{name}, {of}" for name in ("loss", "one suggestion") for of in of_each]
    return table(["", "seeds", *shown], rows)


def xu_quality_rounds_saved() -> list[str]:
    """How soon pretrained runs are as good as those from scratch at their end."""
    rows = []
    for path in sorted(RESULTS.glob("xu_quality/seed_*/rounds_saved.csv")):
        seed = path.parent.name.removeprefix("seed_")
        for row in tables.read(path).to_dict("records"):
            cells = xu_2023_quality_report.saved_cells(row)
            rows.append([_LABELS[row["setting"]], seed, *cells])
    columns = ["seed", "loss", "rounds from scratch", "zCDP", "rounds pretrained"]
    return table(["", *columns, "zCDP"], rows)


def xu_quality_choice() -> list[str]:
    """Which clips, and rates of clients and server, are best after 100 rounds."""
    runs = pd.concat(
        map(tables.read, sorted(RESULTS.glob("xu_quality_choice/*/runs.csv")))
    )
    last = runs.groupby("setting", sort=False).last()
    ways = {
        "": "DP-FTRL, clip norm 1",
        "clip_2_": "DP-FTRL, clip norm 2",
        "adaptive_": "DP-FTRL, adaptive clip",
        "fedavg_": "FedAvg, no clip",
        "fedavg_clip_1_": "FedAvg, clip norm 1",
        "fedavg_clip_2_": "FedAvg, clip norm 2",
        "dp_fedavg_": "DP-FedAvg, clip norm 1",
    }
    rates: dict[tuple[str, str], dict[str, pd.Series]] = {}
    for setting, row in last.iterrows():
        way, _, rates_of = str(setting).partition("clients_")
        clients, _, server = rates_of.split("_")
        rates.setdefault((way, clients), {})[server] = row
    servers = sorted({s for of_rate in rates.values() for s in of_rate}, key=float)
    order = sorted(rates, key=lambda key: [*ways].index(key[0]))
    return table(
        ["", "clients' rate", *[f"server's {server}" for server in servers]],
        [
            [
                ways[way],
                clients,
                *[_loss_and_suggestion(rates[way, clients].get(s)) for s in servers],
            ]
            for way, clients in order
        ],
    )


def _loss_and_suggestion(row: pd.Series | None) -> str:
    if row is None:
        return ""
    if row["held_out_loss"] >= training_runs.DIVERGED:
        return "diverges"
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
            [
                f"{goal:,}, z = {noise:.3g}",
                *of_goal["rho"].map(printed_numbers.rounded_up),
            ]
        )
    names = (of_goal["population"] / 1e6).map("{:g} million".format)
    return table(["report goal", *names], rows)


def xu_scaling() -> list[str]:
    """What noise in proportion to the report goal takes from a model."""
    rows = []
    for folder, noise in _SCALING.items():
        path = RESULTS / "xu_scaling" / folder / "summary.csv"
        found = tables.read(path).set_index("setting")
        for setting, noisy in found[found["rho"] < math.inf].iterrows():
            goal = str(setting).rpartition("_")[2]
            shown = [
                intervals.shown(one[name], one[f"{name}_half"], form)
                for one, name, form in (
                    (noisy, "loss", ".3f"),
                    (found.loc[f"fedavg_{goal}"], "loss", ".3f"),
                    (noisy, "noise_costs", ".4f"),
                )
            ]
            repeats = str(int(noisy["repeats"]))
            zcdp = printed_numbers.rounded_up(noisy["rho"])
            rows.append([noise, f"{int(goal):,}", repeats, *shown, zcdp])
    losses = ("loss, noise", "loss, none", "difference by seed")
    return table(
        ["noise a client", "clients a round", "seeds", *losses, "zCDP of the run"], rows
    )


def xu_gboard_strategy() -> list[str]:
    """What the run is worth that the walk of section 2.5 ends with."""
    folder = RESULTS / "xu_gboard_strategy"
    last = tables.read(folder / "final_metrics.csv").iloc[-1]
    epsilon, rho = map(printed_numbers.rounded_up, last[["epsilon", "rho"]])
    label = f"the final run, epsilon {epsilon} (zCDP {rho})"
    judged = [(label, last.rename(lambda name: name.removeprefix("held_out_")))]
    for _, row in tables.read(folder / "final_baselines.csv").iterrows():
        judged.append((row["baseline"], row))
    rates = ("one_suggestion", "three_suggestions", "top1_in_vocabulary")
    rows = [
        [name, f"{row['loss']:.3f}", *[f"{row[rate]:.1%}" for rate in rates]]
        for name, row in judged
    ]
    return table(
        ["held-out clients", *[metric_names.LABELS[n] for n in ("loss", *rates)]], rows
    )


TABLES: dict[str, Callable[[], list[str]]] = {
    # What models are worth on a keyboard, beside n-grams; and as differences to the
    # Kneser-Ney trigram of the same seed.
    "xu_quality": lambda: _judged("xu_quality", _OF_BLOGGERS),
    "xu_quality_beside": lambda: _beside("xu_quality"),
    # The same of the paper's model; the other n-grams are those above.
    "xu_quality_paper_size": lambda: _judged(
        "xu_quality_paper_size",
        _OF_BLOGGERS,
        models=(*_LABELS, metric_names.TRIGRAM, metric_names.KNESER_NEY),
    ),
    "xu_quality_paper_size_beside": lambda: _beside("xu_quality_paper_size"),
    # The settings before these, with more rounds.
    "xu_quality_500_rounds": lambda: _judged(
        "xu_quality_500_rounds", (*_JUDGED, "word_modified_after")
    ),
    # How far models are from the law of the language that clients write.
    "xu_quality_synthetic": lambda: _judged(
        "xu_quality_synthetic",
        (metric_names.REGRET, *_JUDGED[1:]),
        "held-out clients",
    ),
    # What noise, the chat, a clip that adapts and more rounds change.
    "xu_quality_differences": lambda: _differences("xu_quality"),
    "xu_quality_paper_size_differences": lambda: _differences("xu_quality_paper_size"),
    "xu_quality_synthetic_differences": lambda: _differences("xu_quality_synthetic"),
    "xu_quality_rounds_saved": xu_quality_rounds_saved,
    "xu_quality_sizes": xu_quality_sizes,
    "xu_quality_choice": xu_quality_choice,
    "xu_figure4": xu_figure4,
    "xu_scaling": xu_scaling,
    "xu_gboard_strategy": xu_gboard_strategy,
}
