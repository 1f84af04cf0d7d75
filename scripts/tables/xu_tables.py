"""The tables of the studies of Xu et al. 2023: privacy, and the models' quality."""

import functools
from collections.abc import Callable, Collection, Sequence

import numpy as np
import pandas as pd

from scripts.tables import quality_results
from scripts.tables.render import RESULTS, Row, Table, rows, table
from studies import intervals, training_runs
from studies.xu_2023 import quality_report as xu_2023_quality_report
from studies.xu_2023 import quality_steps as xu_2023_quality_steps
from training.models import metric_names

# Labels of the ways of training, by their names.
_LABELS = {setting.name: setting.label for setting in quality_results.TRAINED}
_LESS = xu_2023_quality_report.ABOVE_TRIGRAM
_IN_NATS = (metric_names.REGRET, "loss", _LESS)
_SUGGESTIONS = ("one_suggestion", "three_suggestions", "picked_rate")
_JUDGED = ("loss", _LESS, *_SUGGESTIONS)
_OF_BLOGGERS = (*_JUDGED, "trigger_rate", "compose_accuracy", "word_modified_after")
# Of the tables of differences to the best count of words: first and last those that
# are better the lower they are.
_DIFFERING = (
    "loss",
    *_SUGGESTIONS,
    "keystrokes_saved",
    "trigger_rate",
    "word_modified_after",
)
# Metrics of differences between models, and their formats.
_COMPARED = {"loss": "+.3f", "one_suggestion": "+.2%"}
# Pairs of models that are compared, by what they differ in.
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
# Of the study of rates: what a setting's name begins with.
_CHOICES = {
    "": "DP-FTRL, clip norm 1",
    "clip_2_": "DP-FTRL, clip norm 2",
    "adaptive_": "DP-FTRL, adaptive clip",
    "fedavg_": "FedAvg, no clip",
    "fedavg_clip_1_": "FedAvg, clip norm 1",
    "fedavg_clip_2_": "FedAvg, clip norm 2",
    "dp_fedavg_": "DP-FedAvg, clip norm 1",
}


def _judged(
    folder: str,
    names: Sequence[str],
    held_out: str = "held-out bloggers",
    models: Collection[str] | None = None,
) -> list[str]:
    """Returns each model's metrics on held-out clients, over the seeds of a folder.

    Args:
        folder: Folder, as of `quality_results.judged_by_seed`.
        names: Metrics.
        held_out: Name of the held-out clients.
        models: Models that are shown; None for all.
    """
    seeds = quality_results.judged_by_seed(folder).values()
    found = pd.concat([of_seed.reset_index() for of_seed in seeds])
    if models is not None:
        found = found[found["model"].isin(models)]

    def cell(of_model: pd.DataFrame, name: str) -> str:
        # None where the model is never sure enough of what follows, or a seed lacks
        # the model to which this one is compared.
        values = of_model[name].dropna().to_numpy()
        is_in_nats = name in _IN_NATS
        if not len(values) or (is_in_nats and len(values) < len(of_model)):
            return "none"
        half = intervals.half_of_mean(values)
        return intervals.shown(values.mean(), half, ".3f" if is_in_nats else ".1%")

    return _by_model(held_out, names, found, cell)


def _to_kneser_ney(folder: str) -> list[str]:
    """Returns models' differences to the best count of words, seed by seed."""
    differences = []
    for found in quality_results.judged_by_seed(folder).values():
        values = found[[*_DIFFERING]].astype(float)
        less = values - values.loc[metric_names.KNESER_NEY]
        is_shown = found.index.isin([*_LABELS, metric_names.TRIGRAM])
        differences.append(less[is_shown].reset_index())

    def cell(of_model: pd.DataFrame, name: str) -> str:
        form = "+.3f" if name in _IN_NATS else "+.2%"
        return _mean_difference(of_model[name].to_numpy(), form)

    corner = f"less the {metric_names.KNESER_NEY}'s"
    return _by_model(corner, _DIFFERING, pd.concat(differences), cell)


def _by_model(
    corner: str,
    names: Sequence[str],
    found: pd.DataFrame,
    cell: Callable[[pd.DataFrame, str], str],
) -> list[str]:
    """Returns a table with a line for each model, in the order of tables."""
    models = [*_LABELS, *metric_names.NGRAMS, *found["model"].drop_duplicates()]
    kind = pd.CategoricalDtype(list(dict.fromkeys(models)))
    lines = []
    for model, of_model in found.groupby(found["model"].astype(kind), observed=True):
        lines.append([_LABELS.get(str(model), str(model)), str(len(of_model))])
        if _diverges(of_model["loss"]):
            lines[-1] += ["diverges", *[""] * (len(names) - 1)]
        else:
            lines[-1] += [cell(of_model, name) for name in names]
    titles = [metric_names.KEYBOARD_LABELS.get(name, name) for name in names]
    return table([corner, "seeds", *titles], lines)


def _diverges(losses: Sequence[float] | pd.Series) -> bool:
    """Returns whether a model's losses, of each seed, say nothing more on average."""
    return bool(np.mean(losses) >= training_runs.DIVERGED)


def _differences(folder: str) -> list[str]:
    """Returns models' mean differences to others of the same seed."""
    judged = quality_results.judged_by_seed(folder).values()
    lines = []
    for what, pairs in _DIFFERENCES.items():
        for model, other in pairs:
            both = [found for found in judged if {model, other} <= {*found.index}]
            if not both:
                continue
            label = f"{_LABELS[model]} less {_LABELS[other]}"
            lines.append([what, label, str(len(both))])
            if _diverges([found["loss"][model] for found in both]):
                lines[-1] += ["diverges", ""]
                continue
            for name, form in _COMPARED.items():
                less = [found[name][model] - found[name][other] for found in both]
                lines[-1].append(_mean_difference(less, form))
    return table(["", "", "seeds", "loss", "one suggestion"], lines)


def _mean_difference(less: Sequence[float] | np.ndarray, form: str) -> str:
    """Returns the mean of differences, with a sign, and its interval without one."""
    half = intervals.half_of_mean(np.array(less))
    text = intervals.shown(float(np.mean(less)), half, form)
    return text.replace("± +", "± ")


def _sizes() -> list[str]:
    """Returns the paper's model beside a smaller one of the same seeds."""
    smaller = quality_results.judged_by_seed("xu_quality")
    larger = quality_results.judged_by_seed("xu_quality_paper_size")
    lines = []
    for model, label in _LABELS.items():
        seeds = [
            seed
            for seed, found in larger.items()
            if model in found.index and model in smaller[seed].index
        ]
        if not seeds or _diverges([larger[s]["loss"][model] for s in seeds]):
            continue
        lines.append([label, str(len(seeds))])
        for name, form in _COMPARED.items():
            sizes = [
                np.array([of_size[seed][name][model] for seed in seeds])
                for of_size in (smaller, larger)
            ]
            lines[-1] += [format(of.mean(), form.lstrip("+")) for of in sizes]
            lines[-1].append(_mean_difference(sizes[1] - sizes[0], form))
    of_each = ("256 units", "670 units", "difference")
    names = [f"{name}, {of}" for name in ("loss", "one suggestion") for of in of_each]
    return table(["", "seeds", *names], lines)


def _rounds_saved() -> list[str]:
    """Returns the rounds after which pretrained runs match others at their end."""
    lines = []
    for path in sorted(RESULTS.glob("xu_quality/seed_*/rounds_saved.csv")):
        seed = path.parent.name.removeprefix("seed_")
        for row in rows(f"xu_quality/seed_{seed}/rounds_saved"):
            cells = xu_2023_quality_report.saved_cells(row)
            lines.append([_LABELS[row["setting"]], seed, *cells])
    columns = ["seed", "loss", "rounds from scratch", "zCDP", "rounds pretrained"]
    return table(["", *columns, "zCDP"], lines)


def _choice() -> list[str]:
    """Returns loss and accuracy after 100 rounds, by clip and rates."""
    folders = sorted(RESULTS.glob("xu_quality_choice/*/runs.csv"))
    found = {}
    for path in folders:
        for row in rows(f"xu_quality_choice/{path.parent.name}/runs"):
            way, _, rates = row["setting"].partition("clients_")
            clients, _, server = rates.split("_")
            found[row["setting"]] = {**row, "way": way, "c": clients, "s": server}
    order = [*_CHOICES]
    servers = sorted({row["s"] for row in found.values()}, key=float)
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in sorted(found.values(), key=lambda row: order.index(row["way"])):
        key = _CHOICES[row["way"]], row["c"]
        cells.setdefault(key, {})[row["s"]] = _loss_and_suggestion(row)
    return table(
        ["", "clients' rate", *[f"server's {server}" for server in servers]],
        [[*key, *[of.get(s, "") for s in servers]] for key, of in cells.items()],
    )


def _loss_and_suggestion(row: Row) -> str:
    if row["held_out_loss"] >= training_runs.DIVERGED:
        return "diverges"
    return f"{row['held_out_loss']:.3f}, {row['held_out_one_suggestion']:.1%}"


TABLES: dict[str, Table] = {
    # Metrics of models on a keyboard, beside n-grams; and as differences to the
    # Kneser-Ney trigram of the same seed.
    "xu_quality": functools.partial(_judged, "xu_quality", _OF_BLOGGERS),
    "xu_quality_beside": functools.partial(_to_kneser_ney, "xu_quality"),
    # The same of the paper's model; the other n-grams are those above.
    "xu_quality_paper_size": functools.partial(
        _judged,
        "xu_quality_paper_size",
        _OF_BLOGGERS,
        models=(*_LABELS, metric_names.TRIGRAM, metric_names.KNESER_NEY),
    ),
    "xu_quality_paper_size_beside": functools.partial(
        _to_kneser_ney, "xu_quality_paper_size"
    ),
    # The settings before these, with more rounds.
    "xu_quality_500_rounds": functools.partial(
        _judged, "xu_quality_500_rounds", (*_JUDGED, "word_modified_after")
    ),
    # Models' distance from the law of the language that clients write.
    "xu_quality_synthetic": functools.partial(
        _judged,
        "xu_quality_synthetic",
        (metric_names.REGRET, *_JUDGED[1:]),
        "held-out clients",
    ),
    # The effect of noise, the chat, a clip that adapts and more rounds.
    "xu_quality_differences": functools.partial(_differences, "xu_quality"),
    "xu_quality_paper_size_differences": functools.partial(
        _differences, "xu_quality_paper_size"
    ),
    "xu_quality_synthetic_differences": functools.partial(
        _differences, "xu_quality_synthetic"
    ),
    "xu_quality_rounds_saved": _rounds_saved,
    "xu_quality_sizes": _sizes,
    "xu_quality_choice": _choice,
}
