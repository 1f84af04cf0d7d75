"""Tests of simulated typing: against the law of touches, and every word tried."""

import math

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.populations import vocabulary
from federated_hh.randomness import streams
from training.keyboard import layout as keyboard_layout
from training.keyboard import options as keyboard_options
from training.keyboard import typing_model as keyboard_typing

_PAIR = keyboard_layout.KeyboardLayout("pair", {"q": (0, 0), "w": (1, 0)})
_WORDS = [
    "to",
    "so",
    "ti",
    "two",
    "too",
    "sip",
    "dip",
    "q",
    "we",
    "was",
    "saw",
    "wqs",
    "don't",
]


def _options(**changes):
    return keyboard_options.TouchOptions(**changes)


def _log_prior(words, probabilities):
    special = np.full(4, 1e-30)
    return np.log(np.concatenate([special, np.asarray(probabilities, float)]))


def _typist(words, probabilities, layout=None, **changes):
    return keyboard_typing.TouchTypist(
        vocabulary.Vocabulary(words),
        layout or keyboard_layout.KeyboardLayout.built_in(),
        _options(**changes),
        _log_prior(words, probabilities),
    )


def _bayes_error(first, distance, stddev):
    """The share of wrong choices of the likelier of two words, by the law of touches.

    Args:
        first: Probability of the first word, typed at 0; the second is at `distance`.
        distance: Between them.
        stddev: Standard deviation of a touch.
    """
    # The first is taken below the threshold where both posteriors are the same.
    threshold = distance / 2 + stddev**2 * math.log(first / (1 - first)) / distance
    above = stats.norm.sf(threshold / stddev)
    below = stats.norm.cdf((threshold - distance) / stddev)
    return first * above + (1 - first) * below


class TouchTypistTest(parameterized.TestCase):
    @parameterized.parameters((0.5, 0.4), (0.8, 0.4), (0.8, 1.0), (0.95, 0.7))
    def test_two_words_are_modified_as_often_as_the_law_says(self, first, stddev):
        size = 20_000
        typist = _typist(["q", "w"], [first, 1 - first], _PAIR, touch_stddev=stddev)
        wanted = np.random.default_rng(1).choice([4, 5], size, p=[first, 1 - first])
        typed = typist.type_words(wanted, np.arange(size) // 50, seed=3)
        error = _bayes_error(first, 1, stddev)
        spread = 4 * math.sqrt(error * (1 - error) / size)
        self.assertAlmostEqual(np.mean(~typed.is_first), error, delta=spread)
        self.assertTrue(typed.is_proposed.all())

    def test_re_ranking_by_the_law_is_as_good_as_knowing_it_from_the_start(self):
        size, stddev = 20_000, 0.7
        typist = _typist(["q", "w"], [0.5, 0.5], _PAIR, touch_stddev=stddev)
        law = np.array([0.9, 0.1])
        wanted = np.random.default_rng(2).choice([4, 5], size, p=law)
        typed = typist.type_words(wanted, np.arange(size) // 50, seed=3)
        before, after = _bayes_error(0.5, 1, stddev), _bayes_error(0.9, 1, stddev)
        said = np.full(typed.candidates.shape, -7.0)
        said[:, :2] = np.log(law[typed.candidates[:, :2] - 4])
        modified = typist.is_modified(typed, wanted, said)
        for found, error in ((~typed.is_first, before), (modified, after)):
            spread = 4 * math.sqrt(error * (1 - error) / size)
            self.assertAlmostEqual(found.mean(), error, delta=spread)

    def _tried(self, typist, words, prior, wanted, client, seed, stddev):
        """Every word of the right length at every place, the best ones first."""
        layout = keyboard_layout.KeyboardLayout.built_in()
        total = sum(len(words[token - 4]) for token in wanted)
        errors = streams.generator(seed, "touches", client).standard_normal((total, 2))
        for token in wanted:
            word = words[token - 4]
            error, errors = errors[: len(word)], errors[len(word) :]
            hits = layout.centers_of(word) + stddev * error
            scores = {}
            for other in words:
                if len(other) != len(word):
                    continue
                law = stats.norm(layout.centers_of(other), stddev)
                likelihood = law.logpdf(hits).sum()
                scores[4 + words.index(other)] = (
                    likelihood + math.log(prior[words.index(other)]),
                    likelihood,
                )
            order = sorted(scores, key=lambda t: -scores[t][0])
            yield order, [scores[t][1] for t in order]

    @parameterized.parameters((0, 3), (1, 2), (2, 20))
    def test_candidates_are_the_best_of_all_words_tried(self, seed, k):
        random = np.random.default_rng(seed)
        prior = random.dirichlet(np.ones(len(_WORDS)))
        stddev = 0.9
        typist = _typist(_WORDS, prior, touch_stddev=stddev, num_candidates=k)
        wanted = random.integers(4, 4 + len(_WORDS), 60)
        clients = np.repeat([2, 7], 30)
        typed = typist.type_words(wanted, clients, seed)
        np.testing.assert_array_equal(typed.places, np.arange(60))
        for client in (2, 7):
            rows = np.flatnonzero(clients == client)
            tried = self._tried(
                typist, _WORDS, prior, wanted[rows], client, seed, stddev
            )
            for row, (order, likelihoods) in zip(rows, tried, strict=True):
                count = min(k, len(order))
                self.assertEqual(typed.candidates[row, :count].tolist(), order[:count])
                found = typed.touches[row, :count]
                np.testing.assert_allclose(
                    found - found[0], np.array(likelihoods[:count]) - likelihoods[0]
                )
                self.assertTrue(np.all(np.isneginf(typed.touches[row, count:])))
                self.assertEqual(typed.is_first[row], order[0] == wanted[row])
                self.assertEqual(typed.is_proposed[row], wanted[row] in order[:count])

    def test_limits_of_models(self):
        random = np.random.default_rng(0)
        prior = random.dirichlet(np.ones(len(_WORDS)))
        changes = dict(touch_stddev=1.2, num_candidates=2)
        typist = _typist(_WORDS, prior, **changes)
        wanted = random.integers(4, 4 + len(_WORDS), 300)
        typed = typist.type_words(wanted, np.zeros(300, int), 1)
        self.assertTrue(0 < typed.is_first.mean() < typed.is_proposed.mean() < 1)
        # One that knows the word: what is left are words that were not proposed.
        right = typed.candidates == wanted[:, np.newaxis]
        knowing = np.where(right, 0.0, -1e9)
        np.testing.assert_array_equal(
            typist.is_modified(typed, wanted, knowing), ~typed.is_proposed
        )
        # One that knows nothing, but takes the prior's place: the nearest keys win.
        nothing = np.full(typed.candidates.shape, -3.0)
        nearest = np.take_along_axis(
            typed.candidates, typed.touches.argmax(axis=1)[:, np.newaxis], axis=1
        )[:, 0]
        np.testing.assert_array_equal(
            typist.is_modified(typed, wanted, nothing), nearest != wanted
        )
        # Without weight it is not heard, and at half of it stands between.
        deaf = _typist(_WORDS, prior, model_weight=0.0, **changes)
        np.testing.assert_array_equal(
            deaf.is_modified(typed, wanted, knowing), ~typed.is_first
        )

    def test_half_a_weight(self):
        typist = _typist(
            ["q", "w"], [0.9, 0.1], _PAIR, touch_stddev=0.5, model_weight=0.5
        )
        wanted = np.full(4000, 5)
        typed = typist.type_words(wanted, np.zeros(4000, int), 1)
        said = np.log(np.where(typed.candidates == 5, 0.9, 0.1))
        said[:, 2:] = 0.0
        # Prior and model are opposite: together they say nothing, and touches decide.
        error = stats.norm.sf(0.5 / 0.5)
        self.assertAlmostEqual(
            typist.is_modified(typed, wanted, said).mean(), error, delta=0.03
        )

    def test_touches_are_a_clients_own(self):
        prior = np.full(len(_WORDS), 1 / len(_WORDS))
        typist = _typist(_WORDS, prior, touch_stddev=0.8)
        wanted = np.random.default_rng(0).integers(1, 4 + len(_WORDS), 90)
        clients = np.repeat([0, 3, 4], 30)
        all_three = typist.type_words(wanted, clients, 5)
        # Special tokens are no words.
        np.testing.assert_array_equal(all_three.places, np.flatnonzero(wanted >= 4))
        one = typist.type_words(wanted[30:60], clients[30:60], 5)
        rows = clients[all_three.places] == 3
        np.testing.assert_allclose(all_three.touches[rows], one.touches)
        np.testing.assert_array_equal(all_three.candidates[rows], one.candidates)
        other = typist.type_words(wanted[30:60], clients[30:60], 6)
        self.assertFalse(np.array_equal(one.touches, other.touches))
        none = typist.type_words(np.array([1, 3]), np.array([0, 0]), 5)
        self.assertEqual((len(none.places), none.candidates.shape), (0, (0, 10)))

    def test_words_without_keys(self):
        words, prior = ["to", "на"], [0.5, 0.5]
        with self.assertRaisesRegex(ValueError, "no key for 'н' .*the word 'на'"):
            _typist(words, prior)
        typist = _typist(words, prior, unkeyed_words="leave_out")
        typed = typist.type_words(np.array([5, 4, 5]), np.zeros(3, int), 0)
        self.assertEqual(typed.places.tolist(), [1])
        self.assertEqual(typed.candidates[0].tolist(), [4] + [0] * 9)
        with self.assertRaisesRegex(ValueError, "can type no word"):
            _typist(["на"], [1.0], unkeyed_words="leave_out")
        with self.assertRaisesRegex(ValueError, r"log_prior has the shape \(5,\)"):
            _typist(["to", "so"], [1.0])


if __name__ == "__main__":
    absltest.main()
