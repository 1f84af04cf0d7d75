"""The settings of central training; `training.pretrain` has the flags."""

import dataclasses

from federated_hh.options.fields import OptionError, check, option
from training.models import model_options

# Largest number of steps: a 32-bit number counts them exactly.
_MOST_STEPS = 10_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainOptions(model_options.ModelOptions):
    """The settings of central training, but for its clients and their text.

    Raises:
        OptionError: If an option is not allowed, or options do not go together.
    """

    batch_size: int = option(
        64,
        "Sentences of a batch, mixed over clients.",
        least=1,
        most=100_000,
    )
    num_epochs: float | None = option(
        None,
        "Number of passes over the sentences; one by default.",
        above=0,
        most=10_000,
    )
    num_steps: int | None = option(
        None,
        "Instead of --num_epochs: steps of Adam, of a batch each.",
        least=1,
        most=_MOST_STEPS,
    )
    learning_rate: float = option(
        1e-3,
        "The learning rate of Adam.",
        above=0,
        most=1e3,
    )
    model_average: float | None = option(
        None,
        "Evaluates and exports an exponential moving average of all steps' models, "
        "with this decay (0.998: of some 500 steps), instead of the last one.",
        above=0,
        below=1,
    )
    checkpoint_every: int = option(
        100,
        "Steps between checkpoints, of which a killed run loses as many at most.",
        least=1,
        most=_MOST_STEPS,
    )
    evaluate_every: int = option(
        500,
        "Steps between evaluations on held-out clients, each at a checkpoint.",
        least=1,
        most=_MOST_STEPS,
    )

    def __post_init__(self):
        check(self)
        self._check_beginning()
        if self.num_epochs is not None and self.num_steps is not None:
            raise OptionError(
                self,
                "{num_epochs=} and {num_steps=}: give one of them, the other follows",
            )

    def steps_of(self, num_sentences: int) -> int:
        """Returns the number of steps.

        Args:
            num_sentences: The number of sentences of the clients that train.

        Raises:
            OptionError: If they are too many.
        """
        if self.num_steps is not None:
            return self.num_steps
        epochs = 1.0 if self.num_epochs is None else self.num_epochs
        steps = max(1, round(epochs * num_sentences / self.batch_size))
        if steps > _MOST_STEPS:
            raise OptionError(
                self,
                "{num_epochs}={epochs} of {sentences:,} sentences are {steps:,} "
                "steps, more than {most:,}; give fewer epochs, or a larger "
                "{batch_size}",
                epochs=epochs,
                sentences=num_sentences,
                steps=steps,
                most=_MOST_STEPS,
            )
        return steps
