"""Tests of a private run's sizes: limits of a population, noise, and refusals."""

import dataclasses
import math

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy import conversions
from federated_hh.privacy.dp_ftrl import planning
from federated_hh.randomness import integer_noise, streams
from training.federated import options as options_lib
from training.federated import plans, sizing


def _options(**changes) -> options_lib.TrainingOptions:
    settings = {
        "cohort_size": 20,
        "num_rounds": 40,
        "clip_norm": 0.5,
        "diurnal": False,
        "timer_hours": 0,
        "epsilon": 8.0,
    }
    return options_lib.TrainingOptions(**{**settings, **changes})


def _stream(seed: int) -> streams.Stream:
    return streams.Stream(seed, ("sizing test",))


class LimitsTest(parameterized.TestCase):
    @parameterized.product(
        num_clients=(21, 43, 100, 799, 800, 1000),
        over_selection=(1.0, 1.3),
        max_participation=(None, 3, 30),
    )
    def test_all_rounds_find_their_clients_and_spend_what_was_asked(
        self, num_clients, over_selection, max_participation
    ):
        asked = _options(
            over_selection=over_selection, max_participation=max_participation
        )
        if math.ceil(20 * over_selection) > num_clients:
            self.skipTest("fewer clients than a round picks")
        try:
            options = sizing.within_population(asked, num_clients)
            sampler = plans.sampler(options, num_clients)
        except ValueError:
            # Only where the wanted MaxP is too small for so many rounds.
            self.assertLess(max_participation * num_clients, 40 * 20 * over_selection)
            return
        state = sampler.initialize()
        for number in range(options.num_rounds):
            state = sampler.draw(state, number, _stream(3).at(number)).state
        table = state.table
        mechanism = plans.mechanism(options)
        rho = mechanism.observed_zcdp(table.log_clients, table.log_rounds, 40)
        spent = conversions.zcdp_to_epsilon(rho, options.delta)
        self.assertLessEqual(spent, 8 + 1e-9)
        if max_participation is None and over_selection == 1:
            self.assertGreater(spent, 6)

    def test_they_are_the_tightest(self):
        for clients, rounds, want in ((800, 40, (39, 1)), (799, 40, (38, 2))):
            limits = planning.limits_of_population(clients, 20, rounds)
            self.assertEqual((limits.min_separation, limits.max_participation), want)

    def test_at_night_clients_are_found_too(self):
        options = _options(diurnal=True, timer_hours=24)
        options = sizing.within_population(options, 400)
        self.assertEqual(options.min_separation, 14)
        sampler, state = plans.sampler(options, 400), None
        state = sampler.initialize()
        for number in range(options.num_rounds):
            state = sampler.draw(state, number, _stream(4).at(number)).state

    def test_given_limits_stay(self):
        for given in ({"min_separation": 3}, {"epsilon": None}):
            options = _options(**given)
            self.assertIs(sizing.within_population(options, 1000), options)


class NoiseTest(parameterized.TestCase):
    @parameterized.parameters("dp_ftrl", "blt", "banded", "dp_fedavg")
    def test_the_ratio_is_that_of_drawn_noise(self, mechanism):
        options = _options(mechanism=mechanism, min_separation=9)
        made, size = plans.mechanism(options), 4_000
        kind, noise = made.kind, integer_noise.NoiseState()
        unit = made.delta_multiplier(0) * 2.0**32
        total, longest = np.zeros(size), 0.0
        for _ in range(options.num_rounds):
            zeros = np.zeros(size, np.int64)
            noisy, noise = kind.add(zeros, unit, noise, _stream(5))
            total += np.asarray(noisy, np.float64) / 2.0**32
            longest = max(longest, float(np.linalg.norm(total)))
        check = sizing.NoiseCheck.of(options, made, 400, size)
        # The norm of 4,000 normal numbers is within 6% of its mean, but for a chance
        # of 1e-6 in each round.
        self.assertAlmostEqual(longest / (20 * 40) / check.ratio, 1, delta=0.06)

    def test_a_drowned_run_is_told_what_it_needs(self):
        options = sizing.within_population(_options(epsilon=1.0), 1000)
        check = sizing.NoiseCheck.of(options, plans.mechanism(options), 1000, 80_000)
        with self.assertRaisesRegex(ValueError, r"No setting saves it: .*needs about"):
            check.check()
        told = check.help()
        clients = int(told.partition("needs about ")[2].split(" ")[0].replace(",", ""))
        best = check.best(1.0)
        # With so many clients, in cohorts as much larger, it would learn.
        grown = _options(
            mechanism="blt",
            epsilon=1.0,
            cohort_size=round(best.cohort_size * clients / 1000),
            num_rounds=best.num_rounds,
        )
        grown = sizing.within_population(grown, clients)
        enough = sizing.NoiseCheck.of(grown, plans.mechanism(grown), clients, 80_000)
        self.assertAlmostEqual(enough.ratio, sizing.USEFUL, delta=0.01)
        enough.check()
        allowed = dataclasses.replace(options, allow_useless_noise=True)
        dataclasses.replace(check, options=allowed).check()

    def test_long_steps_are_refused_with_a_rate_that_is_not(self):
        options = _options(epsilon=20.0, server_learning_rate=50.0)
        options = sizing.within_population(options, 1000)
        mechanism = plans.mechanism(options)
        check = sizing.NoiseCheck.of(options, mechanism, 1000, 30_000)
        with self.assertRaisesRegex(ValueError, "--server_learning_rate=") as caught:
            check.check()
        told = str(caught.exception).partition("use --server_learning_rate=")[2]
        rate = float(told.partition(". ")[0])
        slower = dataclasses.replace(options, server_learning_rate=rate)
        dataclasses.replace(check, options=slower).check()

    def test_advice_halves_the_noise_at_least(self):
        options = sizing.within_population(_options(), 1000)
        check = sizing.NoiseCheck.of(options, plans.mechanism(options), 1000, 80_000)
        told = check.advice(has_public_text=False)
        ratio = told.partition(". A further run")[0].rpartition(" ")[2]
        self.assertLess(float(ratio), check.ratio / 2)
        self.assertIn("--min_separation=", told)
        quiet = sizing.NoiseCheck.of(options, plans.mechanism(options), 1000, 100)
        self.assertIn("public text", quiet.advice(has_public_text=False))
        self.assertNotIn("public text", quiet.advice(has_public_text=True))

    def test_without_noise_there_is_none(self):
        options = _options(mechanism="fedavg", epsilon=None)
        made = plans.mechanism(options)
        self.assertIsNone(sizing.NoiseCheck.of(options, made, 1000, 100))


class VocabularyTest(parameterized.TestCase):
    def test_many_unknown_words_are_refused(self):
        options = _options()
        self.assertEndsWith(sizing.check_vocabulary(options, 0.97), "vocabulary.")
        with self.assertRaisesRegex(ValueError, r"only 49\.9% of the .*--language"):
            sizing.check_vocabulary(options, 0.499)
        allowed = dataclasses.replace(options, allow_unknown_words=True)
        self.assertIn("49.9% of", sizing.check_vocabulary(allowed, 0.499))


class SensibleTest(parameterized.TestCase):
    @parameterized.parameters(100, 1_092, 3_900)
    def test_few_clients_are_enough_at_night(self, num_clients):
        share = sizing.available_share(True)
        sizes = sizing.sensible(num_clients, share=share)
        options = options_lib.TrainingOptions(**sizes, epsilon=8.0)
        options = sizing.within_population(options, num_clients)
        self.assertGreater(options.min_separation, 0)
        sampler = plans.sampler(options, num_clients)
        state = sampler.initialize()
        for number in range(options.num_rounds):
            state = sampler.draw(state, number, _stream(6).at(number)).state

    def test_a_long_run_is_said_to_be_one(self):
        sizes = sizing.sensible(50_000)
        asked = sizes["cohort_size"] * sizes["num_rounds"]
        most = _options(cohort_size=asked, num_rounds=10)
        self.assertEqual(sizing.long_run(most, 50_000), "")
        more = _options(cohort_size=asked, num_rounds=11)
        self.assertIn("11 times as often", sizing.long_run(more, 50_000))

    @parameterized.parameters(4, 1_092, 9_999, 10_000, 100_000, 10_000_000)
    def test_sizes_fit_the_clients(self, num_clients):
        sizes = sizing.sensible(num_clients)
        self.assertBetween(sizes["cohort_size"], 1, num_clients)
        options = options_lib.TrainingOptions(**sizes, epsilon=8.0)
        options = sizing.within_population(options, num_clients)
        plans.sampler(options, num_clients)
        sizes = sizing.sensible(num_clients, num_rounds=50)
        self.assertEqual(sizes["num_rounds"], 50)


if __name__ == "__main__":
    absltest.main()
