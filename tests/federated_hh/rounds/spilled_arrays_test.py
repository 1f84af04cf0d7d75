"""Tests of arrays that wait on disk: the same run, less memory, nothing left behind."""

import dataclasses
import gc
import os
import pathlib
import resource
import weakref
from unittest import mock

import numpy as np
import psutil
from absl.testing import absltest

from federated_hh.files import freed_memory
from federated_hh.populations.languages import languages
from federated_hh.randomness import integer_noise, noise_keys
from federated_hh.rounds import experiment, steps
from federated_hh.run_directory import files as run_files
from tests.federated_hh.rounds import contract_cases

_SIZE = 200_000
_MIB = 1 << 20


def nodes_of(noise):
    return [array for node in noise.nodes for array in (node.total, node.estimate)]


class ParkedTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = run_files.RunFiles(pathlib.Path(self.create_tempdir().full_path))
        rng = np.random.default_rng(1)
        self.nodes = (
            integer_noise.Node(rng.integers(-9, 9, _SIZE), rng.random(_SIZE), b"one"),
            integer_noise.Node(np.arange(3), np.arange(3) / 7, b"two"),
        )
        self.state = integer_noise.NoiseState(1, 5, self.nodes, (np.arange(_SIZE),))

    def test_a_value_stays_what_it_is(self):
        found = steps.spilled(self.state, self.folder)
        self.assertEqual(found.tree, 1)
        self.assertEqual([node.history for node in found.nodes], [b"one", b"two"])
        pairs = zip(
            (*nodes_of(found), *found.hidden),
            (*nodes_of(self.state), *self.state.hidden),
            strict=True,
        )
        for array, expected in pairs:
            self.assertEqual(array.dtype, expected.dtype)
            np.testing.assert_array_equal(array, expected)
        self.assertEqual(
            [steps.is_spilled(array) for array in (*nodes_of(found), *found.hidden)],
            [True, True, False, False, True],
        )
        with self.assertRaisesRegex(ValueError, "read-only"):
            found.nodes[0].total[0] = 1

    def test_shapes_and_strides(self):
        arrays = np.random.default_rng(1).random((600, 500))
        given = arrays.T, arrays[:, ::-1]
        state = integer_noise.NoiseState(hidden=given)
        for found, array in zip(
            steps.spilled(state, self.folder).hidden, given, strict=True
        ):
            np.testing.assert_array_equal(found, array)

    def test_what_is_there_stays_there(self):
        self.assertFalse(steps.is_spilled(np.arange(3)))
        small = integer_noise.NoiseState(nodes=self.nodes[1:])
        self.assertIs(steps.spilled(small, self.folder), small)
        once = steps.spilled(self.state, self.folder)
        self.assertIs(steps.spilled(once, self.folder), once)
        more = dataclasses.replace(once, hidden=(*once.hidden, np.ones(_SIZE)))
        twice = steps.spilled(more, self.folder)
        self.assertIs(twice.nodes[0].total, once.nodes[0].total)
        self.assertTrue(steps.is_spilled(twice.hidden[1][5:]))

    def test_memory_is_free_and_the_folder_empty(self):
        process = psutil.Process()

        def own_bytes():
            freed_memory.return_freed()
            found = process.memory_info()
            return found.rss - found.shared

        before = own_bytes()
        arrays = tuple(np.ones(4_000_000) for _ in range(4))
        state = integer_noise.NoiseState(hidden=arrays)
        self.assertGreater(own_bytes() - before, 120 * _MIB)
        state = steps.spilled(state, self.folder)
        del arrays
        self.assertLess(own_bytes() - before, 20 * _MIB)
        self.assertEqual(sum(array.sum() for array in state.hidden), 16_000_000)
        self.assertLess(own_bytes() - before, 20 * _MIB)
        self.assertEmpty(os.listdir(self.folder.path))

    def test_a_full_disk(self):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (_MIB, limits[1]))
        try:
            with self.assertRaisesRegex(
                run_files.RunDirectoryError,
                f"{self.folder.path} cannot hold .* begin the run again",
            ):
                steps.spilled(self.state, self.folder)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        self.assertEmpty(os.listdir(self.folder.path))


class RunTest(absltest.TestCase):
    def test_a_run_is_as_in_memory_and_its_nodes_are_on_disk(self):
        key = noise_keys.NoiseKey.of_seed(1)
        sums = contract_cases.LongSums("a", "a")
        by_hand = steps.Steps(sums, seed=1, noise_key=key)
        place = by_hand.begin()
        while (query := sums.next_query(place.state)) is not None:
            drawn = by_hand.draw(place)
            total = by_hand.ask(place, query, drawn.cohort)
            place = by_hand.update(place, query, drawn, total).progress
        self.assertLen(nodes_of(place.mechanism_state.noise), 4)

        seen = []
        update = steps.Steps.update

        def watched(self, place, *arguments):
            nodes = nodes_of(place.mechanism_state.noise)
            seen.append([steps.is_spilled(array) for array in nodes])
            return update(self, place, *arguments)

        order = []

        def in_order(of, name):
            actual = getattr(of, name)

            def called(*arguments):
                order.append(name)
                return actual(*arguments)

            self.enter_context(mock.patch.object(of, name, called))

        # The algorithm's step, whose arrays are as large, finds room.
        in_order(steps, "spilled")
        in_order(sums, "update")
        languages.words()
        folder = pathlib.Path(self.create_tempdir().full_path) / "run"
        with mock.patch.object(steps.Steps, "update", watched):
            done = experiment.run_experiment(sums, folder, seed=1, noise_key=key)
        np.testing.assert_array_equal(done.outcome.states[0].total, place.state.total)
        self.assertEqual(seen, [[True] * n for n in (0, 2, 2, 4, 2, 4)])
        self.assertEqual(order, ["spilled", "update"] * 6)
        # What only the preparation of data needed is not in memory either.
        self.assertEqual(languages.words.cache_info().currsize, 0)

    def test_a_resumed_run_holds_no_more(self):
        sums, key = contract_cases.LongSums("a", "a"), noise_keys.NoiseKey.of_seed(1)
        folder = pathlib.Path(self.create_tempdir().full_path) / "run"
        update = steps.Steps.update
        began, alive, files = [], [], set()

        def watched(self, place, *arguments):
            if place.rounds == 3:
                raise InterruptedError
            return update(self, place, *arguments)

        with (
            mock.patch.object(steps.Steps, "update", watched),
            self.assertRaises(InterruptedError),
        ):
            experiment.run_experiment(sums, folder, seed=1, noise_key=key)

        def resumed(self, place, *arguments):
            if not began:
                nodes = nodes_of(place.mechanism_state.noise)
                # Each in a file of its own, which ends with it.
                files.update(id(steps.file_of(array)) for array in nodes)
                of_nodes = [steps.is_spilled(array) for array in nodes]
                began.append((place.rounds, of_nodes))
                alive.append(weakref.ref(place.state.total))
            step = update(self, place, *arguments)
            del place
            gc.collect()
            alive.append(alive[0]() is not None)
            return step

        with mock.patch.object(steps.Steps, "update", resumed):
            done = experiment.run_experiment(
                sums, folder, seed=1, noise_key=key, resume=True
            )
        self.assertEqual(began, [(3, [True] * 4)])
        self.assertLen(files, 4)
        # While its first round is asked, and never again.
        self.assertEqual(alive[2:], [False, False])
        whole = experiment.run_experiment(
            sums, folder.with_name("whole"), seed=1, noise_key=key
        )
        np.testing.assert_array_equal(
            done.outcome.states[0].total, whole.outcome.states[0].total
        )


if __name__ == "__main__":
    absltest.main()
