"""Tests that every option of a population decides which prepared one is used.

The fields come from the dataclass itself: a new one without an entry here fails.
"""

import dataclasses
import pathlib
from unittest import mock

from absl.testing import absltest, parameterized

from federated_hh.populations import client_sentences, population, vocabulary
from federated_hh.populations.languages import sentence_tokenizers
from federated_hh.populations.options import population_options
from tests import short_word_lists

# Another value for each field, beside those that `setUp` makes files for.
_OTHER = {
    "source": None,
    "format": "csv",
    "encoding": "iso-8859-1",
    "user_column": "writer",
    "text_column": "body",
    "word_column": "text",
    "count_column": "n",
    "csv_columns": ("user", "text", "n", "writer", "body"),
    "csv_header": "present",
    "drop_pattern": "su",
    "drop_users": "a.*",
    "delimiter": ";",
    "split": "train",
    "language": "de",
    "tokenizer": "whitespace",
    "alphabet": "abcdefghijklmnopqrstuvwxy",
    "out_of_alphabet": "refuse",
    "known_words": None,
    "only_words": None,
    "max_bad_rows": 101,
    "empty_clients": "keep",
    "num_clients": 31,
    "mean_words_per_client": 21.0,
    "words_per_client_sigma": 0.5,
    "frequency_power": 0.5,
    "client_law": "pitman_yor",
    "client_discount": 0.5,
    "client_concentration": 3.0,
    "common_words": None,
    "words_per_client": None,
    "common_law": "pitman_yor",
    "common_discount": 0.5,
    "common_concentration": 3.0,
    "trending_share": 0.5,
    "trending_words": 7,
    "trending_exponent": 1.5,
    "normalize_users": True,
    "seed": 1,
    "case": "keep",
    "hyphens": "part",
    "apostrophes": "part",
    "digits": "drop",
    "signs": "keep",
    "segmenter": "icu",
}
_FILE_ONLY = {
    "format", "encoding", "user_column", "text_column", "word_column", "count_column",
    "csv_columns", "csv_header", "max_bad_rows", "drop_pattern", "drop_users",
    "split", "delimiter", "normalize_users",
}  # fmt: skip
_SYNTHETIC_ONLY = {
    "num_clients", "mean_words_per_client", "words_per_client_sigma", "trending_share",
    "trending_words", "trending_exponent", "seed", "client_law", "client_discount",
    "client_concentration", "common_words", "words_per_client", "common_law",
    "common_discount", "common_concentration", "frequency_power",
}  # fmt: skip
_WORDS_ONLY = {
    "tokenizer", "alphabet", "out_of_alphabet", "known_words", "only_words",
    "trending_share", "trending_words", "trending_exponent", "client_law",
    "client_discount", "client_concentration", "common_words",
    "words_per_client", "common_law", "common_discount", "common_concentration",
    "frequency_power",
}  # fmt: skip
_FIELDS = [field.name for field in dataclasses.fields(population.PopulationOptions)]


class CacheKeyTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        # A population of the whole list takes seconds, of which there are many.
        short_word_lists.use(self, 3000)
        # ICU need not be installed to be asked for.
        for name in ("util.find_spec", "metadata.version"):
            self.enter_context(mock.patch(f"importlib.{name}", return_value="1"))
        parent = pathlib.Path(self.create_tempdir().full_path)
        self.cache = parent / "cache"
        rows = "user,text,n,writer,body\nann,the sun,1,bob,a moon\ncid,,1,,\n"
        for name in ("a.csv", "b.csv"):
            (parent / name).write_text(rows)
        (parent / "known.txt").write_text("the\n")
        (parent / "common.txt").write_text("sun\t2\n")
        (parent / "numbers.txt").write_text("3\n")
        self.other = dict(
            _OTHER,
            source=str(parent / "b.csv"),
            known_words=str(parent / "known.txt"),
            only_words=str(parent / "known.txt"),
            common_words=str(parent / "common.txt"),
            words_per_client=str(parent / "numbers.txt"),
        )
        self.bases = {
            "file": population_options.PopulationOptions(source=str(parent / "a.csv")),
            # With words in fashion, so that all options about them count.
            "synthetic": population_options.PopulationOptions(
                num_clients=30, trending_share=0.25
            ),
        }

    def _changed(self, base, name):
        changes = {name: self.other[name]}
        if name == "count_column":
            changes["word_column"] = "text"
            base = dataclasses.replace(base, word_column="text")
        return base, dataclasses.replace(base, **changes)

    def test_every_field_is_tested(self):
        self.assertCountEqual(_OTHER, _FIELDS)

    @parameterized.product(name=_FIELDS, kind=["file", "synthetic"])
    def test_words(self, name, kind):
        base, changed = self._changed(self.bases[kind], name)
        left_out = _SYNTHETIC_ONLY if kind == "file" else _FILE_ONLY
        same = population.describe(base) == population.describe(changed)
        self.assertEqual(same, name in left_out)
        if same:  # and it makes no difference to the contents
            prints = {
                population.prepare(options, self.cache / str(i)).fingerprint
                for i, options in enumerate((base, changed))
            }
            self.assertLen(prints, 1)

    @parameterized.product(name=_FIELDS, kind=["file", "synthetic"])
    def test_sentences(self, name, kind):
        base, changed = self._changed(self.bases[kind], name)
        words = vocabulary.Vocabulary(["the", "sun", "moon", "and", "of"])
        tokenizer = sentence_tokenizers.get_sentence_tokenizer("keyboard")
        language = population_options.LanguageOptions()

        def describe(options):
            return client_sentences.describe(options, words, tokenizer, language)

        left_out = _WORDS_ONLY | (_SYNTHETIC_ONLY if kind == "file" else _FILE_ONLY)
        if kind == "file":  # the vocabulary has the language
            left_out = left_out | {"language"}
        same = describe(base) == describe(changed)
        self.assertEqual(same, name in left_out)
        if same and kind == "file":
            prints = {
                client_sentences.prepare(
                    options, words, tokenizer, self.cache / str(i), language
                ).fingerprint
                for i, options in enumerate((base, changed))
            }
            self.assertLen(prints, 1)

    @parameterized.parameters("trending_exponent", "empty_clients", "trending_words")
    def test_another_population_is_not_used(self, name):
        base = dataclasses.replace(
            self.bases["synthetic"],
            tokenizer="triehh",  # which leaves some clients without words
            num_clients=300,
            trending_words=50,
            mean_words_per_client=2.0,
        )
        changed = dataclasses.replace(base, **{name: self.other[name]})
        first = population.prepare(base, self.cache)
        second = population.prepare(changed, self.cache)
        self.assertNotEqual(first.directory, second.directory)
        self.assertNotEqual(first.fingerprint, second.fingerprint)


if __name__ == "__main__":
    absltest.main()
