"""Tests of metrics as ratios of sums, and of their intervals."""

import math

import numpy as np
from absl.testing import absltest

from training.keyboard import evaluation as keyboard_scores
from training.models import metric_names

_SUMS = [
    "loss",
    "places",
    "top1_in_vocabulary",
    "one_suggestion",
    "three_suggestions",
    "word_places",
    "picks",
    "words",
    "keystrokes_saved",
    "keystrokes",
    "offers",
    "triggers",
    "compose_right",
    "compose_picks",
    "modified_before",
    "modified_after",
    "modified_of_all_before",
    "modified_of_all_after",
    "typed",
]


def _scores(judges, **sums):
    zeros = {name: np.zeros(judges) for name in _SUMS}
    return keyboard_scores.Scores(
        zeros | {name: np.asarray(values, float) for name, values in sums.items()}
    )


class ScoresTest(absltest.TestCase):
    def test_ratios_are_of_sums_and_not_means_of_ratios(self):
        scores = _scores(
            2,
            loss=[10, 2],
            places=[4, 4],
            one_suggestion=[1, 0],
            word_places=[2, 6],
            picks=[1.5, 0.5],
            words=[2, 8],
            triggers=[2, 2],
            offers=[3, 3],
            compose_right=[2, 1],
            compose_picks=[1, 0.5],
            modified_after=[0, 3],
            modified_of_all_after=[1, 3],
            typed=[5, 5],
        )
        metrics = scores.metrics()
        self.assertEqual(list(metrics), list(metric_names.KEYBOARD_LABELS))
        self.assertEqual(metrics["loss"], 1.5)
        self.assertEqual(metrics["one_suggestion"], 1 / 8)
        self.assertEqual(metrics["picked_rate"], 0.2)
        self.assertEqual(metrics["trigger_rate"], 0.4)
        self.assertEqual(metrics["compose_accuracy"], 0.5)
        self.assertEqual(metrics["compose_picked_rate"], 0.25)
        self.assertEqual(metrics["word_modified_after"], 0.3)
        self.assertEqual(metrics["word_modified_of_all_after"], 0.4)
        self.assertEqual(metrics["word_modified_before"], 0.0)
        self.assertTrue(math.isnan(metrics["keystrokes_saved"]))

    def test_intervals_of_equal_judges(self):
        scores = _scores(3, picks=[1] * 3, words=[4] * 3)
        found = scores.intervals(np.random.default_rng(0), 250)
        self.assertEqual(found["picked_rate"], (0.25, 0.25))
        self.assertTrue(math.isnan(found["loss"][0]))

    def test_one_judge_tells_nothing(self):
        found = _scores(1, picks=[1], words=[4]).intervals(
            np.random.default_rng(0), 100
        )
        self.assertTrue(all(math.isnan(end) for ends in found.values() for end in ends))

    def test_intervals_are_as_wide_as_the_normal_law_has_them(self):
        judges = 400
        rng = np.random.default_rng(1)
        values = rng.normal(5, 1, judges)
        scores = _scores(judges, loss=values, places=np.ones(judges))
        low, high = scores.intervals(rng, 4000)["loss"]
        half = 1.96 * values.std() / math.sqrt(judges)
        self.assertAlmostEqual(low, values.mean() - half, delta=0.1 * half)
        self.assertAlmostEqual(high, values.mean() + half, delta=0.1 * half)

    def test_as_many_judges_are_drawn_as_there_are(self):
        # Of four, one has what is counted, so it is drawn as Binomial(4, 1/4), whose
        # 97.5% quantile is three times, and 2.5% quantile never.
        scores = _scores(4, loss=[1, 0, 0, 0], places=np.ones(4))
        found = scores.intervals(np.random.default_rng(0), 10_000)
        self.assertEqual(found["loss"], (0.0, 0.75))

    def test_a_judge_is_drawn_with_all_that_is_known_of_it(self):
        # The ratio is 1/2 of every judge, however much each wrote.
        scores = _scores(5, picks=[1, 2, 3, 4, 50], words=[2, 4, 6, 8, 100])
        found = scores.intervals(np.random.default_rng(0), 300)
        self.assertEqual(found["picked_rate"], (0.5, 0.5))


if __name__ == "__main__":
    absltest.main()
