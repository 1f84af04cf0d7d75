"""Local randomizers by the names that flags have."""

import importlib
import inspect

from federated_hh.randomizers import (
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
}


def randomizer(name: str) -> type[local_randomizer.LocalRandomizer]:
    """Returns a class of local randomizers.

    Args:
        name: One of `NAMES`, or `module:Class` for a class of your own that is made
            from epsilon and the size of the domain.

    Raises:
        ValueError: If there is no such class.
    """
    if name in NAMES:
        return NAMES[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(
            f"randomizer is {name!r}; it has to be one of {', '.join(NAMES)}, or "
            "module:Class"
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"randomizer is {name!r}, which is not there: {error}") from (
            error
        )
    if (
        not inspect.isclass(found)
        or not issubclass(found, local_randomizer.LocalRandomizer)
        or inspect.isabstract(found)
    ):
        raise ValueError(
            f"randomizer is {name!r}; that is no class derived from LocalRandomizer, "
            "or leaves methods of it open"
        )
    return found
