"""The base of studies' options."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from federated_hh.options import fields


@dataclasses.dataclass(frozen=True)
class StudyOptions:
    """A study's options, each of which is a flag.

    Attributes:
        is_synthetic: Whether no option names real data.
    """

    is_synthetic: ClassVar[bool] = False

    def __post_init__(self):
        fields.check(self)


@dataclasses.dataclass(frozen=True)
class ComputedOptions(StudyOptions):
    """The options of a study that needs no data."""

    is_synthetic: ClassVar[bool] = True


def check_noise(options: Any, product: str, multipliers: Sequence[float]) -> None:
    """Checks the noise multipliers that follow from a study's options.

    Args:
        options: The study's options.
        product: Template of `OptionError`: the product that gives the multipliers.
        multipliers: Noise multipliers of the runs.

    Raises:
        OptionError: If a run could not have one.
    """
    from training.federated.options import TrainingOptions

    field = fields.fields_of(TrainingOptions)["noise_multiplier"]
    for multiplier in multipliers:
        try:
            field.accept(multiplier)
        except ValueError as error:
            raise fields.OptionError(
                options,
                f"{product}: a noise multiplier of {multiplier:g}; it has to be "
                f"{field.range}",
            ) from error
