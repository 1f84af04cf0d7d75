"""Settings of the other models that a training run is compared with."""

import dataclasses

from federated_hh.options.fields import OptionError, check, option
from training.models.model_options import CustomModelsOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class OtherModelsOptions(CustomModelsOptions):
    """The models that a run is compared with, and the first weights it may use.

    Raises:
        OptionError: If an option is not allowed.
    """

    compare_with: tuple[str, ...] = option(
        (),
        "Finished runs, or the models exported in them, of the same vocabulary: the "
        "report evaluates them on this run's held-out clients, with the n-grams.",
    )

    allow_shared_text: bool = option(
        False,
        "Begin with an --initial_model even if its record says that it was trained on "
        "clients of this run or on their words. The statement then says so.",
    )

    def __post_init__(self):
        check(self)
        if len(set(self.compare_with)) < len(self.compare_with):
            raise OptionError(
                self, "{compare_with=}: has a duplicate path; give each once"
            )
