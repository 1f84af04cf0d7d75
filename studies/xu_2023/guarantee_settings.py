"""The options and runs of the study of useful and private models."""

import dataclasses
import math
import re

from federated_hh.options import fields as options_lib
from federated_hh.options import option_flags
from federated_hh.options.fields import option
from federated_hh.privacy import plan as plan_lib
from federated_hh.reports import plots
from studies import study_options
from studies.xu_2023 import quality_steps as steps_lib
from training.federated import plans
from training.federated.options import TrainingOptions

SYNTHETIC, BLOGS = "synthetic", "blogs"
TREE, BLT, SMALL = "dp_ftrl", "blt", "dp_ftrl_small"
ROWS = {
    steps_lib.FEDAVG: ("FedAvg, same clip", plots.GREEN),
    TREE: ("DP-FTRL, tree", plots.BLUE),
    BLT: ("DP-FTRL, BLT", plots.PURPLE),
    SMALL: ("DP-FTRL, tree", plots.ORANGE),
}
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
        "Run --pretrained_rows on bloggers' text from a model of public chat, too: of "
        "so many passes over it, such as 0.25,1,2 for three models. Empty: none.",
    )
    pretrained_rows: tuple[str, ...] = option(
        (steps_lib.FEDAVG, TREE, BLT), f"The rows that do, of all but {SMALL}."
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
        for name, known in (
            ("texts", [SYNTHETIC, BLOGS]),
            ("rows", [*ROWS]),
            ("pretrained_rows", [row for row in ROWS if row != SMALL]),
        ):
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
        if row == SMALL:
            z *= self.small_cohort_size / self.cohort_size
            return (
                "--mechanism=dp_ftrl",
                f"--cohort_size={self.small_cohort_size}",
                f"--noise_multiplier={z!r}",
            )
        if row == BLT:
            z *= math.sqrt(self._rho(BLT) / self._rho(TREE))
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
        begins = text == BLOGS and {*options.rows} & {*options.pretrained_rows}
        lengths = options.pretraining_epochs if begins else ()
        # What follows names and labels where there are models of several lengths.
        chats = [
            (
                epochs,
                f"_{epochs}".replace(".", "_"),
                f", {epochs} epoch{'' if float(epochs) == 1 else 's'}",
            )
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
            if row == SMALL:
                label += f", {options.small_cohort_size:,} clients a round"
            one = TextRun(f"{text}_{row}", label, options.noise(row), color, text=text)
            found.append(one)
            if row not in options.pretrained_rows:
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
