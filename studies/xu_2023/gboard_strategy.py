"""Section 2.5 of Xu et al. 2023 as a command: from a population to a run's flagfile.

The paper's steps, walked on a population that is simulated: the clip norm and the
server's learning rate come from runs of a small report goal with the clip norm
adapting; the noise that the model bears from runs of that goal with the clip norm
fixed; then report goal and noise grow in proportion until the privacy target is met,
and MinS and the timer are made as large as the population and its clock allow. What is
left is a flagfile for `training.run_training`.
"""

import dataclasses
import functools
import hashlib
import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import pandas as pd
from absl import logging

from federated_hh.files import tables
from federated_hh.options import option_flags
from federated_hh.privacy import drawn_noise
from federated_hh.reports import plots
from federated_hh.rounds import timers
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import record as run_record
from studies import study, training_runs
from studies.xu_2023 import gboard_flags, gboard_page, gboard_privacy
from studies.xu_2023.gboard_options import Options, numbers
from studies.xu_2023.gboard_privacy import Decisions
from training.federated import plans
from training.federated.options import TrainingOptions
from training.models import metric_names

_LOSS = "held_out_loss"
_COLORS = (plots.BLUE, plots.ORANGE, plots.GREEN, plots.PURPLE, plots.MUTED)
# Of quantiles, in a plot.
_LINES = (":", "--", "-.")
_PANELS = {
    _LOSS: metric_names.title("loss"),
    "tracked_norm": "Clip norm: as estimated, or as fixed",
}
FLAGFILE = "final.flagfile"
# A setting's flags come from the results of others.
IS_DIVISIBLE = False


def clip_norm(tracked: pd.Series) -> float:
    """Returns the clip norm that a run has found, to few digits.

    Args:
        tracked: Its estimate after each round. Of few clients one has much noise, so
            the median of the last quarter of the rounds counts.
    """
    last = tracked.iloc[-math.ceil(len(tracked) / 4) :]
    return gboard_privacy.rounded(float(last.median()))


def best_adapting(last: pd.Series) -> tuple[float, float]:
    """Returns the learning rate and the quantile with the least loss.

    Args:
        last: Losses by learning rate and quantile; one that is not finite is none.

    Raises:
        ValueError: If none is finite.
    """
    if not last.map(math.isfinite).any():
        raise ValueError(
            "no experiment has a finite held-out loss; begin a new study with lower "
            "--server_learning_rates, or a lower --client_learning_rate in the flagfile"
        )
    rate, quantile = last[last.map(math.isfinite)].idxmin()
    return rate, quantile


def largest_noise(last: pd.Series, tolerance: float) -> float:
    """Returns the largest noise that a model bears, with all smaller ones.

    Args:
        last: Losses by noise a client, increasing.
        tolerance: See `Options.loss_tolerance`.

    Raises:
        ValueError: If the loss with the least noise is not finite.
    """
    if not math.isfinite(last.iloc[0]):
        raise ValueError(
            f"noise multipliers of {last.index[0]:g} a client, the least, have a held-"
            f"out loss of {last.iloc[0]}; it has to be finite: begin a new study with "
            "smaller --noises_per_client or --server_learning_rates"
        )
    allowed = last.iloc[0] * (1 + tolerance)
    borne = last.le(allowed).cummin()
    return float(last[borne].index[-1])


@dataclasses.dataclass(frozen=True, kw_only=True)
class StrategyStudy(training_runs.TrainingStudy):
    """The experiments, and the decisions that follow; a `study.Study`.

    Attributes:
        options: The strategy's options.
        lines: Flags of the given flagfile, without those that are decided.
    """

    options: Options
    lines: Sequence[str]

    def run_part(
        self,
        setting: training_runs.Setting,
        repeat: int,
        part: run_directory.RunDirectory,
    ) -> dict[str, list[dict[str, Any]]]:
        """Trains; settings with a fixed clip norm come after those that find it.

        A run whose model would no longer be finite stays as it is: it has no loss.

        Raises:
            RuntimeError: If the run fails otherwise.
            ValueError: If the clients are not enough, or not those of the runs before.
        """
        if setting.name.startswith("noise"):
            rate, _, clip = self._clip(part.path.parent)
            decided = (f"--server_learning_rate={rate!r}", f"--clip_norm={clip!r}")
            setting = dataclasses.replace(setting, flags=(*setting.flags, *decided))
        try:
            super().run_part(setting, repeat, part)
        except training_runs.NotFiniteError:
            logging.info("%s: it counts as an infinite loss.", setting.label)
        training_runs.check_same_data(self._begun(part.path.parent))
        return {}

    def _begun(self, directory: pathlib.Path) -> list[pathlib.Path]:
        """Returns the directories of the runs so far, finished or not."""
        paths = [directory / study.part_name(s.name, 0) for s in self.settings]
        return [path for path in paths if (path / run_record.FACTS_FILE).exists()]

    def check_clients(self) -> None:
        """Checks before the first run that the last one is possible in any case.

        Raises:
            ValueError: If there are too few clients for it, or for an experiment; or
                no noise that a run can have meets the target.
        """
        super().check_clients()
        _ = self._report_goals

    @functools.cached_property
    def _report_goals(self) -> list[int]:
        """The final run's report goal for each noise that is tried.

        Who takes part follows from the seed and the number of clients, so it is known
        before anybody trains.
        """
        goal, clients = self.options.largest_report_goal, self._num_clients
        goals = []
        try:
            self.rule(clients, goal, 0)
            for noise in numbers(self.options.noises_per_client):
                choice = self._choice(clients, noise)
                final = (
                    "--mechanism=dp_ftrl",
                    f"--cohort_size={choice.report_goal}",
                    f"--num_rounds={self.options.num_rounds}",
                    f"--noise_multiplier={choice.noise_multiplier!r}",
                    "--clip_norm=1",
                )
                option_flags.read_lines(TrainingOptions, (*self.lines, *final))
                goals.append(choice.report_goal)
        except (ValueError, timers.ReportGoalNotMetError) as error:
            raise ValueError(
                f"--largest_report_goal={goal}: {str(error).removesuffix('.')}. Begin "
                f"a new study with at most what {clients:,} clients allow, and a "
                f"--target_rho (now {self.options.target_rho:g}) that they can have"
            ) from error
        return goals

    def _metrics(self, directory: pathlib.Path, kind: str) -> dict[Any, pd.DataFrame]:
        """Returns metrics of the runs of a kind, by the numbers that they differ in."""
        return {
            gboard_page.experiment(setting.name): _read_metrics(
                directory / study.part_name(setting.name, 0)
            )
            for setting in self.settings
            if setting.name.startswith(f"{kind}_")
        }

    def _clip(self, directory: pathlib.Path) -> tuple[float, float, float]:
        """Returns the learning rate, the quantile and the clip norm that they found."""
        found = self._metrics(directory, "rate")
        rate, quantile = best_adapting(_last_losses(found))
        return rate, quantile, clip_norm(found[rate, quantile]["tracked_norm"])

    def decide(self, directory: pathlib.Path) -> Decisions:
        """Returns the decisions that follow from the experiments in a directory."""
        rate, quantile, clip = self._clip(directory)
        losses = _last_losses(self._metrics(directory, "noise"))
        noise = largest_noise(losses, self.options.loss_tolerance)
        first = directory / study.part_name(self.settings[0].name, 0)
        clients = training_runs.read_num_clients(first)
        choice = self._choice(clients, noise)
        seed = self._final_seed
        return Decisions(rate, quantile, clip, noise, clients, choice, seed)

    @property
    def _final_seed(self) -> int:
        return self.seed + 1

    def _choice(self, clients: int, noise: float) -> gboard_privacy.Choice:
        """Returns report goal, noise and timer for a noise that a model bears."""
        return gboard_privacy.choose(
            lambda goal, hours: self.rule(clients, goal, hours),
            seed=self._final_seed,
            noise_per_client=noise,
            small_goal=self.options.small_report_goal,
            largest_goal=self.options.largest_report_goal,
            target_rho=self.options.target_rho,
        )

    def rule(self, clients: int, goal: int, hours: int) -> timers.Timers:
        """Returns the participation rule of the final run."""
        final = (
            f"--cohort_size={goal}",
            f"--num_rounds={self.options.num_rounds}",
            f"--timer_hours={hours}",
            "--mechanism=fedavg",
        )
        given = option_flags.read_lines(TrainingOptions, (*self.lines, *final))
        return plans.sampler(given, clients)

    def flagfile(self, found: Decisions) -> str:
        """Returns the flagfile of the final run.

        Raises:
            ValueError: If its run is guaranteed less than was decided.
        """
        title = "# The final run, by section 2.5 of Xu et al. 2023."
        final = gboard_flags.final_lines(self.lines, self.options, found)
        return "\n".join([title, *final]) + "\n"

    def files(self, found: study.Tables, directory: pathlib.Path) -> dict[str, bytes]:
        """Returns the files of results by name; see `study.Study`."""
        del found
        decisions = self.decide(directory)
        runs = {s: directory / study.part_name(s.name, 0) for s in self.settings}
        table = pd.concat(
            [
                _read_metrics(path).assign(setting=setting.name)
                for setting, path in runs.items()
            ],
            ignore_index=True,
        )
        epsilon = drawn_noise.zcdp_to_epsilon(
            decisions.choice.rho, self.options.delta, self.options.num_rounds
        )
        page = gboard_page.page(self.title, self.options, decisions, table, epsilon)
        return {
            FLAGFILE: self.flagfile(decisions).encode(),
            "experiments.csv": tables.write(table).encode(),
            "experiments.png": training_runs.plot(table, self.settings, _PANELS),
            study.PAGE: page,
        }


def _read_metrics(path: pathlib.Path) -> pd.DataFrame:
    """Returns a row a round; one of an infinite loss where a model was not finite."""
    if training_runs.is_complete(path):
        return training_runs.read_metrics(path)
    nothing = {"clip_norm": [math.nan], "tracked_norm": [math.nan]}
    return pd.DataFrame({"round": [0], _LOSS: [math.inf]} | nothing)


def _last_losses(metrics: dict[Any, pd.DataFrame]) -> pd.Series:
    return pd.Series({key: runs[_LOSS].iloc[-1] for key, runs in metrics.items()})


def prepare(
    name: str, options: Options, *, seed: int, cache: str | os.PathLike[str]
) -> StrategyStudy:
    """Returns the study; see `studies`.

    Raises:
        ValueError: If the flagfile cannot be read.
    """
    del name
    lines = gboard_flags.given_lines(options)
    goal, rounds = options.small_report_goal, options.small_rounds or options.num_rounds
    common = (
        *lines,
        "--mechanism=dp_ftrl",
        f"--cohort_size={goal}",
        f"--num_rounds={rounds}",
        f"--clip_norm={options.first_clip_norm!r}",
    )
    least, *_ = noises = numbers(options.noises_per_client)
    every = max(1, rounds // 4)
    adapting = (
        "--adaptive_clip",
        f"--noise_multiplier={least * goal!r}",
        f"--clipped_count_stddev={max(goal / 20, least * goal)!r}",
        f"--first_restart={every}",
        f"--restart_period={every}",
    )
    settings = [
        training_runs.Setting(
            f"rate_{rate:g}_quantile_{quantile:g}",
            f"clip norm adapts to quantile {quantile:g}, server learning rate {rate:g}",
            (
                *adapting,
                f"--target_quantile={quantile!r}",
                f"--server_learning_rate={rate!r}",
            ),
            color,
            line,
        )
        for quantile, line in zip(
            numbers(options.target_quantiles), _LINES, strict=False
        )
        for rate, color in zip(
            numbers(options.server_learning_rates), _COLORS, strict=False
        )
    ]
    settings += [
        training_runs.Setting(
            f"noise_{noise:g}",
            f"clip norm fixed, z = {noise:g} m",
            (f"--noise_multiplier={noise * goal!r}",),
            color,
        )
        for noise, color in zip(noises, _COLORS, strict=False)
    ]
    return StrategyStudy(
        title="A run of DP-FTRL by section 2.5 of Xu et al. 2023",
        settings=settings,
        flags=common,
        cache=cache,
        seed=seed,
        data={"training flags": hashlib.sha256(repr(lines).encode()).hexdigest()},
        options=options,
        lines=lines,
    )
