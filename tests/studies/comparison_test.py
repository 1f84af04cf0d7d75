"""Tests of the comparison: scores by hand, refusals, an algorithm plugged in."""

import contextlib
import dataclasses
import os

import numpy as np
import pandas as pd
from absl.testing import absltest

from examples import known_words
from federated_hh.heavy_hitters import alphabet, selection
from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh import parameters as ldp_triehh_parameters
from federated_hh.populations.columns import client_words
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.triehh import plan as triehh_plan
from federated_hh.randomness import noise_keys
from federated_hh.rounds import algorithm, samplers
from federated_hh.run_directory import directory as run_directory
from studies import comparison


@dataclasses.dataclass(frozen=True)
class _State:
    words: tuple[str, ...] | None = None


class Fixed(algorithm.Algorithm[_State, triehh_plan.Kept]):
    """Finds "the", and in every second run a word that nobody has; no TFF."""

    max_rounds = 1
    threshold = 30

    def __init__(self, task):
        self.repeat = 0
        self.plan = plan_lib.Plan(
            sampler=samplers.UniformCohorts(task.clients.num_clients, 100),
            contribution=triehh_plan.OneVote(redraws_each_round=False),
            mechanism=triehh_plan.Threshold(self.threshold, 1),
        )

    @classmethod
    def for_task(cls, task):
        return cls(task)

    def describe(self):
        return {}

    def initialize(self, repeat):
        self.repeat = repeat
        return _State()

    def next_query(self, state):
        if state.words is not None:
            return None
        return algorithm.Query(lambda cohort, stream: np.zeros(3, np.int64))

    def update(self, state, released):
        return _State(("the", "nonsense") if self.repeat % 2 else ("the",)), {}

    def results(self, state):
        return {"heavy_hitters": pd.DataFrame({"word": state.words})}

    def worker(self):
        return contextlib.nullcontext()


class Dear(Fixed):
    """Guarantees little."""

    threshold = 26


class ComparisonTestCase(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = self.create_tempdir().full_path

    def comparison(self, clients, settings, seed=1):
        return comparison.Comparison(
            title="A comparison",
            settings=settings,
            clients=clients,
            alphabet=alphabet.Alphabet("abcdefghijklmnopqrstuvwxyz'"),
            word_selection=selection.WordSelection.MOST_FREQUENT,
            delta=clients.num_clients**-2,
            data={},
            seed=seed,
            ks=(1, 2, 4),
            report=lambda study, tables: {"table.md": study.title.encode()},
        )

    def clients(self, words):
        return client_words.ClientWords.from_rows(
            os.path.join(self.scratch, "words"),
            [(str(i), [(word, 1)]) for i, word in enumerate(words)],
        )

    def run_part(self, study):
        part = run_directory.RunDirectory.create(
            os.path.join(self.scratch, "run"),
            program="test",
            flags=(),
            facts={},
            noise_key=noise_keys.NoiseKey(1, is_secret=False),
        )
        with part:
            tables = study.run_part(study.settings[0], 0, part)
            statement = (part.path / "simulator" / "privacy.md").read_text()
        return {name: pd.DataFrame(rows) for name, rows in tables.items()}, statement


class ScoresTest(ComparisonTestCase):
    def test_runs_scores_and_discovery_by_hand(self):
        # The true order: the, of, and, to.
        words = ["the"] * 200 + ["of"] * 100 + ["and"] * 60 + ["to"] * 40
        fixed = comparison.contestant("tests.studies.comparison_test:Fixed")
        study = self.comparison(
            self.clients(words), (comparison.Setting(fixed, 4.0, 4),)
        )
        tables, statement = self.run_part(study)
        runs = tables["runs"]
        self.assertEqual(list(runs["words_found"]), [1, 2, 1, 2])
        self.assertEqual(list(runs["words_real"]), [1, 1, 1, 1])
        self.assertEqual(list(runs["precision"]), [1.0, 0.5, 1.0, 0.5])
        self.assertEqual(set(runs["line"]), {"Fixed"})
        self.assertLess(runs["stated_epsilon"].max(), 4.0)
        self.assertTrue(runs["local_epsilon"].isna().all())
        self.assertIn("planned", statement)
        scores = comparison.scores_of(tables).set_index("k")
        np.testing.assert_allclose(scores["recall"], [1, 0.5, 0.25])
        # At K = 4: precision 1 and 1/2, recall 1/4.
        self.assertAlmostEqual(scores.loc[4, "f1"], (0.4 + 1 / 3) / 2)
        self.assertBetween(scores.loc[1, "f1_low"], 0, scores.loc[1, "f1"])
        discovery = tables["discovery"].set_index("true_rank")
        self.assertEqual(list(discovery["runs_found"]), [4, 0, 0, 0])
        self.assertEqual(list(discovery["runs"]), [4] * 4)
        self.assertEqual(list(discovery["found_in_run"]), ["1111", *["0000"] * 3])
        self.assertEqual(list(discovery["share"]), [0.5, 0.25, 0.15, 0.1])
        self.assertEqual(list(discovery["characters"]), [3, 2, 3, 2])

    def test_a_statement_above_the_settings_epsilon_is_refused(self):
        clients = self.clients(["the"] * 400)
        dear = comparison.contestant("tests.studies.comparison_test:Dear")
        with self.assertRaisesRegex(
            ValueError, "Dear .*; the comparison asks for at most 0.5|no guarantee"
        ):
            _ = self.comparison(clients, (comparison.Setting(dear, 0.5, 1),)).algorithms

    def test_names_of_algorithms(self):
        for name, message in (
            ("nonsense:Class", "algorithm is 'nonsense:Class'"),
            ("tests.federated_hh.rounds.contract_cases:Tally", "lacks for_task"),
            ("tests.studies.comparison_test:ScoresTest", "which is not an algorithm"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                comparison.contestant(name)


class PlugInTest(ComparisonTestCase):
    def test_an_algorithm_of_ones_own(self):
        # 40,000 clients, at epsilon 4 a local epsilon of 5: of 1,001 items a report is
        # right with probability 0.13. The noise is below 600 clients.
        words = ["the"] * 20_000 + ["of"] * 10_000 + ["and"] * 9_900 + ["zzyzx"] * 100
        own = comparison.contestant("examples.known_words:KnownWords")
        # Of 997 words with skewed noise, a seed in three finds one that nobody has.
        setting = comparison.Setting(own, 4.0, 2)
        study = self.comparison(self.clients(words), (setting,), seed=4)
        tables, statement = self.run_part(study)
        self.assertEqual(list(tables["runs"]["words_found"]), [3, 3])
        self.assertEqual(list(tables["runs"]["precision"]), [1.0, 1.0])
        recall = tables["scores"].set_index(["run", "k"])["recall"]
        self.assertEqual(recall[0, 2], 1.0)
        self.assertEqual(recall[0, 4], 0.75)
        epsilon = tables["runs"]["stated_epsilon"].iloc[0]
        self.assertBetween(epsilon, 3.9, 4.0)
        self.assertIn("KnownWords with KAryRandomizedResponse", statement)

    def test_its_class_is_short(self):
        with open(known_words.__file__) as file:
            code = file.read().partition("class KnownWords")[2]
        lines = [line for line in code.splitlines() if line.strip()]
        self.assertLess(len(lines), 40)


class StatedEpsilonTest(absltest.TestCase):
    def test_a_guarantee_of_one_item_is_none_of_a_client_that_has_more(self):
        def plan(bound):
            parameters = ldp_triehh_parameters.LdpTrieHHParameters(
                cohort_size=2_000,
                max_depth=1,
                max_prefixes=10,
                contribution_bound=bound,
                epsilon=4.0,
            )
            return ldp_triehh.plan_of(parameters, 2_000)

        one, _ = comparison.stated_epsilon(plan(1), 2.5e-9)
        self.assertLess(one, 4)
        ten, _ = comparison.stated_epsilon(plan(10), 2.5e-9)
        self.assertGreater(ten, 5)


if __name__ == "__main__":
    absltest.main()
