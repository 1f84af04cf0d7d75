"""Options of the strategy of section 2.5 of Xu et al. 2023."""

import dataclasses
import math
from collections.abc import Sequence

from federated_hh.options import fields as options_lib
from federated_hh.options.fields import REQUIRED, option
from studies import study_options

# Of each, as plots have colors and styles of lines.
_MOST_RATES, _MOST_QUANTILES = 5, 3


@dataclasses.dataclass(frozen=True)
class Options(study_options.StudyOptions):
    """Options of the strategy; each field is a flag."""

    training_flagfile: str = option(
        REQUIRED,
        "Flags of training.run_training: the population, the model, the clients' "
        "training and how they are available. What the strategy decides does not "
        "count there.",
    )
    largest_report_goal: int = option(
        REQUIRED,
        "Clients of a round that the system can do at most.",
        least=1,
        most=2**29 - 1,
    )
    target_rho: float = option(
        REQUIRED, "The wanted zCDP of the final run.", above=0, most=1e6
    )
    num_rounds: int = option(
        REQUIRED, "Rounds of the final run (T).", least=1, most=100_000
    )
    population: str | None = option(
        None, "The clients' data, where the flagfile has no --population."
    )
    initial_model: str | None = option(
        None, "A model that was pretrained on public text (step 1)."
    )
    small_report_goal: int = option(
        20, "Clients of a round in experiments.", least=1, most=2**29 - 1
    )
    small_rounds: int | None = option(
        None, "Rounds of experiments; --num_rounds by default.", least=1, most=100_000
    )
    first_clip_norm: float = option(
        0.1,
        "The clip norm that experiments begin with; small, so that the noise is.",
        least=1e-15,
        most=1e15,
    )
    target_quantiles: tuple[str, ...] = option(
        ("0.5",),
        "Quantiles of the updates' norms, one to three, increasing; one of them "
        "becomes the clip norm. Each is tried with each of --server_learning_rates.",
    )
    server_learning_rates: tuple[str, ...] = option(
        ("0.5", "1", "2"),
        "Learning rates of the server; one is chosen, with a quantile, by the held-out "
        "loss.",
    )
    noises_per_client: tuple[str, ...] = option(
        ("0.001", "0.003", "0.01"),
        "Noise multipliers over the report goal, increasing; the largest is chosen "
        "that the model bears. The paper's 7 over 6,500 is 0.00108.",
    )
    loss_tolerance: float = option(
        0.02,
        "The model bears noise that raises the held-out loss by at most this share of "
        "the loss with the least noise.",
        least=0,
        most=1,
    )
    delta: float = option(1e-10, "Delta of the epsilon that is told.", above=0, below=1)

    def __post_init__(self):
        super().__post_init__()
        for name, most, span, below in (
            ("server_learning_rates", _MOST_RATES, "above 0", math.inf),
            ("noises_per_client", _MOST_RATES, "above 0", math.inf),
            ("target_quantiles", _MOST_QUANTILES, "in (0, 1)", 1.0),
        ):
            values = numbers(getattr(self, name), below)
            if not 1 <= len(values) <= most or sorted({*values}) != values:
                raise options_lib.OptionError(
                    self,
                    f"{{{name}=}}: has to be one to {most} increasing numbers {span}",
                )
        tried = [n * self.small_report_goal for n in numbers(self.noises_per_client)]
        study_options.check_noise(
            self, "{noises_per_client=} times {small_report_goal=}", tried
        )
        if self.small_report_goal > self.largest_report_goal:
            raise options_lib.OptionError(
                self,
                "{small_report_goal=}: has to be at most {largest_report_goal=}",
            )


def numbers(texts: Sequence[str], below: float = math.inf) -> list[float]:
    """Returns numbers above 0 and below a bound; none where a text is no such."""
    try:
        found = [float(text) for text in texts]
    except ValueError:
        return []
    return found if all(0 < value < below for value in found) else []
