"""The settings of an evaluation on simulated typing.

`training.evaluate_keyboard` has the flags.
"""

import dataclasses

from federated_hh.options.fields import OptionError, check, option, option_of
from training.models.model_options import CustomModelsOptions, ModelOptions

HELD_OUT, ALL = "held_out", "all"
_DEFAULT_THRESHOLD = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserOptions:
    """A simulated user of suggestions and of Smart Compose.

    The user knows what to type. If the right word (or continuation) is shown, the user
    notices and picks it with a probability that depends on the typing saved; wrong ones
    are never picked.
    """

    attention: float = option(
        0.6,
        "Probability that the user picks the right word or continuation where it is "
        "shown.",
        least=0,
        most=1,
    )
    quick_letters: int = option(
        3,
        "Words or continuations of at most so many characters are quick to type.",
        least=0,
        most=1000,
    )
    quick_attention: float = option(
        0.2,
        "The probability for those that are quick to type.",
        least=0,
        most=1,
    )

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComposeOptions:
    """Smart Compose: its threshold, and the length of its offers."""

    compose_words: int = option(
        3,
        "Smart Compose: the most words of a continuation.",
        least=1,
        most=10,
    )
    compose_threshold: float | None = option(
        None,
        "Smart Compose: it is triggered where the model's probability of the "
        "continuation is at least this; 0.5 by default.",
        above=0,
        most=1,
    )
    compose_picked_rate: float | None = option(
        None,
        "Smart Compose: instead of --compose_threshold, the picked rate that is to be "
        "reached: the least threshold with it is taken for each model, so that trigger "
        "rates can be compared.",
        least=0,
        most=1,
    )
    lowest_threshold: float = option(
        0.3,
        "Smart Compose: the first threshold of the curve. The model is asked to go on "
        "wherever its word is likelier than that, which takes time.",
        above=0,
        most=1,
    )

    def __post_init__(self):
        check(self)
        if self.compose_picked_rate is not None:
            if self.compose_threshold is not None:
                raise OptionError(
                    self,
                    "{compose_threshold=} and {compose_picked_rate=}: give one of "
                    "them, the other follows",
                )
        elif self.threshold < self.lowest_threshold:
            raise OptionError(
                self,
                "{compose_threshold}={threshold:g}: has to be at least "
                "{lowest_threshold=}",
                threshold=self.threshold,
            )

    @property
    def threshold(self) -> float:
        """The model's probability from which on it is triggered."""
        given = self.compose_threshold
        return _DEFAULT_THRESHOLD if given is None else given


@dataclasses.dataclass(frozen=True, kw_only=True)
class TouchOptions:
    """A simulated typist on a touch screen, and the keyboard's decoder."""

    layout: str | None = option(
        None,
        "A built-in layout's name, such as qwertz, or a layout file: JSON, from a "
        "character to x and y of its key's center in widths of a key. By default that "
        "of --language; English has qwerty, with digits and the apostrophe.",
    )
    unkeyed_words: str = option(
        "refuse",
        "Treatment of words with a character that the layout has no key for: 'refuse' "
        "stops with an error that names one, 'leave_out' neither types nor offers "
        "them, and counts them.",
        choices=("refuse", "leave_out"),
    )
    touch_stddev: float = option(
        0.4,
        "Standard deviation of touches around a key's center, in both directions.",
        least=1e-3,
        most=100,
        why="less is exact, and its square no number",
        unit="widths of a key",
    )
    num_candidates: int = option(
        10,
        "Words that the decoder proposes for a typed one, and the model re-ranks.",
        least=1,
        most=1000,
    )
    model_weight: float = option(
        1.0,
        "Weight of the model when it re-ranks: a candidate's score is the touches' "
        "log-likelihood, plus weight * log p(word | context), plus (1 - weight) * the "
        "log of the word's prior. 0: as the decoder has them.",
        least=0,
        most=1,
    )

    def __post_init__(self):
        check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationOptions(CustomModelsOptions):
    """The models to evaluate, and the clients to evaluate them on."""

    model: tuple[str, ...] = option(
        (),
        "The models, with commas between: directories of runs of training (finished, "
        "or with a checkpoint), or exported models.",
    )
    judges: str = option(
        HELD_OUT,
        "Clients to evaluate on. 'held_out': those that the model's run held out, of "
        "its own population, which is found by the run's flags. 'all': all clients of "
        "the "
        "population that --population gives, of which none should have trained.",
        choices=(HELD_OUT, ALL),
    )
    prior: str | None = option(
        None,
        "Frequencies of words without context: the baseline, and the decoder's prior. "
        "'training_clients': counted on those; 'public': wordfreq's. By default the "
        "former on held-out clients, else the latter.",
        choices=("training_clients", "public"),
    )
    max_judges: int = option(
        1000,
        "The most clients to evaluate on; of more, so many are drawn.",
        least=1,
        most=2**31 - 1,
    )
    max_sentences: int | None = option_of(
        ModelOptions,
        "max_sentences",
        None,
        "The first sentences of a client that are used. By default as many as the run "
        "used, so that its report has the same numbers; else 256.",
    )
    num_resamples: int = option(
        1000,
        "Bootstrap samples of clients, for 95% intervals.",
        least=100,
        most=1_000_000,
    )

    def __post_init__(self):
        check(self)
        if not self.model:
            raise OptionError(
                self, "give {model}: directories of runs, or exported models"
            )
        if len(set(self.model)) < len(self.model):
            raise OptionError(self, "{model=}: has a duplicate; name each model once")
        if self.judges == ALL and self.prior == "training_clients":
            raise OptionError(
                self,
                "{prior=} needs {judges=held_out}, because the training clients are "
                "known only in a run's own population",
            )
