"""Tests of the options of training: their ranges, and noise from a target."""

import math

import numpy as np
from absl.testing import absltest, parameterized
from scipy import linalg, optimize, stats

from federated_hh.options import option_flags
from federated_hh.options.fields import fields_of
from federated_hh.populations.options.population_options import PopulationOptions
from federated_hh.privacy.dp_ftrl import blt, toeplitz
from federated_hh.rounds import timers
from tests import ROOT
from training.federated import client_update, plans, server_optimizers
from training.federated.options import TrainingOptions
from training.text import examples

_GIVEN = {"cohort_size": 200, "num_rounds": 20, "clip_norm": 1.0, "diurnal": False}


def use_all(**values):
    """Does with options what the program does before it has data."""
    options = TrainingOptions(**_GIVEN | values)
    plans.mechanism(options)
    examples.ClientLimits(options.max_sentences, options.max_words, options.batch_size)
    client_update.LocalTraining(options.client_learning_rate, options.client_epochs)
    plans.sampler(options, 100_000)


def gaussian_delta(rho, epsilon):
    """Returns delta of a Gaussian mechanism of a rho (Balle and Wang 2018)."""
    mu = math.sqrt(2 * rho)
    return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(
        -mu / 2 - epsilon / mu
    )


class TrainingOptionsTest(parameterized.TestCase):
    def test_every_number_has_an_upper_bound(self):
        use_all(adaptive_clip=True)
        of_numbers = {
            name: field
            for name, field in fields_of(TrainingOptions).items()
            if field.kind in (int, float)
        }
        self.assertGreater(len(of_numbers), 25)
        for name, field in of_numbers.items():
            is_int = field.kind is int
            for value in (2**31, 2**63) if is_int else (1e300, math.inf, math.nan):
                mechanism = {"bands": "banded", "blt_buffers": "blt"}.get(name)
                given = {"adaptive_clip": True, name: value}
                given |= {"mechanism": mechanism} if mechanism else {}
                with (
                    self.subTest(f"{name}={value}"),
                    self.assertRaisesRegex(ValueError, rf"^{name}="),
                ):
                    use_all(**given)

    @parameterized.parameters("noise_multiplier", "clipped_count_stddev")
    def test_noise_that_guarantees_nothing_is_refused_by_name(self, name):
        for value in (1e-300, 9.99e-4, 0, -1):
            with (
                self.subTest(value),
                self.assertRaisesRegex(ValueError, rf"{name}=.*\[0\.001, "),
            ):
                TrainingOptions(**_GIVEN | {name: value})
        adaptive = {"adaptive_clip": True, "noise_multiplier": 0.0015}
        TrainingOptions(**_GIVEN | adaptive | {name: 0.001})

    @parameterized.parameters(
        ("dp_ftrl", {}),
        ("dp_ftrl", {"max_participation": 1}),
        ("dp_fedavg", {"min_separation": 4}),
        ("blt", {"min_separation": 4, "blt_buffers": 1}),
        ("banded", {"min_separation": 6, "max_participation": 2, "bands": 3}),
    )
    def test_noise_from_a_target(self, mechanism, limits):
        values = dict(mechanism=mechanism, epsilon=3.0, delta=1e-7, **limits)
        found = plans.mechanism(TrainingOptions(**_GIVEN | values))
        matrix = getattr(found, "matrix", None)
        # By hand: the most that the limits allow. Of 20 rounds, trees of 16 and of 4.
        if mechanism == "dp_fedavg":
            square_sum = 4
        elif matrix is not None:
            values = matrix.coefficients(20)
            columns = linalg.toeplitz(values, np.zeros(20))
            rounds = range(0, 20, 5) if mechanism == "blt" else (0, 7)
            square_sum = np.square(columns[:, rounds].sum(axis=1)).sum()
        elif limits:
            square_sum = 5  # a leaf, and its nodes of 2, 4, 8 and 16 rounds
        else:
            square_sum = sum(20 // size * size**2 for size in (1, 2, 4, 8, 16))
        rho = optimize.brentq(lambda r: gaussian_delta(r, 3.0) - 1e-7, 1e-4, 10)
        expected = math.sqrt(square_sum / (2 * rho))
        places = 5 if matrix is None else 4
        self.assertAlmostEqual(found.noise_multiplier / expected, 1, places=places)

    @parameterized.parameters("dp_ftrl", "blt")
    def test_noise_from_a_target_where_it_restarts_after(self, mechanism):
        restarts = {"first_restart": 7, "restart_period": 8, "adaptive_clip": True}
        restarts["clipped_count_stddev"] = 100.0
        values = dict(mechanism=mechanism, epsilon=3.0, delta=1e-7, **restarts)
        found = plans.mechanism(TrainingOptions(**_GIVEN | values))
        self.assertEqual(found.restart_rounds, (7, 15))
        # By hand, a client in all rounds: noise of 8, of 8 and of 4 of them.
        if mechanism == "dp_ftrl":
            of_8, of_4 = 8 * 1 + 4 * 4 + 2 * 16 + 64, 4 * 1 + 2 * 4 + 16
        else:
            of_8, of_4 = (
                np.square(np.cumsum(found.matrix.coefficients(8)[:rounds])).sum()
                for rounds in (8, 4)
            )
        rho = optimize.brentq(lambda r: gaussian_delta(r, 3.0) - 1e-7, 1e-4, 10)
        expected = math.sqrt((2 * of_8 + of_4) / (2 * rho))
        self.assertAlmostEqual(found.noise_multiplier / expected, 1, places=4)

    @parameterized.parameters(
        # Once in 24 hours of rounds of 10 minutes: 143 rounds between.
        (dict(num_rounds=1000), 1000, 143, 7),
        (dict(num_rounds=1000, min_separation=99), 1000, 99, 10),
        (dict(num_rounds=1000, max_participation=2), 1000, 143, 2),
        # The longest of the blocks 0 to 128, 129 to 628, 629 to 999.
        (
            dict(num_rounds=1000, adaptive_clip=True, restart_period=500),
            500,
            143,
            4,
        ),
    )
    def test_what_the_noise_is_made_for(self, values, rounds, separation, most):
        common = _GIVEN | {"noise_multiplier": 5.0} | values
        found = plans.mechanism(TrainingOptions(mechanism="blt", **common))
        expected = blt.optimal(
            rounds, min_separation=separation, max_participation=most
        )
        self.assertEqual(found.matrix, expected)
        banded = plans.mechanism(TrainingOptions(mechanism="banded", **common))
        self.assertEqual(banded.matrix, toeplitz.SquareRoot(separation + 1))
        self.assertEqual(bool(found.restart_rounds), "adaptive_clip" in values)

    def test_settings_of_what_is_not_chosen(self):
        for values, regex in (
            ({"target_quantile": 0.5}, "^target_quantile=0.5 is a setting of adaptive"),
            ({"clip_learning_rate": 0.2}, "adaptive_clip, without which"),
            ({"clipped_count_stddev": 9.0}, "give both, or neither"),
            ({"first_restart": 128}, "adaptive_clip"),
            ({"restart_period": 1024, "mechanism": "dp_fedavg"}, "adaptive_clip"),
            (
                {"first_restart": 8, "adaptive_clip": True, "mechanism": "dp_fedavg"},
                "^first_restart=8, but mechanism=dp_fedavg has no noise that restarts",
            ),
            (
                {"bands": 3},
                "bands=3 does not apply to mechanism=dp_ftrl, only to banded",
            ),
            ({"bands": 3, "mechanism": "blt"}, "does not apply to mechanism=blt"),
            ({"blt_buffers": 2}, "blt_buffers=2 does not apply to .*, only to blt"),
        ):
            with self.subTest(values), self.assertRaisesRegex(ValueError, regex):
                TrainingOptions(**_GIVEN | values)

    def test_defaults_of_an_adaptive_clip(self):
        given = _GIVEN | {"adaptive_clip": True, "num_rounds": 2000}
        found = plans.mechanism(TrainingOptions(**given))
        adaptive = found.adaptive_clip
        self.assertEqual(adaptive.count_stddev, _GIVEN["cohort_size"] / 20)
        self.assertEqual((adaptive.quantile, adaptive.learning_rate), (0.5, 0.2))
        self.assertEqual(found.restart_rounds, (128, 1152))

    def test_noise_that_a_count_alone_would_spend(self):
        given = _GIVEN | {"cohort_size": 10, "adaptive_clip": True}
        for values in ({}, {"noise_multiplier": 1.0}, {"clipped_count_stddev": 3.5}):
            with self.assertRaisesRegex(
                ValueError, "^adaptive_clip: .* give more by clipped_count_stddev"
            ):
                TrainingOptions(**given | values)
        TrainingOptions(**given, clipped_count_stddev=3.6)
        TrainingOptions(**given, noise_multiplier=0.99)
        # Without a guarantee there is nothing to spend.
        TrainingOptions(**given, mechanism="fedavg")

    def test_noise_that_is_given_or_not(self):
        for values, expected in (({}, 7), (dict(noise_multiplier=2.5), 2.5)):
            found = plans.mechanism(TrainingOptions(**_GIVEN | values))
            self.assertEqual(found.noise_multiplier, expected)
        for values, regex in (
            (dict(epsilon=1.0, noise_multiplier=2.0), "give one of them"),
            (dict(epsilon=1.0, mechanism="fedavg"), "adds no noise"),
            (dict(epsilon=0.0), "epsilon"),
            (dict(epsilon=1e9), "epsilon"),
            (dict(epsilon=1.0, delta=0.0), "delta"),
            (dict(epsilon=1e-6, delta=1e-300, num_rounds=4096), "above the largest"),
            (
                dict(epsilon=0.5, adaptive_clip=True, clipped_count_stddev=0.1),
                "^adaptive_clip: .* by clipped_count_stddev .* or a larger epsilon",
            ),
        ):
            with (
                self.subTest(regex),
                self.assertRaisesRegex(ValueError, regex),
            ):
                plans.mechanism(TrainingOptions(**_GIVEN | values))

    def test_rotated_updates(self):
        given = _GIVEN | {"update_encoding": "rotated"}
        found = plans.contribution(TrainingOptions(**given), 10_000)
        # q = s C / sqrt(5 * 2^11) is 10.
        self.assertAlmostEqual(found.scale, 1011.93, places=2)
        self.assertEqual(found.num_clients, 200)
        found = plans.contribution(TrainingOptions(**given, rounding_scale=7.5), 10)
        self.assertEqual(found.scale, 7.5)
        self.assertIsNone(plans.contribution(TrainingOptions(**_GIVEN), 10))

    @parameterized.parameters("dp_ftrl", "dp_fedavg", "blt")
    def test_noise_for_rotated_updates_from_a_target(self, mechanism):
        # q = 1/4: the norm of an update is more than twice as long.
        options = TrainingOptions(
            **_GIVEN
            | dict(
                mechanism=mechanism,
                epsilon=3.0,
                delta=1e-7,
                min_separation=4,
                update_encoding="rotated",
                rounding_scale=25.0,
            )
        )
        plan = plans.plan(options, 10_000, 10_000)
        self.assertGreater(plan.contribution.norm_factor, 2)
        guarantee, *_ = plan.statement(None, 1e-7).guarantees
        self.assertBetween(guarantee.epsilon, 2.999, 3.0 + 1e-9)

    @parameterized.parameters(
        (dict(clip_norm=None, mechanism="fedavg"), "needs clip_norm"),
        (dict(adaptive_clip=True), "adaptive_clip.*fixed clip norm"),
        (
            dict(update_encoding="exact", rounding_scale=3.0),
            "rounding_scale=3.0 does not apply",
        ),
        (dict(rounding_scale=1e20), r"rounding_scale=1e\+20.*at most.*64-bit"),
        (dict(rounding_scale=1e-3), "rounding_scale=0.001.*at least 3.16"),
    )
    def test_rotated_updates_that_do_not_fit(self, values, regex):
        given = _GIVEN | {"update_encoding": "rotated"} | values
        with self.assertRaisesRegex(ValueError, regex):
            plans.mechanism(TrainingOptions(**given), 10_000)

    def test_rotated_updates_need_the_models_size(self):
        options = TrainingOptions(**_GIVEN, update_encoding="rotated")
        with self.assertRaisesRegex(ValueError, "num_values is None"):
            plans.mechanism(options)

    @parameterized.parameters(
        ({}, server_optimizers.Sgdm(1.0, 0.9)),
        (dict(momentum=0.5), server_optimizers.Sgdm(1.0, 0.5)),
        (dict(server_optimizer="adam"), server_optimizers.Adam(1.0, 0.9, 0.99, 1e-3)),
        (
            dict(
                server_optimizer="yogi",
                server_learning_rate=0.1,
                server_beta1=0.8,
                server_beta2=0.95,
                server_epsilon=1e-5,
            ),
            server_optimizers.Yogi(0.1, 0.8, 0.95, 1e-5),
        ),
    )
    def test_server_optimizers(self, values, expected):
        options = TrainingOptions(**_GIVEN | values)
        self.assertEqual(options.optimizer(), expected)

    def test_average_of_models(self):
        for out_of_range in (0.0, 1.0):
            with self.assertRaisesRegex(ValueError, r"model_average=.* in \(0, 1\)"):
                TrainingOptions(**_GIVEN | {"model_average": out_of_range})

    @parameterized.parameters(
        dict(momentum=0.9, server_optimizer="adam"),
        dict(server_beta1=0.9),
        dict(server_beta2=0.9),
        dict(server_epsilon=0.1),
    )
    def test_settings_of_another_optimizer(self, **values):
        (name, value), *_ = values.items()
        with self.assertRaisesRegex(
            ValueError, rf"^{name}={value} does not apply to server_optimizer="
        ):
            TrainingOptions(**_GIVEN | values)

    def test_the_flagfile_of_stack_overflow(self):
        # Of 342,477 clients of its split, 1,000 are held out.
        flagfile = f"--flagfile={ROOT / 'configs/training_stackoverflow.flagfile'}"
        lines = (flagfile, "--population=stackoverflow.sqlite")
        found = option_flags.read_lines(TrainingOptions, lines)
        plans.mechanism(found)
        rule = plans.sampler(found, 342_477 - found.num_held_out_clients)
        self.assertEqual((rule.cohort_size, rule.min_separation), (500, 600))
        population = option_flags.read_lines(PopulationOptions, lines)
        self.assertEqual(
            (population.split, population.text_column), ("train", "tokens")
        )

    def test_rules_reach_the_simulation(self):
        rule = plans.sampler(TrainingOptions(**_GIVEN), 1000)
        self.assertIsInstance(rule, timers.Timers)
        self.assertEqual((rule.cohort_size, rule.num_rounds), (200, 20))


if __name__ == "__main__":
    absltest.main()
