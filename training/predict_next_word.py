"""Types with a trained model.

scripts/run predict_next_word --model=runs/training/... "see you"
"""

import dataclasses
import functools
import sys

from absl import app

from federated_hh.files import tables
from federated_hh.options import option_flags
from federated_hh.options.fields import REQUIRED, check, option
from federated_hh.runtime.worker import startup
from training.models.model_options import CustomModelsOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class TypingOptions(CustomModelsOptions):
    """The settings of suggestions."""

    model: str = option(
        REQUIRED,
        "The directory of a run, or the model exported in it. Of a run that is not "
        "finished the last checkpoint is taken.",
    )
    num_words: int = option(3, "Number of suggested words.", least=1, most=100_000)

    def __post_init__(self):
        check(self)


_OPTIONS = option_flags.define(TypingOptions)
# Texts are arguments.
parse_flags = functools.partial(option_flags.parse, takes_words=True)


def main(argv: list[str]) -> None:
    """Prints the suggestions for each text."""
    texts = argv[1:] or [""]
    try:
        options = _OPTIONS.read()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    startup.silence_tensorflow()
    from training.keyboard import model as keyboard_model

    try:
        model = keyboard_model.read(options.model, options.custom_models)
    except (ValueError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    for text in texts:
        for word, probability in model.suggest(text, options.num_words):
            line = f"{text} [{word}] {probability:.2%}".lstrip()
            print(tables.visible(line))


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
