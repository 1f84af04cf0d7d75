"""The plots of the study of quality over rounds, of all seeds.

They are made from the files in results/, and kept there: a picture, and a table of its
values. `scripts.document_tables` compares and writes them.
"""

import pathlib
from collections.abc import Sequence

import pandas as pd

from federated_hh.files import tables
from scripts.tables import quality_results
from scripts.tables.render import RESULTS
from studies import training_runs
from studies.xu_2023 import quality_steps as xu_2023_quality_steps
from training.models import metric_names

FOLDERS = ("xu_quality", "xu_quality_paper_size")
_PICTURE, _TABLE = "learning.png", "learning.csv"
_COLUMNS = {f"held_out_{name}": name for name in ("loss", "one_suggestion")}
_KEYS = ["setting", "round"]
# Their rounds are not the others'.
_DRAWN: Sequence[training_runs.Setting] = [
    setting
    for setting in quality_results.TRAINED
    if setting.name != xu_2023_quality_steps.PLATEAU
]


def on_level(folder: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the models' scores of all seeds, as if on clients of one level.

    Each seed has held-out clients of its own, on whom all models do better or worse.
    So each value is less that of the Kneser-Ney trigram on the same clients, and that
    trigram's mean over seeds is added. A run that diverges is left out.

    Args:
        folder: Folder, as of `quality_results.judged_by_seed`.

    Returns:
        A row an evaluation of each run: its `setting`, `seed` and `round`, the loss and
        the accuracy of one suggestion; and a row for each of the n-grams and seed, as
        of `training_runs.read_baselines`.
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
        counted = judged[seed].loc[[*metric_names.NGRAMS], names].astype(float) + move
        baselines.append(counted.rename_axis("baseline").reset_index())
    return pd.concat(runs, ignore_index=True), pd.concat(baselines, ignore_index=True)


def table_of(runs: pd.DataFrame) -> bytes:
    """Returns the table of the values that are drawn: means over seeds.

    Args:
        runs: Runs, from `on_level`.
    """
    drawn = runs[runs["setting"].isin([setting.name for setting in _DRAWN])]
    groups = drawn.rename(columns=_COLUMNS).groupby(_KEYS)
    shown = groups.agg(
        seeds=("seed", "size"),
        **{name: (name, "mean") for name in _COLUMNS.values()},
    )
    return tables.write(shown.round(9).reset_index()).encode()


def differing(folder: str) -> dict[pathlib.Path, bytes]:
    """Returns a plot and its table if what is kept shows other values.

    Pictures are not compared: another machine may draw the same values otherwise.

    Args:
        folder: Folder, as of `quality_results.judged_by_seed`.
    """
    runs, baselines = on_level(folder)
    picture, table = RESULTS / folder / _PICTURE, RESULTS / folder / _TABLE
    values = table_of(runs)
    if picture.exists() and table.exists() and table.read_bytes() == values:
        return {}
    panels = {column: metric_names.title(name) for column, name in _COLUMNS.items()}
    drawn = training_runs.plot(runs, _DRAWN, panels, baselines, is_cut=True)
    return {picture: drawn, table: values}
