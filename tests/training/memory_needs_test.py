"""Tests of the memory and disk that a run is taken to need."""

import collections
import pathlib
import shutil
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.files import memory
from federated_hh.randomness import integer_noise, streams
from federated_hh.rounds import checkpoints
from federated_hh.run_directory import files as run_files
from training import memory_needs
from training.central import options as pretrain_options
from training.models import model


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
        # results/benchmark_training: rounds of the large model.
        self.assertBetween(needs().total_bytes / 2**30, 1.0, 4.0)

    def test_a_trees_nodes_wait_on_disk(self):
        small = needs(tree_rounds=1)
        self.assertEqual(needs().total_bytes, small.total_bytes)
        self.assertGreater(needs().waiting_bytes, 10 * small.waiting_bytes)
        # Buffers of correlated noise are opened in each round.
        self.assertGreater(
            needs(buffers=4).total_bytes, needs().total_bytes + 4 * 8 * 2_400_000
        )

    def test_the_disk_is_what_checkpoints_of_a_full_tree_take(self):
        size, rounds = 20_000, 63
        tree, stream = integer_noise.Tree(), streams.Stream(1, ("test",))
        state = integer_noise.NoiseState()
        for number in range(rounds):
            of_round = stream.of(number.to_bytes(32, "little"))
            _, state = tree.add(np.zeros(size, np.int64), 9.0, state, of_round)
        weights = [np.zeros(size, np.float32)] * 3
        folder = run_files.RunFiles(pathlib.Path(self.create_tempdir().full_path))
        for number in range(3):
            checkpoints.write(
                folder, f"{number}.npz", {"noise": state, "weights": weights}
            )
        on_disk = sum(path.stat().st_size for path in folder.path.iterdir())
        found = needs(num_parameters=size, tree_rounds=rounds, participations=0)
        # One more while it is written, and the nodes that wait.
        self.assertBetween(
            found.disk_bytes(3), (on_disk / 3) * 4 + found.waiting_bytes, 2 * on_disk
        )

    def test_a_disk_that_is_too_small_is_named(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        usage = collections.namedtuple("usage", ["total", "used", "free"])
        with mock.patch.object(
            shutil, "disk_usage", return_value=usage(9 << 30, 8 << 30, 1 << 30)
        ):
            needs(tree_rounds=0).check_disk(folder / "not" / "there", 3)
            with self.assertRaisesRegex(
                ValueError,
                r"up to 0.4 GiB of noise .* 4 checkpoints: 2.3 GiB; 1.0 GiB are free "
                rf"in {folder}. Choose another --output_dir, .*--num_rounds",
            ):
                needs().check_disk(folder / "not" / "there", 3)
        with (
            mock.patch.object(shutil, "disk_usage", return_value=usage(9, 9, 5 << 20)),
            self.assertRaisesRegex(ValueError, "GiB; 5.0 MiB are free"),
        ):
            needs().check_disk(folder, 3)

    def test_a_central_training_that_does_not_fit_is_refused(self):
        options = pretrain_options.PretrainOptions()
        # Its weights, moments and checkpoint alone are 0.2 GiB.
        memory_needs.check_central(options, 10_004, 2_400_000)
        with (
            mock.patch.object(memory, "available_bytes", return_value=800 << 20),
            self.assertRaisesRegex(ValueError, "1,344 words, needs about 0.9 GiB"),
        ):
            memory_needs.check_central(options, 10_004, 2_400_000)

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
