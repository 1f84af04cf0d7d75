"""Tests of how much memory is taken to be left, on made-up machines."""

import pathlib
from unittest import mock

from absl.testing import absltest

from simulation import population_options
from simulation.readers import memory

_MIB = 1 << 20


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
            population_options.PopulationError,
            "only 511 MiB of memory are left, with 10 distinct words and 20 client ids",
        ):
            memory.check(10, 20)


if __name__ == "__main__":
    absltest.main()
