"""Tests of what models stand beside: the same places, and the file."""

import pathlib

import numpy as np
import pandas as pd
from absl.testing import absltest

from federated_hh.files import tables
from tests.training import training_test_case as common
from training.baselines import baselines
from training.federated import held_out
from training.models import evaluation
from training.reports import federated as training_report
from training.text import examples


class BaselinesTest(common.TrainingTestCase):
    def test_words_by_frequency_are_what_a_constant_model_reaches(self):
        clients = common.random_clients(40, seed=5)
        limits = examples.ClientLimits(max_sentences=4, max_words=4, batch_size=3)
        split = held_out.Clients(np.arange(30), np.arange(30, 40))
        rounds = self.rounds(common.bigram_model(), clients, limits)
        unigram, bigram, trigram, kneser_ney = baselines.counted(
            rounds.mapped.text, split, limits, common.NUM_TOKENS
        )
        self.assertEqual(trigram.name, "interpolated trigram")
        self.assertEqual(kneser_ney.name, "Kneser-Ney trigram")
        counts = np.zeros((common.NUM_TOKENS, common.NUM_TOKENS))
        for client in range(30):
            for sentence in clients[client][:4]:
                np.add.at(counts, tuple(common.sequence(sentence, 4)), 1)
        law = counts.sum(axis=0) + 1
        law[0] = 1e-30
        weights = {"table": np.tile(np.log(law / law.sum()), (common.NUM_TOKENS, 1))}
        weights["table"] = weights["table"].astype(np.float32)
        expected = rounds.evaluate(weights, split.held_out)
        self.assertEqual(list(unigram.metrics), list(expected))
        for name, value in expected.items():
            self.assertAlmostEqual(unigram.metrics[name], value, places=5, msg=name)
        # Random words: what comes before says nothing, and the weights see to it.
        self.assertAlmostEqual(
            bigram.metrics["loss"], unigram.metrics["loss"], delta=0.05
        )

    def test_weights_are_found_on_clients_whose_text_is_not_in_the_counts(self):
        """N-grams have to rely on a word that tells the next one."""
        clients = [[[4, 5, 6, 7]] * 4] * 40
        limits = examples.ClientLimits(max_sentences=4, max_words=4, batch_size=3)
        split = held_out.Clients(np.arange(30), np.arange(30, 40))
        _, bigram, trigram, _ = baselines.counted(
            self.text(clients), split, limits, common.NUM_TOKENS
        )
        # With even weights, which nothing held back leaves, the loss of the bigram is
        # that of (1 + 1/5) / 2, and of the trigram that of (1 + (1 + 1/5) / 2) / 2.
        self.assertBetween(bigram.metrics["loss"], 1e-6, -np.log(0.6) / 3)
        self.assertBetween(trigram.metrics["loss"], 1e-6, -np.log(0.8) / 3)

    def test_the_file(self):
        metrics = dict.fromkeys(evaluation.METRICS, 0.25)
        found = [
            baselines.Baseline("a, b", "c", metrics),
            baselines.Baseline("the best possible", "a bound", metrics),
        ]
        path = pathlib.Path(self.create_tempdir().full_path) / baselines.FILE
        path.write_text(tables.write(baselines.table(found)))
        read = tables.read(path).set_index("baseline")
        self.assertEqual(list(read.index), ["a, b", "the best possible"])
        self.assertIn("a bound", read.loc["the best possible"]["made_of"])
        self.assertEqual(read.loc["a, b"]["loss"], 0.25)

    def test_regret_is_what_the_loss_is_above_the_law(self):
        last = pd.Series({f"held_out_{name}": 3.5 for name in evaluation.METRICS})
        beside = {"a bigram": dict.fromkeys(evaluation.METRICS, 3.25)}
        self.assertNotIn("regret", training_report.held_out(last, beside))
        beside["the best possible"] = dict.fromkeys(evaluation.METRICS, 3.0)
        found = training_report.held_out(last, beside)
        self.assertEqual(found["regret"].tolist(), [0.5, 0.25, 0.0])


if __name__ == "__main__":
    absltest.main()
