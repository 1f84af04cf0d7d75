"""Models that are useful and private (Xu et al. 2023, sections 2.2 and 3).

A million simulated clients train models of 10,000 words, 6,500 of them a round with a
noise multiplier of 7, as the paper's do: so noise a client and guarantee are both the
paper's. The text is a synthetic language, whose law is known, or that of bloggers; each
of these stands for many clients, so that guarantee is for simulated clients alone.

Rows have the same clip norm and rates: those that `xu_quality_choice` chose on two
shards of bloggers that are not among these (clients' rate 6, server's 4, clip norm 1).
The batch is that of `configs/training_demo.flagfile`, whose clients have 80 words, too.
Nothing was searched for here.
"""

import collections
import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from federated_hh.files import tables
from federated_hh.run_directory import directory as run_directory
from studies import study, training_runs
from studies.xu_2023 import guarantee_report, quality, quality_report
from studies.xu_2023 import quality_steps as steps_lib
from studies.xu_2023.guarantee_settings import (
    BLOGS,
    SYNTHETIC,
    Options,
    TextRun,
    settings_of,
)

_TITLE = "Useful and private: {clients:,} clients, {cohort:,} a round, z = {z:g}"
# Runs begin with one another's models, and are evaluated together.
IS_DIVISIBLE = False
# The text of configs/training_synthetic_10k.flagfile, but for the clients' lengths.
_SYNTHETIC_TEXT = quality.flags_of(
    quality.SYNTHETIC_FLAGFILE,
    ("mean_sentence_words", "context_words", "context_strength", "num_followers"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GuaranteeStudy(training_runs.TrainingStudy):
    """Federated models of the paper's noise and guarantee; a `study.Study`.

    Attributes:
        settings: See base class.
        population: Flags of each text.
        chat: Flags of central training on the public chat.
    """

    settings: Sequence[TextRun]
    population: Mapping[str, Sequence[str]]
    chat: Sequence[str]

    def check_clients(self) -> None:
        """Checks that the clients of each text are enough for its runs.

        Raises:
            ValueError: If they are not, or their text cannot be prepared.
        """
        seeds = range(self.seed, self.seed + self.num_repeats)
        for text, population in self.population.items():
            flags = (*self.flags, *population)
            training_runs.check_participation(
                training_runs.num_clients(flags, self.cache, seeds),
                flags,
                [
                    setting
                    for setting in self.settings
                    if setting.text == text and setting.program == steps_lib.TRAIN
                ],
            )

    def run_part(
        self,
        setting: training_runs.Setting,
        repeat: int,
        part: run_directory.RunDirectory,
    ) -> dict[str, list[dict[str, Any]]]:
        """Runs a program, or goes on where it was stopped; see `study.Study`.

        Raises:
            RuntimeError: If it fails.
        """
        assert isinstance(setting, TextRun)

        def sibling(name: str) -> pathlib.Path:
            return part.path.parent / study.part_name(name, repeat)

        if setting.program == steps_lib.TRAIN:
            flags = [*self.flags, *self.population[setting.text], *setting.flags]
        elif setting.program == steps_lib.CENTRALLY:
            flags = [*self.chat, *setting.flags]
        else:
            names = [s.name for s in self._trained(setting.text)]
            models = map(str, map(sibling, names))
            flags = [f"--model={','.join(models)}"]
        if setting.begins_with is not None:
            model = sibling(setting.begins_with) / "model"
            flags += [f"--initial_model={model}", "--initial_bias=zero"]
        flags.append(f"--seed={self.seed + repeat}")
        training_runs.train(
            part.path, flags, self.cache, setting.label, program=setting.program
        )
        return {}

    def _trained(self, text: str) -> list[TextRun]:
        """Returns the runs whose models are evaluated; the chat's last."""
        of_text = [s for s in self.settings if s.text == text]
        return [
            setting
            for program in (steps_lib.TRAIN, steps_lib.CENTRALLY)
            for setting in of_text
            if setting.program == program
        ]

    def files(self, found: study.Tables, directory: pathlib.Path) -> dict[str, bytes]:
        """Returns the files of results by name; see `study.Study`."""
        del found
        rounds, judged, stated = [], [], collections.defaultdict(list)
        for (setting, repeat), path in self.paths(directory).items():
            assert isinstance(setting, TextRun)
            if setting.program == steps_lib.TRAIN:
                of_run = training_runs.read_metrics(path)
                of_run.insert(0, "setting", setting.name)
                rounds.append(of_run.assign(repeat=repeat))
                stated[setting.name].append(training_runs.read_privacy(path))
            elif setting.program == steps_lib.JUDGE:
                scores = quality_report.read_judged(path)
                scores.insert(0, "text", setting.text)
                judged.append(scores.assign(repeat=repeat))
        table = guarantee_report.summarize(
            pd.concat(judged, ignore_index=True), self.settings, stated
        )
        runs = pd.concat(rounds, ignore_index=True)
        return {
            "runs.csv": tables.write(runs).encode(),
            "models.csv": tables.write(table).encode(),
            **{
                f"guarantee_{text}.png": guarantee_report.plot(
                    runs, table, [s for s in self.settings if s.text == text]
                )
                for text in table["text"].unique()
            },
            study.PAGE: guarantee_report.page(self.title, table),
        }


def prepare(
    name: str, options: Options, *, seed: int, cache: str | os.PathLike[str]
) -> GuaranteeStudy:
    """Returns the study; see `studies`.

    Raises:
        PopulationError: If there are no posts, or no chat.
    """
    del name
    population: dict[str, tuple[str, ...]] = {}
    data: dict[str, str] = {}
    chat: tuple[str, ...] = ()
    if SYNTHETIC in options.chosen_texts:
        population[SYNTHETIC] = (
            "--population=synthetic",
            f"--num_clients={options.num_clients}",
            f"--mean_words_per_client={options.client_words}",
            *_SYNTHETIC_TEXT,
        )
    if BLOGS in options.chosen_texts:
        assert options.data_dir is not None
        posts, messages, data = quality.bloggers_and_chat(
            "xu_quality", options.data_dir, cache
        )
        population[BLOGS] = (
            f"--population={posts}",
            f"--resampled_clients={options.num_clients}",
            f"--resampled_words={options.client_words}",
        )
        chat = (
            f"--population={messages}",
            *quality.OF_CHAT,
            "--initial_bias=public",
            "--max_sentences=32",
            "--onednn",
            *options.model,
        )
    return GuaranteeStudy(
        title=_TITLE.format(
            clients=options.num_clients,
            cohort=options.cohort_size,
            z=options.noise_multiplier,
        ),
        settings=settings_of(options),
        flags=options.training,
        population=population,
        chat=chat,
        cache=cache,
        seed=seed,
        data=data,
        num_repeats=options.num_repeats,
    )
