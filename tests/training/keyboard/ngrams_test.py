"""Tests of n-grams on a keyboard: the same places as elsewhere, and like a network."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from federated_hh.populations import vocabulary
from federated_hh.populations.columns import client_text
from federated_hh.populations.options import population_options
from federated_hh.populations.synthetic import synthetic_sentences
from training.baselines import baselines, best_possible, language_law, ngrams
from training.federated import held_out
from training.keyboard import model as keyboard_model
from training.keyboard import ngrams as keyboard_ngrams
from training.keyboard import predictions as keyboard_predictions
from training.keyboard import target_positions as keyboard_places
from training.models import metric_names
from training.text import examples, windows

_NUM_WORDS = 6
_SIZE = 4 + _NUM_WORDS


class NGramPredictorTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(0)
        rows = [
            (
                f"c{i}",
                [
                    random.integers(3, _SIZE, 1 + j % 9).clip(4).tolist()
                    for j in range(8)
                ],
            )
            for i in range(30)
        ]
        self.text = client_text.ClientText.from_rows(
            self.create_tempdir().full_path + "/text", rows
        )
        self.clients = held_out.Clients.split(30, 8, 1)
        self.limits = examples.ClientLimits(6, 5)
        self.words = vocabulary.Vocabulary([f"w{i}" for i in range(_NUM_WORDS)])
        self.places = keyboard_places.Places.of(self.text, self.clients.held_out, 6, 5)
        self.models = baselines.ngrams_of(self.text, self.clients, self.limits, _SIZE)

    def test_the_same_numbers_as_training_reports(self):
        judges = windows.of_clients(
            self.text, self.clients.held_out, self.limits, _SIZE
        )
        candidates = np.zeros((len(self.places.targets), 1), np.int32)
        for model in self.models.values():
            expected = ngrams.metrics(model, judges)
            predictor = keyboard_ngrams.NGramPredictor(model, self.words)
            found = predictor.predict(self.places, candidates)
            self.assertAlmostEqual(found.losses.mean(), expected["loss"])
            hits = found.suggestions == self.places.targets[:, np.newaxis]
            known = self.places.is_known
            self.assertAlmostEqual(hits[known, 0].mean(), expected["one_suggestion"])
            self.assertAlmostEqual(
                hits[known].any(axis=1).mean(), expected["three_suggestions"]
            )

    def test_a_network_of_the_same_law_says_the_same(self):
        bigram = self.models[metric_names.BIGRAM]
        pairs = np.indices((_SIZE, _SIZE)).reshape(2, -1)
        law = bigram.probability(*pairs).reshape(_SIZE, _SIZE)
        logits = tf.constant(np.log(np.maximum(law, 1e-30)), tf.float32)
        network = keyboard_predictions.NetworkPredictor(
            keyboard_model.KeyboardModel(
                self.words,
                6,
                lambda tokens, at: tf.gather(logits, tf.gather_nd(tokens, at)),
            )
        )
        counted = keyboard_ngrams.NGramPredictor(bigram, self.words)
        random = np.random.default_rng(1)
        wanted = random.integers(1, _SIZE, (len(self.places.targets), 4), np.int32)
        ours, theirs = (p.predict(self.places, wanted) for p in (counted, network))
        for name in ("losses", "confidence", "candidates"):
            np.testing.assert_allclose(
                getattr(ours, name), getattr(theirs, name), rtol=1e-4, err_msg=name
            )
        np.testing.assert_array_equal(ours.best, theirs.best)
        np.testing.assert_array_equal(ours.suggestions, theirs.suggestions)
        contexts = [np.array(c) for c in ([2], [2, 5], [2, 7, 1], [4] * 9)]
        ours, theirs = (p.next_words(contexts) for p in (counted, network))
        np.testing.assert_array_equal(ours[0], theirs[0])
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5)

    def test_a_trigram_looks_at_two_tokens(self):
        trigram = self.models[metric_names.TRIGRAM]
        predictor = keyboard_ngrams.NGramPredictor(trigram, self.words)
        words, shares = predictor.next_words([np.array([2]), np.array([2, 8, 5, 7])])
        for word, share, (before, last) in zip(
            words, shares, ((0, 2), (5, 7)), strict=True
        ):
            law = trigram.probability(
                np.full(_SIZE, before * _SIZE + last), np.arange(_SIZE)
            )
            self.assertEqual(word, 4 + np.argmax(law[4:]))
            self.assertAlmostEqual(share, law[word])

    def test_the_law_of_a_language_says_what_reports_say(self):
        language = synthetic_sentences.SyntheticLanguage(
            [f"w{i}" for i in range(9)],
            1 / np.arange(1, 10),
            population_options.LanguageOptions(
                mean_sentence_words=4, context_words=5, num_followers=2
            ),
            seed=3,
        )
        law = language_law.LanguageLaw.of(language, self.words)
        judges = windows.of_clients(
            self.text, self.clients.held_out, self.limits, _SIZE
        )
        expected = best_possible.at_places(law, judges, self.limits.max_words)
        predictor = keyboard_ngrams.LawPredictor(law, self.words)
        candidates = np.zeros((len(self.places.targets), 1), np.int32)
        found = predictor.predict(self.places, candidates)
        self.assertAlmostEqual(found.losses.mean(), expected["loss"])
        # After five words there is a place for an end alone.
        is_sure = self.places.columns == 5
        self.assertGreater(np.count_nonzero(is_sure), 0)
        np.testing.assert_array_equal(found.losses == 0, is_sure)
        known = self.places.is_known
        for name, words in (
            ("top1_in_vocabulary", found.best),
            ("one_suggestion", found.suggestions[:, 0]),
        ):
            hits = words == self.places.targets
            self.assertAlmostEqual(hits[known].mean(), expected[name], msg=name)


if __name__ == "__main__":
    absltest.main()
