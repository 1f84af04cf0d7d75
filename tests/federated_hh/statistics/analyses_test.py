"""Tests of the analyses: pairs with ages, distributions, and an analyst's own."""

import json

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy.local import device_policy, device_reports_plan
from federated_hh.randomness import streams
from federated_hh.rounds import samplers
from federated_hh.statistics.analyses import custom_recipes, distribution, joint, ngrams
from federated_hh.statistics.devices import aggregation, device, fleet, vector_fleet
from federated_hh.statistics.recipes import contents
from federated_hh.statistics.recipes import recipe as recipe_lib
from tests import ROOT
from tests.federated_hh.statistics import cases

_LIMITS = device_policy.Limits(aggregate_epsilon=6.0, reports=4, local_epsilon=6.0)
_ONCE = device_policy.Limits(aggregate_epsilon=2.0, reports=1, local_epsilon=6.0)
_COMMON = {"aggregation": "secure_sum", "fingerprint": "tests"}


def _approval(**fields):
    return cases.approval(limits=_LIMITS, fields=fields, delta=1e-3)


def _everybody(kind, stored, approval, **options):
    return kind(
        vector_fleet.VectorFleet(approval, stored),
        approval,
        samplers.UniformCohorts(stored.num_devices, stored.num_devices),
        **options,
        **_COMMON,
    )


def _run(algorithm):
    """Returns all recipes asked, and the last state."""
    state, asked = algorithm.initialize(0), []
    cohort = np.arange(algorithm.plan.sampler.num_clients)
    while (query := algorithm.next_query(state)) is not None:
        asked.append(algorithm.recipe(state))
        stream = streams.Stream(7, ("round", len(asked)))
        batch = query.ask(cohort, stream)
        released = device_reports_plan.MinimumCohort().release(
            batch, None, query.facts, stream
        )
        state, _ = algorithm.update(state, released.value)
    return asked, state


def _joint(stored, is_interactive=True, **options):
    return _everybody(
        joint.Joint,
        stored,
        _approval(ngrams=_LIMITS, age=_ONCE),
        tokens=stored.words,
        length=3,
        is_interactive=is_interactive,
        max_prefixes=3,
        false_positives=0.01,
        epsilon=2.0,
        **options,
    )


class JointTest(parameterized.TestCase):
    def test_the_last_query_is_the_figure(self):
        algorithm = _joint(cases.stored(20_000))
        found = ngrams.Found(
            ("hello world", "i went", "i got"), np.ones(3), np.ones(3), 20_000
        )
        recipe = algorithm.recipe(joint.State((), 2, (found, found)))
        figure = cases.recipe()
        self.assertEqual(recipe.content.num_cells, 272)
        for cell in range(272):
            self.assertEqual(recipe.content.names(cell), figure.content.names(cell))
        self.assertEqual(recipe.query, figure.query)

    def test_a_query_goes_on_from_the_most_frequent(self):
        algorithm = _joint(cases.stored(20_000))
        found = ngrams.Found(("i", "a", "home", "and"), np.ones(4), np.ones(4), 20_000)
        recipe = algorithm.recipe(joint.State((), 1, (found,)))
        leaves = recipe.content.types["ngrams"].leaves
        self.assertEqual(leaves, (("i",), ("a",), ("home",)))
        nothing = ngrams.Found((), np.zeros(0), np.zeros(0), 20_000)
        self.assertIsNone(algorithm.recipe(joint.State((), 1, (nothing,))))

    def planted(self):
        """Returns devices of which a third of those in their forties has one 3-gram."""
        stored = cases.stored(20_000, seed=3)
        owners = np.repeat(np.arange(20_000), np.diff(stored.splits))
        forties = (stored.ages >= 40) & (stored.ages < 50)
        chosen = forties[owners] & (owners % 3 == 0)
        stored.grams[chosen] = [stored.words.index(w) for w in ("i", "went", "home")]
        return stored

    @parameterized.parameters(True, False)
    def test_finds_what_was_planted(self, is_interactive):
        algorithm = _joint(self.planted(), is_interactive)
        asked, state = _run(algorithm)
        fields = [[*recipe.content.types] for recipe in asked]
        both = ["age", "ngrams"]
        self.assertEqual(fields, [["ngrams"]] * 2 * is_interactive + [both])
        if not is_interactive:
            self.assertEqual(asked[0].content.num_cells, 8 * (1 + 9 * 9 * 11))
        results = algorithm.results(state)
        self.assertEqual("ngrams" in results, is_interactive)
        pairs = results["pairs"]
        found = pairs[pairs["found"]].set_index(["ngram", "age"])
        planted = found.loc[("i went home", "[40, 50)")]
        self.assertGreater(planted["estimate"], 5 * planted["stderr"])
        self.assertEqual(pairs["ngram"][0], "i went home")
        # Each n-gram with all ages, and shares of all reports.
        self.assertEqual(len(pairs) % 8, 0)
        np.testing.assert_allclose(pairs["share"], pairs["estimate"] / 20_000)

    def test_an_age_is_asked_for_once(self):
        algorithm = _joint(self.planted())
        _run(algorithm)
        spent = algorithm.devices.spent(5)
        self.assertEqual(spent["age"].reports, 1)
        self.assertEqual(spent["ngrams"].reports, 3)


def _distribution(stored, queries=3, **options):
    buckets = distribution.Buckets(
        **{
            "largest": 8.0,
            "first": 4,
            "parts": 2,
            "split_stderrs": 3.0,
            "most": 100,
        }
        | options
    )
    return _everybody(
        distribution.Distribution,
        stored,
        _approval(seconds=_LIMITS),
        buckets=buckets,
        max_queries=queries,
        epsilon=1.5,
    )


class DistributionTest(parameterized.TestCase):
    def test_large_buckets_are_split(self):
        # An empty bucket has the standard error 0.01: a part needs 0.03.
        shares = np.array([0.0, 0.5, 0.07, 0.05, 0.38, 0.0])
        histogram = distribution.nested_histograms.Histogram(
            np.array([0.0, 2.0, 4.0, 6.0, 8.0]), shares, 100, 0.01, 1.0
        )
        for most, expected in (
            (100, [0, 1, 2, 3, 4, 6, 7, 8]),
            (5, [0, 1, 2, 4, 6, 8]),
            (4, [0, 2, 4, 6, 8]),
        ):
            buckets = distribution.Buckets(
                largest=8.0, first=4, parts=2, split_stderrs=3.0, most=most
            )
            np.testing.assert_array_equal(buckets.begin(), [0, 2, 4, 6, 8])
            np.testing.assert_array_equal(buckets.refine(histogram), expected)

    def test_estimates_the_truth(self):
        stored = cases.stored(20_000)
        algorithm = _distribution(stored)
        asked, state = _run(algorithm)
        sizes = [recipe.content.num_cells for recipe in asked]
        self.assertLess(sizes[0], sizes[1])
        self.assertLess(sizes[1], sizes[2])
        buckets = algorithm.results(state)["buckets"]
        # A device, then one of its events.
        weights = np.repeat(1 / np.diff(stored.splits), np.diff(stored.splits))
        for row in buckets.itertuples():
            is_below = stored.seconds < row.to_seconds
            truth = (weights * is_below).sum() / 20_000
            error = abs(row.share_below_end - truth)
            self.assertLessEqual(error, 4 * row.stderr_below_end + 1e-12)
        self.assertAlmostEqual(buckets["share"].sum(), 1)
        self.assertEqual(buckets["to_seconds"].iloc[-1], np.inf)
        quantiles = algorithm.results(state)["quantiles"]
        self.assertTrue(quantiles["seconds"].is_monotonic_increasing)

    def test_one_query_is_a_grid(self):
        asked, state = _run(_distribution(cases.stored(20_000), 1, first=32))
        self.assertLen(asked, 1)
        self.assertLen(state.histograms, 1)
        kind = asked[0].content.types["seconds"]
        self.assertEqual(kind.boundaries, tuple(np.arange(33) / 4))

    def test_too_few_reports_end_it(self):
        algorithm = _distribution(cases.stored(20_000))
        released = device_reports_plan.Aggregate(None, 3)
        state, _ = algorithm.update(algorithm.initialize(0), released)
        self.assertIsNone(algorithm.recipe(state))
        for table in algorithm.results(state).values():
            self.assertEmpty(table)


# What an analyst is told, and a change of the figure's recipe that it is told of.
_REFUSED = {
    device.Told.VERSION: {"version": "0"},
    device.Told.ANALYSIS: {"AnalysisIdentifier": "com.example.secret"},
    device.Told.COHORT: {"cohorts": ["income"]},
    device.Told.QUERY: {"query": "select time as age, ngrams from KeyboardNGrams"},
    device.Told.CHECK_1: {"privacyBudget__cohortAggregateEpsilon": 1.5},
    device.Told.CHECK_2: {"privacyBudget__cohortAggregateEpsilon": 0.6},
    device.Told.CHECK_3: {"privacyBudget__minimumCohort": 10},
}


class CustomRecipesTest(parameterized.TestCase):
    def own(self, recipes, num_devices=6000, is_real=False):
        approval, stored = cases.approval(), cases.stored(num_devices)
        devices = vector_fleet.VectorFleet(approval, stored)
        if is_real:
            sums = aggregation.SecureSum()
            devices = fleet.DeviceFleet(approval, stored, sums)
        sampler = samplers.UniformCohorts(num_devices, num_devices)
        algorithm = custom_recipes.CustomRecipes(
            devices, approval, sampler, recipes=recipes, **_COMMON
        )
        return algorithm

    @parameterized.parameters(*_REFUSED)
    def test_each_refusal_has_its_reason_and_costs_nothing(self, told):
        recipe = cases.recipe(**_REFUSED[told])
        for is_real in (False, True):
            algorithm = self.own([recipe], 20, is_real)
            _, state = _run(algorithm)
            ((number, reason),) = algorithm.complaints(state)
            self.assertEqual((number, reason), (0, f"no device answered: {told.value}"))
            spent = algorithm.devices
            spent = spent.devices.accountant if is_real else spent
            for i in range(20):
                self.assertEqual(spent.spent(i), {})

    def test_a_refusal_names_nothing_hidden(self):
        for told, changes in _REFUSED.items():
            recipe = cases.recipe(**changes)
            self.assertEqual(device.told(cases.approval(), recipe), told.value)
            for hidden in ("time", "contact", "income", "secret", "0.5"):
                self.assertNotIn(hidden, told.value)

    def test_what_was_asked_before_counts(self):
        approval, recipe = cases.approval(), cases.recipe()
        self.assertIsNone(device.told(approval, recipe))
        refused = cases.recipe(version="0")
        self.assertIsNone(device.told(approval, recipe, [recipe, refused]))
        self.assertEqual(
            device.told(approval, recipe, [recipe, recipe]), device.Told.CHECK_2.value
        )

    def test_too_few_devices_are_the_aggregations_matter(self):
        recipe = cases.recipe()
        algorithm = self.own([recipe], 20)
        _, state = _run(algorithm)
        self.assertEqual(algorithm.complaints(state), [(0, custom_recipes.TOO_FEW)])
        # They answered.
        self.assertEqual(algorithm.devices.spent(3)["age"].reports, 1)

    def test_answers_are_histograms_of_named_cells(self):
        recipes = [cases.recipe(), cases.recipe(version="0"), cases.recipe()]
        algorithm = self.own(recipes)
        _, state = _run(algorithm)
        results = algorithm.results(state)
        table = results["recipes"]
        self.assertEqual(table["cells"].tolist(), [272] * 3)
        self.assertEqual(table["reports"].tolist(), [6000, 0, 6000])
        self.assertEqual([*results], ["recipes", "histogram_1", "histogram_3"])
        histogram = results["histogram_1"]
        self.assertEqual([number for number, _ in algorithm.complaints(state)], [1])
        content = recipes[0].content
        for row in histogram.to_dict("records"):
            names = content.names(row["cell"])
            self.assertEqual({name: row[name] for name in names}, names)
        ages = histogram.groupby("age")["estimate"].sum()
        true_ages = cases.stored(6000).ages
        # Of the cells of an age.
        stderr = np.sqrt((histogram["stderr"][:34] ** 2).sum())
        for low in range(20, 80, 10):
            truth = ((true_ages >= low) & (true_ages < low + 10)).sum()
            error = ages[f"[{low}, {low + 10})"] - truth
            self.assertLess(abs(error), 5 * stderr)

    def test_a_file_of_the_house_is_the_figure(self):
        path = ROOT / "configs/statistics_figure4.json"
        ours = json.loads(path.read_text())
        self.assertEqual(ours["dataTypeContent"], cases.FIGURE_4["dataTypeContent"])
        self.assertEqual(recipe_lib.Recipe.read(str(path)).content.num_cells, 272)


class NoiseTest(absltest.TestCase):
    def test_what_stands_out_is_seldom_nothing(self):
        # A cell that nobody has, of few reports: far from a normal law.
        algorithm = _joint(cases.stored(20_000))
        recipe = cases.recipe(privacyBudget__localEpsilon=5)
        randomizer = device.randomizer_of(algorithm.approval.policy, recipe)
        other = float(randomizer.other_probability)
        for chance in (1e-2, 1e-4):
            least = algorithm.least_estimate(recipe, 3000, chance)
            generator = np.random.default_rng(1)
            ones = generator.binomial(3000, other, 1_000_000)
            above = (randomizer.estimate(ones, 3000) > least).mean()
            self.assertLess(above, chance * (1 + 4 / np.sqrt(1e6 * chance)))
            self.assertGreater(above, chance / 4)


class ContentOfTreesTest(absltest.TestCase):
    def test_known_cells_are_words_that_go_on(self):
        tree = contents.PrefixTree((("a",), ("b",)), ("a", "b"))
        names = [tree.name(cell) for cell in ngrams.known_cells(tree)]
        self.assertEqual(names, ["a a", "a b", "b a", "b b"])


if __name__ == "__main__":
    absltest.main()
