"""Tests of the population's flags, in programs of their own."""

import os
import pathlib
import subprocess
import sys

from absl import flags
from absl.testing import absltest, flagsaver, parameterized

from simulation import client_words, population, population_flags

_PROGRAM = """
import sys
from absl import app
from simulation import population_flags
heavy = {"numpy", "pyarrow", "pandas", "wordfreq", "tensorflow", "scipy", "tqdm"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
app.run(lambda _: print(population_flags.options_from_flags()))
"""


def _run(*arguments):
    root = pathlib.Path(population.__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        env=dict(os.environ, PYTHONPATH=str(root)),
        capture_output=True,
        text=True,
    )


class PopulationFlagsTest(parameterized.TestCase):
    def test_defaults_are_those_of_the_options(self):
        self.assertEqual(_run().stdout, f"{population.PopulationOptions()}\n")

    @flagsaver.flagsaver
    def test_every_option_has_a_flag(self):
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
            "tokenizer": "whitespace",
            "alphabet": "xyz",
            "out_of_alphabet": "refuse",
            "known_words": "k.txt",
            "max_bad_rows": 3,
            "empty_clients": "keep",
            "num_clients": 17,
            "mean_words_per_client": 5.5,
            "words_per_client_sigma": 0.5,
            "trending_share": 0.25,
            "trending_words": 7,
            "trending_exponent": 1.5,
            "population_seed": 4,
        }
        for name, value in values.items():
            flags.FLAGS[name].value = value
        options = population_flags.options_from_flags()
        defaults = population.PopulationOptions()
        fields = vars(options)
        self.assertLen(fields, len(values))
        for name, value in fields.items():
            self.assertNotEqual(value, getattr(defaults, name), name)
        self.assertCountEqual(
            fields.values(),
            [tuple(v) if isinstance(v, list) else v for v in values.values()],
        )
        self.assertEqual(population_flags.alphabet_from_flags(), "xyz")

    @parameterized.parameters(
        ("--population=", "must be 'synthetic' or the path"),
        ("--population_format=xml", "--population_format=xml"),
        ("--tokenizer=nltk", "should be one of <triehh|whitespace>"),
        ("--csv_columns=a,a", "no name twice"),
        ("--count_column=n", "needs word_column"),
        ("--alphabet=", "must have a character"),
        ("--num_clients=0", "--num_clients=0"),
        ("--max_bad_rows=-1", "--max_bad_rows=-1"),
        ("--mean_words_per_client=1", "mean above 1"),
        ("--words_per_client_sigma=9", "--words_per_client_sigma=9"),
        ("--trending_share=1", "must be below 1"),
        ("--population_seed=-1", "--population_seed=-1"),
        (f"--population_seed={2**64}", "--population_seed="),
        ("--num_clients=2147483648", "--num_clients="),
        ("--max_bad_rows=100001", "--max_bad_rows="),
        ("--trending_words=1000001", "--trending_words="),
        ("--trending_exponent=inf", "--trending_exponent="),
        ("--mean_words_per_client=nan", "flags mean_words_per_client=nan"),
        ("--words_per_client_sigma=nan", "words_per_client_sigma is nan, must be in"),
        ("--trending_share=nan", "--trending_share"),
    )
    def test_wrong_values_are_refused(self, flag, message):
        result = _run(flag)
        self.assertEqual(result.returncode, 1)
        self.assertIn(message, result.stderr)

    def test_every_number_has_bounds(self):
        module = flags.FLAGS.flags_by_module_dict()[population_flags.__name__]
        numbers = [flag for flag in module if flag.flag_type() in ("int", "float")]
        self.assertLen(numbers, 8)
        for flag in numbers:
            with self.subTest(flag.name):
                self.assertIsNotNone(flag.parser.lower_bound)
                self.assertIsNotNone(flag.parser.upper_bound)

    @parameterized.parameters(
        "max_bad_rows", "num_clients", "trending_words", "seed",
        "mean_words_per_client", "words_per_client_sigma", "trending_exponent",
        "trending_share",
    )  # fmt: skip
    def test_options_have_the_bounds_of_the_flags(self, name):
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

    def test_prepare_from_flags(self):
        directory = pathlib.Path(self.create_tempdir().full_path)
        (directory / "a.csv").write_text("user,text\nann,Sun\n")
        with flagsaver.flagsaver(
            population=str(directory / "a.csv"),
            population_cache=str(directory / "cache"),
        ):
            prepared = population_flags.prepare_from_flags()
        self.assertIsInstance(prepared, client_words.ClientWords)
        self.assertEqual(prepared.client(0), [("sun", 1)])
        self.assertStartsWith(prepared.directory, str(directory / "cache"))


if __name__ == "__main__":
    absltest.main()
