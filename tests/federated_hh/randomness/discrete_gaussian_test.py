"""Tests of the integer noise against its law, out to where a sample never gets.

The law that the code realises is taken from the code path itself: every bin and both
outcomes of its comparison are put through it, with the table's exact weights. The law
that it should have is computed from its definition, with other arithmetic.
"""

import decimal
from fractions import Fraction

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.randomness import discrete_gaussian, streams

_BINS = 1 << 15


def table_law(sampler):
    """Returns what the table gives with what weight: exact, 2^256 in all."""
    bins = np.arange(_BINS, dtype=np.uint32) << 17
    thresholds, rests = sampler._thresholds, sampler._rests

    def outcome(is_own):
        # The least of the low bits is own wherever that is possible, the most is not.
        low = np.where(is_own, 0, 2**17 - 1).astype(np.uint32)
        rest = [0 if is_own else 2**224 - 1]
        return sampler._look_up(
            bins + low, lambda size: rest[0].to_bytes(28, "little") * (size // 28)
        )

    weights = {}
    own, alias = outcome(True), outcome(False)
    for i in range(_BINS):
        chance = (int(thresholds[i]) << 224) + rests[i]
        if chance:
            weights[int(own[i])] = weights.get(int(own[i]), 0) + chance
        if chance < 2**241:
            weights[int(alias[i])] = weights.get(int(alias[i]), 0) + 2**241 - chance
    return weights


def narrow_variance(sampler):
    times = sum(sampler.step ** (2 * i) for i in range(sampler.levels))
    return (Fraction(sampler.stddev) ** 2 + 5) / times


def density(x, variance):
    """Returns exp(-x^2 / 2 variance) with 90 digits."""
    with decimal.localcontext(decimal.Context(prec=90)):
        numerator, denominator = -x * x * variance.denominator, 2 * variance.numerator
        return (decimal.Decimal(numerator) / decimal.Decimal(denominator)).exp()


class TableTest(parameterized.TestCase):
    @parameterized.parameters(0.01, 3.0, 1000.0, 2.0**21, 0.3 * 2**32, 7.1 * 2.0**32)
    def test_the_law_of_the_table_far_beyond_six_standard_deviations(self, stddev):
        sampler = discrete_gaussian.DiscreteGaussian(stddev)
        weights = table_law(sampler)
        self.assertEqual(sum(weights.values()), 2**256)
        variance = narrow_variance(sampler)
        deviation = float(variance) ** 0.5
        self.assertLessEqual(14 * deviation, 2**14)
        reach = int(14 * deviation)
        values = sorted(
            {*range(-20, 21), *range(-reach, reach + 1, 97), -reach, reach}
            | {round(k * deviation / 4) for k in range(-56, 57)}
        )
        values = [x for x in values if abs(x) <= reach and -(2**14) <= x < 2**14]
        with decimal.localcontext(decimal.Context(prec=90)):
            total = sum(density(x, variance) for x in range(-reach - 1, reach + 2))
            for x in values:
                expected = density(x, variance) / total
                found = decimal.Decimal(weights[x]) / 2**256
                # The total leaves out what is beyond 14 standard deviations.
                self.assertLess(abs(found / expected - 1), 2.0**-100 + 1e-43, x)
        beyond = sum(w for x, w in weights.items() if abs(x) > 6 * deviation)
        self.assertGreater(beyond, 0)

    def test_a_comparison_that_the_first_bits_do_not_decide(self):
        sampler = discrete_gaussian.DiscreteGaussian(1000.0)
        number = int(np.flatnonzero(sampler._thresholds % 1000 == 7)[0])
        threshold, rest = int(sampler._thresholds[number]), sampler._rests[number]
        words = np.array([(number << 17) + threshold] * 2, np.uint32)
        # Equal is not below: with rest of 2^224 outcomes the own value is kept.
        drawn = (rest - 1).to_bytes(28, "little") + rest.to_bytes(28, "little")
        found = sampler._look_up(words, lambda size: drawn[:size])
        alias = sampler._values[0, number]
        self.assertEqual(found.tolist(), [number - 2**14, int(alias)])

    @parameterized.parameters(2.0**17, 7.1 * 2.0**32, 900 * 2.0**32)
    def test_the_law_of_the_sum(self, stddev):
        # A step makes k y + x of a discrete Gaussian y and a narrow one x. The chance
        # of n is a sum over y; terms more than 18 deviations off are below 1e-70.
        sampler = discrete_gaussian.DiscreteGaussian(stddev)
        narrow, step = narrow_variance(sampler), sampler.step
        self.assertGreater(sampler.levels, 1)
        variance = narrow
        for _ in range(sampler.levels - 1):
            before, variance = variance, step**2 * variance + narrow
            width = int(18 * float(before * narrow / variance) ** 0.5) + 1

            def chance(n, before=before, variance=variance, width=width):
                centre = round(step * before * n / variance)
                return sum(
                    density(y, before) * density(n - step * y, narrow)
                    for y in range(centre - width, centre + width + 1)
                )

            deviation = float(variance) ** 0.5
            with decimal.localcontext(decimal.Context(prec=90)):
                base = chance(0)
                for n in (1, 2, step // 2, step, int(deviation), int(6.4 * deviation)):
                    ratio = chance(n) / base / density(n, variance)
                    self.assertLess(abs(ratio - 1), 2.0**-130, n)
        self.assertEqual(variance, Fraction(stddev) ** 2 + 5)

    def test_no_step_is_too_narrow_for_the_integers(self):
        # Given the sum, a step's last x has at least the variance 5. The first number
        # is where two draws just fail that, and a third is needed.
        variances = [Fraction(1_367_647 * (523**2 + 1))]
        variances += [Fraction(4) ** bits + 5 for bits in range(8, 57)]
        for variance in variances:
            levels, step = discrete_gaussian._steps(variance)
            narrow = variance / sum(step ** (2 * i) for i in range(levels))
            self.assertLessEqual(narrow, Fraction(2**14, 14) ** 2)
            if levels > 1:
                self.assertGreaterEqual(narrow / (step**2 + 1), 5)

    def test_steps_are_put_together_with_the_first_one_widest(self):
        sampler = discrete_gaussian.DiscreteGaussian(7.0 * 2**32)
        values = np.array([[2, -16384, 16383]] + [[-3, -16384, 16383]] * 3, np.int16)
        k = sampler.step
        found = sampler._combine(values).tolist()
        self.assertEqual(found[0], 2 * k**3 - 3 * k**2 - 3 * k - 3)
        self.assertEqual(found[1], -sampler.largest)
        self.assertLess(found[2], sampler.largest)


class RoundedGaussianTest(parameterized.TestCase):
    @parameterized.parameters(0.3, 1.0, 4.0)
    def test_it_is_a_gaussian_rounded_at_random(self, stddev):
        # The integral over the continuous Gaussian y of the chance that y is rounded
        # to n, by the trapezoidal rule (exact to 1e-14 for functions like these).
        y = np.linspace(-40, 40, 160_001)
        gaussian = stats.norm.pdf(y, scale=stddev)
        integers = np.arange(-80, 81)
        kernel = np.exp(-((integers[:, np.newaxis] - y) ** 2) / 10)
        rounded = (kernel / kernel.sum(axis=0)) @ gaussian * (y[1] - y[0])
        weights = table_law(discrete_gaussian.DiscreteGaussian(stddev))
        for n in range(-12, 13):
            found = weights[n] / 2**256
            self.assertLess(abs(found / rounded[n + 80] - 1), 1e-11)


class SampleTest(parameterized.TestCase):
    def _bits(self, *path):
        return streams.KeyedBits(11, "sample", *path)

    @parameterized.parameters(0.5, 3.0, 40.0)
    def test_small_ones(self, stddev):
        # A million draws, chi-square over all values expected 20 times or more.
        sampler = discrete_gaussian.DiscreteGaussian(stddev)
        size = 1_000_000
        drawn = sampler.sample(self._bits(), size)
        values = np.arange(-400, 401)
        law = np.exp(-(values**2) / (2 * (stddev**2 + 5)))
        law /= law.sum()
        common = law * size >= 20
        observed = [np.count_nonzero(drawn == v) for v in values[common]]
        observed.append(size - sum(observed))
        expected = [*law[common] * size, law[~common].sum() * size]
        self.assertGreater(stats.chisquare(observed, expected).pvalue, 1e-6)

    @parameterized.parameters(2.0**20, 0.3 * 2.0**32, 7.1 * 2.0**32)
    def test_large_ones(self, stddev):
        # Kolmogorov and Smirnov on 2 million, the tails' binomials, no last-bit bias
        # and no correlation of neighbours: each with false alarms below 1e-6.
        sampler = discrete_gaussian.DiscreteGaussian(stddev)
        size = 2_000_000
        drawn = sampler.sample(self._bits(), size)
        self.assertEqual(drawn.dtype, np.int64)
        scaled = drawn / stddev
        self.assertGreater(stats.kstest(scaled, "norm").pvalue, 1e-6)
        for sigmas in (3, 4, 4.5):
            law = stats.binom(size, 2 * stats.norm.sf(sigmas))
            count = np.count_nonzero(np.abs(scaled) > sigmas)
            self.assertGreater(min(law.cdf(count), law.sf(count - 1)), 1e-6)
        for modulus in (2, 7, sampler.step):
            counts = np.bincount(drawn % modulus, minlength=modulus)
            self.assertGreater(stats.chisquare(counts).pvalue, 1e-6)
        for lag in (1, 2, sampler.levels, 1 << 16):
            product = np.mean(scaled[lag:] * scaled[:-lag]) * np.sqrt(size - lag)
            self.assertLess(abs(product), 5)

    @parameterized.parameters((2.0**20, 5.7), (7.1 * 2.0**32, 6.0), (2.0**33, 8.0))
    def test_tails_by_importance(self, stddev, sigmas):
        # The first x is drawn uniformly from where it decides, and weighted; the others
        # from the stream. The float32 normal of TensorFlow has no such draws at all.
        # The estimate's standard error is about half a percent.
        sampler = discrete_gaussian.DiscreteGaussian(stddev)
        weights = table_law(sampler)
        deviation = float(narrow_variance(sampler)) ** 0.5
        low, high = int((sigmas - 1) * deviation), int((sigmas + 3) * deviation)
        size = 400_000
        words = self._bits("importance").words(0, (sampler.levels + 1) * size)
        words = words.reshape(-1, size)
        first = low + words[0].astype(np.int64) % (high - low)
        rest = self._bits("rest").bytes
        others = sampler._look_up(words[2:], lambda size: rest(0, size))
        drawn = sampler._combine(np.concatenate([[first.astype(np.int16)], others]))
        law = np.array([weights[x] / 2**256 for x in range(low, high)]) * (high - low)
        found = np.mean((drawn > sigmas * stddev) * law[first - low])
        self.assertLess(abs(found / stats.norm.sf(sigmas) - 1), 0.03)

    def test_a_function_of_the_stream(self):
        sampler = discrete_gaussian.DiscreteGaussian(1e9)
        one = sampler.sample(self._bits(), 150_000)
        np.testing.assert_array_equal(one, sampler.sample(self._bits(), 150_000))
        other = sampler.sample(self._bits("other"), 150_000)
        self.assertLess(np.count_nonzero(one == other), 3)
        self.assertLess(np.count_nonzero(one[: 1 << 16] == one[-(1 << 16) :]), 3)

    def test_bad_input(self):
        for stddev in (0.0, -1.0, 2.0**57, float("nan"), float("inf")):
            with self.assertRaisesRegex(ValueError, "standard deviation is"):
                discrete_gaussian.DiscreteGaussian(stddev)
        widest = discrete_gaussian.DiscreteGaussian(2.0**56)
        self.assertLess(widest.largest, 2**62)


if __name__ == "__main__":
    absltest.main()
