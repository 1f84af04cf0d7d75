"""Tests of the plan that a training run's settings make."""

import math

from absl.testing import absltest, parameterized

from federated_hh.privacy.dp_ftrl import (
    blt,
    correlated_noise,
    model_updates,
    toeplitz,
    update_noise,
)
from training.federated import mechanisms, plans
from training.federated.options import TrainingOptions

_GIVEN = {"cohort_size": 6500, "num_rounds": 1000, "clip_norm": 5.0, "diurnal": False}


class PlanTest(parameterized.TestCase):
    def test_mechanisms(self):
        clip = {"adaptive_clip": True, "clipped_count_stddev": 9.0}
        clip |= {"first_restart": 8, "restart_period": 2000}
        adaptive = update_noise.AdaptiveClip(count_stddev=9.0)
        common = dict(num_rounds=1000, clip_norm=5.0)
        noise = dict(common, noise_multiplier=7.0)
        optimal = blt.optimal(991, min_separation=143, max_participation=7)
        found = {}
        for name, settings, expected in (
            (
                "dp_ftrl",
                clip,
                update_noise.TreeNoise(
                    **noise, adaptive_clip=adaptive, restart_rounds=(8,)
                ),
            ),
            (
                "dp_fedavg",
                {"adaptive_clip": True, "clipped_count_stddev": 9.0},
                update_noise.GaussianNoise(**noise, adaptive_clip=adaptive),
            ),
            (
                "blt",
                clip,
                correlated_noise.BltNoise(
                    **noise, adaptive_clip=adaptive, restart_rounds=(8,), matrix=optimal
                ),
            ),
            (
                "banded",
                {"bands": 7},
                correlated_noise.BandedNoise(**noise, matrix=toeplitz.SquareRoot(7)),
            ),
            ("fedavg", {}, model_updates.NoNoise(**common)),
        ):
            options = TrainingOptions(**_GIVEN, mechanism=name, **settings)
            found[name] = plans.mechanism(options)
            self.assertEqual(found[name], expected)
        self.assertCountEqual(found, mechanisms.BY_NAME)

    @parameterized.parameters(
        ("dp_ftrl", 5.0, model_updates.ClippedUpdate()),
        ("fedavg", 5.0, model_updates.ClippedUpdate()),
        ("fedavg", None, model_updates.Update()),
    )
    def test_contributions(self, mechanism, clip_norm, expected):
        options = TrainingOptions(
            **_GIVEN | {"mechanism": mechanism, "clip_norm": clip_norm}
        )
        plan = plans.plan(options, 9000)
        self.assertEqual(plan.contribution, expected)
        self.assertEqual(plan.sampler, plans.sampler(options, 9000))
        self.assertEqual(plan.mechanism.clip_norm, clip_norm or math.inf)

    def test_no_noise_to_estimate_a_norm_with(self):
        options = TrainingOptions(**_GIVEN, mechanism="fedavg", adaptive_clip=True)
        with self.assertRaisesRegex(
            ValueError, "^adaptive_clip=True is given, but mechanism="
        ):
            plans.mechanism(options)

    def test_too_few_clients(self):
        with self.assertRaisesRegex(ValueError, "100 clients are held out"):
            plans.sampler(TrainingOptions(**_GIVEN), 90)


if __name__ == "__main__":
    absltest.main()
