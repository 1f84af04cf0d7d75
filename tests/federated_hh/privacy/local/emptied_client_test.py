"""Tests of the bound for an emptied client, against the exact law of small levels."""

import functools
import itertools
import math
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.privacy.local import emptied_client
from federated_hh.privacy.shuffle import blanket
from tests.federated_hh.privacy import enumeration


def _law_of_totals(local_epsilon, domain_size, items):
    """Returns the law of a level's totals, that of the last item left out."""
    size = blanket.best_subset_size(local_epsilon, domain_size)
    subsets = enumeration.subsets(domain_size, size)
    chances = enumeration.subset_selection(local_epsilon, domain_size, size)
    law = np.ones((1,) * (domain_size - 1))
    for item in items:
        longer = np.zeros([length + 1 for length in law.shape])
        for subset, chance in zip(subsets, chances[item], strict=True):
            places = tuple(
                slice(int(i in subset), int(i in subset) + length)
                for i, length in enumerate(law.shape)
            )
            longer[places] += chance * law
        law = longer
    return law.ravel()


def _delta(epsilon, first, second):
    gain = math.exp(epsilon)
    return max(
        np.maximum(first - gain * second, 0).sum(),
        np.maximum(second - gain * first, 0).sum(),
    )


def _partial_matchings(count):
    """Yields the sets of pairs (i, j) in which no i and no j is twice."""
    for size in range(count + 1):
        for left in itertools.combinations(range(count), size):
            for right in itertools.permutations(range(count), size):
                yield list(zip(left, right, strict=True))


class EmptiedClientTest(parameterized.TestCase):
    # Reports hold one item at s = 2 and 3, two at s = 4.
    @parameterized.parameters(
        (0.5, 2, 300, 1), (1.5, 2, 300, 1), (0.7, 3, 60, 2), (1.5, 3, 60, 2),
        (0.2, 4, 40, 1), (0.3, 4, 20, 2),
    )  # fmt: skip
    def test_exact_levels_are_within_what_is_stated(self, local, s, clients, bound):
        delta = 1e-3
        stated = emptied_client.epsilon(
            local,
            [s],
            cohort_size=clients,
            contribution_bound=bound,
            num_repeats=1,
            delta=delta,
        )
        count = (clients - 1) * bound
        nothing = [s - 1] * bound
        for others in (
            *([item] * count for item in range(s)),
            [i % s for i in range(count)],
        ):
            emptied = _law_of_totals(local, s, others + nothing)
            for held in range(1, bound + 1):
                full = _law_of_totals(
                    local, s, [*others, *range(held), *nothing[held:]]
                )
                self.assertLessEqual(_delta(stated, full, emptied), delta)

    @parameterized.parameters((1, 20_000), (2, 2_000))
    def test_is_near_the_truth_in_large_cohorts(self, repeats, clients):
        delta = 1e-3
        stated = emptied_client.epsilon(
            0.5,
            [2],
            cohort_size=clients,
            contribution_bound=1,
            num_repeats=repeats,
            delta=delta,
        )
        others = [1] * (clients - 1)
        laws = [_law_of_totals(0.5, 2, [*others, item]) for item in (0, 1)]
        full, emptied = (
            functools.reduce(np.multiply.outer, [law[sum(laws) > 1e-12]] * repeats)
            for law in laws
        )
        self.assertLessEqual(_delta(stated, full, emptied), delta)
        self.assertGreater(_delta(stated / 1.6, full, emptied), delta)

    @parameterized.parameters((5.0, 0.3, 4), (400.0, 0.9, 20))
    def test_a_count_against_its_definition(self, mean, chance, bound):
        added = stats.binom.pmf(np.arange(bound + 1), bound, chance)
        count = emptied_client.ShiftedCount(mean, added)
        with mock.patch.multiple(emptied_client, _DEVIATIONS=0.1, _MARGIN=0):
            narrow = emptied_client.ShiftedCount(mean, added)
        values = np.arange(0, int(mean + 15 * math.sqrt(mean) + 60))
        chances = stats.poisson.pmf(values, mean)
        # The likelihood ratio of k points more is a falling factorial over mean^k.
        ratio, falling = np.zeros(len(values)), np.ones(len(values))
        for k, weight in enumerate(added):
            ratio += weight * falling
            falling = falling * np.maximum(values - k, 0) / mean
        for epsilon in (0.0, 0.2, 1.0, 3.0):
            exact = _delta(epsilon, chances, ratio * chances)
            found = count.delta(epsilon)
            self.assertBetween(found, exact * (1 - 1e-9), exact * (1 + 1e-6) + 1e-20)
            # What a table does not reach is counted.
            self.assertGreaterEqual(narrow.delta(epsilon), exact * (1 - 1e-9))

    def test_an_observer_may_be_shown_an_added_count(self):
        hidden = emptied_client.ShiftedCount(50.0, np.array([0.4, 0.6]))
        shown = emptied_client.ShiftedCount(50.0, np.array([0.4, 0.5]), 0.1)
        self.assertGreater(shown.delta(0.1), hidden.delta(0.1))
        self.assertBetween(shown.delta(10.0), 0.1, 0.1 + 1e-20)

    @parameterized.parameters((0.1, 8, 1e-9), (0.7, 9, 1e-9), (2.0, 9, 1e-9))
    def test_items_that_share_reports_are_no_better_hidden(self, local, s, failure):
        # The mean square of the likelihood ratio is a divergence: that of the reports
        # is at most that of the counts. Reports with several of the client's items
        # make it larger than counts as frequent as the items would have it.
        bound = 3
        d = blanket.best_subset_size(local, s)
        none, item = emptied_client.counts_of_level(local, s, 90_000, bound, failure)
        chance = 1 - s / (s + d * math.expm1(local))
        both = s * (d - 1) / (d * (s - 1))
        exact = math.fsum(
            math.prod(
                chance**2 / none.mean * (1.0 if i == j else both * d / s)
                for i, j in matching
            )
            for matching in _partial_matchings(bound)
        )
        self.assertLessEqual(exact, (1 + chance**2 / item.mean) ** bound)
        self.assertGreaterEqual(exact, (1 + chance**2 / none.mean) ** bound)

    @parameterized.parameters((10.0, 10_101), (10.0, 766_288), (2.0, 10_101))
    def test_what_the_counts_do_not_cover_is_rare(self, local, s):
        reports, bound, failure = 3_000_000, 60, 1e-14
        d = blanket.best_subset_size(local, s)
        none, item = emptied_client.counts_of_level(local, s, reports, bound, failure)
        gamma = s / (s + d * math.expm1(local))
        points = none.mean * s / d
        # The Poisson number of points is at most that of blanket reports.
        between = np.arange(int(points), int(gamma * reports))
        more = stats.poisson.sf(between, points)
        fewer = stats.binom.cdf(between - 1, reports - bound, gamma)
        self.assertLessEqual(np.maximum(more, fewer).min(), 1.1 * failure)
        self.assertBetween(points, 0.97 * gamma * reports, gamma * reports)
        most = round(none.mean / item.mean)
        more = stats.hypergeom.sf(most - 1, s - 1, d - 1, bound - 1)
        self.assertLessEqual(bound * (1 - gamma) * more, 1.1 * failure)
        # Reports with more of the client's items are given away.
        given_away = item.delta(item.largest)
        self.assertBetween(given_away, (1 - gamma) * more, 1.1 * failure / bound)

    @parameterized.parameters((60, 1), (60, 3), (1, 16), (4, 4))
    def test_the_papers_production_setting_by_the_central_limit(self, bound, repeats):
        local, s, reports, delta = 10.0, 10_101, 30_000_000, 1e-10
        stated = emptied_client.epsilon(
            local,
            [s],
            cohort_size=reports // bound,
            contribution_bound=bound,
            num_repeats=repeats,
            delta=delta,
        )
        # A report holds one item: the client's with p, each other with q.
        p = math.exp(local) / (math.exp(local) + s - 1)
        q = (1 - p) / (s - 1)
        shift = (p - q) * math.sqrt(
            repeats * (bound**2 + bound) / (reports * q * (1 - q))
        )

        def gaussian(epsilon):
            upper, lower = shift / 2 - epsilon / shift, -shift / 2 - epsilon / shift
            return stats.norm.cdf(upper) - math.exp(epsilon) * stats.norm.cdf(lower)

        # A Poisson total has a longer tail than a Gaussian.
        self.assertLess(gaussian(stated), delta)
        self.assertGreater(gaussian(stated / 1.1), delta)

    def test_too_few_reports_hide_nobody(self):
        found = emptied_client.epsilon(
            10.0,
            [1000],
            cohort_size=2,
            contribution_bound=3,
            num_repeats=1,
            delta=1e-6,
        )
        self.assertEqual(found, math.inf)

    def test_the_uncovered_events_cost_delta(self):
        with mock.patch.object(emptied_client, "_SHARE", 0.5):
            found = emptied_client.epsilon(
                1.0,
                [3],
                cohort_size=10_000,
                contribution_bound=2,
                num_repeats=1,
                delta=1e-3,
            )
        self.assertEqual(found, math.inf)


if __name__ == "__main__":
    absltest.main()
