"""Tests of what can be found: against enumerated cohorts, and votes drawn singly."""

import itertools
import math

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.heavy_hitters.ldp_triehh.options import LdpTrieHHOptions
from federated_hh.privacy.local import ldp_triehh_detection, ldp_triehh_settings
from federated_hh.privacy.triehh import detection as triehh_detection
from federated_hh.privacy.triehh import guarantees as triehh
from federated_hh.privacy.triehh import solver as triehh_solver
from federated_hh.privacy.triehh import wanted_detection as detection

_REQUEST = {
    "population_size": 20_000,
    "max_length": 6,
    "epsilon": 4.0,
    "delta": 1 / 20_000**2,
}


class TrieHHDetectionTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.law = triehh_detection.TrieHHDetection(triehh.TrieHHParameters(8, 3, 2, 5))

    def test_rate_against_all_cohorts(self):
        for holders in range(9):
            cohorts = list(itertools.combinations(range(8), 3))
            kept = sum(sum(c < holders for c in cohort) >= 2 for cohort in cohorts)
            rate = kept / len(cohorts)
            for characters in (1, 4):
                self.assertAlmostEqual(
                    self.law.rate(holders, characters), rate ** (characters + 1)
                )
        self.assertAlmostEqual(
            self.law.word_rate([6, 6, 4]),
            self.law.rate(6, 1) * math.sqrt(self.law.rate(4, 1)),
        )
        self.assertEqual(self.law.word_rate([8] * 6), 0)

    def test_drawn_words_count_with_their_share(self):
        law = triehh_detection.TrieHHDetection(self.law.parameters, True)
        # Any of 3 votes is for it with probability 1/4.
        kept = 3 * 0.25**2 * 0.75 + 0.25**3
        self.assertAlmostEqual(law.word_rate([2.0]), kept)

    def test_holders_needed(self):
        for probability in (0.3, 0.9):
            needed = self.law.holders_needed(probability, 2)
            self.assertGreaterEqual(self.law.rate(needed, 2), probability)
            self.assertLess(self.law.rate(needed - 1, 2), probability)
        self.assertIsNone(self.law.holders_needed(0.5, 5))
        hopeless = triehh_detection.TrieHHDetection(triehh.TrieHHParameters(8, 3, 4, 5))
        self.assertIsNone(hopeless.holders_needed(0.5, 1))

    def test_what_would_help(self):
        request = dict(_REQUEST)
        own = triehh_detection.TrieHHDetection(
            triehh_solver.solve_parameters(**request)
        )
        solve = triehh_solver.solve_parameters
        table = detection.rows(triehh_detection.alternatives(own, solve, request))
        by_setting = {
            row["setting"]: row
            for row in table
            if (row["characters"], row["probability"]) == (5, 0.9)
        }
        given, users, epsilon = by_setting.values()
        # The command of the accounting and the solver's own search agree.
        needed = triehh_solver.holders_needed(own.parameters, 0.9)
        self.assertEqual(given["holders"], needed)
        self.assertEqual(users["population"], 200_000)
        more = solve(**request | {"population_size": 200_000, "delta": 1 / 200_000**2})
        self.assertEqual(users["holders"], triehh_solver.holders_needed(more, 0.9))
        self.assertLess(users["share"], given["share"] / 5)
        self.assertLess(epsilon["share"], given["share"])
        text = detection.sentences(table)
        self.assertIn(f"with 0.9 if {needed:,} clients hold it", text)
        self.assertIn("with 10 times the clients", text)
        self.assertIn("with epsilon 8", text)

    def test_what_larger_cohorts_would_give(self):
        request = dict(_REQUEST)
        solve = triehh_solver.solve_parameters
        best = solve(**request)
        request["cohort_size"] = best.cohort_size // 4
        own = triehh_detection.TrieHHDetection(solve(**request))
        settings = triehh_detection.alternatives(own, solve, request)
        self.assertEqual(settings[-1].name, f"cohorts of {best.cohort_size:,}")
        table = detection.rows(settings, [0.9], 5)
        self.assertEqual(table[-1]["holders"], triehh_solver.holders_needed(best, 0.9))
        self.assertLess(table[-1]["holders"], table[0]["holders"])


class AdviceTest(absltest.TestCase):
    def row(self, setting, population, share):
        return {
            "setting": setting,
            "population": population,
            "characters": 6,
            "probability": 0.9,
            "share": share,
        }

    def test_the_change_that_helps_most(self):
        own = self.row("as given", 100, 0.2)
        more = self.row("10 times the clients", 1000, 0.05)
        larger = self.row("epsilon 8", 100, 0.1)
        fewer = self.row("fewer reports", 100, 0.15)
        little = self.row("epsilon 9", 100, 0.19)
        for table, begins, ends in (
            (
                [own, larger, more],
                "Most helpful change: 10 t",
                "clients: epsilon 8, 10%.",
            ),
            # What is free is told beside what costs epsilon and gains more.
            (
                [own, larger, more, little, fewer],
                "Most helpful change: 10 t",
                "clients: epsilon 8, 10%; fewer reports, 15%.",
            ),
            (
                [own, larger],
                "Most helpful change: epsilon 8.",
                "hold it; now it takes 20%.",
            ),
            ([own, little, self.row("epsilon 10", 100, None)], "", ""),
            ([own], "", ""),
            ([], "", ""),
        ):
            told = detection.advice(table, is_all=False)
            self.assertStartsWith(told, begins)
            self.assertEndsWith(told, ends)
            self.assertEqual(bool(told), bool(begins))
        told = detection.advice([self.row("as given", 9, None), more], is_all=False)
        self.assertIn("now not even if all hold it", told)

    def test_nothing_would_help_where_all_was_found(self):
        own, more = self.row("as given", 10, 0.2), self.row("more", 100, 0.01)
        told = detection.advice([own, more], is_all=True)
        self.assertStartsWith(told, "Every word of the")
        self.assertNotIn("help", told)


class LongerWordsTest(absltest.TestCase):
    """10,000 clients; at six symbols 0.2 of them have to hold a word."""

    TABLE = tuple(
        {"setting": name, "population": n, "characters": 5, "probability": 0.9}
        | {"share": share}
        for name, n, share in (("as given", 10**4, 0.2), ("more", 10**5, 0.04))
    )

    def advice(self, held, *, found=(), is_all=False, threshold=40):
        def at(characters):
            self.asked.append(characters)
            parameters = triehh.TrieHHParameters(10**4, 500, threshold, characters + 1)
            law = triehh_detection.TrieHHDetection(parameters)
            self.needed = law.holders_needed(0.9, characters)
            return detection.Alternative(f"--max_length={characters + 1}", law)

        self.asked = []
        words = detection.HeldWords(
            list(held),
            np.array(list(held.values())),
            np.array([word in found for word in held], bool),
            longest=5,
            at=at,
        )
        return detection.advice(self.TABLE, is_all=is_all, held=words)

    def test_frequent_words_that_are_too_long(self):
        held = {"thunderstorm": 0.4, "photograph": 0.3, "cat": 0.1, "refrigerator": 0.1}
        told = self.advice(held)
        self.assertEqual(self.asked, [12])
        self.assertBetween(self.needed / 10**4, 0.1, 0.3)
        self.assertStartsWith(
            told, "Most helpful change: --max_length=13. Words of more"
        )
        self.assertIn("; 2 of them would be, ", told)
        self.assertEndsWith(told, "such as thunderstorm, photograph.")
        told = self.advice(held, is_all=True)
        self.assertStartsWith(told, "Every word of the")
        self.assertIn("change: --max_length=13.", told)

    def test_what_gains_more_words_is_told(self):
        # Of the short words a larger population finds two more, which is more.
        held = {"thunderstorm": 0.3, "cat": 0.1, "dog": 0.05, "rare": 0.01}
        self.assertStartsWith(self.advice(held), "Most helpful change: more.")
        found = self.advice(held, found={"cat", "dog"})
        self.assertStartsWith(found, "Most helpful change: --max_length=13.")

    def test_rare_words_are_not_worth_a_longer_setting(self):
        self.assertStartsWith(
            self.advice({"photograph": 0.1}), "Most helpful change: more"
        )
        self.assertEqual(self.asked, [])
        # Nor is a setting with which they are still too rare.
        told = self.advice({"photograph": 0.21}, threshold=300)
        self.assertStartsWith(told, "Most helpful change: more")
        self.assertEqual(self.asked, [10])

    def test_one_odd_long_word_of_many_does_not_decide(self):
        held = {f"photograph{i}": 0.3 for i in range(40)} | {"x" * 90: 0.3}
        self.assertIn("--max_length=13", self.advice(held))


class SensiblePlacesTest(parameterized.TestCase):
    def law(self, clients, epsilon, levels=15, bound=60):
        return LdpTrieHHOptions(
            cohort_size=max(1, clients // levels),
            max_depth=levels,
            epsilon=epsilon,
            contribution_bound=bound,
        ).detection(clients, 100)

    @parameterized.parameters(
        (1_000, 10, 80, 120),
        (100_000, 10, 2_000, 4_000),
        (10_000_000, 10, 10_000, 10_000),
        (100_000, 3, 80, 120),
    )
    def test_by_population(self, clients, epsilon, least, most):
        found = ldp_triehh_detection.sensible_places(self.law(clients, epsilon))
        self.assertBetween(found, least, most)

    def test_where_noise_hides_all(self):
        law = self.law(60, 2)
        self.assertIsNone(ldp_triehh_detection.sensible_places(law))
        enough = ldp_triehh_detection.clients_needed(law)
        larger = ldp_triehh_detection.at_population(law, enough)
        self.assertIsNotNone(ldp_triehh_detection.sensible_places(larger))
        half = ldp_triehh_detection.at_population(law, enough // 2)
        self.assertIsNone(ldp_triehh_detection.sensible_places(half))

    def test_candidates_are_counted_for_all_levels(self):
        law = self.law(30_000, 10, levels=2)
        first, second = (level.candidates for level in law._levels)
        self.assertEqual(first, 100 * 101)
        self.assertEqual(law.num_candidates, first + second)
        fewer = ldp_triehh_detection.with_places(law, 10)
        self.assertLess(fewer.num_candidates, law.num_candidates)


class LdpTrieHHDetectionTest(parameterized.TestCase):
    def law(self, **changes):
        settings = {
            "cohort_size": 150,
            "contribution_bound": 4,
            "max_depth": 3,
            "max_prefixes": 12,
        }
        for name in ("cohort_size", "num_passes", "min_standard_errors"):
            if name in changes:
                settings[name] = changes.pop(name)
        arguments = {
            "settings": ldp_triehh_settings.LdpTrieHHSettings(**settings),
            "num_clients": 900,
            "num_characters": 8,
            "probabilities": ldp_triehh_detection.probabilities_of("k_ary", 4.0),
        }
        return ldp_triehh_detection.LdpTrieHHDetection(**arguments | changes)

    @parameterized.parameters((0, 1), (40, 1), (120, 1), (120, 0.5), (900, 1))
    def test_a_level_against_votes_drawn_one_by_one(self, holders, reported):
        law = self.law(reported_share=reported)
        random = np.random.default_rng(holders)
        repeats, candidates = 3000, 72
        own = math.exp(4) / (math.exp(4) + candidates)
        other = (1 - own) / candidates
        found = 0
        for _ in range(repeats):
            cohort = random.choice(900, 150, replace=False)
            holding = np.count_nonzero(cohort < holders)
            reports = np.count_nonzero(random.random(holding) < reported)
            spoken = random.random(600) < np.where(np.arange(600) < reports, own, other)
            votes = np.count_nonzero(spoken)
            others = np.sort(random.binomial(600, other, candidates - 1))
            kept = votes >= max(1, others[-12])
            estimate = (votes - 600 * other) / (own - other)
            held = max(estimate, 0)
            error = math.sqrt(
                held * own * (1 - own) + (600 - held) * other * (1 - other)
            ) / (own - other)
            found += kept and estimate >= 3 * error
        # Five standard deviations: a false alarm below 1e-6 each.
        rate = law.rate(holders, 1)
        spread = math.sqrt(max(rate * (1 - rate), 1e-3) / repeats)
        self.assertLess(abs(found / repeats - rate), 5 * spread)

    def test_levels_and_passes_multiply(self):
        law = self.law(min_standard_errors=0.0)
        kept = law.rate(100, 1)
        # Without a cut, the first level keeps a prefix as it keeps a word.
        longer = law.rate(100, 2)
        self.assertBetween(longer, 0, kept)
        twice = self.law(min_standard_errors=0.0, num_passes=2)
        self.assertAlmostEqual(twice.rate(100, 2), 1 - (1 - longer) ** 2)
        self.assertEqual(law.rate(900, 4), 0)

    def test_a_pass_does_not_ask_again_for_what_was_found_and_not_released(self):
        found = self.law(min_standard_errors=0.0).rate(100, 1)
        released = self.law().rate(100, 1)
        self.assertBetween(released, 0.05, found - 0.05)
        # Released by the first pass, or not found by it and released by the second.
        self.assertAlmostEqual(
            self.law(num_passes=2).rate(100, 1), released + (1 - found) * released
        )

    def test_without_privacy_only_the_places_count(self):
        law = self.law(
            probabilities=ldp_triehh_detection.probabilities_of("k_ary", math.inf)
        )
        # One holder is among the 150 of 900 clients, and found then.
        self.assertAlmostEqual(law.rate(1, 1), 150 / 900)
        self.assertAlmostEqual(law.rate(900, 3), 1)

    def test_competitors_make_it_harder(self):
        free, crowded = self.law(), self.law(competing=11)
        self.assertGreater(free.rate(60, 3), crowded.rate(60, 3))

    def test_what_would_help(self):
        def with_epsilon(epsilon):
            return ldp_triehh_detection.probabilities_of("k_ary", epsilon)

        own = self.law()
        settings = ldp_triehh_detection.alternatives(
            own, epsilon=4.0, with_epsilon=with_epsilon
        )
        self.assertEqual(
            [setting.name for setting in settings],
            [
                "as given",
                "10 times the clients, in cohorts 10 times as large",
                "cohorts of 300, the largest for these clients",
                "local epsilon 6",
            ],
        )
        shares = [row["share"] for row in detection.rows(settings, [0.9], 3)]
        self.assertLess(max(shares[1:]), shares[0])

    @parameterized.parameters(
        ({"cohort_size": 301}, "need 903 clients"),
        ({"competing": 12}, "competing"),
        ({"reported_share": 0}, "reported_share"),
    )
    def test_bad_arguments(self, changes, message):
        with self.assertRaisesRegex(ValueError, message):
            self.law(**changes)

    def test_unknown_randomizer(self):
        with self.assertRaisesRegex(ValueError, "randomizer is 'coin'"):
            ldp_triehh_detection.probabilities_of("coin", 1.0)


if __name__ == "__main__":
    absltest.main()
