"""k-ary randomized response."""

import dataclasses

from federated_hh.randomizers import local_randomizer, subset_selection
from federated_hh.randomness import identities


@identities.identity("federated_hh.randomizers.k_ary.KAryRandomizedResponse")
class KAryRandomizedResponse(subset_selection.SubsetSelection):
    """Sends the true item with probability e^epsilon / (e^epsilon + s - 1), or another.

    Of s items, each other one is equally likely (Kairouz et al. 2016). It is Subset
    Selection with sets of one item, for any epsilon.

    A report is an int32 row of one item.
    """

    def __init__(self, epsilon: float, domain_size: int):
        """Checks and keeps the parameters; see `LocalRandomizer`."""
        super().__init__(epsilon, domain_size, subset_size=1)

    @property
    def guarantee(self) -> local_randomizer.LocalGuarantee:
        """Epsilon in the replacement model; see the base class."""
        return dataclasses.replace(
            super().guarantee,
            amplification="k_ary",
            amplification_reason=(
                "the privacy blanket of k-ary randomized response for this domain "
                "size: every item has at least the same probability under all items"
            ),
        )

    @property
    def bits_per_report(self) -> int:
        """One index."""
        return local_randomizer.bits_of_index(self.domain_size)
