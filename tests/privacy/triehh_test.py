"""Tests of TrieHH's guarantee against the exact law of the tries of small runs."""

import fractions
import itertools
import math

import numpy as np
from absl.testing import absltest, parameterized

from privacy import triehh
from tests.privacy import triehh_law

_ONE = fractions.Fraction(1)
# Two symbols; "$" ends a word, so max_length = 3 has all of each word.
_WORDS = ("a$", "b$", "aa$", "ab$")


def _populations(users: int):
    """All ways in which users hold one of `_WORDS` each, or nothing."""
    for bars in itertools.combinations(range(users + len(_WORDS)), len(_WORDS)):
        ends = [-1, *bars]
        yield {word: ends[i + 1] - ends[i] - 1 for i, word in enumerate(_WORDS)}


def _tail(n: int, holders: int, cohort: int, threshold: int) -> fractions.Fraction:
    """P(Hypergeometric(n, holders, cohort) >= threshold), from its definition."""
    ways = sum(
        math.comb(holders, votes) * math.comb(n - holders, cohort - votes)
        for votes in range(threshold, min(holders, cohort) + 1)
    )
    return fractions.Fraction(ways, math.comb(n, cohort))


def _factor(holders: int, threshold: int, length: int) -> fractions.Fraction:
    """e^epsilon of one K."""
    return fractions.Fraction(holders, holders - threshold) ** length


class BoundTest(parameterized.TestCase):
    """The bound against enumerated laws, all in exact arithmetic."""

    def assert_bound(self, law, emptied, parameters, redraws=False):
        """Checks all K; returns for how many delta, and epsilon, are reached."""
        n, theta = parameters.population_size, parameters.threshold
        reached = [0, 0]
        for holders in range(theta + 1, n + 1):
            tail = _tail(n, holders - 1, parameters.cohort_size, theta)
            bound = tail
            if redraws and tail < 1:
                bound = min(parameters.max_length * tail, tail / (1 - tail))
            factor = _factor(holders, theta, parameters.max_length)
            exact = triehh_law.exact_delta(factor, law, emptied)
            self.assertLessEqual(exact, bound, (parameters, holders))
            reached[0] += exact == bound > 0
            reached[1] += any(
                chance == factor * emptied.get(out, 0) > 0
                for out, chance in law.items()
            )
        return reached

    def test_the_oracle_is_algorithm_2_on_every_cohort(self):
        users = ["a$", "a$", "aa$", "ab$", None]
        parameters = triehh.TrieHHParameters(5, 3, 2, 3)
        words = {"a$": 1, "aa$": 1, "ab$": 1}
        self.assertEqual(
            triehh_law.trie_law(words, {"a$": _ONE}, parameters),
            triehh_law.brute_force_law(users, parameters),
        )
        users[1] = None
        self.assertEqual(
            triehh_law.trie_law(words, {None: _ONE}, parameters),
            triehh_law.brute_force_law(users, parameters),
        )

    @parameterized.parameters((5, 1), (5, 2), (5, 3), (6, 3))
    def test_every_run_of_few_users(self, n, length):
        runs, reached = 0, np.zeros(2, int)
        for cohort in range(1, n + 1):
            for theta in range(1, cohort + 1):
                parameters = triehh.TrieHHParameters(n, cohort, theta, length)
                for words in _populations(n - 1):
                    emptied = triehh_law.trie_law(words, {None: _ONE}, parameters)
                    for mine in _WORDS:
                        law = triehh_law.trie_law(words, {mine: _ONE}, parameters)
                        reached += self.assert_bound(law, emptied, parameters)
                        runs += 1
        self.assertGreater(runs, 1000)
        # It cannot be improved for all of them: both numbers are reached.
        self.assertGreater(reached.min(), 0)

    def test_larger_runs_of_several_levels(self):
        generator = np.random.default_rng(7)
        for _ in range(60):
            n = int(generator.integers(7, 15))
            cohort = int(generator.integers(1, n + 1))
            theta = int(generator.integers(1, min(cohort, 5) + 1))
            parameters = triehh.TrieHHParameters(n, cohort, theta, 3)
            shares = generator.dirichlet(np.full(len(_WORDS) + 1, 0.7))
            counts = generator.multinomial(n - 1, shares)
            words = dict(zip(_WORDS, counts[:-1].tolist(), strict=True))
            emptied = triehh_law.trie_law(words, {None: _ONE}, parameters)
            for mine in _WORDS:
                law = triehh_law.trie_law(words, {mine: _ONE}, parameters)
                self.assert_bound(law, emptied, parameters)

    @parameterized.parameters((6, 2, 4), (7, 3, 5), (9, 4, 6))
    def test_epsilon_is_reached_in_all_levels_at_once(self, n, theta, holders):
        # Cohorts as large as the threshold: a kept prefix always contains the user.
        parameters = triehh.TrieHHParameters(n, theta, theta, 3)
        words = {"ab$": holders - 1, "b$": n - holders}
        law = triehh_law.trie_law(words, {"ab$": _ONE}, parameters)
        emptied = triehh_law.trie_law(words, {None: _ONE}, parameters)
        found = tuple(frozenset([prefix]) for prefix in ("a", "ab", "ab$"))
        self.assertEqual(law[found], _factor(holders, theta, 3) * emptied[found])

    def test_drawing_once_costs_what_one_word_costs(self):
        parameters = triehh.TrieHHParameters(8, 5, 2, 3)
        words = {"a$": 1, "aa$": 2, "ab$": 2, "b$": 1}
        emptied = triehh_law.trie_law(words, {None: _ONE}, parameters)
        law: triehh_law.Law = {}
        for mine, share in (("ab$", 1), ("aa$", 2), ("b$", 3)):
            one = triehh_law.trie_law(words, {mine: _ONE}, parameters)
            for out, chance in one.items():
                law[out] = law.get(out, 0) + chance * fractions.Fraction(share, 6)
        self.assert_bound(law, emptied, parameters)

    def test_users_who_redraw_in_every_round(self):
        # All users draw; some words are rare in some rounds only.
        generator = np.random.default_rng(11)
        for _ in range(150):
            n = int(generator.integers(3, 7))
            cohort = int(generator.integers(1, n + 1))
            theta = int(generator.integers(1, cohort + 1))
            parameters = triehh.TrieHHParameters(n, cohort, theta, 3)
            users = [self.user(generator) for _ in range(n)]
            law = triehh_law.redrawing_law(users, parameters)
            emptied = triehh_law.redrawing_law([*users[:-1], {None: _ONE}], parameters)
            self.assertEqual(sum(law.values()), 1)
            self.assert_bound(law, emptied, parameters, redraws=True)

    def voting_law(self, votes_of, parameters, history=()):
        """The law of what is kept where votes may be for anything.

        `votes_of` gives each user's candidate, or None, from what was kept before.
        """
        if len(history) == parameters.max_length:
            return {history: _ONE}
        votes = votes_of(history)
        holders = {name: votes.count(name) for name in set(votes) - {None}}
        law: triehh_law.Law = {}
        for kept, chance in triehh_law.round_outcomes(
            holders, votes.count(None), parameters.cohort_size, parameters.threshold
        ).items():
            later = self.voting_law(votes_of, parameters, (*history, kept))
            for out, rest in later.items():
                law[out] = law.get(out, 0) + chance * rest
        return law

    @parameterized.parameters((1, False), (2, True), (3, True))
    def test_votes_for_other_things_cost_delta_in_every_round(self, rounds, is_more):
        # In each round the last user votes with another one, for what is new.
        parameters = triehh.TrieHHParameters(7, 3, 2, rounds)

        def votes_of(history, last=True):
            return [len(history) if last else None, len(history), *[None] * 5]

        law = self.voting_law(votes_of, parameters)
        emptied = self.voting_law(lambda kept: votes_of(kept, False), parameters)
        factor = _factor(3, 2, rounds)
        exact = triehh_law.exact_delta(factor, law, emptied)
        tail = _tail(7, 2, 3, 2)
        self.assertEqual(exact, 1 - (1 - tail) ** rounds)
        # The delta of prefixes, and of prefixes of words that are drawn anew, is less.
        self.assertEqual(exact > tail, is_more)
        stated = parameters.delta_of(3, False, extends_prefixes=False)
        self.assertLessEqual(exact, fractions.Fraction(stated))
        self.assertAlmostEqual(stated, float(rounds * tail))
        self.assertEqual(parameters.delta_of(3, True, extends_prefixes=False), stated)

    def test_votes_that_depend_on_what_was_kept(self):
        generator = np.random.default_rng(17)
        for _ in range(60):
            n = int(generator.integers(3, 7))
            cohort = int(generator.integers(1, n + 1))
            theta = int(generator.integers(1, cohort + 1))
            parameters = triehh.TrieHHParameters(n, cohort, theta, 2)
            chosen: dict[tuple, list] = {}

            def votes_of(history, chosen=chosen, n=n):
                if history not in chosen:
                    drawn = generator.integers(0, 3, n)
                    chosen[history] = [(None, "x", "y")[vote] for vote in drawn]
                return chosen[history]

            law = self.voting_law(votes_of, parameters)
            emptied = self.voting_law(
                lambda kept, votes_of=votes_of: [*votes_of(kept)[:-1], None], parameters
            )
            for holders in range(theta + 1, n + 1):
                exact = triehh_law.exact_delta(_factor(holders, theta, 2), law, emptied)
                stated = parameters.delta_of(holders, False, extends_prefixes=False)
                self.assertLessEqual(exact, fractions.Fraction(stated))

    def test_the_guarantee_of_votes_for_anything(self):
        parameters = triehh.TrieHHParameters(10_000, 500, 20, 6)
        found = parameters.guarantee(delta=1e-6, extends_prefixes=False)
        alone = parameters.delta_of(found.holders, False)
        self.assertAlmostEqual(found.delta, 6 * alone)
        self.assertLessEqual(found.delta, 1e-6)
        prefixes = parameters.guarantee(delta=1e-6)
        self.assertGreater(prefixes.holders, found.holders)
        self.assertLess(prefixes.epsilon, found.epsilon)
        with self.assertRaisesRegex(ValueError, "the smallest delta is"):
            parameters.guarantee(delta=1e-30, extends_prefixes=False)

    def user(self, generator):
        words = generator.choice([*_WORDS, "ba$"], size=2, replace=False).tolist()
        share = fractions.Fraction(int(generator.integers(1, 10)), 10)
        return {words[0]: share, words[1]: 1 - share}

    def test_the_oracle_of_redrawing_users(self):
        # With one word each it is the other oracle; a mixture in one round alone is
        # the mixture of the laws.
        parameters = triehh.TrieHHParameters(5, 3, 2, 3)
        single = [{word: _ONE} for word in ("a$", "aa$", "aa$", "b$", None)]
        self.assertEqual(
            triehh_law.redrawing_law(single, parameters),
            triehh_law.brute_force_law(["a$", "aa$", "aa$", "b$", None], parameters),
        )
        parameters = triehh.TrieHHParameters(4, 3, 2, 1)
        half = fractions.Fraction(1, 2)
        law = triehh_law.redrawing_law(
            [{"a$": _ONE}, {"b$": _ONE}, {None: _ONE}, {"a$": half, "b$": half}],
            parameters,
        )
        parts = [
            triehh_law.brute_force_law(["a$", "b$", None, word], parameters)
            for word in ("a$", "b$")
        ]
        for out, chance in law.items():
            self.assertEqual(chance, sum(part.get(out, 0) for part in parts) / 2)

    def test_opposite_direction_fails_for_a_small_population(self):
        # The counterexample of the module's docstring.
        parameters = triehh.TrieHHParameters(54, 9, 5, 1)
        epsilon, delta, holders = parameters.guarantee(delta=1e-4)
        self.assertEqual(holders, 6)
        words = {"a": 27, "b": 26}
        law = triehh_law.trie_law(words, {"a": _ONE}, parameters)
        emptied = triehh_law.trie_law(words, {None: _ONE}, parameters)
        self.assertAlmostEqual(delta, 3.984177e-05, places=11)
        factor = fractions.Fraction(math.exp(epsilon))
        self.assertLessEqual(triehh_law.exact_delta(factor, law, emptied), delta)
        nothing = (frozenset(),)
        self.assertNotIn(nothing, law)
        self.assertGreater(emptied[nothing], 0.04)

    @parameterized.parameters((12, 4, 2, 8), (12, 6, 3, 7), (10, 3, 1, 5))
    def test_opposite_direction_holds_among_silent_users(
        self, n, cohort, theta, silent
    ):
        # docs/triehh_privacy.md, Proposition C: users who never vote, without delta.
        length = 3
        parameters = triehh.TrieHHParameters(n, cohort, theta, length)
        spare = cohort - theta + 1
        factor = (1 + fractions.Fraction(spare, silent - spare + 1)) ** length
        for words in _populations(n - 1 - silent):
            if sum(words.values()) != n - 1 - silent:
                continue
            emptied = triehh_law.trie_law(words, {None: _ONE}, parameters)
            for mine in _WORDS:
                law = triehh_law.trie_law(words, {mine: _ONE}, parameters)
                self.assertEqual(triehh_law.exact_delta(factor, emptied, law), 0)


class GuaranteeTest(parameterized.TestCase):
    @parameterized.parameters((30, 6, 3), (100, 20, 8), (54, 9, 5), (2000, 90, 11))
    def test_is_the_best_k_and_rounded_upwards(self, n, cohort, theta):
        parameters = triehh.TrieHHParameters(n, cohort, theta, 4)
        tails = {k: _tail(n, k - 1, cohort, theta) for k in range(theta + 1, n + 1)}
        for redraws in (False, True):
            bounds = {
                k: min(4 * tail, tail / (1 - tail)) if redraws else tail
                for k, tail in tails.items()
                if tail < 1
            }
            for wanted in (1e-1, 1e-2, 1e-4, 1e-7):
                possible = [k for k, bound in bounds.items() if bound <= wanted]
                if not possible:
                    with self.assertRaisesRegex(ValueError, "smallest delta"):
                        parameters.guarantee(delta=wanted, redraws_each_round=redraws)
                    continue
                found = parameters.guarantee(delta=wanted, redraws_each_round=redraws)
                self.assertEqual(found.holders, max(possible))
                exact = 4 * math.log(found.holders / (found.holders - theta))
                self.assertAlmostEqual(found.epsilon, exact, places=12)
                bound = bounds[found.holders]
                self.assertGreaterEqual(fractions.Fraction(found.delta), bound)
                self.assertAlmostEqual(found.delta / float(bound), 1, places=9)
                back = parameters.guarantee(
                    epsilon=found.epsilon, redraws_each_round=redraws
                )
                self.assertEqual(back, found)
                tighter = parameters.guarantee(epsilon=found.epsilon * (1 - 1e-9))
                self.assertEqual(tighter.holders, found.holders + 1)

    def test_nothing_can_be_kept(self):
        parameters = triehh.TrieHHParameters(100, 10, 11, 5)
        self.assertEqual(parameters.guarantee(delta=1e-9), (0.0, 0.0, None))
        law = triehh_law.trie_law(
            {"a$": 5}, {"a$": _ONE}, triehh.TrieHHParameters(6, 2, 3, 2)
        )
        self.assertEqual(law, {(frozenset(),): 1})

    def test_too_small_an_epsilon_guarantees_nothing(self):
        parameters = triehh.TrieHHParameters(100, 10, 5, 5)
        self.assertEqual(parameters.guarantee(epsilon=0.1), (0.1, 1.0, None))

    @parameterized.parameters(
        ({}, "either delta or epsilon"),
        ({"delta": 0.1, "epsilon": 1.0}, "either delta or epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 1e-9}, "smallest delta is .* 3 users hold"),
    )
    def test_bad_requests(self, request, message):
        with self.assertRaisesRegex(ValueError, message):
            triehh.TrieHHParameters(100, 10, 3, 5).guarantee(**request)

    @parameterized.parameters(
        ("population_size", (1, 1, 10, 10)),
        ("cohort_size", (100, 101, 10, 10)),
        ("cohort_size", (100, 0, 10, 10)),
        ("threshold", (100, 10, 0, 10)),
        ("max_length", (100, 10, 10, 0)),
        ("max_length", (100, 10, 10, 2.0)),
        ("threshold", (100, 10, True, 10)),
    )
    def test_bad_parameters(self, name, arguments):
        with self.assertRaisesRegex(ValueError, name):
            triehh.TrieHHParameters(*arguments)


class DiscoveryRateTest(parameterized.TestCase):
    @parameterized.parameters(
        (10**4, 12, 151, 900, 0.0358700225),
        (10**4, 12, 151, 1500, 0.9709157069),
        (10**5, 14, 1294, 1500, 0.4301662625),
    )
    def test_digits(self, n, theta, cohort, occurrences, expected):
        parameters = triehh.TrieHHParameters(n, cohort, theta, 10)
        rate = triehh.worst_case_discovery_rate(occurrences, parameters)
        self.assertIsInstance(rate, float)
        self.assertAlmostEqual(rate, expected, delta=6e-11)

    def test_equals_exact_rational_sum_also_where_it_is_tiny(self):
        parameters = triehh.TrieHHParameters(2000, 60, 8, 5)
        occurrences = np.array([[0, 7, 8], [9, 400, 2000]])
        rates = triehh.worst_case_discovery_rate(occurrences, parameters)
        self.assertEqual(rates.shape, (2, 3))
        total = math.comb(2000, 60)
        for holders, rate in zip(occurrences.flat, rates.flat, strict=True):
            holders = int(holders)
            ways = sum(
                math.comb(holders, i) * math.comb(2000 - holders, 60 - i)
                for i in range(8, min(holders, 60) + 1)
            )
            exact = float(fractions.Fraction(ways, total) ** 5)
            self.assertAlmostEqual(rate, exact, delta=1e-8 * exact)

    def test_bad_occurrences(self):
        parameters = triehh.TrieHHParameters(2000, 60, 8, 5)
        for bad in (-1, 2001, 1.5, np.array([1.0])):
            with self.assertRaisesRegex(ValueError, "occurrences"):
                triehh.worst_case_discovery_rate(bad, parameters)

    def test_holders_needed_is_the_smallest(self):
        parameters = triehh.TrieHHParameters(300, 60, 8, 5)
        for rate in (0.05, 0.5, 0.9, 0.999):
            needed = triehh.holders_needed(parameters, rate)
            self.assertGreaterEqual(_tail(300, needed, 60, 8) ** 5, rate)
            self.assertLess(_tail(300, needed - 1, 60, 8) ** 5, rate)
        nothing = triehh.TrieHHParameters(300, 7, 8, 5)
        self.assertIsNone(triehh.holders_needed(nothing, 0.9))


if __name__ == "__main__":
    absltest.main()
