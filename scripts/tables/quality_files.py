"""The tables and the plot of the study of quality, over all seeds.

They are made from the runs' files in results/ and kept beside them: means over seeds
as CSV, and a plot over rounds. `scripts.document_tables` compares and writes them.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from federated_hh.files import tables
from scripts.tables import quality_results
from scripts.tables.render import RESULTS
from studies import intervals, training_runs
from studies.xu_2023 import quality_steps as xu_2023_quality_steps
from training.models import metric_names

# The size of each folder's models.
FOLDERS = {
    "xu_quality": "256 units",
    "xu_quality_paper_size": "670 units",
    "xu_quality_synthetic": "256 units",
}
_COLUMNS = {f"held_out_{name}": name for name in ("loss", "one_suggestion")}
_KEYS = ["setting", "round"]
_BASELINES = (*metric_names.NGRAMS, metric_names.BEST_POSSIBLE)
_METRICS = (
    metric_names.REGRET,
    "loss",
    *("one_suggestion", "three_suggestions", "picked_rate", "keystrokes_saved"),
    *("trigger_rate", "compose_accuracy", "word_modified_after"),
)
_LABELS = {setting.name: setting.label for setting in quality_results.TRAINED}
# Pairs of models that are compared, by their difference.
_DIFFERENCES = {
    "noise": (
        ("dp_ftrl", "fedavg"),
        ("dp_ftrl_pretrained", "fedavg_pretrained"),
    ),
    "independent noise": (
        ("dp_fedavg", "dp_ftrl"),
        ("dp_fedavg_pretrained", "dp_ftrl_pretrained"),
        ("dp_fedavg_rate_1", "dp_ftrl"),
        ("dp_fedavg_pretrained_rate_1", "dp_ftrl_pretrained"),
    ),
    "adaptive clip": (
        ("dp_ftrl_adaptive", "dp_ftrl"),
        ("dp_ftrl_adaptive_pretrained", "dp_ftrl_pretrained"),
    ),
    "pretraining": tuple(
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
# Their rounds are not the others'.
_DRAWN: Sequence[training_runs.Setting] = [
    setting
    for setting in quality_results.TRAINED
    if setting.name != xu_2023_quality_steps.PLATEAU
]


def models(folder: str) -> pd.DataFrame:
    """Returns the models' metrics on held-out clients: means over seeds.

    Args:
        folder: Folder, as of `quality_results.judged_by_seed`.

    Returns:
        A row a model: `model`, `label` and `seeds`; each metric and half of its 95%
        interval; and, ending in `_to_kneser_ney`, the same of its differences to the
        Kneser-Ney trigram on the same clients. A metric is NaN where no seed has it.
    """
    found = []
    for of_seed in quality_results.judged_by_seed(folder).values():
        values = of_seed.reindex(columns=[*_METRICS]).astype(float)
        of_trigram = values.reindex([metric_names.KNESER_NEY]).iloc[0]
        less = (values - of_trigram).drop(columns=metric_names.REGRET)
        found.append(values.join(less.add_suffix("_to_kneser_ney")))
    rows = pd.concat(found).dropna(axis="columns", how="all")
    order = dict.fromkeys([*_LABELS, *metric_names.NGRAMS, *rows.index])
    made = []
    for model in order:
        if model in rows.index:
            of_model = rows.loc[[model]]
            row: dict[str, Any] = {"model": model, "label": _LABELS.get(model, model)}
            row["seeds"] = len(of_model)
            for name, values in of_model.items():
                row |= _mean(str(name), values.dropna().to_numpy())
            made.append(row)
    return pd.DataFrame(made)


def differences(folder: str) -> pd.DataFrame:
    """Returns the mean differences between two models of the same seed.

    Args:
        folder: Folder, as of `quality_results.judged_by_seed`.

    Returns:
        A row a pair: `difference`, `model`, `other`, `label`, `size` and `seeds`; loss
        and accuracy of one suggestion of the model less those of the other, each with
        half of its 95% interval. The paper's model is also compared with the smaller.
    """
    judged = quality_results.judged_by_seed(folder)
    pairs = [
        (what, model, other, f"{_LABELS[model]} less {_LABELS[other]}", judged)
        for what, of_kind in _DIFFERENCES.items()
        for model, other in of_kind
    ]
    if folder in quality_results.SAME_JUDGES:
        smaller = quality_results.judged_by_seed(quality_results.SAME_JUDGES[folder])
        less = "670 units less 256"
        for name, label in _LABELS.items():
            pairs.append(("size", name, name, f"{label}: {less}", smaller))
    made = []
    for what, model, other, label, others in pairs:
        both = [
            (of_seed.loc[model], others[seed].loc[other])
            for seed, of_seed in judged.items()
            if seed in others and model in of_seed.index and other in others[seed].index
        ]
        if both:
            row: dict[str, Any] = {"difference": what, "model": model, "other": other}
            row |= {"label": label, "size": FOLDERS[folder], "seeds": len(both)}
            for name in _COLUMNS.values():
                row |= _mean(name, np.array([a[name] - b[name] for a, b in both]))
            made.append(row)
    return pd.DataFrame(made)


def _mean(name: str, values: np.ndarray) -> dict[str, float]:
    if not len(values):
        return {name: np.nan, f"{name}_half": np.nan}
    return {name: values.mean(), f"{name}_half": intervals.half_of_mean(values)}


def on_level(folder: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the models' scores of all seeds, as if on clients of one level.

    Each seed has held-out clients of its own, on whom all models do better or worse.
    So each value is less that of the Kneser-Ney trigram on the same clients, and that
    trigram's mean over seeds is added. A run that diverges is left out.

    Args:
        folder: Folder, as of `quality_results.judged_by_seed`.

    Returns:
        A row an evaluation of each run: its `setting`, `seed` and `round`, the loss and
        the accuracy of one suggestion; and a row for each baseline and seed, as of
        `training_runs.read_baselines`.
    """
    names = list(_COLUMNS.values())
    judged = quality_results.judged_by_seed(folder)
    trigrams = {
        s: found.loc[metric_names.KNESER_NEY, names] for s, found in judged.items()
    }
    level = pd.DataFrame(trigrams).T.mean()
    runs, baselines = [], []
    for seed, rounds in quality_results.rounds_by_seed(folder).items():
        move = (level - trigrams[seed]).astype(float)
        at_end = rounds.groupby("setting")["held_out_loss"].transform("last")
        found = rounds[at_end < training_runs.DIVERGED]
        found = found.dropna(subset=[*_COLUMNS]).assign(seed=seed)
        found[[*_COLUMNS]] += move.to_numpy()
        runs.append(found[[*_KEYS, "seed", *_COLUMNS]])
        counted = judged[seed].loc[judged[seed].index.isin(_BASELINES), names]
        moved = counted.astype(float) + move
        baselines.append(moved.rename_axis("baseline").reset_index())
    return pd.concat(runs, ignore_index=True), pd.concat(baselines, ignore_index=True)


def learning(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the values that are drawn: means over seeds.

    Args:
        runs: Runs, from `on_level`.
    """
    drawn = runs[runs["setting"].isin([setting.name for setting in _DRAWN])]
    groups = drawn.rename(columns=_COLUMNS).groupby(_KEYS)
    shown = groups.agg(
        seeds=("seed", "size"),
        **{name: (name, "mean") for name in _COLUMNS.values()},
    )
    return shown.reset_index()


def differing(folder: str) -> dict[pathlib.Path, bytes]:
    """Returns the files that show other values than the runs have, as they should be.

    The picture is one of them if the table of its values is, or it is not there:
    another machine may draw the same values otherwise.

    Args:
        folder: Folder, as of `quality_results.judged_by_seed`.
    """
    runs, baselines = on_level(folder)
    made = {
        "models": models(folder),
        "differences": differences(folder),
        "learning": learning(runs),
    }
    found = {}
    for name, table in made.items():
        path = RESULTS / folder / f"{name}.csv"
        content = tables.write(table.round(9)).encode()
        if not path.exists() or path.read_bytes() != content:
            found[path] = content
    picture = RESULTS / folder / "learning.png"
    if picture.with_suffix(".csv") in found or not picture.exists():
        panels = {column: metric_names.title(name) for column, name in _COLUMNS.items()}
        found[picture] = training_runs.plot(
            runs, _DRAWN, panels, baselines, is_cut=True
        )
    return found
