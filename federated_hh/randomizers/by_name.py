"""Local randomizers by the names that flags have."""

from federated_hh.files import custom_parts
from federated_hh.options import checks
from federated_hh.randomizers import (
    count_mean_sketch,
    k_ary,
    local_randomizer,
    one_hot,
    subset_selection,
)

NAMES: dict[str, type[local_randomizer.LocalRandomizer]] = {
    "subset_selection": subset_selection.SubsetSelection,
    "k_ary": k_ary.KAryRandomizedResponse,
    "asymmetric_one_hot": one_hot.AsymmetricOneHotEncoding,
    "symmetric_one_hot": one_hot.SymmetricOneHotEncoding,
    "count_mean_sketch": count_mean_sketch.CountMeanSketch,
}


def randomizer(name: str) -> type[local_randomizer.LocalRandomizer]:
    """Returns a class of local randomizers.

    Args:
        name: One of `NAMES`, or `module:Class` for a custom class, whose constructor
            takes epsilon and the size of the domain.

    Raises:
        ValueError: If there is no such class.
    """
    if name in NAMES:
        return NAMES[name]
    checks.holds(
        ":" in name, f"one of {', '.join(NAMES)}, or module:Class", randomizer=name
    )
    base = local_randomizer.LocalRandomizer
    return custom_parts.load("randomizer", name, "a local randomizer", base)
