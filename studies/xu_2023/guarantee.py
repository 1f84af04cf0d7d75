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
import math
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from federated_hh.files import tables
from federated_hh.options import fields as options_lib
from federated_hh.options import option_flags
from federated_hh.options.fields import option
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import rounding
from federated_hh.reports import plots
from federated_hh.run_directory import directory as run_directory
from studies import intervals, pages, study, study_options, training_runs
from studies.xu_2023 import quality, quality_report
from studies.xu_2023 import quality_steps as steps_lib
from training.federated import plans
from training.federated.options import TrainingOptions
from training.models import metric_names

_TITLE = "Useful and private: {clients:,} clients, {cohort:,} a round, z = {z:g}"
SYNTHETIC, BLOGS = "synthetic", "blogs"
_LABELS = {SYNTHETIC: "synthetic language", BLOGS: "bloggers' text"}
_TREE, _BLT, _SMALL = "dp_ftrl", "blt", "dp_ftrl_small"
ROWS = {
    steps_lib.FEDAVG: ("FedAvg, same clip", plots.GREEN),
    _TREE: ("DP-FTRL, tree", plots.BLUE),
    _BLT: ("DP-FTRL, BLT", plots.PURPLE),
    _SMALL: ("DP-FTRL, tree", plots.ORANGE),
}
# Runs begin with one another's models, and are evaluated together.
IS_DIVISIBLE = False
# Of models that begin with public chat, one a length.
_LINES = (":", "--", "-.")
# The share of the clients that surely train: 200 of 12,145 bloggers are held out.
_TRAINING = 0.97
_COMMON = (
    "--initial_bias=public",
    "--batch_size=8",
    "--max_sentences=32",
    "--clip_norm=1",
    "--client_learning_rate=6",
    "--server_learning_rate=4",
    "--model_average=0.95",
    "--nodiurnal",
    "--timer_hours=0",
    "--onednn",
)
# The text of configs/training_synthetic_10k.flagfile, but for the clients' lengths.
_SYNTHETIC_TEXT = quality.flags_of(
    quality.SYNTHETIC_FLAGFILE,
    ("mean_sentence_words", "context_words", "context_strength", "num_followers"),
)
# The part of the rounds that plots leave out of sight, so that last ones differ.
_CUT = 0.1
_COLUMNS = ("loss", "one_suggestion", "picked_rate")


@dataclasses.dataclass(frozen=True)
class Options(study_options.StudyOptions):
    """Options of the study; each field is a flag."""

    data_dir: str | None = option(
        None,
        "The directory that holds the data sets blog-authorship and ubuntu-irc. "
        "Without it, the synthetic language alone.",
    )
    texts: tuple[str, ...] = option(
        (),
        f"Texts, of {SYNTHETIC} and {BLOGS}. By default both, with --data_dir.",
    )
    rows: tuple[str, ...] = option(
        tuple(ROWS),
        f"Runs on each text, of {', '.join(ROWS)}. The last has --small_cohort_size "
        "clients a round, with as much noise a client.",
    )
    pretraining_epochs: tuple[str, ...] = option(
        ("2",),
        "Run each but the last on bloggers' text from a model of public chat, too: of "
        "so many passes over it, such as 0.25,1,2 for three models. Empty: none.",
    )
    tied_embeddings: bool = option(
        True,
        "Use the input embedding as output embedding, too. The paper found such models "
        "hard to fine-tune, and gave its own two.",
    )
    num_clients: int = option(
        1_030_000, "Simulated clients of each text.", least=2, most=2**31 - 1
    )
    client_words: int = option(
        80,
        "Words that a client has: the mean of the synthetic ones, and the most that "
        "one has of a blogger's.",
        least=2,
        most=10_000,
    )
    cohort_size: int = option(6500, "Clients of a round.", least=1, most=2**29 - 1)
    small_cohort_size: int = option(
        500,
        "Clients of a round in dp_ftrl_small, as in the paper's test.",
        least=1,
        most=2**29 - 1,
    )
    noise_multiplier: float = option(
        7.0,
        "z of the tree's noise; BLT's has the same zCDP.",
        least=0.001,
        most=2.0**20,
    )
    num_rounds: int = option(400, "Rounds of each run.", least=1, most=100_000)
    num_units: int = option(256, "Memory cells of the model.", least=1, most=2**16)
    embedding_size: int = option(48, "Size of its embeddings.", least=1, most=2**16)
    vocabulary_size: int = option(10_000, "Words of the model.", least=1, most=2**20)
    num_held_out_clients: int = option(
        200,
        "Clients, each of another blogger, that evaluate models and train none.",
        least=1,
        most=2**31 - 1,
    )
    num_repeats: int = option(
        1, "Runs of each row, with seeds of their own.", least=1, most=1000
    )

    def __post_init__(self):
        super().__post_init__()
        for name, known in (("texts", [*_LABELS]), ("rows", [*ROWS])):
            given = getattr(self, name)
            if len({*given}) < len(given) or not {*given} <= {*known}:
                raise options_lib.OptionError(
                    self,
                    f"{{{name}=}}: has to name some of {{known}}, each once",
                    known=", ".join(known),
                )
        lengths = self.pretraining_epochs
        if not all(map(_is_length, lengths)) or len(lengths) > len(_LINES):
            raise options_lib.OptionError(
                self, "{pretraining_epochs=}: has to be at most three numbers above 0"
            )
        if not self.rows:
            raise options_lib.OptionError(self, "{rows=}: has to name at least one")
        if BLOGS in self.texts and self.data_dir is None:
            raise options_lib.OptionError(
                self, "{texts=}: needs the bloggers' text; give {data_dir}"
            )
        if self.min_separation < 0:
            raise options_lib.OptionError(
                self,
                "{cohort_size=} is more than the clients that train, 97% of "
                "{num_clients=}; give fewer a round, or more clients",
            )

    @property
    def chosen_texts(self) -> tuple[str, ...]:
        """The texts that models are trained on."""
        both = (SYNTHETIC, BLOGS) if self.data_dir is not None else (SYNTHETIC,)
        return self.texts or both

    @property
    def min_separation(self) -> int:
        """MinS: what the clients allow, if 3% of them are held out."""
        largest = int(_TRAINING * self.num_clients) // self.cohort_size - 1
        return min(largest, self.num_rounds - 1)

    @property
    def max_participation(self) -> int:
        """MaxP, which follows from MinS."""
        return math.ceil(self.num_rounds / (self.min_separation + 1))

    @property
    def training(self) -> tuple[str, ...]:
        """The flags of all federated runs."""
        return (
            *_COMMON,
            f"--cohort_size={self.cohort_size}",
            f"--num_rounds={self.num_rounds}",
            f"--min_separation={self.min_separation}",
            f"--max_participation={self.max_participation}",
            f"--evaluate_every={max(1, self.num_rounds // 20)}",
            *self.model,
        )

    @property
    def model(self) -> tuple[str, ...]:
        """The flags of the model, whichever program trains it."""
        return (
            f"--num_units={self.num_units}",
            f"--embedding_size={self.embedding_size}",
            f"--vocabulary_size={self.vocabulary_size}",
            f"--num_held_out_clients={self.num_held_out_clients}",
            f"--{'' if self.tied_embeddings else 'no'}tied_embeddings",
        )

    def noise(self, row: str) -> tuple[str, ...]:
        """Returns the flags in which a row differs from the others."""
        z = self.noise_multiplier
        if row == steps_lib.FEDAVG:
            return ("--mechanism=fedavg",)
        if row == _SMALL:
            z *= self.small_cohort_size / self.cohort_size
            return (
                "--mechanism=dp_ftrl",
                f"--cohort_size={self.small_cohort_size}",
                f"--noise_multiplier={z!r}",
            )
        if row == _BLT:
            z *= math.sqrt(self._rho(_BLT) / self._rho(_TREE))
        return (f"--mechanism={row}", f"--noise_multiplier={z!r}")

    def _rho(self, mechanism: str) -> float:
        """Returns the planned zCDP of a mechanism, with z as of the tree."""
        chosen = (
            f"--mechanism={mechanism}",
            f"--noise_multiplier={self.noise_multiplier!r}",
        )
        given = option_flags.read_lines(TrainingOptions, (*self.training, *chosen))
        limits = plan_lib.Limits(self.max_participation, self.min_separation)
        return plans.mechanism(given).zcdp(limits, self.num_rounds)


def _is_length(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?", text) is not None and float(text) > 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextRun(steps_lib.Step):
    """A run of the study on one text.

    Attributes:
        text: Name of the text.
    """

    text: str


def settings_of(options: Options) -> tuple[TextRun, ...]:
    """Returns the runs: of each text the federated ones, and then its evaluation."""
    found = []
    for text in options.chosen_texts:
        lengths = options.pretraining_epochs if text == BLOGS else ()
        # What follows names and labels where there are models of several lengths.
        chats = [
            (epochs, f"_{epochs}".replace(".", "_"), f", {epochs} epochs")
            for epochs in lengths
        ]
        if len(chats) == 1:
            chats = [(lengths[0], "", "")]
        found += [
            TextRun(
                f"{steps_lib.CHAT}{suffix}",
                f"public chat alone{told}",
                (f"--num_epochs={epochs}",),
                plots.MUTED,
                program=steps_lib.CENTRALLY,
                text=text,
            )
            for epochs, suffix, told in chats
        ]
        for row in options.rows:
            label, color = ROWS[row]
            if row == _SMALL:
                label += f", {options.small_cohort_size:,} clients a round"
            one = TextRun(f"{text}_{row}", label, options.noise(row), color, text=text)
            found.append(one)
            if row == _SMALL:
                continue
            found += [
                dataclasses.replace(
                    one,
                    name=f"{one.name}{steps_lib.PRETRAINED}{suffix}",
                    label=f"{label}, pretrained{told}",
                    line=line,
                    begins_with=f"{steps_lib.CHAT}{suffix}",
                )
                for (_, suffix, told), line in zip(chats, _LINES, strict=False)
            ]
        found.append(
            TextRun(
                f"{text}_{steps_lib.JUDGED}",
                "evaluation",
                (),
                plots.INK,
                program=steps_lib.JUDGE,
                text=text,
            )
        )
    return tuple(found)


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
        table = summarize(pd.concat(judged, ignore_index=True), self.settings, stated)
        runs = pd.concat(rounds, ignore_index=True)
        return {
            "runs.csv": tables.write(runs).encode(),
            "models.csv": tables.write(table).encode(),
            **{
                f"guarantee_{text}.png": plot(
                    runs, table, [s for s in self.settings if s.text == text]
                )
                for text in table["text"].unique()
            },
            study.PAGE: self._page(table),
        }

    def _page(self, table: pd.DataFrame) -> bytes:
        parts: list[str | list[str]] = []
        for text, rows in table.groupby("text", sort=False):
            parts += [
                f"{_LABELS[str(text)].capitalize()}, on held-out clients:",
                pages.table_of(
                    [
                        *("", "repeats", "clients a round", "z", "loss"),
                        *("one suggestion", "picked rate", "zCDP"),
                        "epsilon (delta 1e-10)",
                    ],
                    map(_cells, rows.to_dict("records")),
                ),
            ]
        notes = [
            "zCDP and epsilon are for one run and one simulated client, zeroed out, as "
            "realised; of several repeats the largest. N-grams, the law of the "
            "language and FedAvg guarantee nothing.",
            "N-grams are counted on all text of those who train, without noise.",
            "A model is the exponential moving average over some 20 rounds, which "
            "costs no privacy.",
        ]
        if BLOGS in self.population:
            notes.append(
                "A blogger stands for many simulated clients, each with a random part "
                "of the blogger's sentences: no guarantee here says anything about a "
                "blogger. Bloggers who evaluate are none who train. The chat counts as "
                "public."
            )
        return pages.page(self.title, *parts, pages.notes(*notes))


def summarize(
    judged: pd.DataFrame,
    settings: Sequence[TextRun],
    stated: Mapping[str, Sequence[Mapping]],
) -> pd.DataFrame:
    """Returns a row a model and text: means over repeats, and the guarantee.

    Args:
        judged: Scores by `quality_report.read_judged`, with text and repeat.
        settings: The study's runs.
        stated: Statements of runs by setting, as realised.

    Returns:
        `text`, `model`, `label`, `repeats`; each metric and half of its 95% interval;
        `cohort_size`, `z`, `rho` and `epsilon`, NaN without a guarantee, else the
        largest of a repeat.
    """
    by_name = {setting.name: setting for setting in settings}
    rows = []
    for (text, model), of in judged.groupby(["text", "model"], sort=False):
        setting = by_name.get(str(model))
        row = {"text": text, "model": model, "repeats": len(of)}
        row["label"] = model if setting is None else setting.label
        for name in _COLUMNS:
            values = of[name].to_numpy()
            row[name] = values.mean()
            row[f"{name}_half"] = intervals.half_of_mean(values)
        statements = stated.get(str(model), ())
        guarantees = [one for s in statements for one in s["guarantees"][:1]]
        for name in ("rho", "epsilon"):
            row[name] = max((one[name] for one in guarantees), default=math.nan)
        of_run = statements[0]["parameters"] if statements else {}
        row["cohort_size"] = of_run.get("report goal m", math.nan)
        row["z"] = of_run.get("noise multiplier z", math.nan)
        rows.append(row)
    return pd.DataFrame(rows)


def _cells(row: Mapping[str, Any]) -> list[str]:
    """Returns the cells of a model in the page's table."""
    scores = [
        "none"
        if math.isnan(row[name])
        else intervals.shown(
            row[name], row[f"{name}_half"], ".3f" if name == "loss" else ".2%"
        )
        for name in _COLUMNS
    ]
    loss, *others = scores
    has_none = math.isnan(row["rho"])
    return [
        row["label"],
        str(row["repeats"]),
        "" if math.isnan(row["cohort_size"]) else f"{row['cohort_size']:,.0f}",
        "" if has_none else f"{row['z']:.3g}",
        loss,
        *others,
        "none" if has_none else f"{row['rho']:.3g}",
        "none" if has_none else str(rounding.rounded_up_to(row["epsilon"], 2)),
    ]


def plot(runs: pd.DataFrame, table: pd.DataFrame, settings: Sequence[TextRun]) -> bytes:
    """Plots the loss over the epsilon spent, means of the repeats; returns a PNG.

    Args:
        runs: A row a round of each federated run.
        table: Models, by `summarize`: those without a guarantee are lines.
        settings: The runs of one text.
    """
    from matplotlib import ticker

    text = settings[0].text
    figure, axes = plots.single(
        f"Held-out loss over the epsilon spent: {_LABELS[text]}",
        "epsilon at delta 1e-10 of the rounds so far",
        "mean loss, nats",
    )
    for setting in settings:
        of = runs[runs["setting"] == setting.name].dropna(subset="held_out_loss")
        means = of.groupby("round")[["epsilon", "held_out_loss"]].mean()
        if means.empty or math.isinf(means["epsilon"].iloc[-1]):
            continue
        axes.plot(
            means["epsilon"],
            means["held_out_loss"],
            color=setting.color,
            linestyle=setting.line,
            label=setting.label,
            marker="o",
            ms=3,
        )
    names = [s.name for s in settings if s.program == steps_lib.TRAIN]
    names += [metric_names.KNESER_NEY, metric_names.BEST_POSSIBLE]
    lines = table[table["rho"].isna() & (table["text"] == text)]
    lines = lines[lines["model"].isin(names)]
    plots.straight_lines(axes, dict(zip(lines["label"], lines["loss"], strict=True)))
    of_text = runs[runs["setting"].isin(names)]
    later = of_text[of_text["round"] >= _CUT * of_text["round"].max()]
    least, top = axes.get_ylim()[0], later["held_out_loss"].max()
    if top < of_text["held_out_loss"].max():
        axes.set_ylim(top=top + (top - least) / 20)
        plots.say_cut(axes, "the first rounds are out of sight")
    plots.label_metric(axes.yaxis, "loss")
    axes.set_xscale("log")
    for which in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        which(ticker.LogFormatter(minor_thresholds=(2, 0.6), labelOnlyBase=False))
    axes.tick_params(which="both", colors=plots.MUTED)
    plots.legend(axes, below=True)
    return plots.png(figure)


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
