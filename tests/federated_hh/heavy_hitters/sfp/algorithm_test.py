"""Tests of the Sequence Fragment Puzzle: its law, its decode, its bounds.

Randomized tests have a false-alarm rate of 1e-6 each.
"""

import dataclasses
import hashlib
import itertools
import math
import os

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh import run_algorithm
from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters.sfp import algorithm as sfp
from federated_hh.heavy_hitters.sfp import options as sfp_options
from federated_hh.populations.columns import client_words
from federated_hh.populations.options import population_options
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.guarantee import Unit
from federated_hh.privacy.local import sketch_plan
from federated_hh.privacy.shuffle import closed_forms
from federated_hh.randomness import noise_keys, streams
from federated_hh.rounds import steps

_FALSE_ALARM = 1e-6


def _hash(word, num_word_hashes=4, seed=0):
    """SHA-256 of the seed's eight bytes and the word, its first 64 bits modulo 4."""
    digest = hashlib.sha256(seed.to_bytes(8, "little") + word.encode()).digest()
    return int.from_bytes(digest[:8], "big") % num_word_hashes


class SfpTestCase(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = self.create_tempdir().full_path
        self.populations = 0

    def population(self, words):
        self.populations += 1
        return client_words.ClientWords.from_rows(
            os.path.join(self.scratch, str(self.populations)),
            [(str(i), [(word, 1)] if word else []) for i, word in enumerate(words)],
        )

    def algorithm(self, words, characters="abc", **options):
        values = {
            "epsilon": 8.0,
            "threshold": 3,
            "max_length": 4,
            "num_word_hashes": 4,
            "num_hashes": 16,
            "num_cells": 32,
        }
        return sfp.SequenceFragmentPuzzle(
            self.population(words),
            sfp_options.SfpOptions(**values | options),
            alphabet_lib.Alphabet(characters),
            population_has_empty_users="" in words,
        )

    def round(self, algorithm, seed=1):
        """Returns the exact sum of a run's one round, and the place after it."""
        by_hand = steps.Steps(
            algorithm, seed=seed, noise_key=noise_keys.NoiseKey(seed, is_secret=False)
        )
        place = by_hand.begin()
        query = algorithm.next_query(place.state)
        with algorithm.worker():
            drawn = by_hand.draw(place)
            total = by_hand.ask(place, query, drawn.cohort)
            step = by_hand.update(place, query, drawn, total)
        return total, step

    def items_of(self, word, max_length=4, size=3):
        """Returns a word's fragments: h(s), and two symbols of the padded word."""
        symbols = ["abc".index(c) for c in word[:max_length]]
        symbols += [size] * (max_length - len(symbols))
        value = _hash(word[:max_length])
        return [
            (value * (size + 1) + a) * (size + 1) + b
            for a, b in zip(symbols[0::2], symbols[1::2], strict=True)
        ]


class ClientTest(SfpTestCase):
    def test_fragments_are_those_of_the_padded_and_cut_word(self):
        # With so many clients every position of every word comes up.
        words = ["a", "abcab", "", "bca", "abca"]
        total, _ = self.round(self.algorithm(words * 60))
        self.assertEqual(total.shape, (2, 4 * 16))
        expected = np.zeros_like(total, bool)
        for word in words:
            for position, item in enumerate(self.items_of(word)):
                expected[position, item] = True
        np.testing.assert_array_equal(total > 0, expected)
        self.assertEqual(total.sum(), 300)

    def test_positions_are_equally_likely(self):
        total, _ = self.round(self.algorithm(["ab"] * 3_000, max_length=6))
        p = stats.chisquare(total.sum(axis=1)).pvalue
        self.assertGreater(p, _FALSE_ALARM)

    def test_a_client_reports_its_most_frequent_word(self):
        population = client_words.ClientWords.from_rows(
            os.path.join(self.scratch, "two"),
            [(str(i), [("b", 1), ("ca", 2)]) for i in range(40)],
        )
        algorithm = sfp.SequenceFragmentPuzzle(
            population,
            sfp_options.SfpOptions(max_length=4, num_word_hashes=4),
            alphabet_lib.Alphabet("abc"),
        )
        total, _ = self.round(algorithm)
        self.assertEqual(
            [np.flatnonzero(row).tolist() for row in total],
            [[item] for item in self.items_of("ca")],
        )

    def test_every_report_and_their_sum_have_one_law(self):
        # The ones of the cells of a held fragment and of all others, in both ways, as
        # normal deviates of 1,500 reports at a position: four tests.
        words = ["ab"] * 2_000 + ["c"] * 1_000
        for sampling in ("aggregate", "per_report"):
            algorithm = self.algorithm(
                words, report_sampling=sampling, epsilon=3.0, num_hashes=4, num_cells=8
            )
            total, _ = self.round(algorithm)
            plan = algorithm.plan.contribution
            sketches = plan.reported(
                total, {sketch_plan.REPORTS: 3_000}, streams.Stream(1, ("test",))
            )
            self.assertEqual(sketches.shape, (2, 4, 9))
            self.assertEqual(sketches[:, :, -1].sum(), 3_000)
            hashes = algorithm.sketch.hashes
            held = [self.items_of("ab")[0], self.items_of("c")[0]]
            right = 1 / (1 + math.exp(-1.5))
            ones = mean = variance = 0.0
            other_ones = others = 0.0
            for j, (*counts, reports) in enumerate(sketches[0].tolist()):
                cells = {int(hashes.cells(j, item)) for item in held}
                other_ones += sum(c for i, c in enumerate(counts) if i not in cells)
                others += reports * (8 - len(cells))
                cell = int(hashes.cells(j, held[0]))
                share = 1.0 if len(cells) == 1 else 2 / 3
                ones += counts[cell]
                chance = share * right + (1 - share) * (1 - right)
                mean += reports * chance
                variance += reports * chance * (1 - chance)
            z = (ones - mean) / math.sqrt(variance)
            self.assertGreater(2 * stats.norm.sf(abs(z)), _FALSE_ALARM, sampling)
            spread = math.sqrt(others * right * (1 - right))
            z = (other_ones - others * (1 - right)) / spread
            self.assertGreater(2 * stats.norm.sf(abs(z)), _FALSE_ALARM, sampling)


class DecodeTest(SfpTestCase):
    @parameterized.parameters("aggregate", "per_report")
    def test_words_are_found(self, sampling):
        # Each fragment has some 500 reports; the noise of an estimate is below 10.
        algorithm = self.algorithm(
            ["abca", "b", "ca"] * 1_000, report_sampling=sampling, num_cells=256
        )
        _, step = self.round(algorithm)
        self.assertContainsSubset(["abca", "b", "ca"], step.progress.state.words)
        tables = algorithm.results(step.progress.state)
        self.assertContainsSubset(
            ["abca", "b", "ca"], set(tables["heavy_hitters"].word)
        )
        fragments = tables["fragments"]
        self.assertContainsSubset(["ab", "b\0", "ca"], set(fragments["fragment"]))
        of_b = fragments[(fragments["fragment"] == "b\0") & (fragments.position == 1)]
        self.assertBetween(of_b["estimate"].iloc[0], 350, 650)
        self.assertIsNone(algorithm.next_query(step.progress.state))

    def test_estimates_are_near_the_truth(self):
        # The deviation that is stated, for fragments that nobody has, and twelve as
        # many for those that are held, whose variance is no larger than half more.
        algorithm = self.algorithm(
            ["ab"] * 30_000 + ["cab"] * 10_000, num_hashes=64, num_cells=1024
        )
        total, step = self.round(algorithm)
        fragments = step.progress.state.fragments
        noise = step.metrics["noise_standard_deviation"]
        for position in range(2):
            truth = total[position, fragments.items[position]]
            error = np.abs(fragments.estimates[position] - truth)
            collisions = algorithm.sketch.variance_of_collisions(total[position]).max()
            self.assertLess(error.max(), 6 * math.hypot(noise, collisions**0.5) * 1.5)

    def stitched(self, rows, **options):
        """Stitches fragments given as (word hash, characters) of each position."""
        algorithm = self.algorithm(["a"], **options)
        items = np.array(
            [
                [
                    (value * 4 + "abc\0".index(text[0])) * 4 + "abc\0".index(text[1])
                    for value, text in row
                ]
                for row in rows
            ]
        )
        return algorithm.stitch(sfp.Fragments(items, np.zeros(items.shape)))

    def test_all_choices_of_one_hash_are_words(self):
        found = self.stitched(
            [
                [(1, "ab"), (1, "bb"), (2, "cc"), (3, "aa")],
                [(1, "\0\0"), (1, "c\0"), (2, "ab"), (2, "\0\0")],
            ]
        )
        self.assertEqual(found, ("ab", "abc", "bb", "bbc", "ccab", "cc"))

    def test_what_follows_an_end_is_cut_off(self):
        found = self.stitched([[(0, "a\0"), (1, "\0b")], [(0, "bc"), (1, "ab")]])
        self.assertEqual(found, ("a",))

    def test_a_smaller_threshold_keeps_the_first_fragments(self):
        fragments = sfp.Fragments(
            np.array([[5, 6, 7], [1, 2, 3]]), np.array([[9.0, 8, 7], [6, 5, 4]])
        )
        self.assertEqual(fragments.first(2).items.tolist(), [[5, 6], [1, 2]])
        self.assertEqual(fragments.first(2).estimates.tolist(), [[9, 8], [6, 5]])

    def test_the_bound_on_stitching_comes_before_the_work(self):
        # 15 fragments of one hash at each of 5 positions: 15^5 words.
        pairs = ["".join(p) for p in itertools.product("abc\0", repeat=2)][:15]
        rows = [[(0, pair) for pair in pairs]] * 5
        with self.assertRaisesRegex(
            sfp.StitchingError,
            "threshold is 15: .* make 759,375 words, more than .*1,0",
        ):
            self.stitched(rows, max_length=10, max_words=1_000)
        with self.assertRaisesRegex(sfp.StitchingError, "759,375"):
            self.stitched(rows, max_length=10, max_words=759_374)

    def test_too_many_words_do_not_lose_what_was_asked_for(self):
        algorithm = self.algorithm(["ab", "bc", "ca"] * 300, max_words=1)
        with self.assertLogs(level="WARNING") as logged:
            _, step = self.round(algorithm)
        self.assertIn("more than max_words = 1", logged.output[0])
        state = step.progress.state
        self.assertEqual(state.words, ())
        self.assertEqual(state.fragments.items.shape, (2, 3))
        self.assertIsNone(algorithm.next_query(state))
        one = sfp.Fragments(*(np.array(self.items_of("ab"))[:, None] for _ in range(2)))
        kept = [set(row) for row in state.fragments.items.tolist()]
        for row, item in zip(kept, one.items[:, 0], strict=True):
            self.assertIn(item, row)
        self.assertEqual(algorithm.stitch(one), ("ab",))


class PlanTest(SfpTestCase):
    def statement(self, algorithm, repeats=1, delta=1e-6):
        return algorithm.plan.statement(None, delta, repeats=repeats)

    def test_the_statement(self):
        algorithm = self.algorithm(["ab"] * 100_000, epsilon=3.0)
        made = self.statement(algorithm)
        local = [g for g in made.guarantees if g.delta == 0]
        self.assertEqual({g.epsilon for g in local}, {3.0})
        self.assertEqual({g.unit for g in local}, {Unit.ITEM, Unit.CLIENT})
        balle = [g for g in made.guarantees if "Balle" in g.bound]
        self.assertLen(balle, 1)
        # It inverts the closed form that the paper's local budgets come from.
        inverse = closed_forms.hoeffding_blanket_local_epsilon(
            balle[0].epsilon, 1e-6, 100_000
        )
        self.assertAlmostEqual(inverse, 3.0, 6)
        central = [g for g in made.guarantees if g.delta and g is not balle[0]]
        for guarantee in central:
            self.assertLess(guarantee.epsilon, balle[0].epsilon)
        self.assertIn("SequenceFragmentPuzzle with CountMeanSketch", made.mechanism)
        # There is one round, without levels, and nothing is counted beside it.
        for text in (made.accounting, *made.assumptions, *made.not_counted):
            self.assertNotRegex(text, r"\blevels?\b|counting task")

    def test_repeats_cost_more(self):
        algorithm = self.algorithm(["ab"] * 1_000, epsilon=3.0)
        for repeats, epsilon in ((1, 3.0), (4, 12.0)):
            local = [
                g.epsilon
                for g in self.statement(algorithm, repeats).guarantees
                if g.delta == 0 and not g.of_one_repeat
            ]
            self.assertEqual(set(local), {epsilon})

    @parameterized.parameters(
        (1, {sketch_plan.REPORTS: 9}, "reports is 9; a cohort of 10 sends as many"),
        (2, {sketch_plan.REPORTS: 10}, "round 2 is not in the plan"),
    )
    def test_other_rounds_than_planned(self, number, facts, message):
        plan = self.algorithm(["ab"] * 10).plan
        with self.assertRaisesRegex(ValueError, message):
            plan.check_round(number, facts)

    def test_other_sums_than_of_the_round(self):
        contribution = self.algorithm(["ab"] * 10).plan.contribution
        facts, stream = {sketch_plan.REPORTS: 10}, streams.Stream(1, ("test",))
        with self.assertRaisesRegex(ValueError, r"the shape \(2, 3\)"):
            contribution.reported(np.zeros((2, 3), np.int64), facts, stream)
        with self.assertRaisesRegex(ValueError, "the sum is of 0 items; 10 clients"):
            contribution.reported(np.zeros((2, 64), np.int64), facts, stream)

    def test_a_sketch_without_a_guarantee(self):
        plan = self.algorithm(["ab"] * 10).plan

        class Open(type(plan.contribution.sketch)):
            guarantee = property(
                lambda self: dataclasses.replace(
                    super().guarantee, replacement_epsilon=math.inf
                )
            )

        contribution = dataclasses.replace(
            plan.contribution, sketch=Open(1.0, 64, num_hashes=2, num_cells=2)
        )
        with self.assertRaisesRegex(
            ValueError, "sketch has a replacement epsilon of inf"
        ):
            plan_lib.Plan(
                sampler=plan.sampler,
                contribution=contribution,
                mechanism=plan.mechanism,
            )


class OptionsTest(SfpTestCase):
    @parameterized.parameters(
        ({"max_length": 5}, "max_length=5: has to be even"),
        ({"num_cells": 1000}, "num_cells=1000: has to be a power of two"),
        ({"epsilon": 0}, "epsilon=0"),
        ({"threshold": 0}, "threshold=0"),
        ({"report_sampling": "all"}, "report_sampling=all"),
    )
    def test_bad_options(self, values, message):
        with self.assertRaisesRegex(ValueError, message):
            sfp_options.SfpOptions(**values)

    def test_too_large_sketches(self):
        with self.assertRaisesRegex(
            ValueError, "num_hashes is 1,048,576: with num_cells = 1,048,576 and 2 po"
        ):
            self.algorithm(["a"], num_hashes=2**20, num_cells=2**20)

    def test_too_many_fragments(self):
        with self.assertRaisesRegex(
            ValueError, "num_word_hashes is 1,048,576: .* 5 po"
        ):
            self.algorithm(
                ["a"], num_word_hashes=2**20, max_length=10, characters="abcdefghijk"
            )

    def test_more_clients_than_there_are(self):
        with self.assertRaisesRegex(ValueError, "cohort_size is 11"):
            self.algorithm(["a"] * 10, cohort_size=11)

    def test_it_runs_by_its_name(self):
        kind = run_algorithm.load(
            "federated_hh.heavy_hitters.sfp.algorithm:SequenceFragmentPuzzle"
        )
        made = kind.of(
            kind.Options(num_word_hashes=8),
            population_options.PopulationOptions(num_clients=50, empty_clients="keep"),
            self.scratch,
            1,
        )
        self.assertEqual(made.plan.sampler.cohort_size, 50)
        self.assertTrue(made.plan.contribution.population_has_empty_users)


if __name__ == "__main__":
    absltest.main()
