"""Tests that the results on file are what their own runs say."""

import pandas as pd
from absl.testing import absltest

from federated_hh.files import tables
from studies.sun_2024 import coverage_report
from tests import ROOT

_RESULTS = ROOT / "results"


def _folders():
    files = sorted(_RESULTS.glob("oov_*/**/summary.csv"))
    return [file.parent for file in files]


class CommittedResultsTest(absltest.TestCase):
    def test_summaries_are_those_of_the_runs(self):
        self.assertNotEmpty(_folders())
        for folder in _folders():
            with self.subTest(str(folder.relative_to(_RESULTS))):
                found = coverage_report.summarize(tables.read(folder / "runs.csv"))
                expected = tables.read(folder / "summary.csv")
                pd.testing.assert_frame_equal(found, expected)

    def test_every_row_of_a_page_is_of_the_summary(self):
        for folder in _folders():
            with self.subTest(str(folder.relative_to(_RESULTS))):
                summary = tables.read(folder / "summary.csv")
                made = coverage_report.to_markdown("", summary, []).splitlines()
                rows = [line for line in made if line.startswith("|")]
                page = (folder / "table.md").read_text().splitlines()
                self.assertEqual(page[2 : 2 + len(rows)], rows)

    def test_plots(self):
        for study in ("oov_table1", "oov_figure1"):
            summary = tables.read(_RESULTS / study / "summary.csv")
            png = coverage_report.plot("A title", summary)
            self.assertTrue(png.startswith(b"\x89PNG"))
            self.assertEqual(png, coverage_report.plot("A title", summary))


if __name__ == "__main__":
    absltest.main()
