"""Tests of the report page and of the files that it shows."""

import base64
import html
import html.parser
import json
import pathlib
import re
import subprocess
import sys
from unittest import mock

import numpy as np
import pandas as pd
from absl.testing import absltest

from federated_hh.files import installation, tables
from federated_hh.randomness import noise_keys
from federated_hh.reports import client_bytes, default_page, page, page_blocks, plots
from federated_hh.run_directory import directory as run_directory
from tests import ROOT

_EVIL = "<script>alert(1)</script>"
_UNCOVERED = "no privacy guarantee covers this section"


class _Reader(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.data = []
        self.feed(text)
        self.text = " ".join(self.data)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.data.append(data)

    def pictures(self):
        """Returns the bytes of all pictures."""
        sources = [attributes["src"] for tag, attributes in self.tags if tag == "img"]
        return [base64.b64decode(source.partition(",")[2]) for source in sources]


class _Statement:
    def to_json(self):
        return '{"epsilon": 1}\n'

    def headline(self):
        return "Privacy: epsilon 1, planned"

    def in_words(self):
        return "It hides a client."

    def guarantee_rows(self):
        return [{"unit": "client", "epsilon": "1.5", "delta": "1e-06"}]

    def to_markdown(self):
        return (
            "# Privacy statement\n\nCentral DP.\n\n## Not counted\n\n"
            "* The *page*.\n  * All of it.\n* More.\n"
        )


def _figure(title="A plot"):
    figure, axes = plots.single(title, "x", "y")
    axes.plot([1, 2], [3, 5], label="a line")
    plots.legend(axes, below=True)
    return figure


class PageTestCase(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path) / "run"
        self.directory = run_directory.RunDirectory.create(
            self.path,
            program="p",
            flags=["--seed=1", f"--title={_EVIL}"],
            facts={},
            noise_key=noise_keys.NoiseKey(2**127 + 5, is_secret=True),
        )
        self.addCleanup(self.directory.close)
        self.before = self.files()

    def files(self):
        return {
            str(file.relative_to(self.path))
            for file in self.path.rglob("*")
            if file.is_file() and not file.name.startswith(".")
        }

    def read(self):
        return _Reader((self.path / "report.html").read_text())


class PageTest(PageTestCase):
    def test_shows_everything_in_order_and_asks_for_nothing(self):
        table = pd.DataFrame({"word": ["a"], "true_count": [1234567], "f1": [0.123456]})
        report = page.Page(self.directory, "TrieHH")
        section = report.section("Part", covered=True)
        section.text("Some *text*.").plot("a.png", _figure())
        section.show(table, "Its caption").text("The end.")
        self.assertEqual(report.write().report, str(self.path / "report.html"))
        shown = self.read()
        places = [
            shown.text.index(expected)
            for expected in (
                "TrieHH",
                "Run of 20",
                "Some",
                "Its caption",
                "true count",
                "1,234,567",
                "0.1235",
                "The end.",
            )
        ]
        self.assertEqual(places, sorted(places))
        self.assertIn(("em", {}), shown.tags)
        self.assertNotIn(_UNCOVERED, shown.text)
        (image,) = [attributes for tag, attributes in shown.tags if tag == "img"]
        self.assertTrue(image["src"].startswith("data:image/png;base64,"))
        self.assertNoCommonElements({tag for tag, _ in shown.tags}, {"script", "link"})

    def test_files_go_where_the_section_says(self):
        report = page.Page(self.directory, "T")
        words = pd.DataFrame({"word": ["null", "b"], "votes": [3, 9]})
        for covered in (True, False):
            section = report.section("S", covered=covered)
            section.file("found.json", {"covered": covered})
            section.plot("f.png", _figure())
        section.table("w.csv", words, shown=words.head(1), released=words[["word"]])
        self.assertEqual(self.files(), self.before)  # nothing before `write`
        report.write()
        names = {"found.json", "f.png", "w.csv"}
        names |= {f"simulator/{name}" for name in names} | {"report.html"}
        names |= {"simulator/summary.json"}
        self.assertEqual(self.files() - self.before, names)
        for folder, covered in ((self.path, True), (self.path / "simulator", False)):
            found = json.loads((folder / "found.json").read_text())
            self.assertEqual(found, {"covered": covered})
        whole = tables.read(self.path / "simulator" / "w.csv")
        pd.testing.assert_frame_equal(whole, words)
        self.assertEqual(tables.read(self.path / "w.csv").columns.tolist(), ["word"])
        shown = self.read()
        self.assertEqual(shown.text.count(_UNCOVERED), 1)
        self.assertIn("null", shown.data)
        self.assertNotIn("9", shown.data)
        self.assertEqual(
            shown.pictures(),
            [(self.path / "f.png").read_bytes()] * 2,
        )

    def test_a_name_is_used_once(self):
        report = page.Page(self.directory, "T")
        table = pd.DataFrame({"x": [1]})
        report.section("S", covered=False).table("x.csv", table)
        again = report.section("S", covered=False)
        with self.assertRaisesRegex(ValueError, "'x.csv' is already .* simulator's"):
            again.table("x.csv", table)
        report.statement(_Statement())
        with self.assertRaisesRegex(ValueError, "'privacy.json' is already"):
            report.statement(_Statement(), "Again")
        with self.assertRaisesRegex(ValueError, "'metrics.csv' is a file of the run"):
            again.table("metrics.csv", table)

    def test_statement_below_a_heading(self):
        report = page.Page(self.directory, "T")
        report.statement(_Statement(), "Privacy, as planned", "privacy_planned")
        report.how_it_was_made()
        report.write()
        shown = self.read()
        self.assertNotIn("Privacy statement", shown.text)
        headings = [tag for tag, _ in shown.tags if tag in ("h1", "h2", "h3")]
        self.assertEqual(headings, ["h1", "h2", "h3", "h2"])
        self.assertIn("Not counted", shown.data)
        self.assertLen([tag for tag, _ in shown.tags if tag == "ul"], 2)
        for ending, text in (
            ("json", _Statement().to_json()),
            ("md", _Statement().to_markdown()),
        ):
            file = self.path / f"privacy_planned.{ending}"
            self.assertEqual(file.read_text(), text)
        self.assertIn("--seed=1", shown.text)
        key = json.loads((self.path / "run.json").read_text())["noise_key"]
        self.assertIn(key["sha256"], shown.text)

    def test_words_of_clients_are_shown_not_obeyed(self):
        report = page.Page(self.directory, _EVIL)
        section = report.section(_EVIL, covered=False)
        section.text(f"Found {_EVIL}.").plot("f.png", _figure(_EVIL))
        section.show(pd.DataFrame({_EVIL: [_EVIL]}), _EVIL).tree([_EVIL])
        report.how_it_was_made()  # of a flag, too
        report.write()
        shown = self.read()
        self.assertNotIn("script", {tag for tag, _ in shown.tags})
        # Title twice, heading, text, caption of a table, column, cell, flag, trie.
        self.assertEqual(shown.text.count(_EVIL), 9)

    def test_a_client_s_bytes_are_of_the_rounds_that_it_can_be_in(self):
        metrics = pd.DataFrame(
            {
                "repeat": [0, 0, 0, 1, 1],
                "round": [1, 2, 3, 1, 2],
                "download_bytes": [10, 30, 20, 1, 2],
                "upload_bytes": [1000, 0, 0, 2_000_000, 400_000],
            }
        )
        start = "A client downloads at most 30 bytes and uploads at most 2.0 MB "
        for most, rest in (
            (1, "in its one round."),
            (2, "a round, and 50 bytes and 2.4 MB in its at most 2 rounds."),
            (9, "a round, and 60 bytes and 2.4 MB in all 3 rounds."),
        ):
            report = page.Page(self.directory, "T")
            sampler = mock.Mock(**{"limits.return_value.max_participation": most})
            client_bytes.add(report, metrics, sampler)
            self.assertEqual(str(report.write()).splitlines()[0], start + rest)

    def test_a_word_does_not_turn_the_page_around(self):
        report = page.Page(self.directory, "T")
        report.section("S", covered=False).text("Found a\u202eb.").tree(["a\u202eb"])
        report.summary("Found a\u202eb.")
        summary = report.write()
        self.assertEqual(str(summary).splitlines()[0], "Found a\\u202eb.")
        shown = (self.path / "report.html").read_text(encoding="utf-8")
        self.assertNotIn("\u202e", shown)
        self.assertEqual(shown.count("a\\u202eb"), 3)

    def test_a_number_stands_for_a_plot_of_one(self):
        report = page.Page(self.directory, "T")
        flat, axes = plots.single("Nothing to see", "x", "y")
        axes.plot([1, 2], [3, 3], label="a curve")
        axes.plot([1], [0.25])
        axes.axhline(7.0)
        section = report.section("S", covered=True).plot("flat.png", flat)
        section.plot("f.png", _figure("A curve"))
        report.write()
        self.assertEqual(
            self.files() - self.before,
            {"f.png", "report.html", "simulator/summary.json"},
        )
        shown = (self.path / "report.html").read_text()
        self.assertIn("A curve", shown)
        self.assertIn("<p>Nothing to see: a curve 3, 0.25.</p>", shown)
        self.assertNotIn('alt="Nothing to see"', shown)

    def test_how_to_run_it_again(self):
        path = self.path.parent / "of a program"
        with run_directory.RunDirectory.create(
            path,
            program="federated_hh.run_triehh",
            flags=["--epsilon=2"],
            facts={},
            noise_key=noise_keys.NoiseKey(2**127 + 5, is_secret=True),
        ) as directory:
            report = page.Page(directory, "T")
            report.how_it_was_made()
            report.write()
        text = html.unescape((path / "report.html").read_text())
        self.assertIn(
            f"{installation.launcher()} triehh "
            f"'--flagfile={path}/flags.txt' '--noise_key_file={path}/secret/noise_key'",
            text,
        )
        for file in ("flags.txt", "secret/noise_key"):
            self.assertTrue((path / file).exists())

    def test_a_moved_run_has_no_stale_path(self):
        report = page.Page(self.directory, "T")
        report.summary("Found.", advice="More.", next_command="compare {run}")
        report.write()
        kept = json.loads((self.path / "simulator" / "summary.json").read_text())
        self.assertEqual(kept, {"found": "Found.", "privacy": "", "advice": "More."})

    def test_the_summary_is_on_top_of_the_page_and_returned(self):
        report = page.Page(self.directory, "T")
        report.section("S", covered=True)
        report.statement(_Statement())
        report.summary(
            f"Found {_EVIL}.", advice="More clients.", next_command="compare {run}"
        )
        summary = report.write()
        shown = self.read()
        lines = [
            f"Found {_EVIL}.",
            "More clients.",
            "Privacy: epsilon 1, planned",
            f"Next: {installation.launcher()} compare {self.path}",
        ]
        self.assertEqual(
            str(summary).splitlines(),
            [
                *lines[:3],
                "It hides a client.",
                f"Report: {self.path / 'report.html'}",
                lines[3],
            ],
        )
        places = [shown.text.index(line.split(": ")[-1]) for line in lines]
        self.assertEqual(places, sorted(places))
        self.assertLess(places[-1], shown.text.index(" S "))
        self.assertIn("1.5", shown.data)  # the table of guarantees
        self.assertNotIn("script", {tag for tag, _ in shown.tags})

    def test_long_tables_can_be_searched_by_the_page_itself(self):
        report = page.Page(self.directory, "T")
        words = pd.DataFrame({"word": [f"w{i}{_EVIL}" for i in range(11)]})
        report.section("S", covered=True).show(words)
        report.write()
        tags = [tag for tag, _ in self.read().tags]
        self.assertEqual(tags.count("script"), 1)
        self.assertEqual(tags.count("input"), 1)
        self.assertEqual(tags.count("details"), 1)
        self.assertIn("Show all 11 rows", self.read().text)
        page_text = (self.path / "report.html").read_text()
        self.assertNotIn("alert(1)", page_text.partition("<script>")[2])

    def test_the_trie_has_each_word_once_below_its_prefixes(self):
        words = ["to", "tea", "ten", "i", "in", "inn", "&b"]
        tree = page_blocks.Tree([*words, "to"])
        found = re.findall(r'<span class="node word">([^<]+)</span>', tree.html)
        shown = [html.unescape(word) for word in found]
        self.assertCountEqual(shown, words)
        self.assertIn(">te</span> <small>2 words</small>", tree.html)
        self.assertEqual(tree.note, "")
        self.assertIn(
            "first 2,000 of 3,000", page_blocks.Tree([str(i) for i in range(3000)]).note
        )

    def test_the_look_of_a_notebook_stays(self):
        program = (
            "import matplotlib\n"
            "before = dict(matplotlib.rcParams)\n"
            "from federated_hh.reports import page, plots\n"
            "plots.png(plots.single('t', 'x', 'y')[0])\n"
            "assert dict(matplotlib.rcParams) == before\n"
            "import matplotlib.pyplot as plt\n"
            "assert not plt.get_fignums()\n"
        )
        subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


class DefaultPageTest(PageTestCase):
    def test_results_are_named(self):
        for values, told in (
            (
                {"word": ["b", "a"], "clients": [2, 1]},
                "2 top words found, the first ones: b",
            ),
            ({"repeat": [0, 1], "characters": [4, 5]}, "Top words: characters 4."),
            ({"length": [1, 2], "share": [0.5, 0.25]}, "2 top words found."),
            ({"word": []}, "0 top words found."),
        ):
            found = default_page._found("top_words", pd.DataFrame(values))
            self.assertStartsWith(found, told)

    def write(self, metrics, simulator_metrics):
        words = pd.DataFrame({"word": [f"w{i}" for i in range(45)]})
        self.summary = default_page.write(
            self.directory,
            "My algorithm",
            released={"heavy_hitters": words},
            simulator={"true_counts": words.assign(true_count=range(1000, 1045))},
            released_metrics=metrics,
            simulator_metrics=simulator_metrics,
            statement=_Statement(),
            sampler=mock.Mock(),
        )
        return self.read()

    def test_is_complete(self):
        self.enter_context(mock.patch.object(default_page, "_NUM_SHOWN", 30))
        keys = pd.DataFrame(
            {"repeat": np.repeat([0, 1], 3), "round": np.tile([1, 2, 3], 2)}
        )
        released = keys.assign(candidates=[3, 9, 4, 3, 8, 4], clients=1234, code="c0de")
        simulator = released.assign(
            **{f"exact_{i}": np.arange(6.0) * i for i in range(1, 8)}
        )
        shown = self.write(released, simulator)
        written = {"heavy_hitters.csv", "metrics.png", "privacy.json", "privacy.md"}
        written |= {"report.html", "simulator/summary.json"}
        written |= {
            f"simulator/{name}"
            for name in ("true_counts.csv", "metrics.png", "metrics_2.png")
        }
        self.assertEqual(self.files() - self.before, written)
        named = ", ".join(f"w{i}" for i in range(10))
        self.assertEqual(
            self.summary.found, f"45 heavy hitters found, the first ones: {named}."
        )
        self.assertLen(tables.read(self.path / "heavy_hitters.csv"), 45)
        for expected in (
            "heavy hitters: the first 30 of 45 rows",
            "The same in every round: clients 1,234.",
            "1,029",
            "Central DP.",
            "--seed=1",
        ):
            self.assertIn(expected, shown.text)
        told = [attributes["alt"] for tag, attributes in shown.tags if tag == "img"]
        self.assertEqual(
            told,
            [
                "candidates",
                "exact 1; exact 2; exact 3; exact 4; exact 5",
                "exact 6; exact 7",
            ],
        )
        self.assertNotIn("1,030", shown.text)
        self.assertEqual(shown.text.count(_UNCOVERED), 2)

    def test_one_round_and_nothing_else(self):
        metrics = pd.DataFrame({"repeat": [0], "round": [1], "clients": [50]})
        shown = self.write(metrics, metrics)
        self.assertEmpty(shown.pictures())
        self.assertIn("Only in round 1: clients 50.", shown.text)

    def test_metrics_without_rounds(self):
        with self.assertRaisesRegex(ValueError, "no column round, only .'level'"):
            self.write(pd.DataFrame({"level": [1]}), pd.DataFrame({"round": [1]}))


class BlocksTest(absltest.TestCase):
    def test_missing_values(self):
        table = page_blocks.Table("", pd.DataFrame({"x": [float("nan"), 0.5]}))
        self.assertEqual(table.rows, [["–"], ["0.5"]])

    def test_a_column_has_one_format(self):
        frame = pd.DataFrame(
            {
                "rate": [0.25, 0.5, 0.12345],
                "count": [1.0, 20000.0, 3.0],
                "mixed": [1.5, 10.25, 0.0],
                "none": [np.nan] * 3,
            }
        )
        table = page_blocks.Table("", frame)
        self.assertEqual(
            [name for name, _ in table.columns], ["rate", "count", "mixed"]
        )
        self.assertEqual(
            table.rows,
            [
                ["25.0%", "1", "1.50"],
                ["50.0%", "20,000", "10.25"],
                ["12.3%", "3", "0.00"],
            ],
        )

    def test_shares_are_in_percent_and_losses_have_three_decimals(self):
        frame = pd.DataFrame(
            {
                "share": [0.0003627, 0.000031, np.nan],
                "held_out_loss": [4.1, 4.0, 300.0],
                "three suggestions": [0.5, 0.25, 0.75],
                "learning_rate": [6.5, 3.0, 0.5],
                "strategy": [1.5, 2.5, 3.5],
            }
        )
        self.assertEqual(
            page_blocks.Table("", frame).rows,
            [
                ["0.0363%", "4.100", "50%", "6.5", "1.5"],
                ["0.0031%", "4.000", "25%", "3.0", "2.5"],
                ["–", "300.000", "75%", "0.5", "3.5"],
            ],
        )

    def test_no_number_is_broken_over_two_lines(self):
        shown = page_blocks.unbroken("delta 5.000e-12 <b>")
        self.assertEqual(
            shown, 'delta <span class="unbroken">5.000e-12</span> &lt;b&gt;'
        )
        shown = page_blocks.Text("[x](#1e-5) delta 1e-05").html
        self.assertEqual(shown.count("unbroken"), 1)
        self.assertIn('href="#1e-5"', shown)

    def test_guarantees(self):
        section = page_blocks.Section("Privacy", True)
        section.guarantees(
            [
                {"unit": "client", "epsilon": "8.25", "delta": "1e-06"},
                {"unit": "client", "epsilon": "19.8", "delta": "2.54e-07"},
                {"unit": "device", "epsilon": "inf", "delta": "0"},
            ]
        )
        (table,) = section.blocks
        self.assertEqual(
            table.columns, [("unit", True), ("epsilon", False), ("delta", False)]
        )
        self.assertEqual(
            table.rows,
            [
                ["client", "8.25", "1.00e-06"],
                ["client", "19.80", "2.54e-07"],
                ["device", "inf", "0"],
            ],
        )

    def test_numbers(self):
        values = [248437.0, 70488.1029, 1.23456, 8.285e-13, 1.0, 1e300]
        table = page_blocks.Table("", pd.DataFrame({"x": values}))
        self.assertEqual(
            [row[0] for row in table.rows],
            ["248,437", "70,488", "1.235", "8.285e-13", "1", "1e+300"],
        )


if __name__ == "__main__":
    absltest.main()
