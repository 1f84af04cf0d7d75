"""k-ary randomized response."""

from federated_hh.randomizers import local_randomizer, subset_selection


class KAryRandomizedResponse(subset_selection.SubsetSelection):
    """Sends the true item with probability e^epsilon / (e^epsilon + s - 1), or another.

    Of s items, each other one is equally likely (Kairouz et al. 2016). It is Subset
    Selection with sets of one item, for any epsilon.

    A report is an int32 row of one item.
    """

    def __init__(self, epsilon: float, domain_size: int):
        """Checks and keeps the parameters.

        Args:
            epsilon: See `LocalRandomizer`.
            domain_size: See `LocalRandomizer`.

        Raises:
            ValueError: If a parameter is out of its range.
        """
        super().__init__(epsilon, domain_size, subset_size=1)

    @property
    def bits_per_report(self) -> int:
        """One index."""
        return local_randomizer.bits_of_index(self.domain_size)
