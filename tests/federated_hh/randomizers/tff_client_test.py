"""Tests of the randomizers inside TFF client computations, in a worker."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from absl.testing import absltest

from federated_hh.randomizers import k_ary, one_hot, subset_selection
from federated_hh.runtime import runtime

_ITEMS = tff.TensorType(np.int32, [None])
_SEED = tff.TensorType(np.int32, [2])

_RANDOMIZERS = {
    "subset selection": subset_selection.SubsetSelection(10.0, 100_001),
    "rows drawn again": subset_selection.SubsetSelection(2.0, 101),
    "first distinct draws": subset_selection.SubsetSelection(1.0, 1001),
    "most of the domain": subset_selection.SubsetSelection(0.1, 50, 40),
    "k-ary": k_ary.KAryRandomizedResponse(1.0, 30),
    "asymmetric": one_hot.AsymmetricOneHotEncoding(1.0, 30),
    "symmetric": one_hot.SymmetricOneHotEncoding(1.0, 30),
}


def _round(randomizer):
    @tff.tensorflow.computation(_ITEMS, _SEED)
    def block(items, seed):
        return randomizer.sum_per_report(items, seed)

    @tff.federated_computation(
        tff.FederatedType(_ITEMS, tff.CLIENTS), tff.FederatedType(_SEED, tff.CLIENTS)
    )
    def secure_sum(items, seeds):
        counts = tff.federated_map(block, (items, seeds))
        return tff.federated_secure_sum(counts, 10**9)

    return secure_sum


class TffClientTest(absltest.TestCase):
    def test_reports_are_those_that_are_drawn_elsewhere(self):
        generator = np.random.default_rng(1)
        with runtime.tff_worker():
            for name, randomizer in _RANDOMIZERS.items():
                with self.subTest(name):
                    items = [
                        generator.integers(0, randomizer.domain_size, n, np.int32)
                        for n in (1, 300, 0, 50)
                    ]
                    seeds = [np.array([i, 7], np.int32) for i in range(4)]
                    total = _round(randomizer)(items, seeds)
                    expected = sum(
                        randomizer.sum_per_report(i, s).numpy()
                        for i, s in zip(items, seeds, strict=True)
                    )
                    np.testing.assert_array_equal(total, expected)

    def test_single_reports_leave_a_client_as_they_are(self):
        randomizer = _RANDOMIZERS["subset selection"]

        @tff.tensorflow.computation(_ITEMS, _SEED)
        def device(items, seed):
            return randomizer.randomize(items, seed)

        items, seed = np.arange(50, dtype=np.int32), np.array([1, 2], np.int32)
        with runtime.tff_worker():
            reports = device(items, seed)
        np.testing.assert_array_equal(reports, randomizer.randomize(items, seed))

    def test_an_item_outside_the_domain_ends_the_round(self):
        randomizer = _RANDOMIZERS["k-ary"]
        message = r"items has to be in \[0, 29\]"
        with runtime.tff_worker(), self.assertRaisesRegex(Exception, message):
            _round(randomizer)(
                [np.array([3, 30], np.int32)], [np.array([1, 2], np.int32)]
            )

    def test_graphs_know_the_shape_of_a_sum(self):
        for name in ("first distinct draws", "symmetric"):
            randomizer = _RANDOMIZERS[name]
            function = tf.function(randomizer.sum_per_report).get_concrete_function(
                tf.TensorSpec([None], tf.int32), tf.TensorSpec([2], tf.int32)
            )
            self.assertEqual(function.output_shapes, [randomizer.domain_size])
            self.assertEqual(function.output_dtypes, tf.int64)


if __name__ == "__main__":
    absltest.main()
