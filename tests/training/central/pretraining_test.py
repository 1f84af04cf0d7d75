"""Tests of the clients that train centrally, and of those held out."""

import tempfile

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.options import fields
from federated_hh.populations import vocabulary
from federated_hh.populations.columns import client_text
from federated_hh.rounds import steps
from tests.training import training_test_case as common
from training.central import pretraining
from training.central.options import PretrainOptions
from training.federated import held_out
from training.models import metric_names

_GIVEN = {
    "num_units": 3,
    "embedding_size": 2,
    "num_held_out_clients": 4,
    "batch_size": 5,
    "num_steps": 7,
}
# Of each option another value.
_OTHER = {
    "num_units": 5,
    "embedding_size": 3,
    "initial_bias": "public",
    "max_sentences": 1,
    "max_words": 3,
    "batch_size": 3,
    "precision": "bfloat16",
    "num_held_out_clients": 5,
    "num_steps": 8,
    "learning_rate": 0.25,
    "model_average": 0.25,
    # Steps of a round, after which a killed training goes on.
    "checkpoint_every": 3,
}
# What a run reports, and what is steps in the end; and, tested where runs are, what is
# of the words, of networks and weights of the user's own, and of the process.
_NOT_HERE = {"evaluate_every", "num_epochs"}
_NOT_HERE |= {"vocabulary", "vocabulary_size", "model", "initial_model", "onednn"}
_NOT_HERE |= {"tied_embeddings"}


class PretrainingTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.words = vocabulary.Vocabulary.of_language(common.NUM_TOKENS - 4)
        self.scratch = self.enterContext(tempfile.TemporaryDirectory())
        self.clients = held_out.Clients.split(20, 4, seed=1)

    def prepare(self, of_held_out, **changes):
        """Prepares a training on clients who write 4 5 6 twice, and on some others."""
        rows = [[[4, 5, 6]] * 2 for _ in range(20)]
        for client in self.clients.held_out:
            rows[client] = of_held_out
        text = client_text.ClientText.from_rows(
            tempfile.mkdtemp(dir=self.scratch) + "/text",
            [(str(i), sentences) for i, sentences in enumerate(rows)],
        )
        options = PretrainOptions(**_GIVEN | changes)
        return pretraining.prepare(options, self.words, text, seed=1)

    def test_those_held_out_are_not_trained_on_and_judge(self):
        found = [
            self.prepare(of_held_out, learning_rate=0.1, num_steps=60)
            for of_held_out in ([[4, 5, 6]] * 2, [[7, 8, 9, 10]] * 9)
        ]
        for prepared in found:
            np.testing.assert_array_equal(
                prepared.clients.held_out, self.clients.held_out
            )
            self.assertEqual(prepared.num_sentences, 32)
        alike, others = (
            {one.name: one.metrics for one in prepared.baselines(None)}
            for prepared in found
        )
        # A place of those held out costs more than a place of whatever was counted.
        for name in metric_names.NGRAMS:
            self.assertLess(alike[name]["loss"], 1.5)
            self.assertGreater(others[name]["loss"], 2.5)
        trained = []
        for prepared in found:
            algorithm = prepared.algorithm
            query = algorithm.next_query(algorithm.initialize(0))
            trained.append(query.ask(None, None).model)
        for name, array in trained[0].items():
            np.testing.assert_array_equal(trained[1][name], array)
        alike, others = (
            prepared.evaluation(1).metrics(trained[0])["loss"] for prepared in found
        )
        self.assertGreater(others, alike + 1)

    def test_all_options_are_tried(self):
        self.assertCountEqual([*_OTHER, *_NOT_HERE], fields.fields_of(PretrainOptions))

    @parameterized.parameters(*_OTHER)
    def test_another_value_is_another_run(self, name):
        of_held_out = [[4, 5, 6]] * 2
        facts = [
            steps.facts_of(self.prepare(of_held_out, **changes).algorithm)
            for changes in ({}, {name: _OTHER[name]})
        ]
        self.assertNotEqual(*facts)


if __name__ == "__main__":
    absltest.main()
