"""Tests that a word is one thing: what is found is one token of training text."""

import dataclasses
import importlib.util
import itertools
import pathlib
import unicodedata
from unittest import mock

import hypothesis
from absl.testing import absltest, parameterized
from hypothesis import strategies

from federated_hh.options.fields import OptionError
from federated_hh.populations import client_sentences, population, vocabulary
from federated_hh.populations.languages import sentence_tokenizers, tokenizers, words
from federated_hh.populations.options.population_options import PopulationOptions
from federated_hh.populations.readers import word_table

# Sentences of twenty languages and more, and their number of words.
_TEXTS = {
    "English": ("Don’t send e-mail at 3.14 — it’s 9 o'clock!", 8),
    "German": ("Grüße aus Köln, Straßenbahn-Haltestelle.", 4),
    "French": ("L’été, c’est où ?", 3),
    "Turkish": ("İstanbul'da ılık DİYARBAKIR!", 3),
    "Vietnamese": ("Tiếng Việt rất khó.", 4),
    "Polish": ("Zażółć gęślą jaźń", 3),
    "Catalan": ("col·lecció d’art", 2),
    "Russian": ("Ёлка и чай: кто-то пьёт", 5),
    "Ukrainian": ("п’ять м'ячів", 2),
    "Greek": ("Ο Οδυσσέας είπε: ναι·", 4),
    "Arabic": ("السَّلامُ عَلَيْكُم، كيف؟", 3),
    "Persian": ("می‌خواهم کتاب‌ها را بخوانم", 4),
    "Urdu": ("آپ کیسے ہیں۔ شکریہ", 4),
    "Hebrew": ("שָׁלוֹם צה״ל וג׳ירפה", 3),
    "Hindi": ("नमस्ते दुनिया। क्या हाल है?", 5),
    "Bengali": ("আমার সোনার বাংলা হঠাৎ", 4),
    "Tamil": ("தமிழ் மொழி வாழ்க", 3),
    "Telugu": ("తెలుగు భాష", 2),
    "Malayalam": ("അവന്‍ മലയാളം", 2),
    "Korean": ("안녕하세요, 한국어 좋아요!", 3),
    "Armenian": ("Ինչո՞ւ ես այստեղ։ Լավ", 4),
    "Georgian": ("გამარჯობა, როგორ ხარ?", 3),
    "Amharic": ("ሰላም፡ለዓለም። ሰላም", 3),
    "Mongolian": ("Сайн байна уу", 3),
}
_CHANGES = {
    "case": "keep",
    "hyphens": "part",
    "apostrophes": "part",
    "digits": "drop",
    "signs": "keep",
    "language": "tr",
}
_OPTIONS = [
    words.WordOptions(**dict(changes))
    for size in (0, 1, len(_CHANGES))
    for changes in itertools.combinations(_CHANGES.items(), size)
]
_CHARACTERS = sorted({c for text, _ in _TEXTS.values() for c in text}) + list(
    "\u200b\u200c\u200d\ufe0f\u0301\u0307\u00ad\u20e3😂❤👍🏽🇩🇪1#*@./:-'’\"_–…İıſΣςK가각ᄀ"
    "\n 。！東京ไท\u0e31"
)


def found_in(text, options):
    return tokenizers.get_tokenizer("words", options).split(text)


def tokens_of(text, options):
    split = sentence_tokenizers.get_sentence_tokenizer("keyboard", options).split
    return list(itertools.chain.from_iterable(split(text)))


class WordsTest(parameterized.TestCase):
    def _check(self, text):
        for options in _OPTIONS:
            found = found_in(text, options)
            self.assertEqual(found, tokens_of(text, options))
            for word in found:
                # It is one word again, in text, in a list and in a dictionary.
                self.assertEqual(found_in(word, options), [word])
                self.assertEqual(tokens_of(word, options), [word])
                self.assertTrue(unicodedata.is_normalized("NFC", word))
                self.assertNotEqual(unicodedata.category(word[0])[0], "M", repr(word))
                for form in ("NFC", "NFD"):
                    other = unicodedata.normalize(form, word)
                    self.assertEqual(found_in(other, options), [word])
                    self.assertEqual(words.folded(other), words.folded(word))

    @parameterized.named_parameters(*((name, *case) for name, case in _TEXTS.items()))
    def test_languages(self, text, num_words):
        self.assertLen(found_in(text, words.DEFAULT), num_words)
        self._check(text)
        composed, decomposed = (
            found_in(unicodedata.normalize(form, text), words.DEFAULT)
            for form in ("NFC", "NFD")
        )
        self.assertEqual(composed, decomposed)

    @hypothesis.settings(max_examples=400, deadline=None)
    @hypothesis.given(strategies.text(_CHARACTERS, max_size=24))
    def test_any_text_of_these_scripts(self, text):
        self._check(text)

    @hypothesis.settings(max_examples=400, deadline=None)
    @hypothesis.given(strategies.text(max_size=12))
    def test_any_text(self, text):
        self._check(text)

    @parameterized.parameters("\u200d", "\ufe0f", "\u0301", "\u0e31", "\u200c\u0301")
    def test_a_lone_mark_or_joiner_is_no_word(self, text):
        for options in _OPTIONS:
            self.assertEmpty(found_in(f"{text} ({text})", options))

    @parameterized.parameters(
        ({"case": "keep"}, "Paris PARIS İzmir", ["Paris", "PARIS", "İzmir"]),
        ({}, "Paris PARIS İzmir I\u0307zmir", ["paris", "paris", "izmir", "izmir"]),
        (
            {"language": "tr"},
            "IŞIK ışık İZMİR I\u0307zmir Irmak’ta",
            ["ışık", "ışık", "izmir", "izmir", "ırmak'ta"],
        ),
        ({"language": "tr", "case": "keep"}, "IŞIK İzmir", ["IŞIK", "İzmir"]),
        ({"language": "de"}, "IRIS", ["iris"]),
        ({"hyphens": "part"}, "e-mail don't", ["e", "mail", "don't"]),
        ({"apostrophes": "part"}, "e-mail don’t", ["e-mail", "don", "t"]),
        ({"digits": "drop"}, "mp3 3.14 a", ["a"]),
        ({}, "❤️ 1️⃣ 👩‍👩‍👧 €5", ["5"]),  # a digit on a key is a sign
        (
            {"signs": "keep"},
            "a❤️ 1️⃣ 👩‍👩‍👧 👍🏽🇩🇪",
            ["a", "❤", "1⃣", "👩‍👩‍👧", "👍🏽", "🇩🇪"],
        ),
        ({"signs": "keep"}, "\u2139é", ["\u2139", "é"]),  # a letter, and a sign
        ({}, "\u2139é e\u0301", ["\u2139é", "é"]),
        ({}, "co\u00adop a\u200bb \u202bab\u202c", ["coop", "a", "b", "ab"]),
        ({}, "see(http://a.b/c-d) ann@x.org @bob www.x.org", ["see"]),
    )
    def test_options(self, options, text, expected):
        self.assertEqual(found_in(text, words.WordOptions(**options)), expected)

    def test_options_have_the_alphabet_of_their_words(self):
        for options in _OPTIONS:
            alphabet = set(tokenizers.get_tokenizer("words", options).alphabet)
            self.assertEqual("A" in alphabet, options.case == "keep")
            self.assertEqual("-" in alphabet, options.hyphens == "keep")
            self.assertEqual("'" in alphabet, options.apostrophes == "keep")
            self.assertEqual("7" in alphabet, options.digits == "keep")

    def test_another_cut_has_another_name(self):
        names = {
            sentence_tokenizers.get_sentence_tokenizer("keyboard", options).name
            for options in _OPTIONS
        }
        self.assertLen(names, len(_OPTIONS))

    def test_turkish_case_everywhere(self):
        scratch = pathlib.Path(self.create_tempdir().full_path)
        (scratch / "known.txt").write_text("IŞIK\n", encoding="utf-8")
        (scratch / "rows.csv").write_text(
            "user,text\nu,Irmak İzmir IŞIK ışık\n", encoding="utf-8"
        )
        options = PopulationOptions(
            source=str(scratch / "rows.csv"),
            language="tr",
            known_words=str(scratch / "known.txt"),
        )
        for changes, expected in (
            ({}, ["izmir", "ırmak"]),
            ({"case": "keep"}, ["Irmak", "İzmir"]),
            ({"language": "de"}, ["irmak", "izmir"]),
            ({"tokenizer": "triehh", "alphabet": "ırmakizşe"}, ["izmir", "ırmak"]),
        ):
            with self.subTest(changes=changes):
                changed = dataclasses.replace(options, **changes)
                clients = population.prepare(changed, scratch / "cache")
                self.assertEqual(sorted(clients.words.to_pylist()), sorted(expected))

    @parameterized.parameters("words", "triehh", "whitespace")
    def test_normal_forms_are_one_word(self, name):
        split = tokenizers.get_tokenizer(name).split
        self.assertEqual(split("cafe\u0301"), split("caf\u00e9"))


class FilesTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def _prepared(self, text, **options):
        path = self.directory / "a.csv"
        path.write_text(f'user,text\nann,"{text}"\n')
        options = PopulationOptions(source=str(path), **options)
        return population.prepare(options, self.directory / "cache")

    def test_known_words_in_any_form(self):
        known = self.directory / "known.txt"
        known.write_text("CAFE\u0301\ndon’t\nİzmir\nΟΔΟΣ\n")
        prepared = self._prepared(
            "café Don't izmir οδος new",
            known_words=str(known),
            alphabet="abcdefghijklmnopqrstuvwxyzé'οδς",
        )
        self.assertEqual(prepared.client(0), [("new", 1)])
        self.assertEqual(prepared.metadata["dropped_words"]["known"], 4)

    @parameterized.parameters(*_TEXTS)
    def test_a_dictionary_of_found_words_leaves_none(self, language):
        found = found_in(_TEXTS[language][0], words.DEFAULT)
        known = self.directory / "known.txt"
        known.write_text(unicodedata.normalize("NFD", "\n".join(found)))
        read = word_table.read_dictionary(str(known))
        self.assertContainsSubset(map(words.folded, found), read)

    def test_words_of_a_column_are_in_normal_form(self):
        path = self.directory / "w.csv"
        path.write_text("user,word\nann,cafe\u0301\nann,café\n")
        prepared = population.prepare(
            PopulationOptions(source=str(path), word_column="word", alphabet="café"),
            self.directory / "cache",
        )
        self.assertEqual(prepared.client(0), [("café", 2)])

    def test_vocabulary_in_any_form(self):
        read = vocabulary.Vocabulary(["cafe\u0301", "the"])
        self.assertEqual(read.encode(["café"]), [len(vocabulary.SPECIAL_TOKENS)])

    def test_several_words_of_a_token(self):
        prepared = self._prepared("a/b a/b c.d/e é/f", out_of_alphabet="drop")
        self.assertEqual(
            dict(prepared.client(0)), {"a": 2, "b": 2, "c": 1, "d": 1, "e": 1, "f": 1}
        )
        self.assertEqual(prepared.metadata["dropped_words"]["out_of_alphabet"], 1)
        with self.assertRaisesRegex(ValueError, r"'é' \("):
            self._prepared("a/b é/f", out_of_alphabet="refuse")
        prepared = self._prepared("a/b é/f", out_of_alphabet="keep")
        self.assertEqual(dict(prepared.client(0)), dict.fromkeys("abéf", 1))
        self.assertEqual(prepared.metadata["dropped_words"]["out_of_alphabet"], 0)

    @parameterized.parameters("我爱北京天安门", "今日は天気がいいですね", "สวัสดีครับผมชื่อ")
    def test_text_without_blanks_is_refused(self, text):
        wanted = "of the text is in scripts without blanks.*--segmenter=icu"
        with self.assertRaisesRegex(ValueError, wanted):
            self._prepared(text)
        options = PopulationOptions(source=str(self.directory / "a.csv"))
        with self.assertRaisesRegex(ValueError, wanted):
            client_sentences.prepare(
                options,
                vocabulary.Vocabulary(["a"]),
                sentence_tokenizers.get_sentence_tokenizer("keyboard"),
                self.directory / "cache",
            )
        with self.assertLogs(level="WARNING") as logs:
            self._prepared(f"{text} and a much longer English sentence beside it")
        self.assertRegex(logs.output[0], wanted)

    def test_icu_is_named_where_it_is_missing(self):
        with (
            mock.patch("importlib.util.find_spec", return_value=None),
            self.assertRaisesRegex(OptionError, "pip install icu4py"),
        ):
            PopulationOptions(segmenter="icu")

    def test_words_by_icu(self):
        if importlib.util.find_spec("icu4py") is None:
            self.skipTest("icu4py, the extra 'icu', is not installed")
        options = words.WordOptions(segmenter="icu")
        for text, expected in (
            ("我爱北京天安门。", "我 爱 北京 天安门"),
            ("今日は天気がいい", "今日 は 天気 が いい"),
            ("สวัสดีครับ iPhone", "สวัสดี ครับ iphone"),
            ("𠀀我爱", "𠀀 我 爱"),
        ):
            self.assertEqual(found_in(text, options), expected.split())
            self.assertEqual(tokens_of(text, options), expected.split())
            for word in expected.split():
                self.assertEqual(found_in(word, options), [word])


if __name__ == "__main__":
    absltest.main()
