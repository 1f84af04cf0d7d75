"""Tests of cutting text into sentences of words."""

from absl.testing import absltest, parameterized

from federated_hh.populations.languages import sentence_tokenizers


class SentenceTokenizersTest(parameterized.TestCase):
    @parameterized.parameters(
        ("See you. OK?", [["see", "you"], ["ok"]]),
        ('He said "No!" And left', [["he", "said", "no"], ["and", "left"]]),
        ("one\ntwo\r\n\n three", [["one"], ["two"], ["three"]]),
        ("Wait... what", [["wait"], ["what"]]),
        (
            "Don’t don't 'quoted' rock-n-roll",
            [["don't", "don't", "quoted", "rock-n-roll"]],
        ),
        (
            "at 3.14 or v2.0, etoy.DAY-CARE",
            [["at", "3.14", "or", "v2.0", "etoy", "day-care"]],
        ),
        ("@ann see http://a.b/c?d www.x.org #tag", [["see", "tag"]]),
        ("Grüße aus Köln!  Ça va?", [["grüße", "aus", "köln"], ["ça", "va"]]),
        ("... !!! ?", []),
        ("", []),
        ("snake_case", [["snake", "case"]]),
    )
    def test_keyboard(self, text, expected):
        tokenizer = sentence_tokenizers.get_sentence_tokenizer("keyboard")
        self.assertEqual(tokenizer.split(text), expected)

    def test_bad_input(self):
        with self.assertRaisesRegex(ValueError, "is 'x'; it has to be one of keyboard"):
            sentence_tokenizers.get_sentence_tokenizer("x")
        with self.assertRaisesRegex(ValueError, "name is ''"):
            sentence_tokenizers.SentenceTokenizer("", str.split)


if __name__ == "__main__":
    absltest.main()
