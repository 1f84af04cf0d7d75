"""Tests of the population's flags, in programs of their own."""

import os
import pathlib
import subprocess
import sys
from unittest import mock

from absl import flags
from absl.testing import absltest, flagsaver, parameterized

from federated_hh.command_line import program_flags
from federated_hh.populations import population
from federated_hh.populations.columns import client_words
from tests import ROOT

_PROGRAM = """
import sys
from absl import app
from federated_hh.command_line import program_flags
population = program_flags.PopulationFlags("words")
heavy = {"numpy", "pyarrow", "pandas", "wordfreq", "tensorflow", "scipy", "tqdm"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
app.run(lambda _: print(population.read()))
"""

_FLAGS = program_flags.PopulationFlags("words")


def _run(*arguments):
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
    )


class PopulationFlagsTest(parameterized.TestCase):
    def test_defaults_are_those_of_the_options_with_all_clients_kept(self):
        kept = population.PopulationOptions(empty_clients="keep")
        self.assertEqual(_run().stdout, f"{kept}\n")

    @flagsaver.flagsaver
    @mock.patch("importlib.util.find_spec")  # ICU need not be installed
    def test_every_option_has_a_flag(self, _):
        values = {
            "population": "x.csv",
            "population_format": "tsv",
            "encoding": "latin-1",
            "user_column": "u",
            "text_column": "t",
            "word_column": "w",
            "count_column": "c",
            "csv_columns": ["a", "b"],
            "csv_header": "absent",
            "drop_pattern": "urlLink",
            "drop_users": "bot.*",
            "normalize_users": True,
            "delimiter": ";",
            "population_split": "train",
            "language": "de",
            "tokenizer": "whitespace",
            "alphabet": "xyz",
            "out_of_alphabet": "refuse",
            "known_words": "k.txt",
            "only_words": "o.txt",
            "max_bad_rows": 3,
            "empty_clients": "keep",
            "case": "keep",
            "hyphens": "part",
            "apostrophes": "part",
            "digits": "drop",
            "signs": "keep",
            "segmenter": "icu",
            "num_clients": 17,
            "mean_words_per_client": 5.5,
            "words_per_client_sigma": 0.5,
            "words_per_client": "n.txt",
            "client_law": "pitman_yor",
            "client_discount": 0.75,
            "client_concentration": 11.0,
            "common_words": "list.txt",
            "common_law": "pitman_yor",
            "frequency_power": 0.5,
            "common_discount": 0.375,
            "common_concentration": 3000.0,
            "trending_share": 0.25,
            "trending_words": 7,
            "trending_exponent": 1.5,
            "population_seed": 4,
        }
        for name, value in values.items():
            flags.FLAGS[name].value = value
        options = _FLAGS.read()
        defaults = population.PopulationOptions()
        fields = vars(options)
        self.assertLen(fields, len(values))
        for name, value in fields.items():
            self.assertNotEqual(value, getattr(defaults, name), name)
        self.assertCountEqual(
            fields.values(),
            [tuple(v) if isinstance(v, list) else v for v in values.values()],
        )
        self.assertEqual(options.characters, "xyz")

    @parameterized.parameters(
        ("--population=", "has to be 'synthetic' or a path"),
        ("--population_format=xml", "--population_format=xml"),
        ("--tokenizer=nltk", "should be one of <words|triehh|whitespace>"),
        ("--csv_columns=a,a", "has a duplicate name"),
        ("--count_column=n", "count_column=n: needs word_column"),
        ("--alphabet=", "at least one character"),
        ("--drop_pattern=a(b", "drop_pattern=a(b: is not a regular expression"),
        ("--drop_users=*", "drop_users=*: is not a regular expression"),
        ("--num_clients=0", "--num_clients=0"),
        ("--max_bad_rows=-1", "--max_bad_rows=-1"),
        ("--mean_words_per_client=1", "has to be above 1"),
        ("--words_per_client_sigma=9", "--words_per_client_sigma=9"),
        ("--trending_share=1", "in [0, 1) (some words are not in fashion)"),
        ("--population_seed=-1", "--population_seed=-1"),
        (f"--population_seed={2**64}", "--population_seed="),
        ("--num_clients=2147483648", "--num_clients="),
        ("--max_bad_rows=100001", "--max_bad_rows="),
        ("--trending_words=1000001", "--trending_words="),
        ("--trending_exponent=inf", "--trending_exponent="),
        (
            "--mean_words_per_client=nan",
            "_client=nan: has to be a number",
        ),
        (
            "--words_per_client_sigma=nan",
            "sigma=nan: has to be a number",
        ),
        ("--trending_share=nan", "--trending_share"),
        (
            "--text_column=tokens",
            "text_column=tokens: applies to a file, and no file was",
        ),
        ("--csv_columns=a,b", "give source as a path"),
        ("--population_split=train", "split=train: applies to a file"),
    )
    def test_wrong_values_are_refused(self, flag, message):
        result = _run(flag)
        self.assertEqual(result.returncode, 1)
        self.assertIn(message, result.stderr)

    def test_one_column_for_users_and_content_is_refused(self):
        result = _run("--population=x.csv", "--text_column=user")
        self.assertEqual(result.returncode, 1)
        self.assertIn("user_column=user: text_column is the same", result.stderr)
        result = _run("--population=x.csv", "--word_column=a", "--user_column=a")
        self.assertIn("user_column=a: word_column is the same", result.stderr)
        # A text column is not read where there is one of words.
        result = _run("--population=x.csv", "--word_column=a", "--user_column=text")
        self.assertEqual(result.returncode, 0, result.stderr)

    @parameterized.parameters(
        "max_bad_rows", "num_clients", "trending_words", "seed",
        "mean_words_per_client", "words_per_client_sigma", "trending_exponent",
        "trending_share",
    )  # fmt: skip
    def test_every_number_has_bounds(self, name):
        for value in (-1, float("inf"), float("nan"), 10**400):
            with self.assertRaisesRegex(ValueError, name):
                population.PopulationOptions(**{name: value})

    @parameterized.parameters("max_bad_rows", "num_clients", "trending_words", "seed")
    def test_whole_numbers(self, name):
        for value in (2.0, True, "2"):
            with self.assertRaisesRegex((ValueError, TypeError), "int"):
                population.PopulationOptions(**{name: value})

    def test_help_names_every_flag(self):
        result = _run("--helpfull")
        for name in ("--population:", "--known_words:", "--max_bad_rows:"):
            self.assertIn(name, result.stdout)

    def test_sentences_have_no_flags_of_words(self):
        names = population.PopulationOptions.names("sentences")
        self.assertContainsSubset(["source", "user_column", "num_clients"], names)
        self.assertNoCommonElements(["known_words", "tokenizer", "alphabet"], names)

    def test_prepare_words(self):
        directory = pathlib.Path(self.create_tempdir().full_path)
        (directory / "a.csv").write_text("user,text\nann,Sun\n")
        with flagsaver.flagsaver(
            population=str(directory / "a.csv"),
            population_cache=str(directory / "cache"),
        ):
            prepared = _FLAGS.prepare_words()
        self.assertIsInstance(prepared, client_words.ClientWords)
        self.assertEqual(prepared.client(0), [("sun", 1)])
        self.assertStartsWith(prepared.directory, str(directory / "cache"))


if __name__ == "__main__":
    absltest.main()
