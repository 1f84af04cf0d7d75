"""Quality of models, from scratch and pretrained (Xu et al. 2023, sections 2.3, 3).

Bloggers of ten shards train models of 10,000 words: without noise, with noise of a tree
and with independent noise, from random weights and from a model of public chat; beside
them stand n-grams and the same model trained centrally. Held-out bloggers, on whom no
setting was chosen, evaluate each model once, as a keyboard would use it. Settings are
chosen on bloggers of two other shards, by the study of that name.

A round has 100 clients, and the noise of each of them is that of 6,500 clients at a
noise multiplier of 7, so models are about as good as they would be there. What is
guaranteed to so few bloggers is another matter: next to nothing.
"""

import collections
import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from federated_hh.options import fields as options_lib
from federated_hh.options import option_flags
from federated_hh.options.fields import option
from federated_hh.populations.columns import prepared_data
from federated_hh.run_directory import directory as run_directory
from studies import data_parts, study, study_options, training_runs
from studies.xu_2023 import quality_report as xu_2023_quality_report
from studies.xu_2023 import quality_steps as steps_lib
from training.federated.options import TrainingOptions
from training.models import metric_names

CHOICE, SYNTHETIC = "xu_quality_choice", "xu_quality_synthetic"
_CONFIGS = training_runs.ROOT / "configs"
BLOGS_FLAGFILE = _CONFIGS / "training_blogs_10k.flagfile"
SYNTHETIC_FLAGFILE = _CONFIGS / "training_synthetic_10k.flagfile"
_POSTS = "blog-authorship/posts-*.jsonl.xz"
_MESSAGES = "ubuntu-irc/messages.csv.xz"
# Its bots write the same sentences again and again.
OF_CHAT = ("--drop_users=ubottu,ubotu,ubot3", "--empty_clients=drop")
# Flags that central training has in common with federated training.
_OF_TEXT = (
    "population",
    "num_clients",
    "mean_words_per_client",
    "mean_sentence_words",
    "context_words",
    "context_strength",
    "num_followers",
    "user_column",
    "text_column",
    "vocabulary_size",
    "initial_bias",
    "max_sentences",
    "num_held_out_clients",
)
_SHARDS = {"xu_quality": range(10), CHOICE: range(10, 12)}
_SIZES = {
    "small": ("--num_units=256", "--embedding_size=48"),
    "paper": ("--num_units=670", "--embedding_size=96"),
}
# Smart Compose at one picked rate, so that trigger rates can be compared.
_OF_JUDGES = ("--compose_picked_rate=0.15", "--lowest_threshold=0.2")
_NOTES: Mapping[str, tuple[str, ...]] = {
    "xu_quality": (
        *xu_2023_quality_report.NOTES,
        *xu_2023_quality_report.OF_JUDGED,
        "Held-out clients are bloggers on whom no run of their repeat trained. They "
        "also draw the curves over rounds. Rates of clients and server, and the clip "
        f"norm, come from the study `{CHOICE}`, on bloggers of two other shards.",
        "FedAvg has DP-FTRL's clip norm. Without one it diverged at that server rate, "
        "and at a lower rate it was behind the best with a clip (same study). Central "
        "training has the program's default rate.",
    ),
    CHOICE: (
        *xu_2023_quality_report.NOTES,
        "Bloggers of two shards train and evaluate, to choose settings for bloggers of "
        "ten others. A model is that of the last round.",
    ),
    SYNTHETIC: (
        *xu_2023_quality_report.NOTES,
        *xu_2023_quality_report.OF_JUDGED,
        "No run trained on held-out clients. Clip norms and rates are those of the "
        "study of bloggers, `xu_quality`.",
    ),
}


@dataclasses.dataclass(frozen=True)
class Options(study_options.StudyOptions):
    """Options of the study; each field is a flag. The rest is in a flagfile."""

    data_dir: str | None = option(
        None,
        "The directory that holds the data sets blog-authorship and ubuntu-irc; not "
        "needed for the synthetic language.",
    )
    size: str = option(
        "small",
        "The model: 256 units and embeddings of 48, or the paper's 670 and 96.",
        choices=tuple(_SIZES),
    )
    steps: tuple[str, ...] = option(
        (),
        "Steps that are run, of "
        + ", ".join(step.name for step in steps_lib.STEPS)
        + "; the chat's comes with those that begin with it. Of the choice of rates, "
        "of clients_3_server_4 and its like. By default all.",
    )
    num_rounds: int | None = option(
        None,
        "Rounds, instead of the flagfile's; the step that has three times as many has "
        "three times these.",
        least=1,
        most=100_000,
    )
    server_learning_rate: float | None = option(
        None,
        "The server's rate of federated training, instead of the flagfile's.",
        above=0,
        most=1000,
    )
    num_repeats: int = option(3, "Runs of each, with other seeds.", least=1, most=1000)

    def chosen(self, steps: tuple[steps_lib.Step, ...]) -> tuple[steps_lib.Step, ...]:
        """Returns the steps that are run, those that others begin with among them.

        Args:
            steps: All steps of the study.

        Raises:
            OptionError: If it has not all that are wanted.
        """
        if not self.steps:
            return steps
        known = {step.name for step in steps}
        if not known.issuperset(self.steps):
            raise options_lib.OptionError(
                self,
                "{steps=}: has to name some of {known}",
                known=", ".join(sorted(known)),
            )
        if {*self.steps} == {steps_lib.CHAT}:
            raise options_lib.OptionError(
                self,
                "{steps=}: has to name some that are trained on bloggers, too, whose "
                "held-out ones evaluate",
            )
        needed = {step.begins_with for step in steps if step.name in self.steps}
        return tuple(s for s in steps if s.name in {*self.steps, *needed})


@dataclasses.dataclass(frozen=True, kw_only=True)
class QualityStudy(training_runs.TrainingStudy):
    """Models side by side on the same held-out clients; a `study.Study`.

    Attributes:
        flags: The flags of federated training on the bloggers.
        central: The run of central training on the bloggers' text.
        chat: The run of central training on the public text.
        notes: Notes on the runs, a sentence or more each.
    """

    central: Sequence[str]
    chat: Sequence[str]
    notes: Sequence[str]

    @property
    def federated(self) -> Sequence[training_runs.Setting]:
        """The steps that are runs of `training.run_training`."""
        steps = [s for s in self.settings if isinstance(s, steps_lib.Step)]
        return [step for step in steps if step.program == steps_lib.TRAIN]

    def run_part(
        self,
        setting: training_runs.Setting,
        repeat: int,
        part: run_directory.RunDirectory,
    ) -> dict[str, list[dict[str, Any]]]:
        """Runs a step, or goes on where it was stopped; see `study.Study`.

        Raises:
            RuntimeError: If its program fails.
            ValueError: If the bloggers are not enough for all settings.
        """
        assert isinstance(setting, steps_lib.Step)
        self.check_clients()

        def sibling(name: str) -> pathlib.Path:
            return part.path.parent / study.part_name(name, repeat)

        seed = f"--seed={self.seed + repeat}"
        if setting.name == steps_lib.JUDGED:
            # The first run says what the population is, and who was held out.
            names = {s.name for s in self.settings} - {steps_lib.JUDGED}
            own = [s.name for s in self.settings if s.name in names - {steps_lib.CHAT}]
            models = map(sibling, [*own, *(names & {steps_lib.CHAT})])
            flags = [f"--model={','.join(map(str, models))}", *_OF_JUDGES, seed]
        elif setting.name == steps_lib.CHAT:
            flags = [*self.chat, *setting.flags, seed]
        elif setting.program == steps_lib.CENTRALLY:
            flags = [*self.central, *setting.flags, seed]
        else:
            flags = [*self.flags, *setting.flags, seed]
        if setting.begins_with is not None:
            model = sibling(setting.begins_with) / "model"
            flags += [f"--initial_model={model}", "--initial_bias=zero"]
        training_runs.train(
            part.path, flags, self.cache, setting.label, program=setting.program
        )
        return {}

    def files(self, found: study.Tables, directory: pathlib.Path) -> dict[str, bytes]:
        """Returns the files of results by name; see `study.Study`."""
        del found
        rounds, baselines, judged, shared = [], [], [], []
        stated = collections.defaultdict(list)
        for (setting, repeat), path in self.paths(directory).items():
            assert isinstance(setting, steps_lib.Step)
            if setting.name == steps_lib.JUDGED:
                judged.append(xu_2023_quality_report.read_judged(path))
            elif setting.program == steps_lib.TRAIN:  # other training has no rounds
                of_run = training_runs.read_metrics(path)
                rounds.append(of_run.assign(setting=setting.name, repeat=repeat))
                of_ngrams = training_runs.read_baselines(path)
                is_counted = of_ngrams["baseline"].isin(metric_names.NGRAMS)
                is_best = of_ngrams["baseline"] == metric_names.BEST_POSSIBLE
                baselines.append(of_ngrams[is_counted | is_best])
                stated[setting.name].append(training_runs.read_privacy(path))
                if setting.begins_with is not None:
                    shared.append(training_runs.read_shared_text(path))
        return xu_2023_quality_report.files_of(
            self.title,
            xu_2023_quality_report.Runs(
                self.settings,
                _joined(rounds, "setting", "repeat", "round", "held_out_loss"),
                judged,
                _joined(baselines, "baseline", *metric_names.LABELS),
                # Of repeats, what the weakest of them guarantees.
                {name: max(of, key=_epsilon) for name, of in stated.items()},
            ),
            (*self.notes, *_of_chat(shared)),
        )


def _joined(tables: Sequence[pd.DataFrame], *first: str) -> pd.DataFrame:
    """Returns tables below one another, some of their columns before the others."""
    if not tables:
        return pd.DataFrame(columns=[*first])
    joined = pd.concat(tables, ignore_index=True)
    others = joined.columns.difference(first, sort=False)
    return joined.reindex(columns=[*first, *others])


def _epsilon(statement: Mapping[str, Any]) -> float:
    """Returns the epsilon of a run, zeroed out; 0 where it guarantees nothing."""
    return max((one["epsilon"] for one in statement["guarantees"][:1]), default=0.0)


def _of_chat(shared: Sequence[Mapping[str, Any] | None]) -> list[str]:
    """Returns notes on the chat where the bloggers' runs began with it.

    Args:
        shared: Overlap of each such run: see `training_runs.read_shared_text`.
    """
    if not shared:
        return []
    compared = [found for found in shared if found is not None]
    if len(compared) < len(shared):
        return ["The chat counts as public; it was not compared with the blogs."]
    most = {name: max(f[name] for f in compared) for name in ("ids", "sentences")}
    return [
        "The chat counts as public. Each run that begins with it compared both texts: "
        f"they share {most['ids']:,} ids, and a dozen words in a row with "
        f"{most['sentences']:,} of the bloggers' sentences."
    ]


def _synthetic(options: Options) -> tuple[tuple[steps_lib.Step, ...], dict[str, Any]]:
    """Returns the steps on the synthetic language, and what they run on."""
    scratch = [step for step in steps_lib.STEPS if step.begins_with is None]
    steps = tuple(step for step in scratch if step.name != steps_lib.CHAT)
    return options.chosen(steps), {
        "title": f"Models of 10,000 words from a known language ({options.size})",
        "flags": (f"--flagfile={SYNTHETIC_FLAGFILE}",),
        "central": flags_of(SYNTHETIC_FLAGFILE, _OF_TEXT),
        "chat": (),
        "data": {},
    }


def _blogs(
    name: str, options: Options, cache: str | os.PathLike[str]
) -> tuple[tuple[steps_lib.Step, ...], dict[str, Any]]:
    """Returns the steps on bloggers' text, and what they run on."""
    steps = options.chosen(steps_lib.choices() if name == CHOICE else steps_lib.STEPS)
    if options.data_dir is None:
        raise options_lib.OptionError(
            options,
            "{data_dir} is not given: {name} needs the bloggers' text",
            name=name,
        )
    posts, chat, data = bloggers_and_chat(name, options.data_dir, cache)
    common = flags_of(BLOGS_FLAGFILE, _OF_TEXT)
    return steps, {
        "title": f"Models of 10,000 words from bloggers' text ({options.size})",
        "flags": (f"--flagfile={BLOGS_FLAGFILE}", f"--population={posts}"),
        "central": (f"--population={posts}", *common),
        "chat": (f"--population={chat}", *common, *OF_CHAT),
        "data": data,
    }


def bloggers_and_chat(
    name: str, data_dir: str, cache: str | os.PathLike[str]
) -> tuple[pathlib.Path, pathlib.Path, dict[str, str]]:
    """Returns the files of bloggers' posts and of public chat, and fingerprints.

    Args:
        name: Name of the study, which decides the shards of the posts.
        data_dir: Directory of the data sets.
        cache: Directory that keeps the joined shards.

    Raises:
        PopulationError: If there are no posts, or no chat.
    """
    files = _shards(data_dir, name)
    posts = data_parts.join_parts(files, cache, "bloggers.jsonl.xz")
    [chat] = data_parts.parts_of(data_dir, _MESSAGES)
    data = {path.name: data_parts.fingerprint(path) for path in (posts, chat)}
    return posts, chat, data


def _shards(data_dir: str, name: str) -> list[pathlib.Path]:
    """Returns the posts' shards of a study."""
    numbers = {f"posts-{number:02d}-" for number in _SHARDS[name]}
    files = [
        path
        for path in data_parts.parts_of(data_dir, _POSTS)
        if path.name[: len("posts-00-")] in numbers
    ]
    missing = numbers - {path.name[: len("posts-00-")] for path in files}
    if missing:
        raise prepared_data.PopulationError(
            f"data_dir: {data_dir} has no {', '.join(sorted(missing))}* of {_POSTS}; "
            f"the study needs the shards {min(_SHARDS[name]):02d} to "
            f"{max(_SHARDS[name]):02d}"
        )
    return files


def prepare(
    name: str, options: Options, *, seed: int, cache: str | os.PathLike[str]
) -> QualityStudy:
    """Returns the study; see `studies`.

    Raises:
        OptionError: If text is needed, and not given, or an option is of no use.
        PopulationError: If there are no posts, or no chat.
    """
    if name == CHOICE:
        _check_own(options, name)
    if name == SYNTHETIC:
        steps, parts = _synthetic(options)
    else:
        steps, parts = _blogs(name, options, cache)
    if name != CHOICE:
        steps += (steps_lib.JUDGING,)
    more: tuple[str, ...] = _SIZES[options.size]
    notes, rate = _NOTES[name], options.server_learning_rate
    federated: tuple[str, ...] = ()
    if rate is not None:
        federated = (f"--server_learning_rate={rate!r}",)
        notes += (f"The server's rate of federated training is {rate:g} here.",)
    if name != CHOICE:
        more += ("--onednn",)  # as fast or faster, in a study that takes hours
    return QualityStudy(
        settings=tuple(
            _lasting(step, parts["flags"], options.num_rounds) for step in steps
        ),
        cache=cache,
        seed=seed,
        num_repeats=options.num_repeats,
        notes=notes,
        **parts
        | {
            "flags": (*parts["flags"], *federated, *more),
            "central": (*parts["central"], *more),
            "chat": (*parts["chat"], *more),
        },
    )


def _check_own(options: Options, name: str) -> None:
    """Refuses what the study that chooses settings has of its own."""
    if options.num_rounds is not None:
        raise options_lib.OptionError(
            options,
            "{num_rounds=}: {name} has rounds of its own; leave it out",
            name=name,
        )
    if options.server_learning_rate is not None:
        raise options_lib.OptionError(
            options,
            "{server_learning_rate=}: {name} tries rates of its own; leave it out",
            name=name,
        )


def _lasting(
    step: steps_lib.Step, flags: Sequence[str], num_rounds: int | None
) -> steps_lib.Step:
    """Returns a step with the rounds that are not those of the study's flags.

    Args:
        step: Step of the study.
        flags: Flags of all federated runs.
        num_rounds: Rounds of the study where those of its flags are not taken.
    """
    is_usual = step.times == 1 and num_rounds is None
    if step.program != steps_lib.TRAIN or is_usual:
        return step
    given = option_flags.read_lines(TrainingOptions, (*flags, *step.flags))
    assert given.max_participation is not None
    return step.lasting(num_rounds or given.num_rounds, given.max_participation)


def flags_of(flagfile: pathlib.Path, names: Sequence[str]) -> tuple[str, ...]:
    """Returns the flags of some names that a flagfile gives.

    Args:
        flagfile: A flag a line.
        names: The names of flags.
    """
    lines = flagfile.read_text().splitlines()
    return tuple(
        line for line in lines if line.startswith(tuple(f"--{n}=" for n in names))
    )
