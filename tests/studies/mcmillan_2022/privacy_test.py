"""Tests of Figure 1 of McMillan et al. 2022 against other programs and exact laws."""

import math
from unittest import mock

import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from federated_hh.privacy.shuffle import amplification as shuffling
from studies import pages
from studies.mcmillan_2022 import privacy as figure1
from tests.federated_hh.privacy import enumeration

_ASYMMETRIC = ("equation1", "clones_2021", "clones_2022", "asymmetric")


def _losses(lower, upper, **options):
    """Returns dp-accounting's privacy loss of two laws, given as arrays."""
    pairs = [
        {i: math.log(p) for i, p in enumerate(law.ravel()) if p > 0}
        for law in (lower, upper)
    ]
    return pld.from_two_probability_mass_functions(
        *pairs, value_discretization_interval=1e-4, **options
    )


def _clones_by_pld(local, cohort, delta):
    """Returns epsilon of the pair of the clones of 2022, by dp-accounting."""
    honest = 1 / (1 + math.exp(-local))
    mean = (cohort - 1) * 2 * (1 - honest)
    counts = np.arange(int(mean + 12 * math.sqrt(mean)))
    a = np.arange(len(counts) + 1)
    clones = stats.binom.pmf(counts, cohort - 1, 2 * (1 - honest))[:, np.newaxis]
    first = stats.binom.pmf(a - 1, counts[:, np.newaxis], 0.5)
    second = stats.binom.pmf(a, counts[:, np.newaxis], 0.5)
    laws = [
        clones * (share * first + (1 - share) * second)
        for share in (honest, 1 - honest)
    ]
    return _losses(*laws).get_epsilon_for_delta(delta)


def _one_data_set_by_pld(local, cohort, delta):
    """Returns epsilon of sums where all others hold a third item: no bound is less."""
    other = 1 / (1 + math.exp(local))
    total = np.arange(cohort + 1)
    without, with_ = (
        stats.binom.pmf(total - bit, cohort - 1, other) for bit in range(2)
    )
    own, foreign = (b * with_ + (1 - b) * without for b in (0.5, other))
    taken, come = (
        _losses(*laws, pessimistic_estimate=False)
        for laws in ((foreign, own), (own, foreign))
    )
    return taken.compose(come).get_epsilon_for_delta(delta)


class ValuesTest(parameterized.TestCase):
    def test_the_papers_claim(self):
        found = figure1.epsilons(3.0, 1001)
        for name in ("clones_2022", "asymmetric", "symmetric"):
            self.assertLessEqual(found[name], 1.0, name)
        self.assertLessEqual(_clones_by_pld(3.0, 1001, 1e-6), 1.0)
        reports = shuffling.Reports(
            randomizer=shuffling.Randomizer.ASYMMETRIC_ONE_HOT, local_epsilon=3.0
        )
        least = shuffling.minimum_reports(reports, epsilon=1.0, delta=1e-6)
        self.assertLessEqual(least, 1001)
        # The published program has the clones of 2021, which need more.
        self.assertGreater(found["clones_2021"], 1.0)

    @parameterized.parameters((3.0, 1000), (6.0, 10_000))
    def test_against_dp_accounting(self, local, cohort):
        found = figure1.epsilons(local, cohort)
        expected = _clones_by_pld(local, cohort, 1e-6)
        # dp-accounting rounds losses upwards to multiples of 1e-4.
        self.assertBetween(expected, found["clones_2022"], found["clones_2022"] + 2e-4)
        least = _one_data_set_by_pld(local, cohort, 1e-6)
        self.assertGreater(least, 0.1)
        for name in _ASYMMETRIC:
            if not math.isnan(found[name]):
                self.assertGreater(found[name], least, name)

    def test_every_small_data_set_is_within_the_bounds(self):
        generator = np.random.default_rng(15)
        for _ in range(12):
            local, cohort = float(generator.uniform(0.5, 3)), 4
            delta = float(generator.uniform(0.01, 0.1))
            found = figure1.epsilons(local, cohort, delta)
            others = generator.integers(3, size=cohort - 1).tolist()
            for name in (*_ASYMMETRIC, "symmetric", "symmetric_deletion"):
                if math.isnan(found[name]):
                    continue
                own = local / 2 if name == "symmetric" else local
                matrix, vectors = enumeration.one_hot(
                    own, 3, symmetric=name.startswith("symmetric")
                )
                laws = [
                    enumeration.sum_law(matrix, [x, *others], vectors) for x in (0, 1)
                ]
                exact = enumeration.delta(found[name], *laws)
                self.assertLessEqual(exact, delta * (1 + 1e-9), name)

    def test_equation_1_only_where_it_is_valid(self):
        self.assertTrue(math.isnan(figure1.equation1(3.0, 2000, 1e-6)))
        # By hand: e^3 - 1 = 19.0855, e^3 + 1 = 21.0855, ln(4e6) = 15.2018.
        factor = 4 * math.sqrt(2 * 15.2018 / (21.0855 * 1e5)) + 4e-5
        self.assertAlmostEqual(
            figure1.equation1(3.0, 10**5, 1e-6),
            math.log(1 + 19.0855 * factor),
            places=5,
        )


class StudyTest(absltest.TestCase):
    def test_files(self):
        options = figure1.Options(cohorts_per_decade=1)
        self.assertEqual(options.cohorts, (100, 1000, 10**4, 10**5, 10**6, 10**7))
        with mock.patch.object(figure1.Options, "cohorts", (1000,)):
            made = figure1.prepare("", options, seed=1, cache="")
            found = made.run_part(made.settings[0], 0, None)
        rows = {
            name: pd.DataFrame(found[name]).assign(setting="", repeat=0)
            for name in found
        }
        files = made.files(rows, None)
        self.assertTrue(files["figure1.png"].startswith(b"\x89PNG"))
        page = files["table.md"].decode()
        # 0.82311 rounded upwards, and equation (1) left out.
        self.assertIn("| 3 | 1,000 |  | 1.27 | 0.824 |", page)
        self.assertIn("| 736 |", page)

    def test_bounds_are_shown_as_bounds(self):
        for value, shown in (
            (0.82311, "0.824"),
            (0.1, "0.100"),
            (5.721, "5.73"),
            (0.00287817, "0.00288"),
            (math.nan, ""),
        ):
            self.assertEqual(pages.upper_bound(value), shown)


if __name__ == "__main__":
    absltest.main()
