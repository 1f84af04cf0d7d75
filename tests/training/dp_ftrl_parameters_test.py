"""Tests of the server's parameters, and of the guarantee that follows from them."""

import fractions
import math

from absl.testing import absltest, parameterized

from training import dp_ftrl_parameters as lib

_TREE, _GAUSSIAN, _NONE = lib.Mechanism


def parameters(**options):
    values = dict(
        mechanism=_TREE,
        report_goal=6500,
        num_rounds=1000,
        noise_multiplier=7.0,
        clip_norm=5.0,
    )
    return lib.ServerParameters(**values | options)


class GuaranteeTest(parameterized.TestCase):
    # Xu et al. 2023, Tables 1 and 2: rounds, MinS, MaxP and zCDP, to its 2 decimals.
    @parameterized.parameters(
        (930, 212, 4, 0.48),
        (530, 54, 8, 1.86),
        (1290, 170, 6, 1.14),
        (2800, 371, 7, 1.31),
        (870, 327, 3, 0.32),
        (430, 54, 7, 0.99),
    )
    def test_tables(self, rounds, min_separation, max_participation, expected):
        found = parameters(num_rounds=rounds).zcdp(
            rounds, min_separation, max_participation
        )
        self.assertEqual(round(found, 2), expected)

    @parameterized.parameters(0.3, 1.0, 7.0, 500.0)
    def test_the_two_noises_make_one_mechanism(self, z):
        adaptive = lib.AdaptiveClip(count_stddev=6500 / 20)
        z_delta = parameters(
            noise_multiplier=z, adaptive_clip=adaptive
        ).delta_noise_multiplier
        self.assertGreater(z_delta, z)
        # Sensitivity 1 on the updates (for clip norm 1) and 1/2 on the counts.
        square = (1 / z_delta) ** 2 + (0.5 / adaptive.count_stddev) ** 2
        self.assertAlmostEqual(square, 1 / z**2)
        self.assertEqual(parameters(noise_multiplier=z).delta_noise_multiplier, z)

    def test_restarts(self):
        # By hand: a client in rounds 0 and 3. One tree of 4 rounds has the nodes {0},
        # {3}, {0, 1}, {2, 3}, {0..3}: 1 + 1 + 1 + 1 + 4. Trees of rounds 0 to 2 and 3
        # have {0}, {0, 1} and {3}: 1 + 1 + 1.
        plain, restarted = (
            parameters(num_rounds=4, noise_multiplier=1.0, restart_rounds=restarts)
            for restarts in ((), (2,))
        )
        self.assertAlmostEqual(plain.zcdp(4, 2, 2), 8 / 2)
        self.assertAlmostEqual(restarted.zcdp(4, 2, 2), 3 / 2)
        # Before the restart there is one tree, as without it.
        self.assertEqual(restarted.zcdp(3, 0, 3), plain.zcdp(3, 0, 3))

    def test_other_mechanisms(self):
        gaussian = parameters(mechanism=_GAUSSIAN, noise_multiplier=2.0)
        self.assertAlmostEqual(gaussian.zcdp(1000, 99, 4), 4 / (2 * 2.0**2))
        self.assertAlmostEqual(gaussian.zcdp(150, 99, 4), 2 / (2 * 2.0**2))
        none = parameters(mechanism=_NONE, noise_multiplier=0.0, clip_norm=math.inf)
        self.assertEqual(none.zcdp(1000, 99, 4), math.inf)

    def test_rho_grows_with_the_rounds(self):
        run = parameters(num_rounds=400, restart_rounds=(128,))
        spent = [run.zcdp(rounds, 20, 10) for rounds in range(1, 401, 7)]
        # The float64 that is nearest from above, or equal.
        self.assertGreaterEqual(fractions.Fraction(spent[0]), fractions.Fraction(1, 98))
        self.assertLess(math.nextafter(spent[0], 0), fractions.Fraction(1, 98))
        self.assertGreater(spent[-1], spent[0])


class BadInputTest(parameterized.TestCase):
    @parameterized.parameters(
        (dict(report_goal=0), "report_goal is 0"),
        (dict(num_rounds=0), "num_rounds is 0"),
        (dict(server_learning_rate=0.0), "server_learning_rate is 0"),
        (dict(momentum=1.0), r"momentum is 1.0, must be in \[0, 1\)"),
        (dict(noise_multiplier=0.0), "noise_multiplier is 0.0, must be above 0"),
        (dict(clip_norm=math.inf), "clip_norm is inf"),
        (dict(clip_norm=1e-320), "clip_norm is 1e-320, must be at least 1e-15"),
        (dict(restart_rounds=(5, 5)), "strictly increasing"),
        (dict(restart_rounds=(999,)), "restart_rounds"),
        (dict(mechanism=_GAUSSIAN, restart_rounds=(5,)), "has no tree"),
        (dict(mechanism=_NONE), "noise_multiplier is 7.0, must be 0"),
        (
            dict(
                mechanism=_NONE,
                noise_multiplier=0,
                adaptive_clip=lib.AdaptiveClip(count_stddev=1.0),
            ),
            "adaptive_clip is given",
        ),
        (dict(mechanism=_NONE, noise_multiplier=0, clip_norm=0), "clip_norm is 0"),
        (
            dict(adaptive_clip=lib.AdaptiveClip(count_stddev=3.5)),
            "must be below 7, twice the noise",
        ),
    )
    def test_parameters(self, options, regex):
        with self.assertRaisesRegex(ValueError, regex):
            parameters(**options)

    @parameterized.parameters(
        (dict(count_stddev=0.0), "count_stddev is 0"),
        (dict(count_stddev=1.0, quantile=1.0), "quantile is 1"),
        (dict(count_stddev=1.0, learning_rate=math.nan), "learning_rate is nan"),
    )
    def test_adaptive_clip(self, options, regex):
        with self.assertRaisesRegex(ValueError, regex):
            lib.AdaptiveClip(**options)


if __name__ == "__main__":
    absltest.main()
