"""Tests of the report page."""

import html.parser

import pandas as pd
from absl.testing import absltest

from simulation import report


class _Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.data = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.data.append(data)


class ReportTest(absltest.TestCase):
    def test_holds_everything_and_asks_for_nothing(self):
        table = pd.DataFrame({"word": ["a"], "true_count": [1234567], "f1": [0.123456]})
        page = _Page(
            report.render(
                "TrieHH",
                "today",
                [
                    report.Section(
                        "Part",
                        "Some *text*.",
                        [report.Table("Its caption", table)],
                        [report.Figure("A plot", b"\x89PNG")],
                        covered=True,
                    )
                ],
            )
        )
        text = " ".join(page.data)
        for expected in ("TrieHH", "Its caption", "1,234,567", "0.1235", "true count"):
            self.assertIn(expected, text)
        self.assertIn(("em", {}), page.tags)
        (image,) = [attributes for tag, attributes in page.tags if tag == "img"]
        self.assertTrue(image["src"].startswith("data:image/png;base64,"))
        self.assertNotIn("script", {tag for tag, _ in page.tags})
        self.assertNotIn("link", {tag for tag, _ in page.tags})

    def test_words_of_clients_are_shown_not_obeyed(self):
        evil = "<script>alert(1)</script>"
        table = pd.DataFrame({"word": [evil]})
        section = report.Section(
            "S", f"Found {evil}.", [report.Table("", table)], covered=False
        )
        page = _Page(report.render(evil, evil, [section]))
        self.assertNotIn("script", {tag for tag, _ in page.tags})
        self.assertIn("alert(1)", " ".join(page.data))

    def test_missing_values(self):
        table = report.Table("", pd.DataFrame({"x": [float("nan"), 0.5]}))
        self.assertEqual(table.rows, [["–"], ["0.5"]])

    def test_numbers(self):
        values = [248437.0, 70488.1029, 1.23456, 8.285e-13, 1.0, 1e300]
        table = report.Table("", pd.DataFrame({"x": values}))
        self.assertEqual(
            [row[0] for row in table.rows],
            ["248,437", "70,488", "1.235", "8.285e-13", "1", "1e+300"],
        )


if __name__ == "__main__":
    absltest.main()
