"""Tests of the study of what clients type: its rows on few clients, and its page."""

import itertools
import pathlib

import pandas as pd
from absl.testing import absltest

from federated_hh.randomness import noise_keys
from federated_hh.run_directory import directory as run_directory
from federated_hh.runtime import runtime
from studies.sun_2024 import volume

_PAPER = {"greedy, one pass": 0.771, "random, one pass": 0.831}
_PAPER["random, two passes"] = 0.921


class VolumeStudyTest(absltest.TestCase):
    def test_simulated_clients_have_the_predicted_coverage(self):
        """Within 1.5 points; over seeds each has a standard deviation of 0.2."""
        scratch = self.create_tempdir().full_path
        options = volume.Options(
            scale=0.02, vocabulary_size=2000, max_depth=6, max_prefixes=150
        )
        made = volume.prepare("sun_volume", options, seed=3, cache=scratch)
        row = volume.SETTINGS[-3].rows[0]
        self.assertEqual(row.name, "greedy, one pass")
        found = {}
        for topic in ("grid", "simulated"):
            setting = volume.Setting(topic, volume.CHOSEN, (row,))
            path = pathlib.Path(scratch) / topic
            with (
                run_directory.begin_or_resume(
                    path,
                    resume=False,
                    program="test",
                    flags=(),
                    facts={},
                    noise_key=noise_keys.NoiseKey.of_seed(5),
                ) as part,
                runtime.tff_worker(),
            ):
                rows = made.run_part(setting, 0, part)
            depths = [each["coverage"] for each in rows["depths"]]
            self.assertLen(depths, 6)
            self.assertEqual(sorted(depths), depths)
            found[topic] = rows["coverage"][0]["coverage"]
            self.assertEqual(found[topic], depths[-1])
        self.assertGreater(found["grid"], 0.1)
        self.assertAlmostEqual(found["grid"], found["simulated"], delta=0.015)

    def test_settings_have_names_of_their_own(self):
        names = [setting.name for setting in volume.SETTINGS]
        self.assertLen(set(names), len(names))

    def test_the_page(self):
        errors = {(1.7, 4000): -0.02, (1.4, 130): 0.05}
        rows, depths = [], []
        for power, words, habits in itertools.product(
            volume.POWERS, volume.VOLUMES, volume.HABITS
        ):
            topic = "grid" if habits == "independent" else "habits"
            for name, paper in _PAPER.items():
                coverage = paper + errors.get((power, words), 0.1)
                values = (topic, power, words, habits, name, 10.0, paper, coverage)
                rows.append(dict(zip(_COLUMNS, values, strict=True)))
                depths += [rows[-1] | {"depth": depth} for depth in (1, 2)]
        for name, paper in _PAPER.items():
            values = ("simulated", 1.7, 4000, "independent", name, 10.0, paper, 0.5)
            rows.append(dict(zip(_COLUMNS, values, strict=True)))
        table = pd.DataFrame(rows).assign(repeat=0, setting="x")
        self.assertEqual(volume.nearest(table), volume.Clients(1.7, 4000))
        made = volume.VolumeStudy(volume.Options(), 1, "", volume.SETTINGS)
        files = made.files(
            {
                "coverage": table,
                "depths": pd.DataFrame(depths).assign(repeat=0, setting="x"),
            },
            pathlib.Path(),
        )
        page = files["table.md"].decode()
        self.assertIn("| greedy, one pass | 77.1% | 75.1% | 50.0% |", page)
        self.assertIn("| 1.7 | 10.0 | 10.0 | 10.0 | 2.0 |", page)
        for name in ("gap.png", "depths.png"):
            self.assertTrue(files[name].startswith(b"\x89PNG"))

    def test_unknown_topics_are_refused(self):
        with self.assertRaisesRegex(ValueError, "none of grid, habits"):
            volume.Options(topics=("grid", "volumes"))


_COLUMNS = ("topic", "power", "words", "habits", "row", "epsilon", "paper", "coverage")

if __name__ == "__main__":
    absltest.main()
