"""Recipes and devices for tests."""

import json

import numpy as np

from federated_hh.privacy.local import device_policy
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.statistics.devices import device
from federated_hh.statistics.recipes import events, verification
from federated_hh.statistics.recipes import recipe as recipe_lib

ANALYSIS = "com.example.keyboard-ngrams"
# Figure 4 of McMillan et al. 2022, its JSON put right, with a budget.
FIGURE_4 = {
    "recipeIdentifier": "50001",
    "version": "1",
    "intervalTimeType": "sinceBeginning",
    "AnalysisIdentifier": ANALYSIS,
    "query": "select age, ngrams from KeyboardNGrams",
    "cohorts": ["locale"],
    "dataRecorderType": "dataContentType",
    "dataTypeContent": {
        "age": {
            "dataType": "BucketedType",
            "boundaries": [20, 30, 40, 50, 60, 70, 80],
        },
        "ngrams": {
            "dataType": "PrefixTree",
            "tree": {
                "root": ["null", "hello", "i"],
                "hello": ["null", "world"],
                "i": ["went", "got"],
            },
            "tokens": [
                "a",
                "and",
                "got",
                "hello",
                "home",
                "i",
                "school",
                "went",
                "world",
            ],
        },
        "combinations": {
            "dataType": "CombinationType",
            "structure": ["age", "ngrams"],
        },
    },
    "privacyBudget": {
        "localEpsilon": 2,
        "cohortAggregateEpsilon": 0.25,
        "minimumCohort": 5000,
    },
}


def figure_4(**changes):
    """Returns the recipe as JSON; of `a__b=c` field b of a becomes c."""
    fields = json.loads(json.dumps(FIGURE_4))
    for path, value in changes.items():
        *parents, name = path.split("__")
        place = fields
        for parent in parents:
            place = place[parent]
        place[name] = value
    return json.dumps(fields)


def recipe(**changes):
    """Returns the recipe."""
    return recipe_lib.Recipe.parse(figure_4(**changes))


def approval(**changes):
    """Returns what ships with a device: age is more sensitive than n-grams."""
    values = {
        "analysis": ANALYSIS,
        "limits": device_policy.Limits(
            aggregate_epsilon=1.0, reports=4, local_epsilon=5.0
        ),
        "fields": {
            "ngrams": device_policy.Limits(
                aggregate_epsilon=1.0, reports=3, local_epsilon=5.0
            ),
            "age": device_policy.Limits(
                aggregate_epsilon=0.5, reports=2, local_epsilon=2.0
            ),
            "seconds": device_policy.Limits(
                aggregate_epsilon=1.0, reports=4, local_epsilon=5.0
            ),
        },
        "randomizer": shuffling.Randomizer.ASYMMETRIC_ONE_HOT,
        "delta": 1e-6,
        "cohorts": ("locale",),
    }
    policy = device_policy.Policy(**values | changes)
    return device.Approval(
        policy, verification.QueryClass(events.STREAM, frozenset(policy.fields))
    )


def stored(num_devices=300, seed=1):
    """Returns random events of three-word n-grams, some devices with one only."""
    generator = np.random.default_rng(seed)
    words = tuple(FIGURE_4["dataTypeContent"]["ngrams"]["tokens"])
    sizes = generator.integers(1, 6, num_devices)
    grams = generator.integers(-1, len(words), (int(sizes.sum()), 3)).astype(np.int32)
    ends = generator.integers(1, 4, len(grams))
    grams[np.arange(3) >= ends[:, np.newaxis]] = events.NONE
    # Half of them begin like a leaf of the figure's tree.
    is_leaf = generator.random(len(grams)) < 0.5
    grams[is_leaf, 0] = words.index("i")
    grams[is_leaf & (ends > 1), 1] = words.index("went")
    return events.NGramEvents(
        words,
        grams,
        np.concatenate([[0], np.cumsum(sizes)]),
        generator.integers(10, 90, num_devices),
        # Halves are boundaries of tests; float32 has them and what is near them.
        np.where(
            generator.random(len(grams)) < 0.2,
            generator.integers(0, 8, len(grams)) / 2,
            generator.exponential(1.0, len(grams)),
        ).astype(np.float32),
    )
