"""Private one-hot encodings (McMillan et al. 2022, appendices A and C)."""

import dataclasses
import fractions

import numpy as np
import tensorflow as tf

from federated_hh.randomizers import arguments, coins, local_randomizer
from federated_hh.randomness import identities


class _OneHotEncoding(local_randomizer.LocalRandomizer):
    """Sends a bit for each item, drawn independently.

    A report is a bool row of a value for each item of the domain.
    """

    def __init__(
        self,
        epsilon: float,
        domain_size: int,
        own_coin: coins.Coin,
        other_coin: coins.Coin,
    ):
        super().__init__(epsilon, domain_size)
        self._own_coin, self._other_coin = own_coin, other_coin
        self._check_gap()

    @property
    def bits_per_report(self) -> int:
        """A bit for each item."""
        return self.domain_size

    @property
    def own_probability(self) -> fractions.Fraction:
        """The chance of a one for the true item; see the base class."""
        return self._own_coin.probability

    @property
    def other_probability(self) -> fractions.Fraction:
        """The chance of a one for another item; see the base class."""
        return self._other_coin.probability

    def _randomize(self, items: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        rows = tf.size(items)
        own_seed, other_seed = (local_randomizer.fold_in(seed, i) for i in range(2))
        own = self._own_coin.toss([rows], own_seed)
        others = self._other_coin.toss([rows, self.domain_size], other_seed)
        is_own = tf.equal(items[:, tf.newaxis], tf.range(self.domain_size))
        return tf.where(is_own, own[:, tf.newaxis], others)

    def tally(self, reports: tf.Tensor) -> tf.Tensor:
        """Counts the ones of each item; see the base class."""
        counts = tf.math.count_nonzero(reports, axis=0, dtype=tf.int64)
        return tf.ensure_shape(counts, [self.domain_size])

    def _sum_of_reports(
        self, histogram: np.ndarray, seed: np.random.SeedSequence
    ) -> np.ndarray:
        """Draws the sum without the reports: the counts are independent binomials."""
        generator = np.random.default_rng(seed)
        own = coins.count_heads(generator, histogram, self.own_probability)
        rest = histogram.sum() - histogram
        return own + coins.count_heads(generator, rest, self.other_probability)


@identities.identity("federated_hh.randomizers.one_hot.AsymmetricOneHotEncoding")
class AsymmetricOneHotEncoding(_OneHotEncoding):
    """Sends 1 for the true item with probability 1/2, else with 1 / (e^epsilon + 1).

    McMillan et al. 2022, Algorithm 1 and Theorem A.1: epsilon in the replacement model.
    No encoding by independent bits has less variance for rare items.

    `estimate` is not Algorithm 2 as printed, which is too large by n / (e^epsilon - 1)
    on average: the term to take off is 2 n / (e^epsilon - 1). `variance` is that of
    Theorem A.2, which is right.
    """

    def __init__(self, epsilon: float, domain_size: int):
        """Checks and keeps the parameters; see `LocalRandomizer`."""
        arguments.check_epsilon(epsilon)
        # Rounded up, so that a zero does not speak too clearly against an item.
        other = coins.Coin.at_least(coins.exact(lambda e: 1 / (e + 1), epsilon))
        super().__init__(epsilon, domain_size, coins.FAIR, other)

    @property
    def guarantee(self) -> local_randomizer.LocalGuarantee:
        """Epsilon in the replacement model; see the base class."""
        return dataclasses.replace(
            super().guarantee,
            amplification="asymmetric_one_hot",
            amplification_reason=(
                "the 2022 clones bound, whose decomposition holds for the two "
                "coordinates in which the reports of two items differ; for reports "
                "that are seen through their sum only"
            ),
        )


@identities.identity("federated_hh.randomizers.one_hot.SymmetricOneHotEncoding")
class SymmetricOneHotEncoding(_OneHotEncoding):
    """Sends each bit of the one-hot vector right with e^epsilon / (e^epsilon + 1).

    McMillan et al. 2022, Algorithms 3 and 4, Theorems C.1 and C.2: epsilon in the
    deletion model, 2 epsilon in the replacement model. The law of a device without an
    item has 1 with probability 1 / (e^epsilon + 1) everywhere; that of an extra "no
    item" whose bit is dropped is the same.
    """

    def __init__(self, epsilon: float, domain_size: int):
        """Checks and keeps the parameters; see `LocalRandomizer`."""
        arguments.check_epsilon(epsilon)
        # Rounded down, so that no bit is too likely to be right.
        own = coins.Coin.at_most(coins.exact(lambda e: e / (e + 1), epsilon))
        super().__init__(epsilon, domain_size, own, own.opposite)

    @property
    def guarantee(self) -> local_randomizer.LocalGuarantee:
        """Epsilon in the deletion model; see the base class."""
        return dataclasses.replace(
            super().guarantee,
            model="deletion",
            replacement_epsilon=2 * self.epsilon,
            amplification="symmetric_one_hot",
            amplification_reason=(
                "the Rényi bound of McMillan et al. 2022, Theorem C.3, made for this "
                "encoding; for reports that are seen through their sum only"
            ),
        )
