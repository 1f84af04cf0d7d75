"""Tests of what heavy hitters are asked for, as a notebook gives it."""

import dataclasses
import math
import re

from absl.testing import absltest, parameterized

from federated_hh.heavy_hitters.ldp_triehh.options import (
    LdpTrieHHOptions,
    characters_of,
)
from federated_hh.heavy_hitters.triehh.options import TrieHHOptions
from federated_hh.options.fields import OptionError
from federated_hh.populations.options.population_options import PopulationOptions
from federated_hh.privacy.shuffle import amplification as shuffling


class TrieHHOptionsTest(parameterized.TestCase):
    @parameterized.parameters(
        ({}, "give epsilon, or threshold and cohort_size"),
        (dict(threshold=9), "give epsilon, or threshold and cohort_size"),
        (
            dict(epsilon=1, threshold=9, cohort_size=9),
            "give either epsilon or",
        ),
        (dict(epsilon=math.inf), r"epsilon=inf: has to be a number in \(0, 22000\]"),
        (dict(epsilon=1, delta="2"), "delta=2: has to be a number above 0"),
        (
            dict(epsilon=1, cohort_size=9, parameters="corollary1"),
            "parameters=corollary1 chooses the cohort size; leave out cohort_size",
        ),
        (
            dict(threshold=9, cohort_size=9, discovery_rate=0.5),
            "discovery_rate=0.5 is for epsilon with parameters=tight",
        ),
    )
    def test_refused_by_the_fields_names(self, values, regex):
        with self.assertRaisesRegex(OptionError, f"^{regex}"):
            TrieHHOptions(**values)

    def test_delta(self):
        for text, expected in (
            ("1/n^2", 1e-6),
            ("1 / (300 N)", 1 / 300_000),
            ("1e-7", 1e-7),
            (1e-7, 1e-7),
        ):
            found = TrieHHOptions(epsilon=1, delta=text).delta_for(1000)
            self.assertAlmostEqual(found / expected, 1)

    def test_parameters(self):
        # Corollary 1: a cohort of (1 - e^(-8/6)) 20,000 / 10 clients.
        options = TrieHHOptions(
            epsilon=8, delta=1e-4, max_length=6, parameters="corollary1"
        )
        self.assertEqual(options.parameters_for(20_000).cohort_size, 1472)
        given = TrieHHOptions(threshold=5, cohort_size=200)
        with self.assertRaisesRegex(
            OptionError, "no guarantee at .*; or give require_guarantee=False"
        ):
            given.parameters_for(500)
        free = TrieHHOptions(threshold=5, cohort_size=200, require_guarantee=False)
        self.assertEqual(free.parameters_for(500).threshold, 5)


class LdpTrieHHOptionsTest(absltest.TestCase):
    def test_epsilons(self):
        self.assertEqual(LdpTrieHHOptions().local_epsilon, 10)
        self.assertEqual(LdpTrieHHOptions(epsilon=math.inf).local_epsilon, math.inf)
        # Reports that are shuffled have less of an epsilon than each alone.
        self.assertGreater(LdpTrieHHOptions(central_epsilon=1.0).local_epsilon, 1)
        with self.assertRaisesRegex(
            OptionError, "^epsilon and central_epsilon are both"
        ):
            LdpTrieHHOptions(epsilon=1, central_epsilon=1)

    def test_sizes(self):
        options = LdpTrieHHOptions(
            cohort_size=10, max_depth=3, num_passes=2, counting_clients=5
        )
        options.check_population(65)
        with self.assertRaisesRegex(OptionError, "need 65 clients; .* has 64"):
            options.check_population(64)
        options.check_memory(100)
        with self.assertRaisesRegex(OptionError, "^max_prefixes=20000000: a level of"):
            LdpTrieHHOptions(max_prefixes=20_000_000).check_memory(100)

    def test_a_wanted_central_epsilon_says_what_to_expect(self):
        def spent(epsilon: float) -> float:
            reports = shuffling.Reports(
                randomizer=shuffling.Randomizer.SUBSET_SELECTION,
                local_epsilon=epsilon,
                domain_size=1_011,  # 10 prefixes with each of 101 symbols
            )
            found = shuffling.amplify(reports, num_reports=3_600, delta=1e-10)
            return found.epsilon

        options = LdpTrieHHOptions(central_epsilon=4.0, cohort_size=60, max_prefixes=10)
        text = options.central_forecast(100)
        expected, enough = re.search(
            "Expect about ([0-9.]+) .*--epsilon=([0-9.]+) would spend about 4", text
        ).groups()
        self.assertAlmostEqual(
            float(expected), spent(options.local_epsilon), delta=0.01
        )
        self.assertBetween(float(enough), options.local_epsilon + 1, 20)
        self.assertLessEqual(spent(float(enough)), 4.0)
        self.assertGreater(spent(float(enough) + 0.2), 4.0)
        other = dataclasses.replace(options, randomizer="k_ary")
        self.assertNotIn("Expect", other.central_forecast(100))

    def test_characters(self):
        self.assertLen(characters_of(PopulationOptions()), 100)
        self.assertEqual(characters_of(PopulationOptions(alphabet="ab")), "ab")
        with self.assertRaisesRegex(OptionError, "^alphabet repeats a character"):
            characters_of(PopulationOptions(alphabet="aba"))


if __name__ == "__main__":
    absltest.main()
