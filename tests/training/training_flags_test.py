"""Tests of the training program's flags: their ranges, and noise from a target."""

import math

from absl import flags
from absl.testing import absltest, flagsaver, parameterized
from scipy import optimize, stats

from rounds import timers
from training import client_update, examples, training_flags

_GIVEN = {"report_goal": 200, "num_rounds": 20, "clip_norm": 1.0, "diurnal": False}


def number_flags():
    """Returns the program's flags that are numbers."""
    found = []
    for flag in flags.FLAGS.get_flags_for_module(training_flags):
        if flag.flag_type() in ("int", "float"):
            found.append(flag.name)
    return found


def use_all():
    """Does with the flags what the program does before it has data."""
    values = flags.FLAGS
    training_flags.server_parameters()
    training_flags.language_options()
    examples.ClientLimits(values.max_sentences, values.max_words, values.batch_size)
    client_update.LocalTraining(values.client_learning_rate, values.client_epochs)
    training_flags.delta()
    training_flags.participation_rule(100_000)


def gaussian_delta(rho, epsilon):
    """Returns delta of a Gaussian mechanism of a rho (Balle and Wang 2018)."""
    mu = math.sqrt(2 * rho)
    return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(
        -mu / 2 - epsilon / mu
    )


class TrainingFlagsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(flagsaver.flagsaver(**_GIVEN))

    def test_every_number_has_an_upper_bound(self):
        self.enter_context(flagsaver.flagsaver(adaptive_clip=True))
        use_all()
        names = number_flags()
        self.assertGreater(len(names), 25)
        for name in names:
            is_int = flags.FLAGS[name].flag_type() == "int"
            for value in (2**31, 2**63) if is_int else ("1e300", "inf", "nan"):
                with (
                    self.subTest(f"{name}={value}"),
                    flagsaver.flagsaver(),
                    self.assertRaises((ValueError, flags.Error)),
                ):
                    flags.FLAGS[name].parse(value)
                    use_all()

    @parameterized.parameters("noise_multiplier", "clipped_count_stddev")
    def test_noise_that_guarantees_nothing_is_refused_by_name(self, name):
        for value in ("1e-300", "9.99e-4", "0", "-1"):
            with (
                self.subTest(value),
                flagsaver.flagsaver(),
                self.assertRaisesRegex(
                    flags.IllegalFlagValueError, rf"--{name}=.*\[0\.001, "
                ),
            ):
                flags.FLAGS[name].parse(value)
        with flagsaver.flagsaver():
            flags.FLAGS[name].parse("0.001")

    @parameterized.parameters(
        ("dp_ftrl", {}),
        ("dp_ftrl", {"max_participation": 1}),
        ("dp_fedavg", {"min_separation": 4}),
    )
    def test_noise_from_a_target(self, mechanism, limits):
        with flagsaver.flagsaver(
            mechanism=mechanism, epsilon=3.0, delta=1e-7, **limits
        ):
            found = training_flags.server_parameters()
        # By hand: the most that the limits allow. Of 20 rounds, trees of 16 and of 4.
        if mechanism == "dp_fedavg":
            square_sum = 4
        elif limits:
            square_sum = 5  # a leaf, and its nodes of 2, 4, 8 and 16 rounds
        else:
            square_sum = sum(20 // size * size**2 for size in (1, 2, 4, 8, 16))
        rho = optimize.brentq(lambda r: gaussian_delta(r, 3.0) - 1e-7, 1e-4, 10)
        expected = math.sqrt(square_sum / (2 * rho))
        self.assertAlmostEqual(found.noise_multiplier / expected, 1, places=5)

    def test_noise_that_is_given_or_not(self):
        self.assertEqual(training_flags.server_parameters().noise_multiplier, 7)
        with flagsaver.flagsaver(noise_multiplier=2.5):
            self.assertEqual(training_flags.server_parameters().noise_multiplier, 2.5)
        for values, regex in (
            (dict(epsilon=1.0, noise_multiplier=2.0), "give one of them"),
            (dict(epsilon=1.0, mechanism="fedavg"), "adds no noise"),
            (dict(epsilon=0.0), "epsilon"),
            (dict(epsilon=1e9), "epsilon"),
            (dict(epsilon=1.0, delta=0.0), "delta"),
            (dict(epsilon=1e-6, delta=1e-300, num_rounds=4096), "above the largest"),
            (
                dict(epsilon=0.5, adaptive_clip=True, clipped_count_stddev=0.1),
                "Raise count_stddev",
            ),
        ):
            with (
                self.subTest(regex),
                flagsaver.flagsaver(**values),
                self.assertRaisesRegex(ValueError, regex),
            ):
                training_flags.server_parameters()

    def test_rules_reach_the_simulation(self):
        rule = training_flags.participation_rule(1000)
        self.assertIsInstance(rule, timers.Timers)
        self.assertEqual((rule.cohort_size, rule.num_rounds), (200, 20))


if __name__ == "__main__":
    absltest.main()
