"""Tests of a round's parts: what each draws from, and what it refuses."""

import dataclasses
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.dp_ftrl import (
    blt,
    correlated_noise,
    model_updates,
    toeplitz,
    update_noise,
)
from federated_hh.privacy.dp_ftrl import plan as training_plan
from federated_hh.privacy.triehh import plan as triehh_plan
from federated_hh.randomness import noise_keys, streams
from federated_hh.rounds import algorithm, samplers, steps, timers

_KEY = noise_keys.NoiseKey(11, is_secret=True)
_OTHER_KEY = noise_keys.NoiseKey(12, is_secret=True)
_MAX_ROUNDS = 3


@dataclasses.dataclass(frozen=True)
class Done:
    """The number of rounds done."""

    rounds: int


class Draws(algorithm.Algorithm[Done, np.ndarray]):
    """Sums what a cohort's clients draw from the round's stream."""

    max_rounds = _MAX_ROUNDS

    def __init__(self, sampler: plan_lib.Sampler):
        self.plan = plan_lib.Plan(
            sampler=sampler,
            contribution=triehh_plan.OneVote(redraws_each_round=True),
            mechanism=triehh_plan.Threshold(3, _MAX_ROUNDS),
        )

    def describe(self):
        return {}

    def initialize(self, repeat):
        return Done(0)

    def next_query(self, state):
        return algorithm.Query(_draw)

    def update(self, state, released):
        return Done(state.rounds + 1), {}


def _draw(cohort, stream):
    return stream.bits("test").bytes(0, 8)


def _steps(key=_KEY, seed=3, sampler=None):
    sampler = sampler or samplers.UniformCohorts(40, 20)
    return steps.Steps(Draws(sampler), seed=seed, noise_key=key)


class AskTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.steps = _steps()
        self.place = self.steps.begin()
        self.query = algorithm.Query(_draw)
        self.cohort = np.arange(20)

    def ask(self, place=None, failed=0):
        return self.steps.ask(place or self.place, self.query, self.cohort, failed)

    def test_the_same_round_draws_the_same(self):
        self.assertEqual(self.ask(), self.ask())

    def test_what_failed_and_what_is_asked_again_draw_anew(self):
        seen = [self.ask(failed=failed) for failed in range(4)]
        self.assertLen(set(seen), 4)

    def test_clients_draw_anew_after_other_sums(self):
        other = dataclasses.replace(self.place, history=bytes(32))
        self.assertNotEqual(self.ask(), self.ask(other))

    def test_repeats_draw_each_its_own(self):
        seen = [self.ask(self.steps.begin(repeat)) for repeat in range(4)]
        self.assertLen(set(seen), 4)

    def test_a_round_that_is_not_planned(self):
        self.ask(dataclasses.replace(self.place, rounds=_MAX_ROUNDS - 1))
        after = dataclasses.replace(self.place, rounds=_MAX_ROUNDS)
        with self.assertRaisesRegex(ValueError, "round 4 is not in the plan"):
            self.ask(after)

    def test_cohorts_of_no_sampler(self):
        for wrong, what in (
            (np.r_[0, 0:19], "a duplicate client"),
            (np.arange(20)[::-1], "not sorted"),
            (np.arange(19), "shape"),
            (np.arange(-1, 19), "from -1 to 18"),
            (np.arange(21, 41), "from 21 to 40"),
        ):
            self.cohort = wrong
            with self.subTest(what), self.assertRaisesRegex(ValueError, what):
                self.ask()
            with (
                self.subTest(f"{what}, drawn"),
                mock.patch.object(
                    samplers.UniformCohorts,
                    "draw",
                    return_value=plan_lib.Draw(wrong, None),
                ),
                self.assertRaisesRegex(ValueError, what),
            ):
                self.steps.draw(self.place)


class DrawTest(absltest.TestCase):
    def cohorts(self, by_hand):
        """Returns the cohorts of the first rounds of two repeats, as text."""
        places = [
            dataclasses.replace(by_hand.begin(repeat), rounds=number)
            for repeat in (0, 1)
            for number in range(_MAX_ROUNDS)
        ]
        return [by_hand.draw(place).cohort.tobytes() for place in places]

    def test_secret_cohorts_follow_from_the_key(self):
        first = self.cohorts(_steps())
        self.assertLen(set(first), 6)
        self.assertEqual(first, self.cohorts(_steps()))
        self.assertNoCommonElements(first, self.cohorts(_steps(_OTHER_KEY)))

    def test_public_cohorts_follow_from_the_seed_alone(self):
        sampler = _PublicCohorts(40, 20)
        first = self.cohorts(_steps(sampler=sampler))
        self.assertLen(set(first), 6)
        self.assertEqual(first, self.cohorts(_steps(_OTHER_KEY, sampler=sampler)))
        other = self.cohorts(_steps(seed=4, sampler=sampler))
        self.assertNoCommonElements(first, other)


class StreamsTest(parameterized.TestCase):
    @parameterized.named_parameters(
        ("tree", update_noise.TreeNoise, {}),
        ("independent", update_noise.GaussianNoise, {}),
        ("blt", correlated_noise.BltNoise, dict(matrix=blt.Blt((0.3,), (0.3,)))),
        ("banded", correlated_noise.BandedNoise, dict(matrix=toeplitz.SquareRoot(2))),
    )
    def test_a_round_of_noisy_updates_draws_from_these_streams(self, kind, options):
        mechanism = kind(
            num_rounds=_MAX_ROUNDS,
            noise_multiplier=1.0,
            clip_norm=1.0,
            adaptive_clip=update_noise.AdaptiveClip(count_stddev=1.0),
            **options,
        )
        by_hand = steps.Steps(Updates(mechanism), seed=3, noise_key=_KEY)
        start = by_hand.begin()
        drawn = []

        def recorded(draw):
            def record(stream, *path):
                drawn.append((stream.path[:2], stream.path[3:], stream.history))
                return draw(stream, *path)

            return record

        for name in ("bits", "seed_sequence", "stateless_seed"):
            draw = recorded(getattr(streams.Stream, name))
            self.enter_context(mock.patch.object(streams.Stream, name, draw))
        query = by_hand._algorithm.next_query(start.state)
        cohort = by_hand.draw(start)
        total = by_hand.ask(start, query, cohort.cohort)
        after = by_hand.update(start, query, cohort, total).progress
        run = ("run", by_hand._identity)
        self.assertNotEqual(start.history, after.history)
        # Of a correlated noise, matrix and scale follow.
        self.assertEqual(
            {(path, rest[:3], history) for path, rest, history in drawn},
            {
                (("repeat", 0), (), b""),
                (run, ("clients",), start.history),
                (run, ("history",), start.history),
                (run, ("release", "mechanism", "updates"), after.history),
                (run, ("release", "mechanism", "counts"), after.history),
            },
        )

    def test_history_follows_from_key_sum_and_past(self):
        def history(key=_KEY, votes=5, past=None):
            by_hand = _steps(key)
            start = by_hand.begin()
            if past is not None:
                start = dataclasses.replace(start, history=past)
            total = np.array([votes, 0])
            query, drawn = algorithm.Query(_draw), by_hand.draw(start)
            return by_hand.update(start, query, drawn, total).progress.history

        self.assertEqual(history(), history())
        others = history(_OTHER_KEY), history(votes=6), history(past=bytes(32))
        self.assertLen({history(), *others}, 4)


class Updates(Draws):
    """Releases updates of two numbers, of which the cohort drew nothing."""

    def __init__(self, mechanism):
        sampler = timers.Timers(num_clients=40, cohort_size=20, num_rounds=_MAX_ROUNDS)
        self.plan = training_plan.plan_of(sampler, mechanism)

    def next_query(self, state):
        def ask(cohort, stream):
            _draw(cohort, stream)
            zeros = {"w": np.zeros(2, np.int64)}
            return model_updates.UpdateSum(zeros, len(cohort), 0, 0)

        return algorithm.Query(ask, {"clip_norm": 1.0})


class _PublicCohorts(samplers.UniformCohorts):
    is_secret = False


if __name__ == "__main__":
    absltest.main()
