"""Tests of the numbers of Algorithm 2, against the paper's and a prototype's."""

import dataclasses
import fractions
import math

from absl.testing import absltest, parameterized

from federated_hh.privacy.dp_ftrl import (
    model_updates,
    rotated_updates,
    update_noise,
)
from federated_hh.privacy.dp_ftrl.rotated_updates import RotatedUpdate

# Parameters padded to 2^22; q = s C / 2^11, C_inflated / C, its square, C_inf,
# log2(2 C_inf m + 1) and the bits of a power of two, for 6,500 clients.
_TABLE = (
    (1, 1.118, 1.251, 31, 18.6, 19),
    (2, 1.031, 1.063, 61, 19.6, 20),
    (3.5, 1.0102, 1.021, 107, 20.4, 21),
    (5, 1.0050, 1.010, 153, 20.9, 21),
    (10, 1.0013, 1.0026, 305, 21.9, 22),
    (50, 1.00005, 1.0001, 1525, 24.2, 25),
)


def update_of(**values):
    given = dict(clip_norm=0.3, scale=68_267.0, num_values=2_400_000, num_clients=6500)
    return RotatedUpdate(**given | values)


def _papers_norm(clip, dimension, scale):
    """Computes C_inflated of Xu et al. 2023, section 2.4, with alpha = e^(-1/2)."""
    rounding = clip / scale + math.sqrt(dimension) / (2 * scale**2)
    square = clip**2 + dimension / (4 * scale**2) + rounding
    return math.sqrt(square) * (1 + 2**-50)  # rounded upwards


class NumbersTest(parameterized.TestCase):
    @parameterized.parameters(*_TABLE)
    def test_the_prototypes_table(self, q, factor, of_rho, largest, paper_bits, bits):
        found = update_of(scale=q * 2**11 / 0.3, num_values=4_100_000)
        self.assertEqual(found.dimension, 2**22)
        # To the digits that are written down.
        least = 6e-5 if q > 2 else 6e-4
        self.assertAlmostEqual(float(found.norm_factor), factor, delta=least)
        self.assertAlmostEqual(float(found.rho_factor), of_rho, delta=6e-4)
        self.assertEqual(found.largest_coordinate, largest)
        self.assertAlmostEqual(
            math.log2(2 * largest * 6500 + 1), paper_bits, delta=0.051
        )
        self.assertEqual(found.bits, bits)
        self.assertEqual(found.num_bytes, 2**22 * bits // 8)

    @parameterized.product(q=(0.04, 1, 10, 1e4), size=(1, 2, 3, 1000, 2_400_000))
    def test_the_norm_is_the_papers(self, q, size):
        dimension = update_of(num_values=size, num_clients=100).dimension
        found = update_of(
            num_values=size, scale=q * math.sqrt(dimension) / 0.3, num_clients=100
        )
        paper = _papers_norm(0.3, dimension, found.scale) / 0.3
        # The limit is the largest integer that the condition allows.
        limit = (paper * found.scale * 0.3) ** 2
        self.assertBetween(found.squared_limit, limit * (1 - 1e-9) - 1, limit)
        # Above its root by the server's rounding, sqrt(d) of 2^32 units, and no more.
        least = math.sqrt(found.squared_limit) / (found.scale * 0.3)
        more = float(found.norm_factor) - least
        rounded = math.sqrt(size) / 2**32
        self.assertBetween(more, rounded - 1e-12, rounded + least * 1e-11)
        self.assertIsInstance(found.norm_factor, fractions.Fraction)

    def test_padding_is_the_least_to_a_known_size(self):
        # 12, 20 and 28 are of Paley's matrices; these and 1, times powers of two.
        known = sorted(odd << k for odd in (1, 3, 5, 7) for k in range(2, 32))
        for size in (*range(1, 200), 2_400_000, 5 * 2**19, 5 * 2**19 + 1, 2**31 - 1):
            most = 1 if size > 2**30 else 100
            found = update_of(num_values=size, num_clients=most, scale=1e4)
            self.assertEqual(found.dimension, next(n for n in known if n >= size))

    def test_roots_are_rounded_upwards(self):
        for number in (2, 3, 7, 2_400_000, 10**12 + 1):
            root = rotated_updates._root_upwards(number)
            self.assertGreater(root**2, number)
            self.assertLess((root - fractions.Fraction(1, 2**64)) ** 2, number)

    def test_the_modulus_has_room_for_all_sums(self):
        for clients in (1, 5, 6500, 6554):
            for scale in (3.0, 50.0, 1234.5):
                found = update_of(scale=scale, num_values=40, num_clients=clients)
                sums = 2 * found.largest_coordinate * clients + 1
                self.assertLessEqual(sums, 2**found.bits)
                self.assertGreater(sums, 2 ** (found.bits - 1))

    def test_the_default_scale(self):
        found = RotatedUpdate.of(clip_norm=0.3, num_values=2_400_000, num_clients=6500)
        self.assertAlmostEqual(found.scale, 53_969.54, delta=0.01)
        self.assertEqual(found.bits, 22)
        self.assertEqual(
            RotatedUpdate.of(
                clip_norm=0.3, num_values=9, num_clients=2, scale=7.0
            ).scale,
            7.0,
        )


class BadInputTest(parameterized.TestCase):
    @parameterized.parameters(
        (dict(clip_norm=0.0), "clip_norm is 0.0"),
        (dict(clip_norm=math.inf), "clip_norm is inf"),
        (dict(scale=-1.0), "scale is -1.0"),
        (dict(num_values=0), "num_values is 0"),
        (dict(num_clients=0), "num_clients is 0"),
        (dict(scale=1e12), r"scale is 1e\+12; it has to be at most 3.425e\+08: .*64-b"),
        (dict(scale=1e300), r"scale is 1e\+300; it has to be at most"),
        (dict(num_clients=2**40), r"at most .*64-bit"),
        (dict(scale=100.0), "scale is 100; it has to be at least 168.7"),
    )
    def test_refused(self, values, regex):
        with self.assertRaisesRegex(ValueError, regex):
            update_of(**values)

    def test_what_is_named_is_allowed(self):
        update_of(scale=3.424e8)
        update_of(scale=168.8)

    def test_a_plan_of_other_clients_or_norms(self):
        mechanism = update_noise.TreeNoise(
            num_rounds=3, clip_norm=0.3, noise_multiplier=1.0
        )
        update_of().check(6500, mechanism)
        for values, cohort, regex in (
            ({}, 6499, "cohort_size is 6,499; it has to be 6,500"),
            (dict(clip_norm=0.2), 6500, "clip_norm is 0.2; it has to be 0.3"),
            (
                dict(adaptive_clip=update_noise.AdaptiveClip(325.0)),
                6500,
                "adaptive_clip is .* fixed clip norm",
            ),
        ):
            with self.subTest(regex), self.assertRaisesRegex(ValueError, regex):
                update_of().check(cohort, dataclasses.replace(mechanism, **values))
        # Three rounds of 2^29 / 1.2 clip norms of 2^32 would fit, of 1.2 times it not.
        most = int(2**63 / 3 / 2**32 / 1.1)
        small = update_of(num_values=2, num_clients=most, scale=5.0)
        self.assertGreater(small.norm_factor, 1.2)
        model_updates.ClippedUpdate().check(most, mechanism)
        with self.assertRaisesRegex(ValueError, "could exceed 64 bits"):
            small.check(most, mechanism)

    def test_other_updates_as_before(self):
        plain = model_updates.NoNoise(num_rounds=1, clip_norm=math.inf)
        clipped = model_updates.NoNoise(num_rounds=1, clip_norm=1.0)
        for update, mechanism in (
            (model_updates.Update(), clipped),
            (model_updates.ClippedUpdate(), plain),
        ):
            with self.assertRaisesRegex(ValueError, "does not go with"):
                update.check(10, mechanism)
        self.assertEqual(model_updates.ClippedUpdate().rho_factor, 1)


if __name__ == "__main__":
    absltest.main()
