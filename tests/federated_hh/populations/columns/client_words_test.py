"""Tests of the columns on disk: contents, checks, atomicity, derived columns."""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import textwrap
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from federated_hh.files import atomic_files
from federated_hh.populations.columns import (
    canonical_rows,
    client_words,
    column_writer,
    raw_column_writer,
)
from tests import ROOT

ClientWords = client_words.ClientWords

_ROWS = [
    ("ann", [("sun", 1), ("moon", 2), ("sun", 1), ("star", 5)]),
    ("bob", []),
    ("cy", [("star", 3)]),
]


def _run_python(source: str, *arguments: str, **options) -> subprocess.Popen:
    """Starts a program of this repository in an interpreter of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source), *arguments],
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


class ClientWordsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.parent = pathlib.Path(self.create_tempdir().full_path)
        self.directory = self.parent / "population"

    def test_rows_come_back_in_canonical_order(self):
        population = ClientWords.from_rows(self.directory, _ROWS)

        # "sun" and "moon" have two each; by spelling, "moon" comes first.
        self.assertEqual(population.client(0), [("star", 5), ("moon", 2), ("sun", 2)])
        self.assertEqual(population.client(1), [])
        self.assertEqual(population.client(2), [("star", 3)])
        self.assertEqual(population.num_clients, 3)
        self.assertEqual(population.num_words, 3)
        self.assertEqual(population.num_entries, 4)
        self.assertEqual(population.client_id(1), "bob")
        self.assertEqual(
            [population.word(i) for i in range(3)], ["moon", "star", "sun"]
        )
        self.assertEqual(os.listdir(self.parent), ["population"])

    def test_raw_files_are_the_columns(self):
        population = ClientWords.from_rows(self.directory, _ROWS)
        for name, dtype in [
            ("entries", "<i4"),
            ("row_splits", "<i8"),
            ("favorites", "<i4"),
        ]:
            path = population.column_path(name)
            self.assertTrue(os.path.isabs(path))
            np.testing.assert_array_equal(
                np.fromfile(path, dtype), getattr(population, name)
            )
            with self.assertRaises(ValueError):
                getattr(population, name)[0] = 1  # read-only

    def test_an_entry_is_a_word_and_its_count_in_four_bytes(self):
        population = ClientWords.from_rows(self.directory, _ROWS)
        # Three words need two bits of 31: moon, star and sun of ann, then star of cy.
        expected = [0 << 29 | 2, 1 << 29 | 5, 2 << 29 | 2, 1 << 29 | 3]
        self.assertEqual(
            np.fromfile(self.directory / "entries.bin", "<i4").tolist(), expected
        )
        self.assertEqual(population.word_ids[:].tolist(), [0, 1, 2, 1])
        self.assertEqual(population.counts[:].tolist(), [2, 5, 2, 3])
        self.assertEqual(population.counts[np.array([3, 0])].tolist(), [3, 2])
        self.assertEqual((population.word_ids == 1).tolist(), [0, 1, 0, 1])
        self.assertEqual((population.counts != 2).tolist(), [0, 1, 0, 1])
        self.assertLen(population.counts, 4)

    @parameterized.parameters((2**29 - 1, 4), (2**29, 8), (column_writer.MAX_COUNT, 8))
    def test_counts_that_do_not_fit_make_entries_wide(self, count, size):
        rows = [
            *((f"u{i}", [("sun", i + 1), ("moon", 1)]) for i in range(9)),
            ("often", [("star", count)]),
            ("last", [("moon", 7)]),
        ]
        plain = ClientWords.from_rows(self.directory, rows)
        entries = self.directory / "entries.bin"
        self.assertEqual(entries.stat().st_size, size * 20)
        # As written in pieces: what came before the large count is packed anew.
        one = self.parent / "pieces"
        with (
            mock.patch.object(raw_column_writer, "_VALUES_AT_ONCE", 7),
            column_writer.new_population(one) as writer,
        ):
            writer.set_words(["moon", "star", "sun"])
            for index in range(9):
                writer.append_rows(
                    canonical_rows.Rows(
                        np.array([0, 2]),
                        np.array([1, index + 1]),
                        np.array([2]),
                        np.array([0 if index == 0 else 2]),
                    )
                )
            writer.append_rows(
                canonical_rows.Rows(*map(np.array, ([1], [count], [1], [1])))
            )
            writer.append_rows(
                canonical_rows.Rows(*map(np.array, ([0], [7], [1], [0])))
            )
            writer.finish([*(f"u{i}" for i in range(9)), "often", "last"], {})
        self.assertEqual((one / "entries.bin").read_bytes(), entries.read_bytes())
        found = ClientWords.open(one)
        self.assertEqual(found.client(9), [("star", count)])
        self.assertEqual(found.client(4), plain.client(4))
        self.assertCountEqual(
            [p.name for p in one.iterdir()],
            [p.name for p in self.directory.iterdir()],
        )

    @parameterized.parameters(1, 3, 100)
    def test_occurrences(self, at_once):
        population = ClientWords.from_rows(self.directory, _ROWS)
        with mock.patch.object(client_words, "_ENTRIES_AT_ONCE", at_once):
            self.assertEqual(population.occurrences().tolist(), [2, 8, 2])

    def test_rows_of_some_clients(self):
        population = ClientWords.from_rows(self.directory, _ROWS)
        rows = population.rows(np.array([2, 1, 0, 2]))
        self.assertEqual(rows.word_ids.tolist(), [1, 0, 1, 2, 1])
        self.assertEqual(rows.counts.tolist(), [3, 2, 5, 2, 3])
        self.assertEqual(rows.row_lengths.tolist(), [1, 0, 3, 1])
        self.assertEqual(rows.favorites.tolist(), [1, -1, 1, 1])

    def test_words_come_before_clients_and_once(self):
        chunk = canonical_rows.rows(np.array([0]), np.array([0]), np.array([4]), 1)
        with (
            self.assertRaisesRegex(ValueError, "clients come before the words"),
            column_writer.new_population(self.directory) as writer,
        ):
            writer.append_rows(chunk)
        with (
            self.assertRaisesRegex(ValueError, "already been written"),
            column_writer.new_population(self.directory) as writer,
        ):
            writer.set_words(["w"])
            writer.set_words(["w"])
        with (
            self.assertRaisesRegex(ValueError, "no words were written"),
            column_writer.new_population(self.directory) as writer,
        ):
            writer.finish(None, {})
        self.assertEmpty(os.listdir(self.parent))

    def test_empty_population(self):
        population = ClientWords.from_rows(self.directory, [])
        self.assertEqual(
            (population.num_clients, population.num_words, population.num_entries),
            (0, 0, 0),
        )
        self.assertEmpty(population.word_ids)
        self.assertEmpty(population.words)
        np.testing.assert_array_equal(population.row_splits, [0])

    @settings(derandomize=True, deadline=None, max_examples=50)
    @given(
        st.lists(
            st.lists(st.tuples(st.text("ab☃", max_size=2), st.integers(1, 9))),
            max_size=6,
        )
    )
    def test_any_rows_equal_a_plain_count(self, rows):
        directory = self.create_tempdir().full_path + "/p"
        population = ClientWords.from_rows(
            directory, [(f"u{i}", row) for i, row in enumerate(rows)]
        )
        for i, row in enumerate(rows):
            totals = {}
            for word, count in row:
                totals[word] = totals.get(word, 0) + count
            # `max` takes the first of the most frequent ones.
            favorite = max(totals, key=totals.__getitem__, default=None)
            expected = sorted(
                totals.items(), key=lambda item: (-item[1], item[0] != favorite, item)
            )
            self.assertEqual(population.client(i), expected)
            ids = population.word_ids[slice(*population.row_splits[i : i + 2])]
            self.assertEqual([population.word(j) for j in ids], sorted(totals))
            if totals:
                self.assertEqual(population.word(population.favorites[i]), favorite)
            else:
                self.assertEqual(population.favorites[i], -1)

    def test_without_client_ids_they_are_numbers(self):
        chunk = canonical_rows.rows(np.array([1]), np.array([0]), np.array([4]), 2)
        chunks = [chunk] * 2
        column_writer.write_columns(self.directory, chunks, ["w"], None, {"a": 1})
        population = ClientWords.open(self.directory)
        self.assertIsNone(population.client_ids)
        self.assertEqual(population.client_id(3), "3")
        self.assertEqual(population.client(3), [("w", 4)])
        self.assertEqual(population.metadata["a"], 1)

    def test_fingerprint_is_of_the_contents(self):
        prints = []
        for i, (word, count) in enumerate([("a", 1), ("a", 1), ("b", 1), ("a", 2)]):
            rows = [("x", [(word, count)])]
            directory = self.parent / str(i)
            prints.append(ClientWords.from_rows(directory, rows).fingerprint)
        self.assertEqual(prints[0], prints[1])
        self.assertLen(set(prints), 3)

    def test_bad_rows_are_refused(self):
        with self.assertRaisesRegex(ValueError, "'ann' is a duplicate"):
            ClientWords.from_rows(self.directory, [("ann", []), ("ann", [])])
        for count in (0, -1, 2**31):
            with self.assertRaisesRegex(ValueError, str(count)):
                ClientWords.from_rows(self.directory, [("ann", [("w", count)])])
        self.assertEmpty(os.listdir(self.parent))

    def test_inconsistent_columns_are_refused(self):
        one, two = np.array([1]), np.array([1, 1])
        for word_ids, counts, lengths, favorites in [
            (one, one, [2], one),
            (one, two, [1], one),
            (np.array([2]), one, [1], one),
            (one, one, [1], two),
            (np.array([1, 0]), two, [2], one),  # not in the order of spelling
            (two, two, [2], one),  # a word twice
        ]:
            with self.assertRaises(ValueError):
                column_writer.write_columns(
                    self.directory,
                    [
                        canonical_rows.Rows(
                            word_ids, counts, np.array(lengths), favorites
                        )
                    ],
                    ["a", "b"],
                    None,
                    {},
                )
        chunk = canonical_rows.Rows(one, one, one, one)
        with self.assertRaisesRegex(ValueError, "2 client ids for 1 clients"):
            column_writer.write_columns(
                self.directory, [chunk], ["a", "b"], ["u", "v"], {}
            )
        for words in (["b", "a"], ["a", "a"], ["a", "ä", "z"]):
            with self.assertRaisesRegex(ValueError, "not distinct or not sorted"):
                column_writer.write_columns(self.directory, [chunk], words, None, {})
        self.assertFalse(self.directory.exists())

    def test_rows_may_descend_where_one_ends(self):
        rows = canonical_rows.Rows(
            np.array([0, 1, 0, 1]),
            np.ones(4, np.int64),
            np.array([0, 2, 0, 0, 1, 1, 0]),
            np.array([-1, 0, -1, -1, 0, 1, -1]),
        )
        column_writer.write_columns(self.directory, [rows], ["a", "b"], None, {})
        population = ClientWords.open(self.directory)
        self.assertEqual(population.client(1), [("a", 1), ("b", 1)])
        self.assertEqual(population.client(5), [("b", 1)])

    def test_indices_out_of_range_are_refused(self):
        population = ClientWords.from_rows(self.directory, _ROWS)
        for call in (population.word, population.client, population.client_id):
            for index in (-1, 3):
                with self.assertRaisesRegex(ValueError, r"to be in 0\.\.2"):
                    call(index)
        with self.assertRaisesRegex(ValueError, "to be one of"):
            population.column_path("words")

    def test_open_refuses_what_is_not_whole(self):
        with self.assertRaisesRegex(FileNotFoundError, "not a population directory"):
            ClientWords.open(self.directory)
        ClientWords.from_rows(self.directory, _ROWS)
        entries = self.directory / "entries.bin"
        contents = entries.read_bytes()
        entries.write_bytes(contents[:-1])
        with self.assertRaisesRegex(ValueError, "entries.bin has 15 bytes, 16"):
            ClientWords.open(self.directory)
        entries.unlink()
        with self.assertRaisesRegex(ValueError, "entries.bin is missing"):
            ClientWords.open(self.directory)
        entries.write_bytes(contents)
        ClientWords.open(self.directory)

        metadata = self.directory / "population.json"
        changed = dict(json.loads(metadata.read_text()), schema_version=0)
        metadata.write_text(json.dumps(changed))
        with self.assertRaisesRegex(ValueError, "schema_version is 0"):
            ClientWords.open(self.directory)
        metadata.write_text("{")
        with self.assertRaisesRegex(ValueError, "not valid JSON"):
            ClientWords.open(self.directory)

    def test_an_existing_directory_is_not_overwritten(self):
        ClientWords.from_rows(self.directory, _ROWS)
        with self.assertRaises(FileExistsError):
            ClientWords.from_rows(self.directory, [])
        self.assertEqual(ClientWords.open(self.directory).num_clients, 3)


class DerivedColumnTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.create_tempdir().full_path + "/population"
        self.population = ClientWords.from_rows(self.directory, _ROWS)

    def test_built_once_and_kept(self):
        calls = []

        def build():
            calls.append(1)
            return np.array([[1, 2], [3, 4]], ">i4").T

        path = self.population.derived_column("codes-L10.v1", build)
        again = ClientWords.open(self.directory).derived_column("codes-L10.v1", build)
        self.assertEqual(path, again)
        self.assertLen(calls, 1)
        np.testing.assert_array_equal(np.fromfile(path, "<i4"), [1, 3, 2, 4])

    def test_empty_array_and_failed_build(self):
        path = self.population.derived_column("none", lambda: np.zeros((0, 3)))
        self.assertEqual(os.path.getsize(path), 0)
        with self.assertRaises(ZeroDivisionError):
            self.population.derived_column("bad", lambda: np.array(1 / 0))
        self.assertCountEqual(
            [p for p in os.listdir(os.path.dirname(path)) if not p.startswith(".")],
            ["none.bin", "none.json"],
        )

    def test_pieces_of_several_columns(self):
        calls = []

        def build():
            calls.append(1)
            for first in (0, 3, 6):
                numbers = np.arange(first, first + 3)
                yield numbers.astype(">i4"), numbers[:1] * 0.5
            yield np.zeros(0, np.int32), np.zeros(0)

        paths = self.population.derived_columns(["whole", "half"], build)
        np.testing.assert_array_equal(np.fromfile(paths[0], "<i4"), np.arange(9))
        np.testing.assert_array_equal(np.fromfile(paths[1], "<f8"), [0, 1.5, 3])
        again = ClientWords.open(self.directory).derived_columns(
            ["whole", "half"], build
        )
        self.assertEqual((again, len(calls)), (paths, 1))
        # A program that was killed between the two renamings left one of them.
        os.remove(paths[1])
        self.population.derived_columns(["whole", "half"], build)
        np.testing.assert_array_equal(np.fromfile(paths[1], "<f8"), [0, 1.5, 3])
        self.assertLen(calls, 2)

    def test_pieces_that_fail_leave_nothing(self):
        def build():
            yield np.zeros(5), np.zeros(5)
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            self.population.derived_columns(["one", "two"], build)
        self.assertEqual(os.listdir(os.path.join(self.directory, "derived")), [])
        with self.assertRaises(ValueError):  # two names, one array
            self.population.derived_columns(["one", "two"], lambda: [(np.zeros(5),)])
        self.assertEqual(os.listdir(os.path.join(self.directory, "derived")), [])

    def test_name_stays_inside_the_directory(self):
        for name in ("", "../x", "a/b", ".hidden"):
            with self.assertRaisesRegex(ValueError, "name is"):
                self.population.derived_column(name, lambda: np.zeros(1))

    def test_two_processes_at_once_build_once(self):
        source = """
            import sys, time
            import numpy as np
            from federated_hh.populations.columns.client_words import ClientWords
            def build():
                with open(sys.argv[1] + "/builds", "a") as log:
                    log.write("built\\n")
                time.sleep(0.5)
                return np.arange(1000)
            population = ClientWords.open(sys.argv[1])
            print(np.fromfile(population.derived_column("x", build), np.int64).sum())
        """
        processes = [_run_python(source, self.directory) for _ in range(3)]
        for process in processes:
            output, errors = process.communicate()
            self.assertEqual((process.returncode, output), (0, "499500\n"), errors)
        builds = pathlib.Path(self.directory, "builds").read_text()
        self.assertEqual(builds, "built\n")


class InterruptedWritingTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.parent = pathlib.Path(self.create_tempdir().full_path)

    def test_kill_in_the_middle_leaves_nothing_taken_for_whole(self):
        source = """
            import sys, time
            import numpy as np
            from federated_hh.populations.columns import canonical_rows
            from federated_hh.populations.columns import column_writer
            def chunks():
                one = np.ones(1, np.int32)
                yield canonical_rows.Rows(one, one, one, one)
                print("written", flush=True)
                time.sleep(600)
            column_writer.write_columns(sys.argv[1], chunks(), ["a", "b"], None, {})
        """
        target = self.parent / "population"
        process = _run_python(source, str(target))
        self.assertEqual(process.stdout.readline(), "written\n")
        # It is being written: not abandoned, and not there.
        self.assertEmpty(atomic_files.remove_abandoned(self.parent))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.assertFalse(target.exists())
        with self.assertRaises(FileNotFoundError):
            ClientWords.open(target)

        removed = atomic_files.remove_abandoned(self.parent)
        self.assertEqual([path.name for path in removed], [".population.partial"])
        self.assertEmpty(os.listdir(self.parent))

    def test_a_new_writer_replaces_what_a_killed_one_left(self):
        abandoned = self.parent / ".population.partial"
        abandoned.mkdir()
        (abandoned / "entries.bin").write_bytes(b"half")
        population = ClientWords.from_rows(self.parent / "population", _ROWS)
        self.assertEqual(population.num_clients, 3)
        self.assertFalse(abandoned.exists())

    def test_a_disk_that_takes_no_more_leaves_nothing(self):
        source = """
            import sys
            import numpy as np
            from federated_hh.populations.columns import canonical_rows
            from federated_hh.populations.columns import column_writer
            ones = np.ones(100_000, np.int32)
            rows = canonical_rows.Rows(ones, ones, ones, ones)
            try:
                column_writer.write_columns(sys.argv[1], [rows], ["a", "b"], None, {})
            except OSError as error:
                print(type(error).__name__)
        """
        # A limit on file sizes fails the write as a full disk does.
        process = _run_python(
            source,
            str(self.parent / "population"),
            preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_FSIZE, (65536, 65536)
            ),
        )
        output, errors = process.communicate()
        self.assertEqual((process.returncode, output), (0, "OSError\n"), errors)
        self.assertEmpty(os.listdir(self.parent))

    def test_two_writers_take_turns(self):
        source = """
            import sys, time
            import numpy as np
            from federated_hh.populations.columns import canonical_rows
            from federated_hh.populations.columns import column_writer
            def chunks():
                time.sleep(0.5)
                one = np.ones(1, np.int32)
                yield canonical_rows.Rows(one, one, one, one)
            try:
                column_writer.write_columns(sys.argv[1], chunks(), ["a", "b"], None, {})
                print("wrote")
            except FileExistsError:
                print("exists")
        """
        target = self.parent / "population"
        processes = [_run_python(source, str(target)) for _ in range(3)]
        outputs = sorted(process.communicate()[0] for process in processes)
        self.assertEqual(outputs, ["exists\n", "exists\n", "wrote\n"])
        self.assertEqual(ClientWords.open(target).num_clients, 1)
        self.assertEqual(os.listdir(self.parent), ["population"])

    def test_locks_exclude_each_other_under_contention(self):
        source = """
            import sys
            from federated_hh.files import atomic_files
            for _ in range(200):
                with atomic_files.locked(sys.argv[1], "counting"):
                    with open(sys.argv[1]) as file:
                        value = int(file.read())
                    with open(sys.argv[1], "w") as file:
                        file.write(str(value + 1))
        """
        counter = self.parent / "counter"
        counter.write_text("0")
        processes = [_run_python(source, str(counter)) for _ in range(4)]
        for process in processes:
            self.assertEqual(process.communicate()[1], "")
        self.assertEqual(counter.read_text(), "800")


if __name__ == "__main__":
    absltest.main()
