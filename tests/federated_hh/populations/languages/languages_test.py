"""Tests of languages: their words, letters, spelling, and how they are refused."""

import math
import unicodedata

from absl.testing import absltest, parameterized

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.options.fields import OptionError
from federated_hh.populations.languages import hangul, languages, tokenizers
from federated_hh.populations.options.population_options import PopulationOptions
from federated_hh.populations.readers import word_table

_HELLO = {
    "de": "Das ist nicht mein Haus und ich weiß auch nicht wo die Straße ist",
    "nb": "jeg vet ikke hva det er men vi kan ikke gjøre noe med det nå",
    "sv": "jag vet inte vad det är men vi kan inte göra något åt det nu",
    "ru": "я не знаю что это такое и где мы сейчас",
    "uk": "я не знаю що це таке і де ми зараз",
    "hi": "मुझे नहीं पता कि यह क्या है और हम कहाँ हैं",
    "ko": "저는 오늘 학교에 갑니다",
    "he": "אני לא יודע מה זה ואיפה אנחנו עכשיו",
    "fa": "من نمی دانم این چیست و ما کجا هستیم",
    "pt": "eu não sei o que é isso e onde nós estamos agora",
}


class LanguagesTest(parameterized.TestCase):
    @parameterized.parameters(*languages.codes())
    def test_an_alphabet_has_nearly_all_tokens_of_its_list(self, code):
        words = languages.words(code)
        shares = languages.frequencies(code).values()
        alphabet = frozenset(PopulationOptions(language=code).characters)
        inside = [n for w, n in words.items() if alphabet.issuperset(hangul.letters(w))]
        self.assertGreater(math.fsum(inside), 0.95 * math.fsum(words.values()))
        self.assertGreater(math.fsum(inside), 0.94 * math.fsum(shares))
        self.assertLess(len(alphabet), 140)

    @parameterized.parameters(
        ("de", "äöüß", "weiß straße größer dass müssen aussehen preis"),
        ("el", "ςάέ", "της ο ελλάδα"),
        ("tr", "ıiğş\u0307", "için kadın"),
        ("hi", "ािी्ंँ", "नहीं में"),
        ("ar", "\u064b\u0651ةى", "في من"),
        ("he", "\u05b8ךםןףץ", "של את"),
        ("fa", "\u200cپچژگ", "می"),
        ("ca", "·ç", "col·laboració"),
        ("ru", "ёъ", "и ещё"),
        ("ko", "\u1100\u1161\u11a8ㅋ", "사람"),
    )
    def test_letters_and_spelling(self, code, letters, words):
        self.assertContainsSubset(letters, languages.letters(code))
        self.assertContainsSubset(words.split(), languages.words(code))
        if code in ("de", "el"):
            self.assertNoCommonElements(("strasse", "τησ"), languages.words(code))

    def test_english_is_as_it_was(self):
        for name in tokenizers.TOKENIZER_NAMES:
            alphabet = tokenizers.get_tokenizer(name).alphabet
            self.assertEqual(PopulationOptions(tokenizer=name).characters, alphabet)
        self.assertNotIn("language", PopulationOptions().deciding("words"))

    def test_capitals_where_the_tokenizer_keeps_them(self):
        options = PopulationOptions(language="ru", tokenizer="whitespace")
        self.assertContainsSubset("яЯ!?9", options.characters)
        self.assertNoCommonElements("zZ", options.characters)

    @parameterized.parameters(
        ("xx", "--language=xx|is not a language; it has to be one of ar, bg, bn"),
        ("zh", "Chinese is written without blanks"),
        ("th", "Thai is written without blanks"),
        ("auto", "needs a file of text"),
    )
    def test_refused(self, code, message):
        with self.assertRaisesRegex(OptionError, message):
            PopulationOptions(language=code)

    def test_remarks(self):
        self.assertEqual(languages.get("de").remarks, "")
        self.assertRegex(languages.get("hi").remarks, "only a small list of Hindi: 24")
        self.assertRegex(languages.get("ko").remarks, "small.*stems and endings")

    @parameterized.parameters(*_HELLO.items())
    def test_seen(self, code, text):
        self.assertEqual(languages.seen_in([text, text])[0], code)

    @parameterized.parameters("", "123", "今天天气很好", "xqzvkw wqxzzk")
    def test_not_seen(self, text):
        with self.assertRaisesRegex(ValueError, "in none of the languages ar, bg"):
            languages.seen_in([text])

    def test_known_words_of_the_list(self):
        known = word_table.read_dictionary("wordfreq:3", "de")
        self.assertEqual(known, {"die", "der", "und"})
        for wrong in ("wordfreq:", "wordfreq:0", "wordfreq:x"):
            with self.assertRaisesRegex(OptionError, "number of words"):
                PopulationOptions(known_words=wrong)


class HangulTest(parameterized.TestCase):
    def test_round_trip(self):
        for word in ("값", "왔다", "한국어", "abc", "née", "नहीं"):
            self.assertEqual(hangul.syllables(hangul.letters(word)), word)
        self.assertEqual(hangul.letters("né"), "né")
        self.assertEqual(hangul.letters("값"), unicodedata.normalize("NFD", "값"))

    def test_alphabet(self):
        alphabet = alphabet_lib.Alphabet(hangul.alphabet("각가a"))
        self.assertEqual(alphabet.size, 4)
        codes = alphabet.encode(["각a", "가"], 5)
        self.assertEqual([alphabet.decode(row) for row in codes], ["각a", "가"])
        self.assertEqual(codes[1].tolist(), [0, 1, 4, 5, 5])

    def test_words_with_other_letters(self):
        table = word_table.WordTable("각나", frozenset(), False)
        self.assertEqual(table.code("낙"), 0)
        self.assertEqual(table.code("난"), word_table.OUT_OF_ALPHABET)
        self.assertEqual(table.missing_characters, {"\u11ab": 1})


if __name__ == "__main__":
    absltest.main()
