"""Tests of --deny_words in the programs that find words."""

import pathlib

from absl.testing import absltest, parameterized

from federated_hh.files import tables
from federated_hh.heavy_hitters import deny_list
from federated_hh.options.fields import OptionError
from tests import forked_programs

_DENIED = "секрет"
# Too long to be found by some programs, which advise to find such words.
_DENIED_LONG, _ALLOWED_LONG = "запретнейший", "знакомства"
_SET_UNION = "federated_hh.run_set_union"
_PROGRAMS = {
    "run_triehh": (
        *("--threshold=5", "--cohort_size=400", "--max_length=8"),
        "--norequire_guarantee",
    ),
    "run_ldp_triehh": (
        *("--epsilon=8", "--cohort_size=300", "--max_depth=6", "--max_prefixes=6"),
        "--contribution_bound=1",
    ),
    "run_set_union": ("--epsilon=8", "--delta=1e-4"),
    "run_opt_prefix_tree": ("--epsilon=8", "--max_depth=6", "--num_rounds=4"),
    "run_algorithm": (
        "--algorithm=federated_hh.heavy_hitters.sfp.algorithm:SequenceFragmentPuzzle",
        *("--epsilon=8", "--max_length=8", "--threshold=5"),
    ),
}


def _longer(change, longest):
    return (
        "\nEvery word of the clients that is short enough was found. Most helpful "
        f"change: {change}. Words of more than {longest} characters are not found now; "
        f"1 of them would be, with probability 0.9 or more each, such as "
        f"{_ALLOWED_LONG}.\n"
    )


# Advice names no denied word, and takes a found one as found.
_ADVICE = {
    "run_triehh": _longer("--max_length=11, without a guarantee", 7),
    "run_ldp_triehh": _longer("--max_depth=10", 6),
    "run_set_union": "\nEvery word of the clients was found.\n",
}


class DenyWordsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        words = ["дом"] * 1000 + [_DENIED] * 800 + ["Кот"] * 200
        words += [_DENIED_LONG] * 800 + [_ALLOWED_LONG] * 700
        rows = [f"u{i}\t{word}\n" for i, word in enumerate(words)]
        self.list = self.scratch / "list.txt"
        (self.scratch / "words.tsv").write_text("user\tword\n" + "".join(rows))

    def run_program(self, program, *flags, name="run"):
        path = self.scratch / name
        done = forked_programs.run(
            f"federated_hh.{program}",
            f"--population={self.scratch / 'words.tsv'}",
            *("--word_column=word", "--alphabet=абвгдежзийклмнопрстуфхцчшщъыьэюяК"),
            f"--population_cache={self.scratch / 'cache'}",
            f"--output_dir={path}",
            *flags,
        )
        return path, done

    @parameterized.parameters(*_PROGRAMS)
    def test_no_released_file_has_a_denied_word(self, program):
        self.list.write_text(f"\u00a0СЕК\u200bРЕТ\u00ad\n{_DENIED_LONG}\nникто\n")
        flags = _PROGRAMS[program]
        path, done = self.run_program(program, *flags, f"--deny_words={self.list}")
        self.assertEqual(done.returncode, 0, done.stderr)
        # They were found, the long one where it could be.
        denied = {"run_set_union": "2 found words are"}.get(program, "1 found word is")
        self.assertIn(f"\n{denied} on the deny list and left out,", done.stdout)
        self.assertIn(_ADVICE.get(program, ""), done.stdout)
        files = [f for f in path.rglob("*") if f.is_file()]
        released = [f for f in files if not {"simulator", "secret"} & {*f.parts}]
        self.assertIn(path / "report.html", released)
        texts = {f.name: f.read_text("utf-8", "replace") for f in released}
        texts |= {"console": done.stdout + done.stderr}
        for file, text in texts.items():
            self.assertNotIn(_DENIED, text.lower(), file)
            self.assertNotIn(_DENIED_LONG, text.lower(), file)
            # Nor is it spelled by parts.
            self.assertNotRegex(text.lower(), r"\bсе\b", file)
        words = set(tables.read(path / "heavy_hitters.csv")["word"])
        self.assertContainsSubset({"дом", "Кот"}, words)

    @parameterized.parameters("run_triehh", "run_set_union")
    def test_a_run_whose_words_are_all_denied_says_so(self, program):
        words = ("дом", _DENIED, "кот", _DENIED_LONG, _ALLOWED_LONG)
        self.list.write_text("\n".join(words))
        flags = _PROGRAMS[program]
        _, done = self.run_program(program, *flags, f"--deny_words={self.list}")
        said = "Every found word is denied.\n"
        self.assertStartsWith(done.stdout, said, done.stderr)

    def test_denied_words_of_any_table_are_counted(self):
        self.list.write_text(_DENIED)
        path, done = self.run_program(
            "run_algorithm",
            *("--algorithm=examples.histogram:Histogram", "--epsilon=8"),
            *(f"--words=дом,{_DENIED}", f"--deny_words={self.list}"),
        )
        self.assertIn("\n1 found word is on the deny list", done.stdout, done.stderr)
        self.assertEqual(list(tables.read(path / "words.csv")["word"]), ["дом"])

    def test_a_list_without_words_is_refused(self):
        for text in (b"", b"\n \n", "\ufeff\u200b\n".encode()):
            self.list.write_bytes(text)
            with self.assertRaisesRegex(OptionError, "has no words; give one word a"):
                deny_list.DenyList.read(deny_list.DenyOptions(str(self.list)), "en")
        for value in ("", self.list):
            _, done = self.run_program(
                "run_set_union", *_PROGRAMS["run_set_union"], f"--deny_words={value}"
            )
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, rf"--deny_words={value}: .* give one")

    @parameterized.parameters(
        *(("bad", word) for word in (" BAD", "bad\u00a0", "b\u00adad", "\ufeffbad")),
        *(("bad", word) for word in ("b\u200bad", "ba\u200dd\u200c", "bad\ufe0f")),
        *(("bad", "ｂａｄ"), ("bad", "ＢＡＤ"), ("bad", "𝐛𝐚𝐝"), ("don't", "don’t")),
        *(("straße", "STRASSE"), ("ΛΟΓΟΣ", "λογος"), ("ångström", "A\u030aNGSTRÖM")),
        *(("e\u0301", "É"), ("e\u034f\u0301", "é"), ("한국", "\u1112\u1161\u11ab국")),
        *(("می\u200cخواهم", "میخواهم"), ("قَبْل\u200f", "قَبْل"), ("❤\ufe0f", "❤")),
        *(("ışık", "IŞIK", "tr"), ("izmir", "İZMİR", "tr"), ("ılık", "Ｉlık", "tr")),
        ("izmir", "İZMİR"),
    )
    def test_words_that_look_the_same_are_denied(self, one, other, language="en"):
        for listed, found in ((one, other), (other, one)):
            self.list.write_text(f"{listed}\n")
            options = deny_list.DenyOptions(str(self.list))
            deny = deny_list.DenyList.read(options, language)
            different = (f"{one}s", one[1:], "", "ılik", "bäd", "كتاب")
            self.assertEqual(
                deny.allows([found, listed, *different]), [False, False] + [True] * 6
            )

    def test_words_of_nobody_change_nothing_and_a_resumed_run_keeps_its_list(self):
        flags = ("--num_clients=3000", "--num_passes=2", *_PROGRAMS["run_set_union"])
        flags += (f"--population_cache={self.scratch / 'cache'}",)
        self.list.write_text("nobodyhasthis\n")
        paths = [self.scratch / name for name in ("without", "with", "killed")]
        for path, more in zip(
            paths, ((), (f"--deny_words={self.list}",)), strict=False
        ):
            done = forked_programs.run(
                _SET_UNION, *flags, *more, f"--output_dir={path}"
            )
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("\n0 found words are on the deny list", done.stdout)
        for file in ("heavy_hitters.csv", "simulator/scores.csv", "metrics.csv"):
            found = [(path / file).read_bytes() for path in paths[:2]]
            self.assertEqual(found[0], found[1])
        output = f"--output_dir={paths[2]}"
        forked_programs.run(
            *("tests.killed_program", "checkpoint.jsonl", _SET_UNION, *flags),
            *(f"--deny_words={self.list}", output),
        )
        # The same file, with other words.
        self.list.write_text("the\n")
        done = forked_programs.run(_SET_UNION, "--resume", output, flags[-1])
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("deny_words", done.stderr)
        self.assertFalse((paths[2] / "heavy_hitters.csv").exists())


if __name__ == "__main__":
    absltest.main()
