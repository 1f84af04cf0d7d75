"""Tests of the server's settings, and of the plan that they make."""

import math

from absl.testing import absltest, parameterized

from federated_hh.privacy.dp_ftrl import (
    blt,
    correlated_noise,
    model_updates,
    toeplitz,
    update_noise,
)
from federated_hh.rounds import timers
from training.federated import dp_ftrl_parameters as lib

_TREE, _GAUSSIAN, _NONE, _BLT, _BANDED = lib.Mechanism
_MATRIX = blt.Blt((0.02, 0.3), (0.12, 0.33))


def parameters(**options):
    values = dict(
        mechanism=_TREE,
        cohort_size=6500,
        num_rounds=1000,
        noise_multiplier=7.0,
        clip_norm=5.0,
    )
    return lib.ServerParameters(**values | options)


class PlanTest(parameterized.TestCase):
    def test_mechanisms(self):
        adaptive = lib.AdaptiveClip(count_stddev=9.0)
        common = dict(num_rounds=1000, clip_norm=5.0)
        noise = dict(common, noise_multiplier=7.0, adaptive_clip=adaptive)
        for settings, expected in (
            (
                parameters(adaptive_clip=adaptive, restart_rounds=(8,)),
                update_noise.TreeNoise(**noise, restart_rounds=(8,)),
            ),
            (
                parameters(mechanism=_GAUSSIAN, adaptive_clip=adaptive),
                update_noise.GaussianNoise(**noise),
            ),
            (
                parameters(
                    mechanism=_BLT,
                    adaptive_clip=adaptive,
                    restart_rounds=(8,),
                    matrix=_MATRIX,
                ),
                correlated_noise.BltNoise(**noise, restart_rounds=(8,), matrix=_MATRIX),
            ),
            (
                parameters(mechanism=_BANDED, matrix=toeplitz.SquareRoot(7)),
                correlated_noise.BandedNoise(
                    **noise | {"adaptive_clip": None}, matrix=toeplitz.SquareRoot(7)
                ),
            ),
            (
                parameters(mechanism=_NONE, noise_multiplier=0.0),
                model_updates.NoNoise(**common),
            ),
        ):
            self.assertEqual(settings.update_mechanism(), expected)

    def test_contributions(self):
        sampler = timers.Timers(num_clients=9000, cohort_size=6500, num_rounds=1000)
        none = dict(mechanism=_NONE, noise_multiplier=0.0)
        for settings, expected in (
            (parameters(), model_updates.ClippedUpdate()),
            (parameters(**none), model_updates.ClippedUpdate()),
            (parameters(**none, clip_norm=math.inf), model_updates.Update()),
        ):
            plan = settings.plan(sampler)
            self.assertEqual(plan.contribution, expected)
            self.assertIs(plan.sampler, sampler)


class BadInputTest(parameterized.TestCase):
    @parameterized.parameters(
        (dict(cohort_size=0), "cohort_size is 0"),
        (dict(num_rounds=0), "num_rounds is 0"),
        (
            dict(noise_multiplier=0.0),
            "noise_multiplier is .*; it has to be a finite number above 0",
        ),
        (dict(mechanism=_GAUSSIAN, restart_rounds=(5,)), "never starts anew"),
        (dict(mechanism=_BLT), "matrix is None, which does not go with blt"),
        (dict(matrix=_MATRIX), "matrix is .* does not go with dp_ftrl"),
        (dict(mechanism=_NONE), "noise_multiplier is 7.0; it has to be 0"),
        (
            dict(
                mechanism=_NONE,
                noise_multiplier=0,
                adaptive_clip=lib.AdaptiveClip(count_stddev=1.0),
            ),
            "adaptive_clip is given",
        ),
        (dict(mechanism=_NONE, noise_multiplier=0, clip_norm=0), "clip_norm is 0"),
    )
    def test_parameters(self, options, regex):
        with self.assertRaisesRegex(ValueError, regex):
            parameters(**options)


if __name__ == "__main__":
    absltest.main()
