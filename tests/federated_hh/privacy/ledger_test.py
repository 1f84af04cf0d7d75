"""Tests of the ledger: conversions by enumeration, compositions by integrals."""

import dataclasses
import fractions
import itertools
import math

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.privacy import drawn_noise, ledger
from federated_hh.privacy.dp_ftrl import tree_aggregation
from federated_hh.privacy.guarantee import Adjacency, Guarantee
from federated_hh.privacy.triehh import guarantees as triehh
from tests.federated_hh.privacy import enumeration
from tests.federated_hh.privacy.triehh import triehh_law

# What a client may hold: up to two items of two; and what takes its place.
_HOLDINGS = ((), (0,), (1,), (0, 0), (0, 1), (1, 1))
_ZEROS = "zeros"


def _guarantee(epsilon, delta, **changes):
    fields = {
        "epsilon": epsilon,
        "delta": delta,
        "bound": "known",
        "is_upper_bound": True,
        "one_sided": False,
        "adjacency": Adjacency.ZERO_OUT,
    }
    return Guarantee(**(fields | changes))


def _noise(rho, delta=1e-10, noise_rounds=10):
    epsilon = drawn_noise.zcdp_to_epsilon(rho, delta, noise_rounds).epsilon
    return _guarantee(epsilon, delta, rho=rho, noise_rounds=noise_rounds)


def _pairs(adjacency):
    """Returns the neighbours D, D' of one client, by the definitions."""
    if adjacency is Adjacency.ZERO_OUT:
        return [(held, _ZEROS) for held in _HOLDINGS]
    if adjacency is Adjacency.EMPTIED:
        return [(held, ()) for held in _HOLDINGS if held]
    pairs = [pair for pair in itertools.permutations(_HOLDINGS, 2)]
    if adjacency is Adjacency.REPLACE_CLIENT:
        return pairs

    def of_one_item(first, second):
        return any(
            tuple(sorted((*first[:place], *new, *first[place + 1 :]))) == second
            for place in range(len(first))
            for new in ((), (0,), (1,))
        )

    return [(a, b) for a, b in pairs if of_one_item(a, b) or of_one_item(b, a)]


def _delta(mechanism, adjacency, epsilon, one_sided):
    """Returns the exact delta of a mechanism, given by its laws."""
    pairs = _pairs(adjacency)
    if not one_sided:
        pairs = pairs + [(second, first) for first, second in pairs]
    return max(
        float(np.maximum(mechanism[a] - math.exp(epsilon) * mechanism[b], 0).sum())
        for a, b in pairs
    )


class ConvertedTest(parameterized.TestCase):
    @parameterized.product(
        start=list(Adjacency), end=list(Adjacency), one_sided=[False, True]
    )
    def test_what_is_proved_holds_for_all_mechanisms(self, start, end, one_sided):
        random = np.random.default_rng(5)
        least = math.inf
        for _ in range(30):
            laws = random.dirichlet(np.full(4, random.uniform(0.3, 5)), 7)
            mechanism = dict(zip((*_HOLDINGS, _ZEROS), laws, strict=True))
            for epsilon in (0.0, 0.1, 0.5, 1.5):
                delta = _delta(mechanism, start, epsilon, one_sided)
                known = _guarantee(epsilon, delta, adjacency=start, one_sided=one_sided)
                try:
                    found = ledger.converted(known, end)
                except ValueError:
                    continue
                self.assertIs(found.adjacency, end)
                self.assertEqual(found.one_sided, one_sided)
                exact = _delta(mechanism, end, found.epsilon, one_sided)
                self.assertLessEqual(exact, found.delta * (1 + 1e-12))
                least = min(least, found.delta)
        possible = start is end or start is Adjacency.REPLACE_CLIENT
        possible |= not one_sided and start in (Adjacency.ZERO_OUT, Adjacency.EMPTIED)
        possible &= start is end or end is not Adjacency.ZERO_OUT
        self.assertEqual(least < math.inf, possible)

    def test_two_steps_are_as_bad_as_that(self):
        # a, zeros and b such that one outcome is as much likelier as it may be, twice.
        epsilon, delta, least = 0.5, 0.01, 0.02
        middle = math.exp(epsilon) * least + delta
        most = math.exp(epsilon) * middle + delta
        mechanism = {
            held: np.array([chance, 1 - chance])
            for held, chance in ((_ZEROS, middle), ((1,), least))
        }
        for held in _HOLDINGS:
            mechanism.setdefault(held, np.array([most, 1 - most]))
        exact = _delta(mechanism, Adjacency.ZERO_OUT, epsilon, False)
        self.assertAlmostEqual(exact, delta, places=12)
        found = ledger.converted(_guarantee(epsilon, delta), Adjacency.REPLACE_CLIENT)
        exact = _delta(mechanism, Adjacency.REPLACE_CLIENT, found.epsilon, False)
        self.assertAlmostEqual(found.delta, exact, places=12)
        # And without delta, at a smaller epsilon there is some.
        for held, chance in ((_ZEROS, 1.5), ((1,), 1.5**2)):
            mechanism[held] = np.array([0.1 * chance, 1 - 0.1 * chance])
        for held in set(_HOLDINGS) - {(1,)}:
            mechanism[held] = np.array([0.1, 0.9])
        found = ledger.converted(
            _guarantee(math.log(1.5), 0.0), Adjacency.REPLACE_CLIENT
        )
        self.assertEqual(found.delta, 0.0)
        for share, least, most in ((1 + 1e-9, 0.0, 0.0), (0.99, 1e-4, 1.0)):
            exact = _delta(
                mechanism, Adjacency.REPLACE_CLIENT, share * found.epsilon, False
            )
            self.assertBetween(exact, least, most)

    def test_gaussian_noise_is_twice_as_far_away(self):
        rho, delta = 0.3, 1e-8
        found = ledger.converted(_noise(rho, delta), Adjacency.EMPTIED)
        self.assertEqual(found.delta, delta)
        self.assertAlmostEqual(found.rho, 4 * rho)
        mean = 2 * math.sqrt(2 * rho)
        for share, sign in ((1.0, 1), (0.999, -1)):
            exact = _gaussian_tail_delta(mean, share * found.epsilon)
            self.assertGreaterEqual(sign * (delta * (1 + 1e-6) - exact), 0)
        self.assertIn("4 rho", found.bound)
        # Where the noise that is drawn has no proof at 4 rho, there is no upper bound.
        self.assertTrue(_noise(8.0, 1e-22).is_upper_bound)
        large = ledger.converted(_noise(8.0, 1e-22), Adjacency.REPLACE_CLIENT)
        self.assertFalse(large.is_upper_bound)

    def test_one_direction_says_nothing_of_an_exchange(self):
        # P(a) and P(b) are at most twice P(nothing), and have nothing in common.
        mechanism = {held: np.array([1.0, 0.0]) for held in _HOLDINGS}
        mechanism |= {(1,): np.array([0.0, 1.0]), (): np.array([0.5, 0.5])}
        exact = _delta(mechanism, Adjacency.EMPTIED, math.log(2), True)
        self.assertAlmostEqual(exact, 0.0)
        exact = _delta(mechanism, Adjacency.REPLACE_CLIENT, 100.0, True)
        self.assertEqual(exact, 1.0)
        known = _guarantee(
            math.log(2), 0.0, adjacency=Adjacency.EMPTIED, one_sided=True
        )
        for end in (Adjacency.REPLACE_CLIENT, Adjacency.REPLACE_ONE_ITEM):
            with self.assertRaisesRegex(ValueError, "in one direction has no sound"):
                ledger.converted(known, end)

    def test_a_delta_that_says_nothing(self):
        with self.assertRaisesRegex(ValueError, "delta would be 1 or more"):
            ledger.converted(_guarantee(8.0, 1e-3), Adjacency.REPLACE_CLIENT)


def _optimal_delta(epsilon: float, delta: float, count: int, at: float) -> float:
    truths = range(count + 1)
    rest = (
        math.fsum(
            math.comb(count, true)
            * max(
                0.0, math.exp(true * epsilon) - math.exp(at + (count - true) * epsilon)
            )
            for true in truths
        )
        / (1 + math.exp(epsilon)) ** count
    )
    return 1 - (1 - delta) ** count * (1 - rest)


def _gaussian_tail_delta(mean: float, epsilon: float) -> float:
    """Computes the divergence of two Gaussians at any epsilon, negative ones too."""
    first = stats.norm.cdf(mean / 2 - epsilon / mean)
    return first - math.exp(epsilon) * stats.norm.cdf(-mean / 2 - epsilon / mean)


class LedgerTest(parameterized.TestCase):
    def _ledger(self, adjacency=Adjacency.ZERO_OUT):
        return ledger.Ledger(adjacency)

    def test_two_trees_compose_as_their_zcdp(self):
        import dp_accounting
        from dp_accounting import pld

        book = self._ledger()
        accountant = pld.PLDAccountant()
        for rounds in (430, 900):
            run = tree_aggregation.TreeAggregation(
                noise_multiplier=7.0, num_rounds=rounds, min_separation=90
            )
            accountant.compose(
                dp_accounting.GaussianDpEvent(7.0 / math.sqrt(run.square_sum))
            )
            book.add(str(rounds), _noise(run.rho, noise_rounds=rounds))
        total = book.total(1e-10)
        expected = accountant.get_epsilon(1e-10)
        self.assertAlmostEqual(total.epsilon, expected, delta=1e-3 * expected)
        self.assertEqual(total.noise_rounds, 1330)
        again = self._ledger()
        again.add("both", total)
        self.assertAlmostEqual(again.total(1e-10).epsilon, total.epsilon)

    @parameterized.parameters(
        # 50 times (0.1, 1e-8) at delta 1e-6 besides their own 5e-7: 3.17, not 5.
        (0.1, 1e-8, 50, 1.5e-6, 3.173),
        (0.1, 1e-8, 50, 1e-6, 3.265),
        (0.5, 0.0, 8, 1e-4, None),
    )
    def test_guarantees_are_composed_as_the_worst_that_have_them(
        self, epsilon, delta, count, total, expected
    ):
        book = self._ledger()
        for index in range(count):
            book.add(str(index), _guarantee(epsilon, delta))
        found = book.total(total).epsilon
        if expected is not None:
            self.assertAlmostEqual(found, expected, delta=1e-3)
        # Kairouz, Oh, Viswanath 2015, Theorem 3.3, as Murtagh and Vadhan 2016 (1)
        # write it: the sum over how many of the randomized responses lie.
        exact = [
            _optimal_delta(epsilon, delta, count, at) for at in (found, 0.99 * found)
        ]
        self.assertLessEqual(exact[0], total)
        self.assertGreater(exact[1], total)

    def test_guarantees_and_noise_are_composed(self):
        book = self._ledger()
        book.add("tree", _noise(1 / 98))
        alone = book.total(1e-7).epsilon
        book.add("words", _guarantee(0.3, 1e-8, assumptions=("honest",)))
        total = book.total(1e-7 + 1e-8)
        self.assertIn("honest", total.assumptions)
        self.assertIn("worst privacy losses", total.bound)
        # One side: the tree's loss shifted by plus or minus 0.3, as an integral over
        # its Gaussian (rho = 1/98), and 1e-8 for all else.
        mean = 1 / 7
        weights = ((0.3, 1 / (1 + math.exp(-0.3))), (-0.3, 1 / (1 + math.exp(0.3))))
        exact = sum(
            weight * _gaussian_tail_delta(mean, total.epsilon - shift)
            for shift, weight in weights
        )
        self.assertLessEqual(1e-8 + (1 - 1e-8) * exact, 1.1e-7)
        self.assertLess(total.epsilon, alone + 0.3)
        with self.assertRaisesRegex(
            ValueError, "delta is 1e-08; it has to be above .*words"
        ):
            book.total(1e-8)

    def test_noise_that_is_drawn_has_no_proof_at_tiny_deltas(self):
        book = self._ledger()
        book.add("tree", _noise(0.5))
        with self.assertRaisesRegex(ValueError, "nothing is proved for the integer"):
            book.total(1e-40)

    def test_guarantees_of_one_direction_are_added(self):
        # Two mechanisms with P <= e^0.5 Q of which the other direction has no
        # bound: with losses of 0.5 alone (and Q elsewhere) nothing is below the sum.
        book = self._ledger()
        for name in ("first", "second"):
            book.add(name, _guarantee(0.5, 0.0, one_sided=True))
        self.assertEqual(book.total(0.3).epsilon, 1.0)
        book.add("both ways", _guarantee(0.5, 0.0))
        # Randomized response has 0.3 to spend at epsilon 0: tanh(1/4) = 0.24.
        self.assertEqual(book.total(0.3).epsilon, 1.0)
        self.assertAlmostEqual(book.total(1e-9).epsilon, 1.5)

    def test_unlike_entries(self):
        book = self._ledger()
        book.add("nothing but delta", _guarantee(0.0, 1e-8))
        self.assertEqual(book.total(1e-8).epsilon, 0.0)
        book.add("pure", _guarantee(0.7, 0.0))
        self.assertAlmostEqual(book.total(1e-7).epsilon, 0.7, places=5)
        self.assertAlmostEqual(book.total(1e-8).epsilon, 0.7)
        book.add("all", _guarantee(0.2, 9e-8))
        # All of delta is spent: what is left is basic composition.
        self.assertAlmostEqual(book.total(1e-7 + 1e-20).epsilon, 0.9)
        book.add("large", _guarantee(1800.0, 0.0))
        self.assertAlmostEqual(book.total(1e-6).epsilon, 1800.9, places=1)

    def test_one_one_sided_entry_makes_the_total_one_sided(self):
        book = self._ledger()
        book.add("both", _guarantee(0.3, 1e-8))
        self.assertFalse(book.total(1e-7).one_sided)
        book.add("one", _guarantee(0.3, 1e-8, one_sided=True))
        self.assertTrue(book.total(1e-7).one_sided)

    @parameterized.product(case=((0.3, 1), (1.0, 2), (3.0, 1)), has_curve=(False, True))
    def test_triehh_and_local_reports_together(self, case, has_curve):
        # A client holds "a", or nothing; the law of what is found, and of 3-ary
        # responses of the same client, are multiplied out. With cohorts of theta, the
        # curve is reached (docs/triehh_privacy.md).
        local_epsilon, reports = case
        parameters = triehh.TrieHHParameters(6, 2, 2, 1)
        tries = [
            triehh_law.trie_law(
                {"a": 3, None: 2}, {word: fractions.Fraction(1)}, parameters
            )
            for word in ("a", None)
        ]
        share = 1 / (math.exp(local_epsilon) + 2)
        matrix = np.full((3, 3), share) + np.eye(3) * (1 - 3 * share)
        answers = [
            enumeration.histogram_law(matrix, [item] * reports) for item in (0, 2)
        ]
        joint = [
            {
                (trie, answer): float(first) * second
                for trie, first in by_trie.items()
                for answer, second in by_answer.items()
            }
            for by_trie, by_answer in zip(tries, answers, strict=True)
        ]
        rounds, delta = parameters.voting_rounds(), 0.1
        words = _guarantee(
            rounds.epsilon(delta), delta, adjacency=Adjacency.EMPTIED, one_sided=True
        )
        if has_curve:
            words = dataclasses.replace(words, voting=rounds)
        book = self._ledger(Adjacency.EMPTIED)
        book.add("words", words)
        # B reports of a client, which are all exchanged.
        book.add(
            "answers",
            _guarantee(
                reports * local_epsilon, 0.0, adjacency=Adjacency.REPLACE_CLIENT
            ),
        )
        total = book.total(delta + 1e-9)
        self.assertTrue(total.one_sided)
        exact = enumeration.delta(total.epsilon, *joint)
        self.assertLessEqual(exact, total.delta)
        if local_epsilon == 3:
            # Neither alone is enough: the test can fail.
            self.assertGreater(enumeration.delta(words.epsilon, *joint), total.delta)

    def test_refusals(self):
        book = self._ledger()
        with self.assertRaisesRegex(ValueError, "empty"):
            book.total(1e-6)
        for changes, message in (
            ({"is_upper_bound": False}, "guess: its epsilon is not a proved upper"),
            ({"of_one_repeat": True}, "guess: a guarantee of one repeat leaves"),
            (
                {"adjacency": Adjacency.REPLACE_CLIENT},
                "guess: .*'replace_client' has no sound conversion to 'zero_out'",
            ),
            (
                {"adjacency": Adjacency.REPLACE_ONE_ITEM},
                "'replace_one_item' has no sound conversion",
            ),
            ({"epsilon": math.inf}, "epsilon is infinite"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                fields = {"epsilon": 1.0, "delta": 0.0, **changes}
                book.add("guess", _guarantee(**fields))
        self.assertEmpty(book.entries)


if __name__ == "__main__":
    absltest.main()
