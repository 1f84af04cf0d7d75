"""Scaling of noise (Xu et al. 2023, section 2.2): does the model depend on z/m only?

The paper's hypothesis: with noise and report goal growing in proportion, the model does
not get worse. 500 clients a round at z = 0.54 learned what 6,500 at z = 7 did, or a
little less. Here runs of several report goals have the same noise a client, z/m, and
differ in nothing else; beside each stands the run without noise, which shows what
larger rounds are worth by themselves.
"""

import collections
import dataclasses
import math
import os
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from federated_hh.files import tables
from federated_hh.options import fields as options_lib
from federated_hh.options.fields import option
from federated_hh.reports import plots
from studies import data_parts, intervals, pages, study, study_options, training_runs
from studies.xu_2023 import mechanisms as xu_2023
from training.models import metric_names

_TITLE = "Equal noise a client at several report goals (Xu et al. 2023, section 2.2)"
_SYNTHETIC = "configs/training_demo.flagfile"
_BLOGS = "configs/training_blogs.flagfile"
_DEFAULT_GOALS, _DEFAULT_ROUNDS = (50, 200, 650), 80
# Rounds and largest goal are those of `_BLOGS`: each blogger is in one round at most.
_BLOGS_GOALS, _BLOGS_ROUNDS = (20, 75, 225), 63
_COLORS = (plots.ORANGE, plots.BLUE, plots.GREEN, plots.PURPLE)
_LOSS, _SUGGESTION = "held_out_loss", "held_out_one_suggestion"
# Beyond those who train: who is held out, and some more.
_SPARE_CLIENTS = 1000
_PRIVATE, _PLAIN = "dp_ftrl", "fedavg"


@dataclasses.dataclass(frozen=True)
class Options(study_options.StudyOptions):
    """Options of the study; each field is a flag."""

    report_goals: tuple[str, ...] = option(
        (),
        "Clients of a round in each setting: increasing integers, at most four. By "
        "default 50, 200 and 650, or with --data_dir 20, 75 and 225.",
    )
    noise_per_client: float = option(
        7 / 6500,
        "The noise multiplier over the report goal; the paper's by default.",
        above=0,
        most=1,
    )
    num_rounds: int | None = option(
        None,
        "Rounds of each run; a client is in one at most. By default 80, or with "
        "--data_dir 63.",
        least=1,
        most=100_000,
    )
    num_repeats: int = option(
        3, "Runs of each setting, with seeds of their own.", least=1, most=1000
    )
    data_dir: str | None = option(
        None,
        "The directory that holds the data set blog-authorship, whose bloggers train "
        f"with the flags of {_BLOGS}; they are enough for 14,393 clients of all "
        "rounds together. Synthetic sentences by default.",
    )

    def __post_init__(self):
        super().__post_init__()
        goals = self.goals
        if not 1 <= len(goals) <= len(_COLORS) or sorted({*goals}) != list(goals):
            raise options_lib.OptionError(
                self, "{report_goals=}: has to be one to four increasing integers"
            )
        study_options.check_noise(
            self,
            "{noise_per_client=} times a report goal",
            [self.noise_per_client * goal for goal in goals],
        )

    @property
    def goals(self) -> tuple[int, ...]:
        """The report goals; none where they are no integers above 0."""
        if not self.report_goals:
            return _DEFAULT_GOALS if self.data_dir is None else _BLOGS_GOALS
        if not all(goal.isdecimal() and int(goal) for goal in self.report_goals):
            return ()
        return tuple(map(int, self.report_goals))

    @property
    def rounds(self) -> int:
        """Rounds of each run."""
        if self.num_rounds is not None:
            return self.num_rounds
        return _DEFAULT_ROUNDS if self.data_dir is None else _BLOGS_ROUNDS


def settings_of(options: Options) -> tuple[training_runs.Setting, ...]:
    """Returns two settings a report goal: with noise, and without."""
    found = []
    for goal, color in zip(options.goals, _COLORS, strict=False):
        noise = options.noise_per_client * goal
        common = (f"--cohort_size={goal}",)
        found += [
            training_runs.Setting(
                f"{_PRIVATE}_{goal}",
                f"{goal:,} clients, z = {noise:.3g}",
                (*common, f"--mechanism={_PRIVATE}", f"--noise_multiplier={noise!r}"),
                color,
            ),
            training_runs.Setting(
                f"{_PLAIN}_{goal}",
                f"{goal:,} clients, no noise",
                (*common, f"--mechanism={_PLAIN}"),
                color,
                ":",
            ),
        ]
    return tuple(found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScalingStudy(training_runs.TrainingStudy):
    """Runs of equal noise a client; a `study.Study`.

    Attributes:
        noise_per_client: The noise multiplier over the report goal.
    """

    noise_per_client: float

    def check_clients(self) -> None:
        """Checks that there are clients for the largest report goal.

        Raises:
            ValueError: If there are not, or their text cannot be prepared.
        """
        try:
            super().check_clients()
        except ValueError as error:
            raise ValueError(
                "--report_goals and --num_rounds: as each client is in one round at "
                "most, the largest goal times the rounds says how many there have to "
                f"be. {error}"
            ) from error

    def files(self, found: study.Tables, directory: pathlib.Path) -> dict[str, bytes]:
        """Returns the files of results by name; see `study.Study`."""
        del found
        runs, privacy, of_repeats = [], collections.defaultdict(list), {}
        for (setting, repeat), path in self.paths(directory).items():
            metrics = training_runs.read_metrics(path)
            runs.append(metrics.assign(setting=setting.name, repeat=repeat))
            privacy[setting.name].append(training_runs.read_privacy(path))
            # The same of all settings: their runs have the same clients.
            of_repeats[repeat] = training_runs.read_baselines(path)
        by_name = pd.concat(of_repeats.values()).groupby("baseline", sort=False)
        baselines = by_name[["loss", "one_suggestion"]].mean().reset_index()
        table = pd.concat(runs, ignore_index=True)
        summary = summarize(table, self.settings, privacy)
        return {
            "runs.csv": tables.write(table).encode(),
            "summary.csv": tables.write(summary).encode(),
            "scaling.png": plot(table, self.settings),
            study.PAGE: self._page(summary, baselines),
        }

    def _page(self, summary: pd.DataFrame, baselines: pd.DataFrame) -> bytes:
        labels = {setting.name: setting.label for setting in self.settings}
        lines = []
        for row in summary.itertuples():
            rho = "none" if math.isinf(row.rho) else f"{row.rho:.3g}"
            right, half = row.one_suggestion, row.one_suggestion_half
            cost = ""
            if not math.isnan(row.noise_costs):
                cost = intervals.shown(row.noise_costs, row.noise_costs_half, ".4f")
            loss = intervals.shown(row.loss, row.loss_half, ".3f")
            shown = [loss, cost, intervals.shown(right, half, ".2%"), rho]
            lines.append([labels[row.setting], str(row.repeats), *shown])
        table = pages.table_of(
            [
                *("", "repeats", "loss", "loss, less that without noise"),
                *("one suggestion", "zCDP rho (realised)"),
            ],
            lines,
        )
        for row in baselines.itertuples():
            table.append(
                f"| {row.baseline} | | {row.loss:.3f} | | {row.one_suggestion:.2%} | |"
            )
        return pages.page(
            self.title,
            "After the last round, on held-out clients; mean of the repeats, with 95% "
            "intervals by Student's t:",
            table,
            pages.notes(
                f"The noise multiplier is {self.noise_per_client:.3g} times the report "
                "goal (the paper's 7 over 6,500 is 0.00108). Runs of one repeat differ "
                "only in report goal and noise. Repeats have one population, and "
                "separate held-out clients, cohorts, first weights and noise.",
                "A client is in one round at most, so larger rounds also read more "
                "data. The runs without noise show the effect of that.",
                "The cost of noise is the difference of two runs of one repeat, so it "
                "has a smaller interval than either loss.",
            ),
        )


def summarize(
    table: pd.DataFrame,
    settings: Sequence[training_runs.Setting],
    privacy: Mapping[str, Sequence[Mapping]],
) -> pd.DataFrame:
    """Returns a row a setting: its last round's means over repeats.

    Args:
        table: A row a round of each run, with its setting and repeat.
        settings: Settings in the order of the rows.
        privacy: Statements of the runs by setting.

    Returns:
        `setting`, `repeats`, `loss`, `one_suggestion`, each with half of the 95%
        interval (nan of one repeat); `noise_costs` and half of its interval: the loss
        less that of the run without noise of the same repeat, nan where there is none;
        and `rho`, the largest of a run, infinite without noise.
    """
    rows = []
    lasts = {
        str(name): of_setting.groupby("repeat").last()
        for name, of_setting in table.groupby("setting")
    }
    for setting in settings:
        if setting.name not in lasts:
            continue
        last = lasts[setting.name]
        guarantees = [
            one for of in privacy[setting.name] for one in of["guarantees"][:1]
        ]
        rho = max((one["rho"] for one in guarantees), default=math.inf)
        row = {"setting": setting.name, "repeats": len(last)}
        for name, column in (("loss", _LOSS), ("one_suggestion", _SUGGESTION)):
            values = last[column].to_numpy()
            row[name] = values.mean()
            row[f"{name}_half"] = intervals.half_of_mean(values)
        mechanism, _, goal = setting.name.rpartition("_")
        plain = lasts.get(f"{_PLAIN}_{goal}") if mechanism == _PRIVATE else None
        costs = np.array([])
        if plain is not None:
            costs = (last[_LOSS] - plain[_LOSS]).dropna().to_numpy()
        row["rho"] = rho
        row["noise_costs"] = costs.mean() if costs.size else math.nan
        row["noise_costs_half"] = intervals.half_of_mean(costs)
        rows.append(row)
    return pd.DataFrame(rows)


def plot(table: pd.DataFrame, settings: Sequence[training_runs.Setting]) -> bytes:
    """Plots loss and suggestions over rounds, mean and range; returns a PNG."""
    panels = {
        _LOSS: metric_names.title("loss"),
        _SUGGESTION: metric_names.title("one_suggestion"),
    }
    return training_runs.plot(table, settings, panels, marker="o", ms=3)


def prepare(
    name: str, options: Options, *, seed: int, cache: str | os.PathLike[str]
) -> ScalingStudy:
    """Returns the study; see `studies`.

    Raises:
        PopulationError: If there are no posts of bloggers.
    """
    del name
    rounds = (f"--num_rounds={options.rounds}",)
    data: dict[str, str] = {}
    flags: tuple[str, ...]
    if options.data_dir is None:
        clients = options.goals[-1] * options.rounds + _SPARE_CLIENTS
        flags = (
            f"--flagfile={training_runs.ROOT / _SYNTHETIC}",
            f"--num_clients={clients}",
            f"--min_separation={options.rounds - 1}",
            *rounds,
        )
    else:
        posts = xu_2023.posts_file(options.data_dir, cache)
        data["posts"] = data_parts.fingerprint(posts)
        flagfile = f"--flagfile={training_runs.ROOT / _BLOGS}"
        flags = (flagfile, f"--population={posts}", *rounds)
    return ScalingStudy(
        title=_TITLE,
        settings=settings_of(options),
        flags=flags,
        cache=cache,
        seed=seed,
        data=data,
        num_repeats=options.num_repeats,
        noise_per_client=options.noise_per_client,
    )
