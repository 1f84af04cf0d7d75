"""Tests of how much memory is taken to be left, on made-up machines."""

import ctypes
import gc
import os
import pathlib
import shutil
import subprocess
import sys
from unittest import mock

import numpy as np
import psutil
from absl.testing import absltest

from federated_hh.files import freed_memory, memory, verified_files
from federated_hh.populations import client_sentences, population, vocabulary
from federated_hh.populations.languages import sentence_tokenizers
from federated_hh.populations.options import population_options
from tests import ROOT

_MIB = 1 << 20
# Frees arrays, all but the last one, and prints how many MiB go back: as glibc does it
# once it has freed larger ones, and as it does afterwards.
_FREES_BLOCKS = """
import numpy as np
import psutil
from federated_hh.files import freed_memory, memory

process = psutil.Process()

def returned():
    blocks = [np.ones(600_000) for _ in range(64)]
    last = blocks.pop()
    before = process.memory_info().rss
    blocks.clear()
    assert last.sum() == 600_000
    return before - process.memory_info().rss >> 20

for _ in range(3):
    np.ones(3_000_000).sum()
kept = returned()
freed_memory.return_large_at_once()
returned()
print(kept, returned())
"""


class MemoryTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        root = pathlib.Path(self.create_tempdir().full_path)
        self.meminfo = root / "meminfo"
        self.cgroup = root / "cgroup"
        self.cgroup.mkdir()
        self.enter_context(mock.patch.object(memory, "_MEMINFO", self.meminfo))
        self.enter_context(mock.patch.object(memory, "_CGROUP", self.cgroup))

    def _machine(self, mib):
        self.meminfo.write_text(
            f"MemTotal: 99999999 kB\nMemAvailable: {mib * 1024} kB\n"
        )

    def _container(self, limit):
        (self.cgroup / "memory.max").write_text(f"{limit}\n")
        (self.cgroup / "memory.current").write_text(f"{900 * _MIB}\n")
        (self.cgroup / "memory.stat").write_text(
            f"anon 1\nactive_file {100 * _MIB}\ninactive_file {200 * _MIB}\n"
        )

    def test_the_machines(self):
        self._machine(3000)
        self.assertEqual(memory.available_bytes(), 3000 * _MIB)
        self._container("max")
        self.assertEqual(memory.available_bytes(), 3000 * _MIB)

    def test_the_containers_if_it_is_less(self):
        self._machine(3000)
        self._container(1000 * _MIB)
        self.assertEqual(memory.available_bytes(), 400 * _MIB)
        self._container(9000 * _MIB)
        self.assertEqual(memory.available_bytes(), 3000 * _MIB)

    def test_unknown(self):
        self.assertIsNone(memory.available_bytes())
        memory.check(1, 1)

    def test_check(self):
        self._machine(512)
        memory.check(10, 20)
        self._machine(511)
        with self.assertRaisesRegex(
            verified_files.PopulationError,
            "only 0.5 GiB of memory are available, with 10 distinct words and 20",
        ):
            memory.check(10, 20)

    def test_what_does_not_fit_is_refused_beforehand(self):
        self._machine(1024)
        memory.check_needed(512 * _MIB, "a thing (--size)")
        with self.assertRaisesRegex(
            verified_files.PopulationError,
            r"a thing \(--size\) takes about 0.5 GiB of memory, and 1.0 GiB are avail",
        ):
            memory.check_needed(512 * _MIB + 1, "a thing (--size)")

    def test_disk(self):
        directory = pathlib.Path(self.create_tempdir().full_path)
        free = shutil.disk_usage(directory).free
        memory.check_disk(directory, free // 2, "a thing")
        with self.assertRaisesRegex(
            verified_files.PopulationError, f"are free in {directory.parent}"
        ):
            memory.check_disk(directory, 2 * free, "a thing")


class DiskOfClientsTest(absltest.TestCase):
    def test_what_is_written_fits_what_was_reckoned(self):
        for mean, narrow in ((100, True), (5_000, False)):
            options = population_options.PopulationOptions(
                num_clients=2_000, mean_words_per_client=mean, words_per_client_sigma=1
            )
            reckoned = []
            with mock.patch.object(
                memory,
                "check_disk",
                lambda directory, size, what, into=reckoned: into.append(size),
            ):
                made = population.prepare(
                    options, self.create_tempdir().full_path + "/cache"
                )
            self.assertEqual(made.entries.itemsize == 4, narrow)
            # While entries are packed anew, those of four bytes are there as well.
            at_once = 4 if narrow else 12
            least = made.num_entries * at_once + made.num_clients * 12
            self.assertBetween(reckoned[0], 0.9 * least, 1.1 * least)


class HugePopulationsTest(absltest.TestCase):
    """The largest that the options allow, on the machine that there is."""

    def setUp(self):
        super().setUp()
        self.cache = pathlib.Path(self.create_tempdir().full_path) / "cache"
        self.options = population_options.PopulationOptions(
            num_clients=2**31 - 1, mean_words_per_client=10_000
        )

    def test_words(self):
        free = shutil.disk_usage(self.cache.parent).free
        # At least a word and its count, and a row's end, for each.
        if free > 12 * self.options.num_clients * 100:
            self.skipTest("the disk may take it")
        with self.assertRaisesRegex(
            verified_files.PopulationError,
            "2,147,483,647 clients .* 10000 words each .* GiB on disk",
        ):
            population.prepare(self.options, self.cache)
        self.assertEqual(set(os.listdir(self.cache)) - {"word-lists"}, set())

    def test_sentences(self):
        with self.assertRaisesRegex(
            verified_files.PopulationError, "2,147,483,647 clients .* GiB "
        ):
            client_sentences.prepare(
                self.options,
                vocabulary.Vocabulary(["the"]),
                sentence_tokenizers.get_sentence_tokenizer("keyboard"),
                self.cache,
            )
        self.assertEqual(set(os.listdir(self.cache)) - {"word-lists"}, set())


class ReturnFreedTest(absltest.TestCase):
    def test_what_the_allocator_keeps_goes_back(self):
        if not hasattr(ctypes.CDLL(None), "malloc_trim"):
            self.skipTest("no glibc, whose allocator keeps freed memory")
        process = psutil.Process()
        # Too small for mappings of their own. The last one stays, so that the end of
        # the heap is in use, and the allocator keeps the rest.
        blocks = [np.ones(8000) for _ in range(2000)]
        last = blocks.pop()
        before = process.memory_info().rss
        blocks.clear()
        freed_memory.return_freed()
        self.assertGreater(before - process.memory_info().rss, 100 * _MIB)
        self.assertEqual(last.sum(), 8000)

    def test_what_refers_to_itself_goes_back(self):
        process = psutil.Process()
        with freed_memory.quick_collections():
            with freed_memory.quick_collections():
                pass
            self.assertGreater(gc.get_freeze_count(), 1000)
            kept, lost = [[np.ones(20_000_000)] for _ in range(2)]
            kept.append(kept)
            lost.append(lost)
            before = process.memory_info().rss
            del lost
            freed_memory.return_freed()
            self.assertGreater(before - process.memory_info().rss, 140 * _MIB)
            self.assertEqual(kept[0].sum(), 20_000_000)
        self.assertEqual(gc.get_freeze_count(), 0)

    def test_large_arrays_go_back_at_once(self):
        if not hasattr(ctypes.CDLL(None), "mallopt"):
            self.skipTest("no glibc, whose allocator keeps freed memory")
        # In a process of its own: what others have freed in this one would be used.
        done = subprocess.run(
            [sys.executable, "-c", _FREES_BLOCKS],
            env={n: v for n, v in os.environ.items() if not n.startswith("MALLOC_")},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        kept, returned = map(int, done.stdout.split())
        self.assertLess(kept, 100)
        self.assertGreater(returned, 200)


if __name__ == "__main__":
    absltest.main()
