"""Tests that `-m "not program"` leaves out what Bazel takes for large."""

import pathlib
import re

from absl.testing import absltest

from tests import ROOT, conftest

_TESTS = ROOT / "tests"


class MarksTest(absltest.TestCase):
    def test_every_large_file_is_found(self):
        lists = re.findall(r"large = \[(.*?)\]", (_TESTS / "BUILD").read_text(), re.S)
        named = [name for text in lists for name in re.findall(r'"([\w/]+)"', text)]
        self.assertGreater(len(named), 60)
        found = {str(file.relative_to(_TESTS)) for file in conftest.large_files()}
        stems = {pathlib.Path(file).stem for file in found}
        self.assertEqual(
            stems,
            {
                *(name.rpartition("/")[2] for name in named),
                *("house_test", "trials_test"),
            },
        )
        self.assertIn("training/run_training_test.py", found)
        # Of several files with the same name the room's are meant.
        self.assertNotIn("federated_hh/privacy/triehh/detection_test.py", found)


if __name__ == "__main__":
    absltest.main()
