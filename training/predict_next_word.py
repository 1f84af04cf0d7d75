"""Types with a trained model.

scripts/run training.predict_next_word --model=runs/training/.../model "see you"
"""

import sys

from absl import app, flags

from simulation import startup

_MODEL = flags.DEFINE_string(
    "model", None, "The exported model: the directory 'model' of a run.", required=True
)
_NUM_WORDS = flags.DEFINE_integer(
    "num_words", 3, "How many next words to suggest.", lower_bound=1
)


def main(argv: list[str]) -> None:
    """Prints the suggestions for each text."""
    texts = argv[1:] or [""]
    startup.silence_tensorflow()
    from training import exported_model

    try:
        predictor = exported_model.NextWordPredictor(_MODEL.value)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    for text in texts:
        for word, probability in predictor.suggest(text, _NUM_WORDS.value):
            print(f"{text} [{word}] {probability:.2%}".lstrip())


if __name__ == "__main__":
    app.run(main)
