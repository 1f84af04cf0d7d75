"""Tests of noise that is correlated over rounds: its law, its cost, its state."""

import dataclasses
import itertools
import math

import numpy as np
from absl.testing import absltest, parameterized
from scipy import linalg, stats

from federated_hh.privacy import plan
from federated_hh.privacy.dp_ftrl import (
    blt,
    correlated_noise,
    model_updates,
    toeplitz,
    update_noise,
)
from federated_hh.privacy.dp_ftrl.correlated_noise import BandedNoise, BltNoise
from federated_hh.randomness import integer_noise, streams

_BLT = blt.Blt((0.02, 0.3), (0.12, 0.33))
_BANDED = toeplitz.SquareRoot(4)
_ALARM = 1e-6


def dense(matrix, lengths):
    return linalg.block_diag(
        *(linalg.toeplitz(matrix.coefficients(n), np.zeros(n)) for n in lengths)
    )


def history(number):
    return number.to_bytes(32, "big")


class Stream:
    """Noise of a matrix, round after round, and what was drawn for it."""

    def __init__(self, matrix, stddev, key=1, draw=None):
        self.noise = correlated_noise.Correlated(matrix)
        self.stddev = stddev
        self.stream = streams.Stream(key, ("test",))
        self.state = integer_noise.NoiseState()
        self.drawn = []
        self.number = 0
        own = draw or self.noise._draw

        def recorded(size, stddev, stream, *place):
            self.drawn.append(own(size, stddev, stream, *place))
            return self.drawn[-1].copy()

        object.__setattr__(self.noise, "_draw", recorded)

    def add(self, total):
        stream = self.stream.of(history(self.number))
        released, self.state = self.noise.add(total, self.stddev, self.state, stream)
        self.number += 1
        return released


class LawTest(parameterized.TestCase):
    @parameterized.parameters(_BLT, _BANDED, toeplitz.SquareRoot(1))
    def test_the_matrix_makes_it_independent_again(self, matrix):
        # To 1e-10 of the standard deviation; with a restart, block by block.
        stddev, lengths, size = 7.0 * 2**32, (9, 14), 500
        stream = Stream(matrix, stddev)
        released = []
        for number in range(sum(lengths)):
            released.append(stream.add(np.zeros(size, np.int64)))
            if number + 1 == lengths[0]:
                stream.state = stream.noise.restart(stream.state)
        again = dense(matrix, lengths) @ released
        fine = math.ldexp(1, 46 - math.frexp(stddev)[1])
        expected = np.array(stream.drawn) / fine
        np.testing.assert_allclose(again / stddev, expected / stddev, atol=1e-10)
        self.assertGreater(np.std(expected) / stddev, 0.95)

    @parameterized.parameters(_BLT, _BANDED)
    def test_deviation_of_prefix_sums(self, matrix):
        # 40,000 numbers: 2% are more than five standard errors of the deviation.
        rounds, stddev = 40, 3.0 * 2**32
        stream = Stream(matrix, stddev)
        sums = np.random.default_rng(1).integers(-(2**40), 2**40, (rounds, 40_000))
        prefix = np.zeros(40_000)
        expected = toeplitz.prefix_stddevs(matrix, rounds)
        for number, total in enumerate(sums):
            prefix += stream.add(total) - total
            found = np.std(prefix) / stddev
            self.assertAlmostEqual(found / expected[number], 1, delta=0.02)
        self.assertLess(expected[-1], 0.7 * math.sqrt(rounds))

    def test_what_is_drawn(self):
        stream = Stream(_BLT, 1.5 * 2**32)
        for _ in range(3):
            stream.add(np.zeros(4000, np.int64))
        law = stats.chi2(4000)
        for drawn in stream.drawn:
            deviation = drawn / (1.5 * 2**45)
            statistic = np.sum(deviation**2)
            self.assertGreater(min(law.cdf(statistic), law.sf(statistic)), _ALARM / 6)
        correlation = np.corrcoef(stream.drawn) - np.eye(3)
        self.assertLess(np.abs(correlation).max(), 5 / math.sqrt(4000))

    def test_no_drawn_number_is_beyond_what_is_counted_on(self):
        for stddev in (2.0**45, 1.4 * 2**45, 2.0**46 * (1 - 1e-9), 2.0**50, 2.0**52):
            sampler = integer_noise.sampler_of(stddev)
            self.assertLess(sampler.largest, correlated_noise._REACH * stddev)


class ReleaseTest(parameterized.TestCase):
    @parameterized.parameters(
        _BLT,
        blt.Blt((1e-9, 0.04), (0.02, 0.3)),
        _BANDED,
        # Two neighbours' roundings to integers, and next to nothing else.
        blt.Blt((0.5,), (0.01,)),
    )
    def test_the_noisy_integers_alone_decide(self, matrix):
        # A neighbour's sums, with what has to be drawn for the same noisy integers: not
        # a bit differs, and what is drawn differs by C times the contributions, but for
        # the roundings, which are counted.
        rounds, size, stddev = 60, 40, 0.7 * 2**32
        random = np.random.default_rng(2)
        sums = random.integers(-(2**55), 2**55, (rounds, size))
        change = random.integers(-(2**30), 2**30, (rounds, size))
        stream = Stream(matrix, stddev)
        released, noisy = [], []
        fine = 2**14
        buffers = [np.zeros(size, np.int64)] * matrix.num_buffers
        for total in sums:
            released.append(stream.add(total))
            noise = stream.drawn[-1] - np.rint(matrix.mix(buffers)).astype(np.int64)
            noisy.append(noise)
            buffers = matrix.advance([b.copy() for b in buffers], noise)
        others = iter(noisy)
        neighbour = [np.zeros(size, np.int64) for _ in range(matrix.num_buffers)]
        number = 0

        def draw(size, stddev, stream, *place):
            nonlocal neighbour, number
            noise = next(others) - change[number] * fine
            needed = noise + np.rint(matrix.mix(neighbour)).astype(np.int64)
            neighbour = matrix.advance(neighbour, noise)
            number += 1
            return needed

        other = Stream(matrix, stddev, draw=draw)
        for number_, total in enumerate(sums + change):
            np.testing.assert_array_equal(other.add(total), released[number_])
        moved = np.array(stream.drawn) - np.array(other.drawn)
        exact = dense(matrix, [rounds]) @ change * float(fine)
        off = np.abs(moved - exact).max()
        slack = correlated_noise.numeric_slack(matrix, rounds)
        limit = slack * 2**45 / math.sqrt((2**27 + 1) * rounds)
        self.assertLessEqual(off, limit)
        self.assertLess(slack, 1e-4)

    def test_large_sums_are_not_rounded_before_the_noise(self):
        stream = Stream(_BLT, 100.0)
        total = np.array([2**55, 2**55 + 1, -(2**55) - 1])
        released = stream.add(total)
        whole = total + (stream.drawn[0] >> 39)
        np.testing.assert_allclose(released, whole, atol=16)

    def test_streams_and_state(self):
        size = 3000

        def run(key=1, rounds=3, restart=None):
            stream = Stream(_BLT, 2.0**33, key)
            released = []
            for number in range(rounds):
                released.append(stream.add(np.full(size, number)))
                if number == restart:
                    stream.state = stream.noise.restart(stream.state)
            return np.array(released), stream

        released, stream = run()
        again, other = run()
        np.testing.assert_array_equal(released, again)
        for one, two in zip(stream.state.hidden, other.state.hidden, strict=True):
            np.testing.assert_array_equal(one, two)
        # It goes on from the state alone.
        continued = Stream(_BLT, 2.0**33)
        continued.state, continued.number = stream.state, 3
        np.testing.assert_array_equal(
            continued.add(np.full(size, 3)), run(rounds=4)[0][3]
        )
        for changed in (run(key=2), run(restart=0)):
            self.assertFalse(np.any(changed[0][1] == released[1]))

    def test_other_matrices_and_scales_share_no_draws(self):
        # Both scales are drawn as 2^45, in finer and less fine units.
        drawn = []
        for matrix, stddev in ((_BLT, 2.0**33), (_BANDED, 2.0**33), (_BLT, 2.0**34)):
            stream = Stream(matrix, stddev)
            stream.add(np.zeros(3000, np.int64))
            drawn.append(stream.drawn[0])
        for one, other in itertools.combinations(drawn, 2):
            self.assertFalse(np.any(one == other))

    def test_the_state_does_not_tell_the_noise(self):
        # Uniform bytes (chi-square of 255 degrees of freedom), though buffers have only
        # some 50 bits; and other ones in each round, for each buffer.
        stream, seen = Stream(_BLT, 2.0**33), []
        for _ in range(3):
            stream.add(np.zeros(40_000, np.int64))
            seen.extend(stream.state.hidden)
        for hidden in seen:
            self.assertEqual(hidden.dtype, np.int64)
            for column in hidden.view(np.uint8).reshape(-1, 8).T:
                counts = np.bincount(column, minlength=256)
                self.assertGreater(stats.chisquare(counts).pvalue, _ALARM / 50)
        for i, hidden in enumerate(seen):
            for before in seen[:i]:
                counts = np.bincount((hidden ^ before).view(np.uint8), minlength=256)
                self.assertGreater(stats.chisquare(counts).pvalue, _ALARM / 50)

    def test_too_large(self):
        with self.assertRaisesRegex(ValueError, "values; 1 to 2"):
            total = np.broadcast_to(np.int64(0), [2**27 + 1])
            Stream(_BLT, 1.0).add(total)


def noise(kind=BltNoise, **options):
    matrix = _BLT if kind is BltNoise else _BANDED
    values = dict(num_rounds=40, clip_norm=2.0, noise_multiplier=0.5, matrix=matrix)
    return kind(**values | options)


class MechanismTest(parameterized.TestCase):
    @parameterized.parameters(BltNoise, BandedNoise)
    def test_cost_of_what_was_planned_and_of_what_happened(self, kind):
        random = np.random.default_rng(3)
        taken = random.random((15, 40)) < 0.2
        clients, rounds = np.nonzero(taken)
        for restarts in ((), (9, 19)):
            mechanism = noise(kind, restart_rounds=restarts)
            matrix = dense(
                mechanism.matrix, np.diff([0, *(r + 1 for r in restarts), 40])
            )
            squares = np.square(matrix @ taken.T).sum(axis=0)
            found = mechanism.observed_zcdp(clients, rounds, 40)
            expected = squares.max() / (2 * 0.5**2)
            self.assertGreaterEqual(found, expected)
            self.assertLess(found / expected, 1 + 1e-4)
            most = int(taken.sum(axis=1).max())
            self.assertLess(found, mechanism.zcdp(plan.Limits(most, 0), 40))
        early = rounds < 7
        self.assertLess(
            mechanism.observed_zcdp(clients[early], rounds[early], 7), found
        )

    def test_limits_that_are_impossible_are_cut_off(self):
        mechanism = noise()
        self.assertEqual(
            mechanism.zcdp(plan.Limits(99, 50), 40),
            mechanism.zcdp(plan.Limits(1, 39), 40),
        )
        single = np.square(_BLT.coefficients(40)).sum() / (2 * 0.5**2)
        found = mechanism.zcdp(plan.Limits(1, 39), 40)
        self.assertAlmostEqual(found / single, 1, places=4)

    def test_independent_noise_is_one_band(self):
        banded = noise(BandedNoise, matrix=toeplitz.SquareRoot(1))
        gaussian = update_noise.GaussianNoise(
            num_rounds=40, clip_norm=2.0, noise_multiplier=0.5
        )
        limits = plan.Limits(3, 5)
        self.assertAlmostEqual(
            banded.zcdp(limits, 40) / gaussian.zcdp(limits, 40), 1, places=4
        )

    def test_the_clip_norm_changes_between_blocks(self):
        adaptive = update_noise.AdaptiveClip(count_stddev=0.5)
        mechanism = noise(adaptive_clip=adaptive, restart_rounds=(2,))
        state, norms = mechanism.initialize(), []
        for number in range(5):
            total = model_updates.UpdateSum(
                {"w": np.zeros(200_000, np.int64)}, 10, 2, 0
            )
            release = mechanism.release(
                total,
                state,
                {"clip_norm": state.clip_norm},
                streams.Stream(1, ("test",), history(number)),
            )
            norms.append(state.clip_norm)
            state = release.state
            if number in (0, 3):
                # The first of a block: independent noise of the norm in force.
                stddev = mechanism.delta_multiplier(number) * norms[-1]
                found = np.std(release.value.total["w"])
                self.assertAlmostEqual(found / stddev, 1, delta=0.02)
                self.assertEqual(release.metrics["noise_stddev"], stddev)
        self.assertEqual(norms[:3], [2.0] * 3)
        self.assertNotEqual(norms[3], 2.0)
        self.assertEqual(norms[3], norms[4])
        self.assertEqual((state.noise.tree, state.noise.rounds), (1, 2))
        self.assertEqual((state.count_noise.tree, state.count_noise.rounds), (1, 2))

    def test_room(self):
        noise().check_room(2**29)
        with self.assertRaisesRegex(ValueError, "could exceed 64 bits"):
            noise().check_room(2**30)
        with self.assertRaisesRegex(ValueError, "could exceed 64 bits"):
            noise(noise_multiplier=2.0**26).check_room(10)

    def test_one_scale(self):
        @dataclasses.dataclass(frozen=True, kw_only=True)
        class Decaying(BltNoise):
            def multiplier(self, number):
                return self.noise_multiplier * 0.9**number

        with self.assertRaisesRegex(ValueError, "round 1 has .* noise of one scale"):
            Decaying(num_rounds=3, clip_norm=1.0, noise_multiplier=1.0, matrix=_BLT)


if __name__ == "__main__":
    absltest.main()
