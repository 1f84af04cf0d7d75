"""Tests of the interface: estimates, bad input, and a randomizer of one's own."""

import fractions
import math
import re
import types
from unittest import mock

import numpy as np
import scipy.linalg
import tensorflow as tf
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.files import memory, verified_files
from federated_hh.randomizers import (
    arguments,
    k_ary,
    one_hot,
    subset_selection,
)
from tests import ROOT

_ALL = (
    subset_selection.SubsetSelection,
    k_ary.KAryRandomizedResponse,
    one_hot.AsymmetricOneHotEncoding,
    one_hot.SymmetricOneHotEncoding,
)


def _guide_example():
    """Returns the class of the guide's page."""
    guide = (ROOT / "docs/guide/custom_randomizer.md").read_text()
    (code,) = re.findall(r"```python\n([^`]*class HadamardResponse[^`]*)```", guide)
    module = types.ModuleType("hadamard")
    exec(compile(code, "hadamard.py", "exec"), module.__dict__)
    return module.HadamardResponse


HadamardResponse = _guide_example()


class _WithMatrix(HadamardResponse):
    """Keeps the matrix that the guide's class does without."""

    def __init__(self, epsilon, domain_size):
        super().__init__(epsilon, domain_size)
        self.matrix = scipy.linalg.hadamard(2 ** domain_size.bit_length())


class OwnRandomizerTest(absltest.TestCase):
    def test_it_sums_report_by_report_without_bias(self):
        # 200 sums of 2,000 reports: means and squares of the estimates as normal and
        # chi-squared deviates, at 1e-6 by the union bound over 6 items and 4 tails.
        randomizer = HadamardResponse(2.0, 6)
        histogram = np.array([700, 0, 300, 0, 0, 1000])
        sums = [randomizer.sum_of_reports(histogram, seed) for seed in range(200)]
        estimates = np.array([randomizer.estimate(counts, 2000) for counts in sums])
        variances = randomizer.variance(histogram, 2000)
        z = (estimates.mean(axis=0) - histogram) / np.sqrt(variances / 200)
        self.assertLess(np.abs(z).max(), stats.norm.isf(1e-6 / 24))
        ratio = ((estimates - histogram) ** 2).sum(axis=0) / variances
        self.assertGreater(stats.chi2.sf(ratio, 200).min(), 1e-6 / 24)
        self.assertGreater(stats.chi2.cdf(ratio, 200).min(), 1e-6 / 24)

    def test_it_reports_a_row_and_an_entry_of_the_hadamard_matrix(self):
        matrix = scipy.linalg.hadamard(16)
        items = np.repeat(np.arange(9), 50)
        # At epsilon 40 every entry is the item's.
        rows, signs = HadamardResponse(40.0, 9).randomize(items, [1, 2]).numpy().T
        self.assertGreater(len(set(rows)), 10)
        np.testing.assert_array_equal(2 * signs - 1, matrix[rows, items + 1])
        agree = matrix[rows, 1:10] == (2 * signs - 1)[:, None]
        counts = HadamardResponse(40.0, 9).tally(np.stack([rows, signs], axis=1))
        np.testing.assert_array_equal(counts, agree.sum(axis=0))

    def test_a_matrix_that_will_not_fit_is_refused_before_it_is_made(self):
        with mock.patch.object(memory, "available_bytes", lambda: 2**34):
            for make in (HadamardResponse, *_ALL):
                arguments.check_memory(make, 2.0, 10**6, 10**5)
            arguments.check_memory(_WithMatrix, 2.0, 10**3, 10**5)
            with self.assertRaisesRegex(
                verified_files.PopulationError,
                "_WithMatrix for 1,000,000 items .* power of 2.0; .* takes about .* "
                "GiB of memory, and 16.0 GiB are available",
            ):
                arguments.check_memory(_WithMatrix, 2.0, 10**6, 10**5)

    def test_what_another_thread_allocates_is_no_need(self):
        others = []

        def allocating(epsilon, domain_size):
            made = HadamardResponse(epsilon, domain_size)
            if domain_size > 300 and len(others) < 2:  # to warm up, and measured once
                others.append(np.zeros(100_000))
            return made

        kept = {}

        def cubic(epsilon, domain_size):
            key = epsilon, domain_size
            kept[key] = kept.get(key, np.zeros(domain_size**3, bool))
            return HadamardResponse(epsilon, domain_size)

        with mock.patch.object(memory, "available_bytes", lambda: 2**34):
            arguments.check_memory(allocating, 2.0, 10**4, 10**4)
            self.assertLen(others, 2)
            with self.assertRaisesRegex(
                verified_files.PopulationError, "cubic for 10,000 .* power of 3.0"
            ):
                arguments.check_memory(cubic, 2.0, 10**4, 10**4)

    def test_a_tally_that_will_not_fit_is_refused_before_a_report_is_drawn(self):
        class Pairwise(HadamardResponse):
            """Compares every report with every item."""

            def tally(self, reports):
                items = tf.range(1, self.domain_size + 1)
                both = tf.bitwise.bitwise_and(reports[:, :1], items[None, :])
                ones = tf.cast(tf.raw_ops.PopulationCount(x=both), tf.int32) % 2
                agree = tf.equal(1 - ones, reports[:, 1:])
                return tf.reduce_sum(tf.cast(agree, tf.int64), axis=0)

        # Two int64 of each pair.
        self.assertEqual(Pairwise(2.0, 300).bytes_to_sum(700), 2 * 8 * 300 * 700)
        reports = Pairwise(2.0, 300).randomize(np.arange(300), [1, 2])
        np.testing.assert_array_equal(
            Pairwise(2.0, 300).tally(reports), HadamardResponse(2.0, 300).tally(reports)
        )
        with mock.patch.object(memory, "available_bytes", lambda: 2**34):
            arguments.check_memory(Pairwise, 2.0, 10**4, 10**4)
            with self.assertRaisesRegex(
                verified_files.PopulationError,
                "Pairwise for 30,301 items .* power of 1",
            ):
                arguments.check_memory(Pairwise, 2.0, 30_301, 112_500)

    def test_an_error_of_a_graph_names_the_class(self):
        class Failing(HadamardResponse):
            def tally(self, reports):
                ones = tf.ones([tf.size(reports), 10])
                with tf.control_dependencies([tf.debugging.assert_equal(ones, 2.0)]):
                    return super().tally(reports)

        with self.assertRaises(tf.errors.InvalidArgumentError) as caught:
            Failing(2.0, 3).sum_of_reports(np.array([1, 2, 3]), 1)
        self.assertIn(
            "Failing, _randomize or tally of 6", caught.exception.__notes__[0]
        )

    def test_a_claim_that_its_probabilities_contradict_is_refused(self):
        for make in (HadamardResponse, *_ALL):
            make(2.0, 6).check_claim()

        class Boaster(HadamardResponse):
            """Keeps the entry more often than epsilon 2 allows."""

            own_probability, other_probability = 0.9, 0.1

        class Open(HadamardResponse):
            """Sends the item."""

            own_probability, other_probability = 1.0, 0.0

        with self.assertRaisesRegex(ValueError, "Boaster claims epsilon 2, .* 2.19"):
            # log(0.9 / 0.1)
            Boaster(2.0, 6).check_claim()
        with self.assertRaisesRegex(ValueError, "needs epsilon inf"):
            Open(40.0, 6).check_claim()

    def test_an_unknown_randomizer_gets_the_bound_that_always_holds(self):
        guarantee = HadamardResponse(2.0, 6).guarantee
        self.assertEqual(guarantee.amplification, "arbitrary")
        self.assertEqual(guarantee.replacement_epsilon, 2.0)

    def test_batches_of_any_size_sum_to_every_report(self):
        class Small(HadamardResponse):
            values_per_report = 2**20

        histogram = np.array([9, 0, 4])
        for randomizer in (Small(40.0, 3), HadamardResponse(40.0, 3)):
            counts = randomizer.sum_of_reports(histogram, 1)
            # At epsilon 40 a report speaks for its item without fail.
            self.assertTrue(np.all(counts >= histogram))
            self.assertLessEqual(counts.max(), 13)


class EstimateTest(parameterized.TestCase):
    def test_the_encodings_estimate_as_the_paper_does(self):
        # McMillan et al. 2022: Algorithm 4 and Theorem C.2; Algorithm 2 with 2n in
        # place of n, and Theorem A.2.
        counts, n, e = np.array([5.0, 120.0, 33.0]), 200, math.exp(1.5)
        symmetric = one_hot.SymmetricOneHotEncoding(1.5, 3)
        np.testing.assert_allclose(
            symmetric.estimate(counts, n), ((1 + e) * counts - n) / (e - 1), rtol=1e-13
        )
        true_counts = np.array([0, 150, 50])
        np.testing.assert_allclose(
            symmetric.variance(true_counts, n), n * e / (e - 1) ** 2, rtol=1e-13
        )
        asymmetric = one_hot.AsymmetricOneHotEncoding(1.5, 3)
        np.testing.assert_allclose(
            asymmetric.estimate(counts, n),
            (2 * (1 + e) * counts - 2 * n) / (e - 1),
            rtol=1e-13,
        )
        np.testing.assert_allclose(
            asymmetric.variance(true_counts, n),
            4 * n * e / (e - 1) ** 2 + true_counts,
            rtol=1e-13,
        )

    @parameterized.parameters(*_ALL)
    def test_estimates_are_unbiased(self, make):
        # On the exact expectation of the counts, at the scale of a country.
        for epsilon in (0.1, 1.0, 10.0):
            randomizer = make(epsilon, 7)
            own = fractions.Fraction(randomizer.own_probability)
            other = fractions.Fraction(randomizer.other_probability)
            true_counts = np.array([10**9, 0, 3, 10**7, 0, 0, 5])
            n = int(true_counts.sum())
            expected = [int(f) * own + (n - int(f)) * other for f in true_counts]
            got = randomizer.estimate(np.array(expected, np.float64), n)
            np.testing.assert_allclose(got, true_counts, atol=1e-5, rtol=1e-12)

    def test_an_estimate_of_some_items_has_their_shape(self):
        randomizer = subset_selection.SubsetSelection(1.0, 10)
        self.assertEqual(randomizer.estimate(np.zeros((2, 3)), 5).shape, (2, 3))
        self.assertEqual(randomizer.variance(np.zeros((2, 3)), 5).shape, (2, 3))
        self.assertEqual(randomizer.estimate(0, 0), 0.0)


class BadInputTest(parameterized.TestCase):
    @parameterized.product(
        make=_ALL, epsilon=[0, -1.0, math.nan, math.inf, 40.1, "1", None, 1e-30]
    )
    def test_epsilon(self, make, epsilon):
        with self.assertRaisesRegex(ValueError, "epsilon .*" + str(epsilon)):
            make(epsilon, 5)

    @parameterized.product(make=_ALL, domain_size=[1, 0, -3, 2**31, 2.0, None, True])
    def test_domain_size(self, make, domain_size):
        with self.assertRaisesRegex(ValueError, f"domain_size .*{domain_size}"):
            make(1.0, domain_size)

    @parameterized.parameters(0, 5, -1, 1.5)
    def test_subset_size(self, size):
        with self.assertRaisesRegex(ValueError, f"subset_size .*{size}"):
            subset_selection.SubsetSelection(1.0, 5, size)

    @parameterized.product(make=_ALL, item=[5, -1, 2**40])
    def test_items_outside_the_domain(self, make, item):
        randomizer = make(1.0, 5)
        message = rf"items has to be in \[0, 4\].*items\[1\] is {item}"
        for method in (randomizer.randomize, randomizer.sum_per_report):
            with self.assertRaisesRegex(ValueError, message):
                method(np.array([4, item]), [1, 2])

    @parameterized.parameters(*_ALL)
    def test_items_outside_the_domain_in_a_graph(self, make):
        randomize = tf.function(make(1.0, 5).randomize).get_concrete_function(
            tf.TensorSpec([None], tf.int64), tf.TensorSpec([2], tf.int32)
        )
        randomize(tf.constant([4], tf.int64), tf.constant([1, 2]))
        for item in (5, -1, 2**40):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, str(item)):
                randomize(tf.constant([4, item], tf.int64), tf.constant([1, 2]))

    @parameterized.parameters(
        ([[1]], [1, 2], "items"),
        ([1.0], [1, 2], "items"),
        ([True], [1, 2], "items"),
        ([1], [1], "seed"),
        ([1], [1.0, 2.0], "seed"),
        ([1], 7, "seed"),
    )
    def test_types_and_shapes(self, items, seed, name):
        randomizer = subset_selection.SubsetSelection(1.0, 5)
        for method in (randomizer.randomize, randomizer.sum_per_report):
            with self.assertRaisesRegex(ValueError, f"{name} is"):
                method(items, seed)

    @parameterized.product(
        make=_ALL,
        bad=[
            ([1, 2, 3, 4], "shape"),
            ([[1, 2, 3, 4, 5]], "shape"),
            ([1, 2, -3, 4, 5], r"histogram\[2\] is -3"),
            ([1, 2, 3, 4.0, 5], "integers"),
            (np.ones(5), "float64"),
            ([True] * 5, "integers"),
            (np.ones(5, bool), "bool"),
            (np.array([1, 2**63, 3, 4, 5], np.uint64), rf"histogram\[1\] is {2**63}"),
            ([1, 2**63, 3, 4, 5], rf"histogram\[1\] is {2**63}"),
            ([1, 2**70, 3, 4, 5], rf"histogram\[1\] is {2**70}"),
            ([2**62, 2**62, 2**62, 0, 0], r"histogram.* in \[0, \d+\]"),
        ],
    )
    def test_histograms(self, make, bad):
        histogram, message = bad
        with self.assertRaisesRegex(ValueError, message):
            make(1.0, 5).sum_of_reports(histogram, 1)

    def test_the_largest_sum_that_fits(self):
        randomizer = k_ary.KAryRandomizedResponse(1.0, 3)
        most = 2**63 - 1
        counts = randomizer.sum_of_reports([most - 1, 0, 1], 1)
        self.assertEqual(counts.sum(), most)
        self.assertBetween(counts.min(), 0, most)
        with self.assertRaisesRegex(ValueError, str(most + 1)):
            randomizer.sum_of_reports([most - 1, 1, 1], 1)

    @parameterized.parameters(-1, 1.5, None)
    def test_seeds_of_sums(self, seed):
        with self.assertRaisesRegex(ValueError, "seed"):
            k_ary.KAryRandomizedResponse(1.0, 2).sum_of_reports([1, 1], seed)

    def test_counts_of_reports(self):
        randomizer = k_ary.KAryRandomizedResponse(1.0, 2)
        with self.assertRaisesRegex(ValueError, "num_reports .*-1"):
            randomizer.estimate([1, 1], -1)
        with self.assertRaisesRegex(ValueError, "num_reports .*-1"):
            randomizer.variance([1, 1], -1)
        for wrong in (-1, 3, math.nan):
            with self.assertRaisesRegex(ValueError, "true_counts"):
                randomizer.variance([0, wrong], 2)


if __name__ == "__main__":
    absltest.main()
