"""Tests of LDP TrieHH with other randomizers, and of bad arguments."""

import dataclasses
import math

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters.ldp_triehh.parameters import ReportSampling
from federated_hh.privacy.local import plan as local_reports_plan
from federated_hh.randomizers import (
    by_name,
    k_ary,
    local_randomizer,
    one_hot,
)
from tests.federated_hh.heavy_hitters.ldp_triehh import ldp_triehh_test_case as case


class _MirroredResponse(k_ary.KAryRandomizedResponse):
    """A randomizer of a user's, with only what the interface asks for."""

    _sum_of_reports = local_randomizer.LocalRandomizer._sum_of_reports


class _DearInLargeDomains(one_hot.AsymmetricOneHotEncoding):
    @property
    def guarantee(self):
        epsilon = self.epsilon * (2 if self.domain_size > 13 else 1)
        return dataclasses.replace(super().guarantee, replacement_epsilon=epsilon)


class RandomizersTest(case.LdpTrieHHTestCase):
    @parameterized.product(
        make_randomizer=[*by_name.NAMES.values(), _MirroredResponse],
        report_sampling=list(ReportSampling),
    )
    def test_votes_have_the_randomizers_law(self, make_randomizer, report_sampling):
        # 2,000 reports of epsilon 3; "ab" is held by 500 of 1,000 clients, "ba" by
        # nobody. Votes are sums of two binomials, near enough to normal: two-sided
        # tests at 1e-6, of which a dozen are made.
        clients = [{"aa": 1} | ({"ab": 1} if i % 2 else {}) for i in range(1_000)]
        algorithm = self.algorithm(
            self.population(clients),
            contribution_bound=2,
            epsilon=3.0,
            make_randomizer=make_randomizer,
            report_sampling=report_sampling,
        )
        votes = case.Level(algorithm).votes()
        names = case.names_of_candidates(algorithm.initialize(0).trie)
        chances = {
            by_name.NAMES["k_ary"]: (1 / (1 + 12 * math.exp(-3)), None),
            _MirroredResponse: (1 / (1 + 12 * math.exp(-3)), None),
            by_name.NAMES["symmetric_one_hot"]: (
                1 / (1 + math.exp(-3)),
                1 / (1 + math.exp(3)),
            ),
            by_name.NAMES["asymmetric_one_hot"]: (0.5, 1 / (1 + math.exp(3))),
            # In one of 1,024 cases two items have one cell.
            by_name.NAMES["count_mean_sketch"]: (
                1 / (1 + math.exp(-1.5)),
                1 / (1 + math.exp(1.5)) * 1023 / 1024 + 1 / (1 + math.exp(-1.5)) / 1024,
            ),
            # One of 13 items: ceil(13 / (e^3 + 1)).
            by_name.NAMES["subset_selection"]: (1 / (1 + 12 * math.exp(-3)), None),
        }
        own, other = chances[make_randomizer]
        other = (1 - own) / 12 if other is None else other
        for name, count in (("ab", 500), ("ba", 0)):
            mean = count * own + (2_000 - count) * other
            variance = count * own * (1 - own)
            variance += (2_000 - count) * other * (1 - other)
            z = (votes[names.index(name)] - mean) / math.sqrt(variance)
            self.assertGreater(2 * stats.norm.sf(abs(z)), 1e-6, name)

    def test_words_are_found_from_any_randomizers_reports(self):
        # With epsilon 8 the weakest word stands out by more than ten deviations.
        population = self.population([{"ab": 1, "c": 1}] * 1_200)
        for make_randomizer in by_name.NAMES.values():
            algorithm = self.algorithm(
                population,
                cohort_size=600,
                max_depth=2,
                max_prefixes=3,
                contribution_bound=2,
                epsilon=8.0,
                make_randomizer=make_randomizer,
            )
            found = {word.text for word in case.run(algorithm)[0].state.found}
            self.assertContainsSubset({"ab", "c"}, found, make_randomizer)

    def test_the_plan_says_what_is_known_of_the_randomizer(self):
        population = self.population([{"a": 1}] * 4)
        for name, make_randomizer in by_name.NAMES.items():
            reports = self.algorithm(
                population, epsilon=2.0, make_randomizer=make_randomizer
            ).plan.contribution
            self.assertIsInstance(reports, local_reports_plan.LocalReports)
            factor = 2 if name == "symmetric_one_hot" else 1
            self.assertEqual(reports.replacement_epsilon, factor * 2.0)
            self.assertEqual(reports.name is None, name == "subset_selection")

    def test_a_randomizer_that_costs_more_than_planned_is_refused(self):
        algorithm = self.algorithm(
            self.population([{"a": 1}] * 4),
            max_prefixes=100,
            cohort_size=2,
            max_depth=2,
            epsilon=2.0,
            make_randomizer=_DearInLargeDomains,
        )
        state, _ = algorithm.update(algorithm.initialize(0), np.ones(12, np.int64))
        with self.assertRaisesRegex(ValueError, "36 candidates .* 4; the plan has 2"):
            algorithm.next_query(state)

    @parameterized.parameters(
        ("hadamard", "it has to be one of subset_selection"),
        ("no.such.module:Class", "has to be module:Class"),
        (
            "federated_hh.randomizers.k_ary:Other",
            "has to be module:Class",
        ),
        ("fractions:Fraction", "which is not a local randomizer"),
        (
            "federated_hh.randomizers.local_randomizer:LocalRandomizer",
            "implements all of its abstract methods",
        ),
    )
    def test_names_of_randomizers(self, name, message):
        with self.assertRaisesRegex(ValueError, message):
            by_name.randomizer(name)


class BadArgumentsTest(case.LdpTrieHHTestCase):
    @parameterized.parameters(
        ("epsilon", 0.0),
        ("epsilon", -1.0),
        ("epsilon", math.nan),
        ("epsilon", -math.inf),
        ("epsilon", 41.0),
        ("max_prefixes", 0),
        ("contribution_bound", 0),
        ("contribution_bound", 2.5),
        ("cohort_size", 0),
        ("max_depth", 0),
        ("num_passes", -1),
    )
    def test_parameters(self, name, value):
        with self.assertRaisesRegex(ValueError, f"{name}.*{value}"):
            self.algorithm(self.population([{"a": 1}]), **{name: value})

    def test_too_few_clients(self):
        population = self.population([{"a": 1}] * 100)
        with self.assertRaisesRegex(ValueError, "need 120 clients.* has 100"):
            self.algorithm(population, cohort_size=20, max_depth=3, num_passes=2)
        self.algorithm(population, cohort_size=20, max_depth=5)

    def test_padding_beyond_the_integers(self):
        population = self.population([{"a": 1}] * 4)
        options = {"num_blocks": 1, "report_sampling": ReportSampling.PER_REPORT}
        with self.assertRaisesRegex(ValueError, r"contribution_bound.*more blocks"):
            self.algorithm(population, contribution_bound=2**29, epsilon=1.0, **options)
        options["num_blocks"] = 2
        self.algorithm(population, contribution_bound=2**29, epsilon=1.0, **options)
        with self.assertRaisesRegex(ValueError, "contribution_bound.*a sum can count"):
            self.algorithm(population, contribution_bound=2**60, epsilon=1.0)

    def test_too_many_candidates(self):
        population = self.population([{"a": 1}])
        with self.assertRaisesRegex(ValueError, "at most 2,147,483,646"):
            self.algorithm(
                population, max_depth=1, max_prefixes=1, alphabet=_wide(46_341)
            )
        # With so many characters each level alone is large, and ties make it larger.
        ties = np.ones(1_400 * 1_401, np.int64)
        algorithm = self.algorithm(
            self.population([{"a": 1}] * 2),
            max_prefixes=1,
            alphabet=_wide(1_400),
            max_depth=2,
            cohort_size=1,
        )
        with self.assertRaisesRegex(ValueError, "1,961,400 prefixes.*ties"):
            algorithm.update(algorithm.initialize(0), ties)
        # After the last level there is no next one to be too large.
        algorithm = self.algorithm(population, max_prefixes=1, alphabet=_wide(1_400))
        self.assertTrue(algorithm.update(algorithm.initialize(0), ties)[0].finished)
        # Whether max_prefixes is too large depends on the levels that there are.
        self.algorithm(population, max_prefixes=10**9, max_depth=1)
        with self.assertRaisesRegex(ValueError, "1,000,000,000 prefixes"):
            self.algorithm(
                self.population([{"a": 1}] * 20),
                max_prefixes=10**9,
                max_depth=20,
                cohort_size=1,
            )

    def test_epsilon_too_small_for_the_domain(self):
        with self.assertRaisesRegex(ValueError, "epsilon is 1e-20"):
            self.algorithm(self.population([{"a": 1}]), epsilon=1e-20)

    def test_word_outside_the_alphabet(self):
        with self.assertRaisesRegex(ValueError, "'xyz' has 'x'"):
            self.algorithm(self.population([{"xyz": 1}]))

    def test_no_blocks(self):
        with self.assertRaisesRegex(ValueError, "num_blocks is 0"):
            self.algorithm(self.population([{"a": 1}]), num_blocks=0)


def _wide(size):
    """Returns an alphabet of so many characters, "a" the first of them."""
    return alphabet_lib.Alphabet("a" + "".join(map(chr, range(0x4E00, 0x4DFF + size))))


if __name__ == "__main__":
    absltest.main()
