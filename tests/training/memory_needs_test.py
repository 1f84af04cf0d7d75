"""Tests of the memory that a run is taken to need."""

from unittest import mock

from absl.testing import absltest, parameterized

from simulation.readers import memory
from training import memory_needs, model, pretrain_options


def needs(**options):
    values = dict(
        num_parameters=2_400_000,
        num_tokens=10_004,
        num_units=670,
        batch_tokens=16 * 21,
        num_blocks=8,
        tree_rounds=2048,
        participations=100_000,
    )
    return memory_needs.Needs(**values | options)


class MemoryNeedsTest(parameterized.TestCase):
    @parameterized.parameters((30, 5, 4), (1004, 64, 32), (10_004, 670, 96))
    def test_parameters_are_those_of_the_model(self, num_tokens, num_units, size):
        built = model.cifg_language_model(
            num_tokens, num_units=num_units, projection_size=size, embedding_size=size
        )
        self.assertEqual(
            memory_needs.cifg_num_parameters(num_tokens, num_units, size),
            built.num_parameters(),
        )

    def test_the_measured_round(self):
        # results/benchmark_training: 1.9 GiB at most, with a tree of 14 levels of
        # which the first few rounds fill three.
        self.assertBetween(needs(tree_rounds=4).total_bytes / 2**30, 1.0, 4.0)

    def test_a_central_training_that_does_not_fit_is_refused(self):
        options = pretrain_options.PretrainOptions()
        # Its weights, moments and checkpoint alone are 0.2 GiB.
        memory_needs.check_central(options, 10_004)
        with (
            mock.patch.object(memory, "available_bytes", return_value=800 << 20),
            self.assertRaisesRegex(ValueError, "1,344 words, needs about 0.9 GiB"),
        ):
            memory_needs.check_central(options, 10_004)

    def test_what_does_not_fit_is_refused(self):
        with mock.patch.object(memory, "available_bytes", return_value=8 << 30):
            needs().check()
            for options in (
                dict(num_parameters=10**9),
                dict(batch_tokens=10**6),
                dict(num_tokens=10**8),
                dict(participations=10**9),
            ):
                with self.assertRaisesRegex(ValueError, "8.0 GiB are available. Lower"):
                    needs(**options).check()
        with mock.patch.object(memory, "available_bytes", return_value=None):
            needs(num_parameters=10**12).check()


if __name__ == "__main__":
    absltest.main()
