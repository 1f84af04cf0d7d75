"""The base class of local randomizers.

A local randomizer turns a client's true item into a report that is safe to send, and
the sum of many reports into estimates of each item's number of holders. A custom one
derives from `LocalRandomizer` and defines the draw of a report (`_randomize`), the
items that it speaks for (`tally`), and the probabilities that it speaks for the true
item and for another (`own_probability`, `other_probability`). The sum then works report
by report; override `_sum_of_reports` if its law is known.
"""

import abc
import dataclasses
import fractions
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from federated_hh.options import checks
from federated_hh.randomizers import arguments

# Numbers in the reports that are in memory at once where they are summed one by one.
_VALUES_AT_ONCE = 2**22
_ITEMS_AT_ONCE = 2**22
# Probabilities may be floats, off by as much.
_CLAIM_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class LocalGuarantee:
    """The guarantee of one report, and of many together.

    Attributes:
        epsilon: The local epsilon, in the model that `model` names.
        model: "replacement": the laws of the reports of any two items are within
            e^epsilon of each other. "deletion": the law of the report of any item is
            within e^epsilon of one reference law, that of a device without an item.
        replacement_epsilon: The epsilon of the replacement model.
        amplification: Randomizer's name in `privacy.shuffle.amplification`, a value
            of its `Randomizer`: decides the bounds that hold for many reports.
        amplification_reason: Why those bounds apply.
    """

    epsilon: float
    model: str
    replacement_epsilon: float
    amplification: str
    amplification_reason: str


class LocalRandomizer(abc.ABC):
    """A local randomizer over the items 0 to domain_size - 1.

    The base class checks every argument before a draw. It debiases counts for the
    randomizers whose reports "speak for" items: for the true one with probability
    `own_probability`, for each other one with probability `other_probability` (the
    "pure" protocols of Wang et al. 2017). "No item" is an item like any other: give it
    an index, by convention the last, and drop its count.

    Attributes:
        epsilon: The local privacy parameter.
        domain_size: The number of items, "no item" included.
    """

    def __init__(self, epsilon: float, domain_size: int):
        """Checks and keeps the parameters.

        Args:
            epsilon: In (0, 40].
            domain_size: In [2, 2^31 - 1].

        Raises:
            ValueError: If a parameter is out of its range.
        """
        self.epsilon = arguments.check_epsilon(epsilon)
        self.domain_size = checks.integer(
            domain_size=domain_size, least=2, most=arguments.MAX_DOMAIN_SIZE
        )

    @property
    def guarantee(self) -> LocalGuarantee:
        """The reports' guarantee; by default nothing special is known."""
        return LocalGuarantee(
            epsilon=self.epsilon,
            model="replacement",
            replacement_epsilon=self.epsilon,
            amplification="arbitrary",
            amplification_reason="the 2021 clones bound holds for every randomizer",
        )

    @property
    @abc.abstractmethod
    def bits_per_report(self) -> int:
        """The bits of one report on the wire."""

    @property
    @abc.abstractmethod
    def own_probability(self) -> fractions.Fraction | float:
        """The probability that a report speaks for its true item."""

    @property
    @abc.abstractmethod
    def other_probability(self) -> fractions.Fraction | float:
        """The probability that a report speaks for any one other item."""

    @property
    def values_per_report(self) -> int:
        """The numbers of a report in memory, for the size of a batch."""
        return self.domain_size

    @abc.abstractmethod
    def _randomize(self, items: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws the reports; like `randomize`, for checked arguments.

        Args:
            items: int32, shape [reports].
            seed: int32 or int64, shape [2].

        Returns:
            The reports, their first axis the reports.
        """

    @abc.abstractmethod
    def tally(self, reports: tf.Tensor) -> tf.Tensor:
        """Counts the reports that speak for each item.

        Args:
            reports: Reports that `randomize` returned.

        Returns:
            int64, shape [domain_size].
        """

    def randomize(
        self,
        items: tf.types.experimental.TensorLike,
        seed: tf.types.experimental.TensorLike,
    ) -> tf.Tensor:
        """Draws the report of each item, as a client would send it.

        It works eagerly, in a `tf.function` and in a TFF client computation; the same
        items and seed give the same reports wherever it runs.

        Args:
            items: int32 or int64, shape [reports], each in [0, domain_size - 1]; the
                true items.
            seed: int32 or int64, shape [2]. A seed must serve for one call only.

        Returns:
            The reports; the class says in which form.

        Raises:
            ValueError: If an item is outside the domain or an argument has another
                type or shape. In a graph, where values are known later only, an item
                outside the domain is a `tf.errors.InvalidArgumentError` of the run.
        """
        items, seed = self._checked(items, seed)
        return self._randomize(items, seed)

    def sum_per_report(
        self,
        items: tf.types.experimental.TensorLike,
        seed: tf.types.experimental.TensorLike,
    ) -> tf.Tensor:
        """Draws the report of each item, and counts them; the work of a client block.

        The same as `tally(randomize(items, seed))` in law. Reports are drawn in
        batches, so that a block of any size fits in memory. Arguments and errors are
        those of `randomize`.

        Returns:
            int64, shape [domain_size]: for each item, the reports that speak for it.
        """
        items, seed = self._checked(items, seed)
        return self._sum_in_batches(
            items, seed, self.tally, [self.domain_size], self.values_per_report
        )

    def _sum_in_batches(
        self,
        items: tf.Tensor,
        seed: tf.Tensor,
        count: Callable[[tf.Tensor], tf.Tensor],
        shape: Sequence[int],
        values_per_report: int,
    ) -> tf.Tensor:
        """Draws reports in batches, and adds up the counts of each batch.

        Args:
            items: Checked.
            seed: Checked.
            count: From reports to int64 counts of a shape.
            shape: Shape of the result.
            values_per_report: Numbers of a report in memory.
        """
        batch = max(1, _VALUES_AT_ONCE // values_per_report)
        num_batches = (tf.size(items) + batch - 1) // batch

        def add_batch(index, counts):
            start = index * batch
            batch_seed = fold_in(seed, index)
            reports = self._randomize(items[start : start + batch], batch_seed)
            return index + 1, counts + count(reports)

        _, counts = tf.while_loop(
            lambda index, _: index < num_batches,
            add_batch,
            [tf.constant(0), tf.zeros(shape, tf.int64)],
            parallel_iterations=1,
        )
        return counts

    def sum_of_reports(
        self,
        histogram: np.ndarray,
        seed: int | np.random.SeedSequence,
    ) -> np.ndarray:
        """Draws the sum of independent reports, given the holders of each item.

        Args:
            histogram: Integers, shape [domain_size]: the number of reports with each
                true item. Their sum, times the items that a report speaks for, has to
                be below 2^63.
            seed: Nonnegative, or a seed sequence. The result is a function of the
                histogram and the seed, on any number of cores.

        Returns:
            int64, shape [domain_size]: for each item, the reports that speak for it.

        Raises:
            ValueError: If the histogram is not of that form, before any draw.
        """
        counts = arguments.check_histogram(
            histogram, self.domain_size, self.values_per_report
        )
        if not isinstance(seed, np.random.SeedSequence):
            seed = np.random.SeedSequence(checks.integer(seed=seed, least=0))
        return self._sum_of_reports(counts, seed)

    def bytes_to_sum(self, num_reports: int) -> int:
        """Returns the memory that `sum_of_reports` takes at least, from its shapes.

        Nothing is drawn: TensorFlow infers the shapes of a batch of reports and of all
        that `tally` makes of it. The largest is an operation's input or result.

        Args:
            num_reports: Number of reports, at least 1.

        Returns:
            Bytes; 0 where the sum is drawn by its law.
        """
        if type(self)._sum_of_reports is not LocalRandomizer._sum_of_reports:
            return 0
        batch = max(1, _VALUES_AT_ONCE // self.values_per_report)
        traced = tf.function(
            lambda items, seed: self.tally(self._randomize(items, seed)),
            input_signature=[
                tf.TensorSpec([min(num_reports, batch)], tf.int32),
                tf.TensorSpec([2], tf.int64),
            ],
            autograph=False,
        )
        graph = traced.get_concrete_function().graph
        return 2 * max(
            tensor.shape.num_elements() * tensor.dtype.size
            for operation in graph.get_operations()
            for tensor in operation.outputs
            if tensor.shape.is_fully_defined()
        )

    def _sum_of_reports(
        self, histogram: np.ndarray, seed: np.random.SeedSequence
    ) -> np.ndarray:
        """Draws the sum report by report; overridden where there is a faster way."""
        ends = np.cumsum(histogram)
        counts = np.zeros(self.domain_size, np.int64)
        for start in range(0, int(ends[-1]), _ITEMS_AT_ONCE):
            reports = np.arange(start, min(start + _ITEMS_AT_ONCE, ends[-1]))
            items = np.searchsorted(ends, reports, side="right")
            key = (*seed.spawn_key, start // _ITEMS_AT_ONCE)
            child = np.random.SeedSequence(seed.entropy, spawn_key=key)
            words = child.generate_state(2, np.uint64).view(np.int64)
            try:
                counts += self._sum_in_graph(items.astype(np.int32), words).numpy()
            except Exception as error:
                # An error of a graph does not say whose code it ran.
                made = type(self)
                error.add_note(
                    f"{made.__module__}:{made.__qualname__}, _randomize or tally of "
                    f"{len(items):,} reports on {self.domain_size:,} items"
                )
                raise
        return counts

    @functools.cached_property
    def _sum_in_graph(self) -> tf.types.experimental.GenericFunction:
        """`sum_per_report` as one graph: its many small operations cost less there."""
        return tf.function(
            self.sum_per_report,
            input_signature=[
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([2], tf.int64),
            ],
            autograph=False,
        )

    def estimate(self, counts: np.ndarray, num_reports: int) -> np.ndarray:
        """Estimates, without bias, the number of reports with each true item.

        Args:
            counts: The sum of the reports, or some items' part of it; any shape.
            num_reports: Number of summed reports, at least 0.

        Returns:
            float64, of the shape of `counts`; may be negative.

        Raises:
            ValueError: If `num_reports` is negative.
        """
        num_reports = checks.integer(
            num_reports=num_reports, least=0, most=arguments.MAX_COUNT
        )
        other = fractions.Fraction(self.other_probability)
        gap = fractions.Fraction(self.own_probability) - other
        # The expected counts are as large as the counts: subtract before rounding.
        whole, rest = divmod(num_reports * other, 1)
        return ((np.asarray(counts) - int(whole)) - float(rest)) / float(gap)

    def variance(self, true_counts: np.ndarray, num_reports: int) -> np.ndarray:
        """Returns the variance of the estimates.

        Args:
            true_counts: Number of reports with the item; any shape, each in
                [0, num_reports]. Estimates may stand in for them where they are.
            num_reports: Number of summed reports, at least 0.

        Returns:
            float64, of the shape of `true_counts`.

        Raises:
            ValueError: If an argument is out of its range.
        """
        num_reports = checks.integer(
            num_reports=num_reports, least=0, most=arguments.MAX_COUNT
        )
        true_counts = np.asarray(true_counts, np.float64)
        if np.any(~(true_counts >= 0) | (true_counts > num_reports)):
            raise ValueError(
                f"true_counts has values from {true_counts.min():g} to "
                f"{true_counts.max():g}; they have to be in [0, {num_reports}]"
            )
        own = fractions.Fraction(self.own_probability)
        other = fractions.Fraction(self.other_probability)
        of_own = float(own * (1 - own) / (own - other) ** 2)
        of_other = float(other * (1 - other) / (own - other) ** 2)
        return true_counts * of_own + (num_reports - true_counts) * of_other

    def _checked(
        self,
        items: tf.types.experimental.TensorLike,
        seed: tf.types.experimental.TensorLike,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        items = arguments.check_items(items, self.domain_size)
        return items, arguments.check_seed(seed)

    def check_claim(self) -> None:
        """Raises a `ValueError` if its probabilities contradict its epsilon.

        Whether a report speaks for an item is a function of the report, so its
        probability, and that of its opposite, may differ by e^epsilon between items. It
        is needed for the claimed epsilon, and proves nothing.
        """
        own = fractions.Fraction(self.own_probability)
        other = fractions.Fraction(self.other_probability)
        if not 0 <= other < own <= 1:
            raise ValueError(
                f"own_probability is {float(own):g} and other_probability "
                f"{float(other):g}; they have to be probabilities, the first the larger"
            )
        needed, claimed = math.inf, self.guarantee.replacement_epsilon
        if other > 0 and own < 1:
            needed = math.log(max(own / other, (1 - other) / (1 - own)))
        if needed > claimed + _CLAIM_TOLERANCE:
            raise ValueError(
                f"{type(self).__name__} claims epsilon {claimed:g}, but speaks for the "
                f"true item with probability {float(own):g} and for another with "
                f"{float(other):g}: that alone needs epsilon {needed:g}. Correct the "
                "class, or state its true epsilon"
            )

    def _check_gap(self) -> None:
        """Raises a `ValueError` if a report says nothing about its true item."""
        if not self.own_probability > self.other_probability:
            raise ValueError(
                f"epsilon is {self.epsilon!r}; for a domain of {self.domain_size} it "
                "has to be larger: the chances of true and other items differ by less "
                "than 2^-64"
            )


def fold_in(seed: tf.Tensor, number: tf.types.experimental.TensorLike) -> tf.Tensor:
    """Returns the seed of a numbered part of the work that `seed` is for.

    Args:
        seed: int32 or int64, shape [2].
        number: A scalar, at least 0.

    Returns:
        int64, shape [2]. With an int32 number TensorFlow would keep 32 bits of the
        seed only, and blocks would share draws.
    """
    return tf.random.fold_in(seed, tf.cast(number, tf.int64), alg="philox")


def counted(items: tf.Tensor, size: int) -> tf.Tensor:
    """Returns how often each item below a size occurs.

    Args:
        items: int32, shape [any], at least 0.
        size: Number of items that count.

    Returns:
        int64, shape [size].
    """
    # `tf.math.bincount` computes the size, which XLA has to know beforehand.
    no_weights = tf.constant([], tf.int32)
    counts = tf.raw_ops.Bincount(arr=items, size=size, weights=no_weights)
    return tf.ensure_shape(tf.cast(counts, tf.int64), [size])


def bits_of_index(domain_size: int) -> int:
    """Returns the bits that tell the items of a domain apart."""
    return (domain_size - 1).bit_length()
