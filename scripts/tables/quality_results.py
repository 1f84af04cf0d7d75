"""Results of the study of quality, put together by seed."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from federated_hh.files import tables
from scripts.tables.render import RESULTS
from studies.xu_2023 import quality_report as xu_2023_quality_report
from studies.xu_2023 import quality_steps as xu_2023_quality_steps
from training.models import metric_names

# Folders of runs with another rate of the server, and the ending of their labels.
_AT_OTHER_RATES = {"xu_quality_paper_size": "xu_quality_dp_fedavg"}
_RATE, _OF_RATE = "_rate_1", ", server's rate 1"


def _at_other_rate(step: xu_2023_quality_steps.Step) -> xu_2023_quality_steps.Step:
    """Returns a step with a name and a label that say its rate of the server."""
    return dataclasses.replace(
        step, name=f"{step.name}{_RATE}", label=f"{step.label}{_OF_RATE}"
    )


_OF_OTHER_RATES = {
    step.name: _at_other_rate(step)
    for step in xu_2023_quality_steps.STEPS
    if step.name.startswith("dp_fedavg")
}
# All that is trained, in the order of tables.
TRAINED: Sequence[xu_2023_quality_steps.Step] = (
    *xu_2023_quality_steps.STEPS,
    *_OF_OTHER_RATES.values(),
)
# A model that was trained twice, on two machines, has two losses no further apart.
_OTHER_MACHINE = 1e-6
# What is counted is the same everywhere, but for the last bits of sums of logarithms.
_LAST_BITS = 1e-13
# Studies of the same held-out clients, by seed: their n-grams are the same.
SAME_JUDGES = {"xu_quality_paper_size": "xu_quality"}


def judged_by_seed(folder: str) -> dict[int, pd.DataFrame]:
    """Returns each model's scores on held-out clients, by seed.

    Args:
        folder: A folder of `seed_6` and so on, each with that seed and, if there are
            several repeats, those after it; scores of other models on the same clients,
            of another run of the study, are in `seed_6_<other>`.

    Returns:
        Of each seed, a row a model, whose name is the index.

    Raises:
        ValueError: If two runs of a seed differ in a model's loss.
    """
    runs = _judged(folder)
    if folder in SAME_JUDGES:
        for seed, of_seed in _judged(SAME_JUDGES[folder]).items():
            counted = [run[run["model"].isin(metric_names.NGRAMS)] for run in of_seed]
            runs.get(seed, []).extend(counted)
    seeds = {}
    for seed, of_seed in runs.items():
        found = pd.concat(of_seed)
        # The n-grams of each run are of the same text, and judged on the same clients.
        losses = found.groupby("model")["loss"]
        apart = losses.max() - losses.min()
        is_trained = apart.index.isin([setting.name for setting in TRAINED])
        if (apart > np.where(is_trained, _OTHER_MACHINE, _LAST_BITS)).any():
            raise ValueError(f"{folder}: two losses of one model of seed {seed}")
        once = found.drop_duplicates("model")
        seeds[seed] = xu_2023_quality_report.with_differences(once).set_index("model")
    return seeds


def rounds_by_seed(folder: str) -> dict[int, pd.DataFrame]:
    """Returns the rounds of federated runs, by seed.

    Args:
        folder: Folder, as of `judged_by_seed`.

    Returns:
        Of each seed, a row a round, with its `setting`; of a setting that several runs
        have, the first.
    """
    seeds: dict[int, dict[str, pd.DataFrame]] = {}
    for seed, rounds in _by_seed(folder, "runs.csv"):
        for setting, of_setting in rounds.groupby("setting"):
            seeds.setdefault(seed, {}).setdefault(str(setting), of_setting)
    return {seed: pd.concat(runs.values()) for seed, runs in seeds.items()}


def _judged(folder: str) -> dict[int, list[pd.DataFrame]]:
    """Returns the scores of each run of a study, by seed."""
    runs: dict[int, list[pd.DataFrame]] = {}
    for seed, judged in _by_seed(folder, "judged.csv"):
        runs.setdefault(seed, []).append(judged)
    return runs


def _by_seed(folder: str, file: str) -> Iterator[tuple[int, pd.DataFrame]]:
    """Yields seeds, and the rows that a file of each run has of them."""
    yield from _read(folder, file)
    if folder in _AT_OTHER_RATES:
        names = {name: step.name for name, step in _OF_OTHER_RATES.items()}
        for seed, found in _read(_AT_OTHER_RATES[folder], file):
            yield seed, found.replace({"model": names, "setting": names})


def _read(folder: str, file: str) -> Iterator[tuple[int, pd.DataFrame]]:
    """Yields the same of the runs of one folder."""
    for path in sorted(RESULTS.glob(f"{folder}/seed_*/{file}")):
        first = int(path.parent.name.split("_")[1])
        found = tables.read(path)
        # Older files, of one repeat each, do not name it.
        found = found.assign(repeat=found.get("repeat", 0))
        for repeat, of_repeat in found.groupby("repeat"):
            yield first + int(repeat), of_repeat
