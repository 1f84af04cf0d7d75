"""Local randomizers: the reports of clients, and the exact sums of reports."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "count_mean_sketch": ["CountMeanSketch"],
        "k_ary": ["KAryRandomizedResponse"],
        "local_randomizer": ["LocalRandomizer"],
        "one_hot": ["AsymmetricOneHotEncoding", "SymmetricOneHotEncoding"],
        "subset_selection": ["SubsetSelection"],
    },
)
