"""Tests of how text is cut into words."""

import string

from absl.testing import absltest, parameterized

from federated_hh.populations.languages import tokenizers


class TriehhTokenizerTest(parameterized.TestCase):
    @parameterized.parameters(
        ("The SUN, the moon!", ["the", "sun", "the", "moon"]),
        # Found by TrieHH in the paper: they have to survive.
        ("*hugs* :(( @tommcfly #ff b/c ya'll", None),
        ("go to it", []),  # fewer than three characters
        ("a?! ,,no.. yes;;", ["yes"]),  # ... after stripping
        ("http://t.co/x www.x.org HTTPS://y (http)", ["(http)"]),
        (".http.", []),
        ("_under_score_", ["_under_score_"]),
        ("naïve café l33t a=b plain", ["plain"]),
        ("don't stop\u2028believing", ["don't", "stop", "believing"]),
        ("", []),
    )
    def test_words(self, text, expected):
        if expected is None:
            expected = text.split()
        self.assertEqual(tokenizers.get_tokenizer("triehh").words(text), expected)

    def test_split_leaves_the_alphabet_to_the_population(self):
        tokenizer = tokenizers.get_tokenizer("triehh")
        self.assertEqual(tokenizer.split("Café, 123"), ["café", "123"])

    def test_alphabet_is_the_papers_with_the_underscore(self):
        self.assertEqual(
            set(tokenizers.get_tokenizer("triehh").alphabet),
            set(string.ascii_lowercase) | set("@#-;()*:./'") | {"_"},
        )


class WhitespaceTokenizerTest(absltest.TestCase):
    def test_words(self):
        tokenizer = tokenizers.get_tokenizer("whitespace")
        self.assertEqual(
            tokenizer.words(" A b,\tc\n\nHTTP://x é "), ["A", "b,", "c", "HTTP://x"]
        )
        self.assertLen(tokenizer.alphabet, 94)  # printable ASCII but the space


class TokenizerTest(absltest.TestCase):
    def test_unknown_name(self):
        with self.assertRaisesRegex(
            ValueError, "'nltk'; it has to be one of words, triehh, white"
        ):
            tokenizers.get_tokenizer("nltk")

    def test_a_users_own(self):
        own = tokenizers.Tokenizer("pairs", lambda t: [t[:2], t[2:]], "abc")
        self.assertEqual(own.words("abcd"), ["ab"])
        for name, alphabet in (("", "a"), ("x", "")):
            with self.assertRaises(ValueError):
                tokenizers.Tokenizer(name, str.split, alphabet)


class WordsTest(parameterized.TestCase):
    @parameterized.parameters(
        # What whoever follows the guide for new words has to find.
        ("It. me. ME, that.", ["it", "me", "me", "that"]),
        ("\u00abbonjour\u00bb \u201equoted\u201c lol\U0001f602 [sic] *hugs*", None),
        ("well... yes...no \u2026 a\u2026b", ["well", "yes", "no", "a", "b"]),
        (
            "don\u2019t don't non\u2011stop x--y",
            ["don't", "don't", "non-stop", "x", "y"],
        ),
        ("see http://a.b (https://c) www.d.e now", ["see", "now"]),
        ("'' -- ... ?!", []),
        ("e.g. a_b caf\u00e9 mp3 007", ["e", "g", "a", "b", "mp3", "007"]),
    )
    def test_ends_are_stripped(self, text, expected):
        if expected is None:
            expected = ["bonjour", "quoted", "lol", "sic", "hugs"]
        self.assertEqual(tokenizers.get_tokenizer("words").words(text), expected)

    def test_marks_of_other_scripts_stay(self):
        split = tokenizers.get_tokenizer("words").split
        self.assertEqual(split("(\u0915\u0940)"), ["\u0915\u0940"])

    def test_is_the_default(self):
        self.assertEqual(tokenizers.DEFAULT, "words")

    def test_brackets_quotes_and_links_go(self):
        words = tokenizers.get_tokenizer("words").words(
            "(It\u2019s \u201cme\u201d, [that] I\u2014no--so don't... "
            "http://a.b/c www.x.org 'tis --- mp3 re-do"
        )
        self.assertEqual(
            words,
            ["it's", "me", "that", "i", "no", "so", "don't", "tis", "mp3", "re-do"],
        )


if __name__ == "__main__":
    absltest.main()
