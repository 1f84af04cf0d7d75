"""Tests of recipes: figure 4 of McMillan et al. 2022, and what is none."""

import json
import re

from absl.testing import absltest, parameterized

from federated_hh.files import json_files
from federated_hh.statistics.recipes import contents
from federated_hh.statistics.recipes import recipe as recipe_lib
from tests.federated_hh.statistics import cases

_TREE = "dataTypeContent__ngrams__tree"
_TOKENS = "dataTypeContent__ngrams__tokens"
_BOUNDARIES = "dataTypeContent__age__boundaries"
_BUDGET = "privacyBudget"
# Changes of the recipe, and what the message has to name. The last says whether the
# schema can see it too.
_BAD = {
    "identifier": ({"recipeIdentifier": ""}, "recipeIdentifier", True),
    "version": ({"version": 1}, "version", True),
    "interval": ({"intervalTimeType": "daily"}, "intervalTimeType", True),
    "recorder": ({"dataRecorderType": "x"}, "dataRecorderType", True),
    "query": ({"query": None}, "query", True),
    "cohorts": ({"cohorts": "locale"}, "cohorts", True),
    "cohorts_twice": ({"cohorts": ["a", "a"]}, "cohorts", True),
    "unknown": ({"colour": "red"}, "colour", True),
    "no_content": ({"dataTypeContent": {}}, "dataTypeContent", True),
    "no_boundaries": ({_BOUNDARIES: []}, "age.boundaries", True),
    "out_of_order": ({_BOUNDARIES: [20, 40, 30]}, "age.boundaries", False),
    "equal": ({_BOUNDARIES: [20, 20]}, "age.boundaries", False),
    "no_number": ({_BOUNDARIES: [20, "30"]}, "age.boundaries", True),
    "huge": ({_BOUNDARIES: [10**400]}, "age.boundaries", False),
    "type": ({"dataTypeContent__age__dataType": "Number"}, "age.dataType", True),
    "text_twice": (
        {"dataTypeContent": {"city": {"dataType": "TextType", "values": ["a", "a"]}}},
        "city.values has 'a' twice",
        True,
    ),
    "text_empty": (
        {"dataTypeContent": {"city": {"dataType": "TextType", "values": [" "]}}},
        "city.values has ' '",
        True,
    ),
    "no_texts": (
        {"dataTypeContent": {"city": {"dataType": "TextType", "values": []}}},
        "city.values",
        True,
    ),
    "text_of_a_cell": (
        {"dataTypeContent": {"city": {"dataType": "TextType", "values": ["(other)"]}}},
        "'(other)'",
        False,
    ),
    "field": ({"dataTypeContent__age__step": 1}, "age.step", True),
    "no_root": ({_TREE: {"i": ["went"]}}, "ngrams.tree", True),
    "not_a_token": ({_TREE: {"root": ["you"]}}, "'you'", False),
    "unreached": ({_TREE: {"root": ["i"], "a": ["i"]}}, "tree.a", False),
    "child_twice": ({_TREE: {"root": ["i", "i"]}}, "tree.root", True),
    "two_words": ({_TOKENS: ["a b"]}, "ngrams.tokens", True),
    "no_tokens": ({_TOKENS: []}, "ngrams.tokens", True),
    "name_of_a_cell": (
        {_TOKENS: ["(other)"], _TREE: {"root": []}},
        "'(other)'",
        False,
    ),
    "reserved": ({_TOKENS: ["null"], _TREE: {"root": []}}, "'null'", False),
    "structure": (
        {"dataTypeContent__combinations__structure": ["age"]},
        "CombinationType of age",
        False,
    ),
    "structure_blank": (
        {"dataTypeContent__combinations__structure": ["hours of sleep", "ngrams"]},
        "white space: rename it in the table and in the recipe, as to hours_of_sleep",
        True,
    ),
    "structure_twice": (
        {"dataTypeContent__combinations__structure": ["age", "age", "ngrams"]},
        "combinations.structure",
        True,
    ),
    "two_combinations": (
        {
            "dataTypeContent__more": {
                "dataType": "CombinationType",
                "structure": ["age", "ngrams"],
            }
        },
        "2 CombinationTypes",
        False,
    ),
    "epsilon": ({f"{_BUDGET}__localEpsilon": 0}, "localEpsilon", True),
    "epsilon_text": ({f"{_BUDGET}__localEpsilon": "2"}, "localEpsilon", True),
    "large": ({f"{_BUDGET}__cohortAggregateEpsilon": 101}, "Aggregate", True),
    "digits": ({f"{_BUDGET}__localEpsilon": 1e-7}, "localEpsilon", False),
    "minimum": ({f"{_BUDGET}__minimumCohort": 1}, "minimumCohort", True),
    "minimum_part": ({f"{_BUDGET}__minimumCohort": 2.5}, "minimumCohort", True),
    "budget": ({_BUDGET: None}, "privacyBudget", True),
}


class RecipeTest(parameterized.TestCase):
    def test_cells_of_the_figure(self):
        content = cases.recipe().content
        self.assertEqual([*content.types], ["age", "ngrams"])
        self.assertEqual(content.types["age"].num_cells, 1 + 7)
        self.assertEqual(content.types["ngrams"].num_cells, 1 + 3 * (1 + 1 + 9))
        self.assertEqual(content.num_cells, 272)
        names = [tuple(content.names(cell).values()) for cell in range(272)]
        self.assertLen(set(names), 272)
        # As appendix B writes them.
        self.assertEqual(names[0], ("(other)", "(other)"))
        self.assertEqual(names[1], ("(other)", "hello world end-token"))
        self.assertEqual(names[2], ("(other)", "hello world (other)"))
        self.assertEqual(names[3], ("(other)", "hello world a"))
        self.assertEqual(names[271], ("[80, inf)", "i got world"))

    @parameterized.parameters(
        ((25, "hello world a"), ("[20, 30)", "hello world a"), 0),
        ((30, "hello world"), ("[30, 40)", "hello world end-token"), 0),
        ((79.9, "i went you"), ("[70, 80)", "i went (other)"), 0),
        ((200, "i got home a"), ("[80, inf)", "i got home"), 0),
        ((19, "hello"), ("(other)", "(other)"), 2),
        ((None, "hello you"), ("(other)", "(other)"), 2),
        (("25", b"hello world"), ("(other)", "(other)"), 2),
        ((float("nan"), ""), ("(other)", "(other)"), 2),
        ((True, 7), ("(other)", "(other)"), 2),
        ((float("inf"), "world hello"), ("[80, inf)", "(other)"), 1),
    )
    def test_rows_become_cells(self, values, names, uncovered):
        content = cases.recipe().content
        (cell,) = content.best_cells([values])
        self.assertEqual(tuple(content.names(cell).values()), names)
        self.assertEqual(names.count("(other)"), uncovered)

    def test_rows_that_fit_are_preferred(self):
        content = cases.recipe().content
        rows = [
            (25, "world"),
            (25, "i got a"),
            (25, "i got a"),
            (5, "i got a"),
        ]
        found = content.best_cells(rows)
        self.assertLen(found, 2)
        self.assertEqual(content.names(found[0])["ngrams"], "i got a")
        self.assertEqual(content.best_cells([]), [])

    def test_deep_trees_name_nodes_by_their_paths(self):
        changes = {
            _TREE: {
                "root": ["a", "i"],
                "a": ["i"],
                "i": ["i"],
                "a i": ["got", "went"],
            }
        }
        tree = cases.recipe(**changes).content.types["ngrams"]
        leaves = (("a", "i", "got"), ("a", "i", "went"), ("i", "i"))
        self.assertEqual(tree.leaves, leaves)
        self.assertEqual(tree.name(tree.cell("a i went home")), "a i went home")
        self.assertEqual(tree.cell("a i"), 0)

    def test_a_root_alone_is_a_leaf(self):
        tree = cases.recipe(**{_TREE: {"root": ["null"]}}).content.types["ngrams"]
        self.assertEqual(tree.num_cells, 1 + 1 + 1 + 9)
        self.assertEqual(tree.name(tree.cell("home a")), "home")
        self.assertEqual(tree.name(tree.cell("you")), "(other)")

    def test_reads_back(self):
        for changes in ({}, {_TREE: {"root": []}}):
            recipe = cases.recipe(**changes)
            self.assertEqual(recipe_lib.Recipe.parse(recipe.to_json()), recipe)
        one = json.loads(cases.figure_4())
        del one["dataTypeContent"]["age"], one["dataTypeContent"]["combinations"]
        recipe = recipe_lib.Recipe.parse(json.dumps(one))
        self.assertEqual(recipe_lib.Recipe.parse(recipe.to_json()), recipe)
        self.assertEqual(recipe.content.num_cells, 34)

    def test_epsilons_are_exact(self):
        tenth = cases.recipe(privacyBudget__localEpsilon=0.1)
        self.assertEqual(tenth.local_units, 100_000)

    @parameterized.named_parameters((name, *case) for name, case in _BAD.items())
    def test_bad_fields_are_named(self, changes, named, seen_by_schema):
        text = cases.figure_4(**changes)
        with self.assertRaisesRegex(recipe_lib.RecipeError, re.escape(named)):
            recipe_lib.Recipe.parse(text)
        schema = json.loads(recipe_lib.SCHEMA_FILE.read_text())
        self.assertEqual(not _matches(json.loads(text), schema), seen_by_schema)

    @parameterized.parameters(*cases.FIGURE_4)
    def test_missing_fields_are_named(self, name):
        fields = dict(cases.FIGURE_4)
        del fields[name]
        with self.assertRaisesRegex(recipe_lib.RecipeError, f"{name} is missing"):
            recipe_lib.Recipe.parse(json.dumps(fields))
        schema = json.loads(recipe_lib.SCHEMA_FILE.read_text())
        self.assertFalse(_matches(fields, schema))

    @parameterized.parameters(
        "", "{", "[]", "1", '{"version": NaN}', '{"version": "1", "version": "2"}'
    )
    def test_no_json(self, text):
        with self.assertRaises(recipe_lib.RecipeError):
            recipe_lib.Recipe.parse(text)
        with self.assertRaises(recipe_lib.RecipeError):
            recipe_lib.Recipe.parse("[" * 100_000)
        with self.assertRaises(recipe_lib.RecipeError):
            recipe_lib.Recipe.parse('{"version": 1' + "0" * 10_000 + "}")

    def test_too_many_cells(self):
        changes = {_BOUNDARIES: list(range(600_000))}
        with self.assertRaisesRegex(recipe_lib.RecipeError, "cells"):
            cases.recipe(**changes)
        self.assertGreater(600_001 * 34, contents.MOST_CELLS)

    def test_texts_are_cells_and_come_back(self):
        values = ["New York", "東京"]
        given = {"city": {"dataType": "TextType", "values": values}}
        recipe = cases.recipe(dataTypeContent=given)
        kind = recipe.content.types["city"]
        found = [*values, "new york", "New", None, 5]
        self.assertEqual([kind.cell(value) for value in found], [1, 2, 0, 0, 0, 0])
        names = [recipe.content.names(cell)["city"] for cell in range(3)]
        self.assertEqual(names, ["(other)", *values])
        self.assertEqual(recipe_lib.Recipe.parse(recipe.to_json()), recipe)

    def test_a_budget_may_be_left_to_the_population(self):
        fields = dict(cases.FIGURE_4)
        del fields["privacyBudget"]
        recipe = recipe_lib.Recipe.parse(json.dumps(fields), may_lack_budget=True)
        self.assertFalse(recipe.has_budget)
        self.assertTrue(cases.recipe().has_budget)
        with self.assertRaisesRegex(recipe_lib.RecipeError, "localEpsilon"):
            recipe_lib.Recipe.parse(recipe.to_json(), may_lack_budget=True)

    def test_schema_takes_the_figure(self):
        schema = json.loads(recipe_lib.SCHEMA_FILE.read_text())
        self.assertTrue(_matches(cases.FIGURE_4, schema))


def _matches(value, schema):
    try:
        json_files.check(value, schema)
    except json_files.JsonError:
        return False
    return True


if __name__ == "__main__":
    absltest.main()
