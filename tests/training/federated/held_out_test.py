"""Tests of held-out clients: their choice, and evaluations on them."""

import math
import pathlib
import types

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from federated_hh.populations.columns import client_text, resampled_text
from federated_hh.privacy.dp_ftrl import model_updates
from federated_hh.privacy.dp_ftrl import plan as training_plan
from federated_hh.randomness import noise_keys
from federated_hh.rounds import experiment, timers
from tests.training import training_test_case as common
from training.baselines import baselines
from training.federated import dp_ftrl, held_out, model_average
from training.models import evaluation, metric_names
from training.text import examples


class ClientsTest(absltest.TestCase):
    def test_split(self):
        clients = held_out.Clients.split(20, 6, seed=1)
        both = np.concatenate([clients.training, clients.held_out])
        np.testing.assert_array_equal(np.sort(both), np.arange(20))
        self.assertLen(clients.held_out, 6)
        for size in (0, 20):
            with self.assertRaisesRegex(ValueError, "to be in 1..19"):
                held_out.Clients.split(20, size, seed=1)

    def test_each_seed_holds_out_others(self):
        counts = np.zeros(12, int)
        sets = set()
        for seed in range(200):
            held = held_out.Clients.split(12, 4, seed).held_out
            counts[held] += 1
            sets.add(tuple(held))
        # Of 495 sets; a client with probability 1/3, up to 5 standard deviations.
        self.assertBetween(len(sets), 120, 200)
        np.testing.assert_array_less(np.abs(counts - 200 / 3), 34)

    def test_a_seed_holds_out_the_same_in_each_version(self):
        """Or older versions' models would be evaluated on who trained them."""
        for seed, expected in ((1, [0, 5, 9, 12, 15, 18]), (2, [3, 7, 8, 10, 11, 17])):
            found = held_out.Clients.split(20, 6, seed).held_out
            self.assertEqual(found.tolist(), expected)


class ResampledClientsTest(absltest.TestCase):
    def test_people_are_held_out(self):
        directory = pathlib.Path(self.create_tempdir().full_path)
        # A person's words are a token of their own.
        rows = [(f"u{i}", [[10 + i] * 3] * 5) for i in range(30)]
        people = client_text.ClientText.from_rows(directory / "people", rows)
        with client_text.new_text(directory / "drawn") as partial:
            resampled_text.draw(
                partial, people, num_clients=400, max_words=6, seed=3, metadata={}
            )
        text = resampled_text.ResampledText.open_with(directory / "drawn", people)
        clients = held_out.Clients.of(text, 7, seed=1)
        held = text.person_of[clients.held_out]
        self.assertLen({*held.tolist()}, 7)
        trained = {*text.person_of[clients.training].tolist()}
        self.assertEqual(trained, {*text.person_of.tolist()} - {*held.tolist()})
        self.assertLen(clients.training, 400 - np.isin(text.person_of, held).sum())
        np.testing.assert_array_equal(
            held_out.Clients.of(people, 7, 1).held_out,
            held_out.Clients.split(30, 7, 1).held_out,
        )
        with self.assertRaisesRegex(ValueError, "in 1..29 for 30 people"):
            held_out.Clients.of(text, 30, seed=1)
        # N-grams are of the people who train, each sentence once.
        limits = examples.ClientLimits(max_sentences=1, max_words=4)
        models = baselines.ngrams_of(text, clients, limits, 60)
        counts = models[metric_names.UNIGRAM].probabilities[10:40]
        is_trained = np.isin(np.arange(30), [*trained])
        self.assertEqual(len({*counts[is_trained].round(9)}), 1)
        self.assertGreater(counts[is_trained].min(), 2 * counts[~is_trained].max())
        # What a client reads in a round is what it has.
        mapped = examples.MappedText(text, examples.ClientLimits(5, 4, 8))
        for client in (0, 399):
            first, count = mapped.sentences_of(tf.constant(client, tf.int64))
            batch = mapped.batch(first, count, tf.constant(0, tf.int64))
            found = [row[row > 3].tolist() for row in batch.targets.numpy()]
            self.assertEqual(found, text.client(client))


class EvaluationTest(common.TrainingTestCase):
    def test_names_of_metrics_without_an_evaluation(self):
        observe = held_out.Evaluation(None, None, evaluate_every=2)
        found = observe(types.SimpleNamespace(is_last=False, number=3))
        sums = {name: 1.0 for name in evaluation.SUMS}
        names = [f"held_out_{name}" for name in evaluation.metrics_of_sums(sums)]
        self.assertEqual(list(found), names)
        self.assertTrue(all(math.isnan(value) for value in found.values()))
        with self.assertRaisesRegex(ValueError, "evaluate_every is 0"):
            held_out.Evaluation(None, None, evaluate_every=0)

    def test_in_a_run(self):
        clients = common.random_clients(12, seed=1)
        rounds = self.rounds(common.bigram_model(), clients)
        sampler = timers.Timers(
            num_clients=9,
            cohort_size=3,
            num_rounds=5,
            min_separation=1,
            max_participation=2,
        )
        no_noise = model_updates.NoNoise(num_rounds=5, clip_norm=math.inf)
        who = held_out.Clients(np.arange(3, 12), np.arange(3))
        algorithm = dp_ftrl.DpFtrl(
            rounds,
            training_plan.plan_of(sampler, no_noise),
            rounds.model.initial_weights(7),
            clients=who.training,
            average=model_average.ModelAverage(0.6),
        )
        done = experiment.run_experiment(
            algorithm,
            self.create_tempdir().full_path + "/run",
            noise_key=noise_keys.NoiseKey.of_seed(1),
            observers=[
                dp_ftrl.update_metrics,
                held_out.Evaluation(rounds, who.held_out, evaluate_every=2),
            ],
        )
        (state,) = done.outcome.states
        self.assertEqual(state.round_number, 5)
        metrics = done.metrics
        evaluated = metrics["round"][metrics["held_out_loss"].notna()]
        self.assertEqual(evaluated.tolist(), [2, 4, 5])
        last, average = (
            rounds.evaluate(weights, np.arange(3))["loss"]
            for weights in (state.weights, state.average)
        )
        self.assertEqual(metrics["held_out_loss"].iloc[-1], average)
        self.assertNotEqual(average, last)
        self.assertTrue(np.all(np.isinf(metrics["rho"])))
        self.assertEqual(metrics["non_finite_clients"].tolist(), [0] * 5)
        (places,) = done.outcome.record.sampler_states
        self.assertEqual(places.table.participations.sum(), 15)
        self.assertLessEqual(places.table.max_participation(), 2)


if __name__ == "__main__":
    absltest.main()
