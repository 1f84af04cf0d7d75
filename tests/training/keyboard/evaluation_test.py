"""Tests of models on a keyboard: a language whose law is known, tried word by word."""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from federated_hh.populations import vocabulary
from federated_hh.populations.columns import client_text
from training.baselines import ngrams
from training.keyboard import compose as keyboard_compose
from training.keyboard import evaluation as keyboard_evaluation
from training.keyboard import layout as keyboard_layout
from training.keyboard import model as keyboard_model
from training.keyboard import ngrams as keyboard_ngrams
from training.keyboard import options as keyboard_options
from training.keyboard import predictions as keyboard_predictions
from training.keyboard import target_positions as keyboard_places
from training.keyboard import typing_model as keyboard_typing
from training.keyboard import user as keyboard_user
from training.models import evaluation

_WORDS = ("so", "to", "we", "then", "when", "a")
_NUM_TOKENS = 4 + len(_WORDS)
_SIZES = [0] * 4 + [len(word) for word in _WORDS]
_EOS, _BOS = 3, 2


def _markov(law, length=8):
    """The model that knows the law of the next token given the last one alone."""
    logits = tf.constant(np.log(np.maximum(law, 1e-12)), tf.float32)

    def logits_at(tokens, places):
        return tf.gather(logits, tf.gather_nd(tokens, places))

    words = vocabulary.Vocabulary(_WORDS)
    model = keyboard_model.KeyboardModel(words, length, logits_at)
    return keyboard_predictions.NetworkPredictor(model)


def _random_law(seed, concentration=0.4):
    random = np.random.default_rng(seed)
    law = random.dirichlet(np.full(_NUM_TOKENS, concentration), _NUM_TOKENS)
    law[:, [0, 2]] = 0
    return law / law.sum(axis=1, keepdims=True)


def _rows(law, clients, sentences, seed=0, most=12):
    """Sentences of the law, of a word at least; longer ones than `most` are cut."""
    random = np.random.default_rng(seed)
    rows = []
    for client in range(clients):
        written = []
        while len(written) < sentences:
            words, last = [], _BOS
            while len(words) < most:
                last = int(random.choice(_NUM_TOKENS, p=law[last]))
                if last == _EOS:
                    break
                words.append(last)
            if words:
                written.append(words)
        rows.append((f"c{client}", written))
    return rows


class KeyboardEvaluationTest(parameterized.TestCase):
    def _task(self, rows, max_words=7, user=None, compose=None, **touches):
        text = client_text.ClientText.from_rows(
            self.create_tempdir().full_path + "/text", rows
        )
        compose = compose or keyboard_options.ComposeOptions()
        places = keyboard_places.Places.of(
            text, np.arange(len(rows)), 256, max_words, compose.compose_words - 1
        )
        prior = np.log([1e-30] * 4 + [1 / len(_WORDS)] * len(_WORDS))
        typist = keyboard_typing.TouchTypist(
            vocabulary.Vocabulary(_WORDS),
            keyboard_layout.KeyboardLayout.built_in(),
            keyboard_options.TouchOptions(**touches),
            prior,
        )
        options = user or keyboard_options.UserOptions()
        return keyboard_evaluation.Task.of(
            places, typist, keyboard_user.SimulatedUser(options), compose, seed=4
        )

    def _continuation(self, law, token, threshold, most):
        """The longest greedy continuation that is sure enough, tried word by word."""
        words, confidence = [], 1.0
        while len(words) < most:
            best = max(range(4, _NUM_TOKENS), key=lambda t: law[token][t])
            confidence *= law[token][best]
            if confidence < threshold:
                break
            words.append(best)
            token = best
        return words

    @parameterized.parameters((5, 0.5, 3), (1, 0.35, 2), (3, 0.3, 4), (7, 0.4, 1))
    def test_every_number_word_by_word(self, seed, threshold, most):
        law = _random_law(seed)
        rows = _rows(law, clients=3, sentences=12, seed=seed)
        max_words = 7
        user = keyboard_options.UserOptions(
            attention=0.7, quick_letters=2, quick_attention=0.25
        )
        compose = keyboard_options.ComposeOptions(
            compose_words=most, compose_threshold=threshold, lowest_threshold=0.3
        )
        task = self._task(rows, max_words, user, compose)
        found = task.evaluate(_markov(law)).scores

        def picks(characters):
            return 0.25 if characters <= 2 else 0.7

        expected = [dict.fromkeys(found.sums, 0.0) for _ in rows]
        for sums, (_, sentences) in zip(expected, rows, strict=True):
            for sentence in sentences:
                whole = [*sentence, _EOS]
                places = zip([_BOS, *sentence], whole, strict=True)
                for at, (last, target) in enumerate(places):
                    if at > max_words or (at == max_words and target != _EOS):
                        break
                    sums["places"] += 1
                    sums["loss"] -= np.log(law[last][target])
                    offered = self._continuation(law, last, threshold, most)
                    if offered:
                        right = whole[at : at + len(offered)] == offered
                        letters = " ".join(_WORDS[t - 4] for t in offered)
                        sums["offers"] += 1
                        sums["triggers"] += target != _EOS
                        sums["compose_words"] += len(offered)
                        sums["compose_right"] += right
                        sums["compose_picks"] += right * picks(len(letters))
                    if target == _EOS:
                        continue
                    sums["words"] += 1
                    if target < 4:
                        continue
                    sums["word_places"] += 1
                    order = sorted(range(4, _NUM_TOKENS), key=lambda t: -law[last][t])
                    shown = target in order[:3]
                    sums["top1_in_vocabulary"] += target == np.argmax(law[last])
                    sums["one_suggestion"] += target == order[0]
                    sums["three_suggestions"] += shown
                    sums["picks"] += shown * picks(_SIZES[target])
                    sums["keystrokes"] += _SIZES[target] + 1
                    sums["keystrokes_saved"] += (
                        shown * picks(_SIZES[target]) * _SIZES[target]
                    )
        for name in found.sums:
            if name == "typed" or name.startswith("modified"):
                continue  # keyboard_typing_test has these
            np.testing.assert_allclose(
                found.sums[name],
                [sums[name] for sums in expected],
                rtol=1e-5,
                err_msg=name,
            )
        totals = {name: sums.sum() for name, sums in found.sums.items()}
        self.assertTrue(5 < totals["triggers"] < totals["offers"])

    def test_the_same_numbers_as_training_reports(self):
        law = _random_law(5)
        task = self._task(_rows(law, clients=4, sentences=9))
        model = _markov(law)
        metrics = task.evaluate(model).scores.metrics()
        places = task.places
        at = np.stack([places.rows, places.columns], axis=1)
        logits = model.model.logits_at(tf.constant(places.inputs), tf.constant(at))
        sums = evaluation.sums_of_batch(logits, tf.constant(places.targets))
        expected = evaluation.metrics_of_sums({k: v.numpy() for k, v in sums.items()})
        for name, value in expected.items():
            self.assertAlmostEqual(metrics[name], value, places=5)

    def test_a_user_who_draws_picks_as_often_as_is_expected(self):
        law = _random_law(6)
        user = keyboard_options.UserOptions(attention=0.5, quick_attention=0.1)
        task = self._task(_rows(law, 5, 200), user=user)
        found = task.evaluate(_markov(law)).scores
        random = np.random.default_rng(0)
        picked = words = 0
        for _, sentences in _rows(law, 5, 200):
            for sentence in sentences:
                for last, target in itertools.pairwise([_BOS, *sentence[:7]]):
                    words += 1
                    best = np.argsort(-law[last][4:], kind="stable")[:3] + 4
                    picked += target in best and random.random() < (
                        0.5 if _SIZES[target] > 3 else 0.1
                    )
        self.assertEqual(found.sums["words"].sum(), words)
        rate = found.metrics()["picked_rate"]
        self.assertAlmostEqual(
            picked / words, rate, delta=4 * np.sqrt(rate * (1 - rate) / words)
        )

    def test_offers_after_a_last_word(self):
        # <bos> so, so to and to we are likely, after we another word or the end.
        law = np.full((_NUM_TOKENS, _NUM_TOKENS), 0.01)
        for last, following, share in ((_BOS, 4, 0.8), (4, 5, 0.9), (5, 6, 0.7)):
            law[last, following] = share
        law /= law.sum(axis=1, keepdims=True)
        user = keyboard_options.UserOptions(attention=1.0, quick_attention=1.0)
        compose = keyboard_options.ComposeOptions(compose_words=1)
        # so to <end>: so, to, and we after the end. so <end>: so, and to after the end.
        # so to we, cut before its end: so, to, we. <oov> <end>: so, and no more.
        rows = [("one", [[4, 5], [4]]), ("two", [[4, 5, 6, 6], [1]])]
        task = self._task(rows, 3, user, compose)
        found = task.evaluate(_markov(law))
        sums = {name: value.tolist() for name, value in found.scores.sums.items()}
        self.assertEqual(sums["offers"], [5, 4])
        self.assertEqual(sums["triggers"], [3, 4])
        self.assertEqual(sums["words"], [3, 4])
        self.assertEqual(sums["compose_right"], [3, 3])
        self.assertEqual(sums["compose_picks"], [3, 3])
        metrics = found.scores.metrics()
        self.assertEqual(metrics["trigger_rate"], 1.0)
        self.assertEqual(metrics["compose_accuracy"], 6 / 9)
        self.assertEqual(metrics["compose_picked_rate"], 6 / 9)
        curve = found.curve.set_index("threshold").loc[0.5]
        self.assertEqual(curve["trigger_rate"], 1.0)
        self.assertEqual(curve["compose_accuracy"], 6 / 9)
        self.assertEqual(curve["compose_picked_rate"], 6 / 9)
        # Two of three offers are right, so a threshold for more has to leave some out:
        # what is left above that of we is so, four times, and to, three times.
        options = keyboard_options.ComposeOptions(
            compose_words=1, compose_picked_rate=0.7
        )
        found = self._task(rows, 3, user, options).evaluate(_markov(law))
        self.assertGreater(found.threshold, law[5, 6])
        self.assertEqual(found.scores.metrics()["compose_picked_rate"], 5 / 7)

    def test_offers_of_two_words(self):
        # To follows <bos>, and a follows to and itself.
        law = np.full((_NUM_TOKENS, _NUM_TOKENS), 0.001)
        law[_BOS, 5] = law[5, 9] = law[9, 9] = law[4, 9] = 0.9
        law /= law.sum(axis=1, keepdims=True)
        user = keyboard_options.UserOptions(
            attention=0.5, quick_letters=2, quick_attention=0.25
        )
        compose = keyboard_options.ComposeOptions(compose_words=2)
        task = self._task([("one", [[4, 9], [5, 9, 9]])], 3, user, compose)
        sums = task.evaluate(_markov(law)).scores.sums
        # To a, which so a is not, though its second word is; a a twice, where only one
        # more follows or the end; to a; a a; and two more a a.
        self.assertEqual(sums["compose_words"], 2 * 7)
        self.assertEqual(sums["compose_right"], 2)
        # Four characters and three: the blank is one of them.
        self.assertEqual(sums["compose_picks"], 0.5 + 0.5)

    def test_a_perfect_model(self):
        # so to we then when a <end>, always.
        law = np.zeros((_NUM_TOKENS, _NUM_TOKENS))
        for last, following in itertools.pairwise([_BOS, *range(4, 10), _EOS]):
            law[last, following] = 1.0
        law[_EOS, _EOS] = law[0, 4] = law[1, 4] = 1.0
        rows = [("one", [list(range(4, 10))] * 3), ("two", [list(range(4, 10))])]
        user = keyboard_options.UserOptions(attention=1.0, quick_attention=1.0)
        task = self._task(rows, user=user, touch_stddev=2.0)
        metrics = task.evaluate(_markov(law)).scores.metrics()
        self.assertAlmostEqual(metrics["loss"], 0, places=5)
        for name in ("one_suggestion", "three_suggestions", "picked_rate"):
            self.assertEqual(metrics[name], 1.0)
        # Of 16 letters and 6 blanks each word's letters are spared.
        self.assertAlmostEqual(metrics["keystrokes_saved"], 15 / 21)
        self.assertEqual(metrics["trigger_rate"], 1.0)
        self.assertEqual(metrics["compose_accuracy"], 1.0)
        self.assertEqual(metrics["compose_picked_rate"], 1.0)
        self.assertGreater(metrics["word_modified_before"], 0.2)
        self.assertEqual(metrics["word_modified_after"], 0.0)

    def test_a_uniform_model(self):
        law = np.full((_NUM_TOKENS, _NUM_TOKENS), 1 / _NUM_TOKENS)
        task = self._task(_rows(_random_law(1), 3, 30), touch_stddev=1.5)
        found = task.evaluate(_markov(law))
        metrics = found.scores.metrics()
        self.assertAlmostEqual(metrics["loss"], np.log(_NUM_TOKENS), places=4)
        self.assertEqual(metrics["trigger_rate"], 0.0)
        self.assertTrue(np.isnan(metrics["compose_accuracy"]))
        # As the prior is uniform too, re-ranking changes nothing.
        self.assertGreater(metrics["word_modified_before"], 0.05)
        self.assertEqual(
            metrics["word_modified_after"], metrics["word_modified_before"]
        )
        # Equal words come by their ids: these are the first three.
        known = task.places.targets[task.places.is_known]
        self.assertAlmostEqual(metrics["three_suggestions"], np.mean(known < 7))

    def test_words_by_frequency_are_the_decoders_own(self):
        task = self._task(_rows(_random_law(2), 3, 30), touch_stddev=0.8)
        prior = np.log([1e-30] * 4 + [1 / len(_WORDS)] * len(_WORDS))
        words = vocabulary.Vocabulary(_WORDS)
        model = keyboard_ngrams.NGramPredictor(ngrams.Unigram(np.exp(prior)), words)
        sums = task.evaluate(model).scores.sums
        np.testing.assert_array_equal(sums["modified_before"], sums["modified_after"])

    def test_words_that_nobody_types_are_modified_of_all(self):
        rows = [("one", [[4, 1, 5], [9]]), ("two", [[1], [8, 8]])]
        model = _markov(_random_law(2))
        exact = self._task(rows, touch_stddev=0.01).evaluate(model).scores
        metrics = exact.metrics()
        # Of seven words two are unknown; the touches of the others leave no doubt.
        for when in ("before", "after"):
            self.assertEqual(metrics[f"word_modified_{when}"], 0)
            self.assertEqual(metrics[f"word_modified_of_all_{when}"], 2 / 7)
        rows = [(client, sentences * 20) for client, sentences in rows]
        sums = self._task(rows, touch_stddev=2.0).evaluate(model).scores.sums
        for when in ("before", "after"):
            modified = sums[f"modified_{when}"]
            self.assertTrue(np.all(modified > 0))
            np.testing.assert_array_equal(
                sums[f"modified_of_all_{when}"] - modified, [20, 20]
            )

    @parameterized.parameters((1.0, 0.6), (0.5, 0.3))
    def test_threshold_for_a_picked_rate(self, attention, wanted):
        law = _random_law(3, 0.3)
        rows = _rows(law, 4, 60)
        user = keyboard_options.UserOptions(
            attention=attention, quick_attention=attention
        )

        def evaluate(**compose):
            options = keyboard_options.ComposeOptions(**compose)
            return self._task(rows, user=user, compose=options).evaluate(_markov(law))

        found = evaluate(compose_picked_rate=wanted)
        self.assertGreaterEqual(found.scores.metrics()["compose_picked_rate"], wanted)
        # The curve has what each threshold has: all that is picked is right.
        self.assertAlmostEqual(
            found.scores.metrics()["compose_accuracy"] * attention,
            found.scores.metrics()["compose_picked_rate"],
        )
        curve = found.curve.set_index("threshold")
        self.assertEqual(curve.index.tolist(), [t / 100 for t in range(30, 100, 5)])
        self.assertTrue(0.3 < found.threshold < 0.95)
        below = curve["compose_picked_rate"][curve.index < found.threshold]
        self.assertTrue(np.all(below < wanted))
        for threshold in (0.3, 0.55):
            metrics = evaluate(compose_threshold=threshold).scores.metrics()
            for name in ("trigger_rate", "compose_accuracy", "compose_picked_rate"):
                self.assertAlmostEqual(curve[name][threshold], metrics[name])
        never = evaluate(compose_picked_rate=1.0)
        self.assertIsNone(never.threshold)
        self.assertEqual(never.scores.metrics()["trigger_rate"], 0)

    def test_counts(self):
        rows = [("one", [[4, 1, 5], [9]]), ("two", [[1]])]
        self.assertEqual(
            self._task(rows, touch_stddev=0.01).counts(),
            {
                "held-out clients": 2,
                "sentences": 3,
                "words": 5,
                "words of the vocabulary": 3,
                "words typed": 3,
                "words left out, without keys": 0,
                "words typed that the decoder proposes": 3,
            },
        )

    def test_options(self):
        for options_class, changes, message in (
            (keyboard_options.UserOptions, {"attention": 1.1}, "attention=1.1"),
            (
                keyboard_options.ComposeOptions,
                {"compose_threshold": 0.2},
                "has to be at least lowest_threshold=0.3",
            ),
            (
                keyboard_options.ComposeOptions,
                {"compose_threshold": 0.5, "compose_picked_rate": 0.1},
                "compose_threshold=0.5 and compose_picked_rate=0.1: give one of them",
            ),
            (
                keyboard_options.ComposeOptions,
                {"lowest_threshold": 0.6},
                "compose_threshold=0.5: has to be at least lowest_threshold=0.6",
            ),
            (keyboard_options.EvaluationOptions, {}, "give model"),
            (
                keyboard_options.EvaluationOptions,
                {"model": ("a", "a")},
                "name each model once",
            ),
            (
                keyboard_options.EvaluationOptions,
                {"model": ("a",), "judges": "all", "prior": "training_clients"},
                "needs judges=held_out",
            ),
        ):
            with self.assertRaisesRegex(ValueError, message):
                options_class(**changes)
        # The threshold that is not used may be any.
        keyboard_options.ComposeOptions(lowest_threshold=0.6, compose_picked_rate=0.1)


class ScoresOfEvaluationTest(absltest.TestCase):
    def test_thresholds(self):
        options = keyboard_options.ComposeOptions(lowest_threshold=0.42)
        self.assertEqual(keyboard_compose.thresholds(options)[:3], [0.42, 0.45, 0.5])


if __name__ == "__main__":
    absltest.main()
