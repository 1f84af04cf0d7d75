"""Tests of algorithms whose secure sums are masked, beside those whose are not."""

import contextlib
import dataclasses
import math
import os
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from federated_hh.files import memory
from federated_hh.heavy_hitters import alphabet, selection
from federated_hh.heavy_hitters.triehh import algorithm as triehh
from federated_hh.populations.columns import client_text, client_words
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.dp_ftrl import model_updates, rotated_updates, update_noise
from federated_hh.privacy.dp_ftrl import plan as training_plan
from federated_hh.privacy.triehh import guarantees as triehh_privacy
from federated_hh.randomness import noise_keys, streams
from federated_hh.rounds import block_round, experiment, masked_sums, steps, timers
from federated_hh.runtime import runtime
from federated_hh.runtime.masking import messages, protocol
from federated_hh.runtime.masking.messages import Step
from federated_hh.runtime.worker import engine_options
from tests.federated_hh.rounds import contract_cases
from tests.training import training_test_case
from training.federated import client_update, dp_ftrl
from training.text import examples

_STREAM = streams.Stream(1)


def _masking(**options):
    values = {"secure_sum": "masked", **options}
    return masked_sums.MaskedSums(engine_options.SecureSumOptions(**values))


@contextlib.contextmanager
def _gone(*rounds):
    """Has clients drop out: of each sum, whom before what."""
    with mock.patch.object(protocol, "drop_outs", side_effect=rounds):
        yield


def _work(message, block):
    clients = block["clients"]
    return {
        "number": tf.size(clients, tf.int64),
        "weighted": [
            tf.reduce_sum(clients) * message["weight"],
            tf.fill([2, 3], tf.reduce_sum(clients)),
        ],
    }


class MaskedTally(contract_cases.Tally):
    """Counts random votes under masks, of clients of whom some drop out."""

    def __init__(self):
        super().__init__("a", "a")
        self.masking = _masking(dropout_rate=0.1)

    def describe(self):
        return {**super().describe(), **self.masking.describe()}

    def ask(self, cohort, stream):
        votes = stream.generator("votes").integers(0, 3, len(cohort))
        own = np.eye(3, dtype=np.int64)[votes]
        found = self.masking.add(len(cohort), 3, 1, lambda who: own[who], stream)
        return found.total.astype(np.int64)


class MaskedTestCase(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enterClassContext(runtime.tff_worker())

    def setUp(self):
        super().setUp()
        self.folder = self.create_tempdir().full_path


class BlockRoundTest(MaskedTestCase):
    def ask(self, masking, work=_work, largest=None, cohort=None):
        computation = block_round.BlockRound(
            work,
            largest or {"number": 1, "weighted": 100},
            block_size=4,
            masking=masking,
        )
        cohort = np.arange(10, 19) if cohort is None else cohort
        return computation.ask({"weight": np.int64(3)}, cohort, _STREAM)

    def test_sums_of_all(self):
        ideal, masked = self.ask(None), self.ask(_masking())
        tf.nest.assert_same_structure(ideal.sums, masked.sums)
        for one, other in zip(
            tf.nest.flatten(ideal.sums), tf.nest.flatten(masked.sums), strict=True
        ):
            np.testing.assert_array_equal(one, other)
            self.assertEqual(np.asarray(one).dtype, other.dtype)
        self.assertEqual((ideal.num_summed, masked.num_summed), (9, 9))

    def test_sums_of_those_who_stay(self):
        gone = {0: Step.INPUT, 4: Step.KEYS, 8: Step.UNMASKING}
        with _gone(gone), mock.patch.object(block_round, "_SLICE_CLIENTS", 2):
            found = self.ask(_masking(tolerated_dropout=0.4))
        left = [11, 12, 13, 15, 16, 17, 18]
        self.assertEqual(found.num_summed, 7)
        self.assertEqual(int(found.sums["number"]), 7)
        self.assertEqual(int(found.sums["weighted"][0]), 3 * sum(left))
        np.testing.assert_array_equal(
            found.sums["weighted"][1], np.full((2, 3), sum(left))
        )

    @parameterized.parameters(29, 100)
    def test_contributions_out_of_range(self, largest):
        cohort = np.array([-1, 2, 3, 10, 11])
        if largest == 29:
            cohort[0] = 1
        with self.assertRaisesRegex(
            runtime.SecureSumError, r"to weighted are from .*\[0, " + str(largest)
        ):
            self.ask(_masking(), _work, {"number": 1, "weighted": largest}, cohort)

    def test_what_cannot_be_masked(self):
        with self.assertRaisesRegex(ValueError, "number has no bound"):
            self.ask(_masking(), largest={"number": None, "weighted": 100})

        def floats(message, block):
            return {"number": tf.cast(tf.size(block["clients"]), tf.float32)}

        with self.assertRaisesRegex(ValueError, "number is float32; it has to be"):
            self.ask(_masking(), floats, {"number": 1})


class TrieHHTest(MaskedTestCase):
    def make(self, masking, by_frequency=True):
        words = ["ab"] * 30 + ["abc"] * 20 + ["c"] * 10
        population = client_words.ClientWords.from_rows(
            os.path.join(self.folder, f"words {masking is None}"),
            [(str(i), [(word, 1), ("ba", 2)]) for i, word in enumerate(words)],
        )
        kind = selection.WordSelection
        plan = triehh.plan_of(
            triehh_privacy.TrieHHParameters(60, 40, 3, 4),
            kind.BY_FREQUENCY if by_frequency else kind.MOST_FREQUENT,
        )
        letters = alphabet.Alphabet("abc")
        return triehh.TrieHH(population, plan, letters, masking=masking)

    def run_it(self, algorithm, name, masking):
        return experiment.run_experiment(
            algorithm,
            os.path.join(self.folder, name),
            seed=3,
            noise_key=noise_keys.NoiseKey.of_seed(3),
            delta=0.9,
            observers=[triehh.vote_metrics, *masked_sums.observers(masking)],
            report=lambda *_: None,
        )

    def test_without_drop_outs_a_run_is_the_same(self):
        masking = _masking()
        ideal = self.run_it(self.make(None), "ideal", None)
        masked = self.run_it(self.make(masking), "masked", masking)
        self.assertEqual(ideal.outcome.record, masked.outcome.record)
        words = [done.outcome.states[0].trie.words() for done in (ideal, masked)]
        self.assertEqual(words[0], words[1])
        self.assertNotEmpty(words[0])
        sizes = ["download_bytes", "upload_bytes"]
        same = ideal.metrics.columns.drop(["seconds", *sizes])
        self.assertTrue(ideal.metrics[same].equals(masked.metrics[same]))
        rows = masked.metrics
        # Masks come on top of the question and of the votes.
        self.assertTrue((rows[sizes] > ideal.metrics[sizes] + 6 * 32).all(axis=None))
        self.assertEqual(rows["clients_summed"].tolist(), [40] * len(rows))
        self.assertEqual(rows["mask_neighbours"].tolist(), [6] * len(rows))

    def test_votes_of_those_who_stay(self):
        by_hand = {}
        gone = {3: Step.KEYS, 17: Step.INPUT, 39: Step.SHARES, 5: Step.UNMASKING}
        for name, masking in (("ideal", None), ("masked", _masking())):
            made = self.make(masking, by_frequency=False)
            one = steps.Steps(made, seed=1, noise_key=noise_keys.NoiseKey.of_seed(1))
            place = one.begin()
            by_hand[name] = made.next_query(place.state), one.draw(place).cohort
        cohort = by_hand["masked"][1]
        left = np.delete(cohort, [3, 17, 39])
        expected = by_hand["ideal"][0].ask(left, _STREAM)
        with _gone(gone), mock.patch.object(masked_sums, "_LEAST_TOLERATED", 0.1):
            votes = by_hand["masked"][0].ask(cohort, _STREAM)
        np.testing.assert_array_equal(votes, expected)
        self.assertEqual(votes.sum(), 37)

    def test_votes_for_too_many_candidates(self):
        with self.assertRaisesRegex(
            ValueError, "40 clients with 6 neighbours each and vectors of up to 52 num"
        ):
            self.make(_masking(most_minutes=1e-4))


class TrainingTest(MaskedTestCase):
    def make(self, masking):
        clients = training_test_case.random_clients(9, seed=1)
        text = client_text.ClientText.from_rows(
            os.path.join(self.folder, f"text {masking is None}"),
            [(str(i), sentences) for i, sentences in enumerate(clients)],
        )
        self.model = training_test_case.bigram_model()
        return client_update.FederatedRounds(
            self.model,
            examples.MappedText(text, examples.ClientLimits(5, 4, 2)),
            client_update.LocalTraining(0.5),
            num_blocks=2,
            masking=masking,
        )

    def test_updates_of_all_and_of_those_who_stay(self):
        ideal, masked = self.make(None), self.make(_masking(tolerated_dropout=0.3))
        weights = self.model.initial_weights(1)
        cohort = np.array([0, 2, 3, 4, 5, 8])
        expected = ideal.train(weights, cohort, 0.05, 0.1)
        found = masked.train(weights, cohort, 0.05, 0.1)
        self.assert_same(found, expected)
        self.assertIs(type(found), model_updates.UpdateSum)
        with _gone({1: Step.INPUT}):
            found = masked.train(weights, cohort, 0.05, 0.1)
        expected = ideal.train(weights, np.delete(cohort, 1), 0.05, 0.1)
        self.assert_same(found, expected)
        # What the mean divides by is the cohort that was asked.
        self.assertEqual((found.num_clients, found.num_summed), (6, 5))

    def test_rotated_updates_of_all_and_of_those_who_stay(self):
        ideal, masked = self.make(None), self.make(_masking(tolerated_dropout=0.3))
        weights = self.model.initial_weights(1)
        cohort = np.array([0, 2, 3, 4, 5, 8])
        rotated = rotated_updates.RotatedUpdate(
            clip_norm=0.05, scale=1e8, num_values=144, num_clients=6
        )
        told = weights, cohort, 0.05, 0.1, _STREAM, rotated
        expected = ideal.train(*told)
        found = masked.train(*told)
        self.assert_same(found, expected)
        self.assertEqual(found, dataclasses.replace(expected, parts=found.parts))
        with _gone({1: Step.INPUT}):
            found = masked.train(*told)
        self.assertEqual((found.num_clients, found.num_summed), (6, 5))
        # Rounding moves a client's number by a unit of 1e-8 at most, rotated.
        expected = ideal.train(weights, np.delete(cohort, 1), 0.05, 0.1)
        error = (found.parts["table"] - expected.parts["table"]) / 2**32 * 0.05
        self.assertLess(np.abs(error).max(), 5 * 16 * 1e-8)
        self.assertGreater(np.abs(expected.parts["table"]).max() / 2**32 * 0.05, 1e-2)
        masked.check_masking(6, 0.05, rotated)

    def assert_same(self, found, expected):
        self.assertEqual(found.parts.keys(), expected.parts.keys())
        for name, part in expected.parts.items():
            np.testing.assert_array_equal(found.parts[name], part)
            self.assertTrue(np.any(part))
        self.assertEqual(found.num_below, expected.num_below)
        self.assertEqual(found.num_non_finite, expected.num_non_finite)

    def test_what_nothing_clips(self):
        plan = training_plan.plan_of(
            timers.Timers(num_clients=9, cohort_size=4, num_rounds=1, timer_hours=0),
            model_updates.NoNoise(num_rounds=1, clip_norm=math.inf),
        )
        rounds = self.make(_masking())
        with self.assertRaisesRegex(ValueError, "give a clip norm"):
            dp_ftrl.DpFtrl(rounds, plan, self.model.initial_weights(1))

    def test_a_client_who_is_gone_counts_for_neither_side_of_the_clip(self):
        mechanism = update_noise.TreeNoise(
            num_rounds=1,
            clip_norm=1.0,
            noise_multiplier=1e-3,
            adaptive_clip=update_noise.AdaptiveClip(count_stddev=0.01),
            restart_rounds=(),
        )
        parts = {"w": np.zeros(2, np.int64)}
        norms = [
            mechanism.release(
                total, mechanism.initialize(), {"clip_norm": 1.0}, _STREAM
            ).value.tracked_norm
            for total in (
                model_updates.UpdateSum(parts, 10, 5, 0),
                model_updates.PartialUpdateSum(parts, 10, 3, 0, 6),
                model_updates.PartialUpdateSum(parts, 10, 6, 0, 6),
            )
        ]
        self.assertAlmostEqual(norms[1], norms[0], places=12)
        self.assertAlmostEqual(norms[2], math.exp(-0.2 * 0.3) * norms[0], places=3)


class FailedSumTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.create_tempdir().full_path

    def start(self, name, resume=False):
        algorithm = MaskedTally()
        return experiment.run_experiment(
            algorithm,
            os.path.join(self.folder, name),
            seed=3,
            noise_key=noise_keys.NoiseKey(7, is_secret=True),
            delta=0.9,
            resume=resume,
            observers=[algorithm.masking.metrics],
            report=lambda *_: None,
        )

    def test_a_run_goes_on_after_a_sum_that_failed(self):
        few, many = {}, dict.fromkeys(range(12), Step.INPUT)
        seen = []
        draw = protocol.drop_outs

        def drawn(num_clients, rate, stream):
            seen.append(stream.bits("test").bytes(0, 8))
            draw(num_clients, rate, stream)
            return many if len(seen) in (3, 4) else few

        with mock.patch.object(protocol, "drop_outs", drawn):
            for resume in (False, True):
                with self.assertRaisesRegex(
                    messages.MaskedSumError,
                    "8 of 20 clients remained .* Nothing was released. --resume asks "
                    "the same clients again, with new keys",
                ):
                    self.start("run", resume)
            done = self.start("run", resume=True)
        rounds = done.outcome.record.rounds.rounds
        self.assertEqual([found.number for found in rounds], [1, 2, 3, 4, 5])
        self.assertLen(done.metrics, 5)
        # Every attempt has its own keys.
        self.assertLen(set(seen), 7)
        # Those of the third round; all others are as in a run where nothing failed.
        with mock.patch.object(protocol, "drop_outs", lambda *_: few):
            straight = self.start("straight")
        self.assertEqual(
            [found.cohort for found in straight.outcome.record.rounds.rounds][:3],
            [found.cohort for found in rounds][:3],
        )

    def test_a_killed_run_has_the_same_sums_and_drop_outs(self):
        whole = self.start("whole")
        release = plan_lib.Plan.release
        asked = []

        def killed(*arguments):
            asked.append(arguments)
            if len(asked) == 3:
                raise KeyboardInterrupt
            return release(*arguments)

        with (
            mock.patch.object(plan_lib.Plan, "release", killed),
            self.assertRaises(KeyboardInterrupt),
        ):
            self.start("killed")
        again = self.start("killed", resume=True)
        np.testing.assert_array_equal(
            again.outcome.states[0].votes, whole.outcome.states[0].votes
        )
        self.assertEqual(again.outcome.record, whole.outcome.record)
        columns = whole.metrics.columns.drop("seconds")
        self.assertTrue(again.metrics[columns].equals(whole.metrics[columns]))

    def test_drop_outs_are_in_the_metrics(self):
        rows = self.start("run").metrics
        gone = rows[[f"gone_before_{step.value}" for step in Step]]
        self.assertGreater(gone.to_numpy().sum(), 0)
        missing = gone.drop(columns="gone_before_unmasking").sum(axis=1)
        self.assertEqual((20 - missing).tolist(), rows["clients_summed"].tolist())


class OptionsTest(parameterized.TestCase):
    def test_drop_out_that_is_tolerated(self):
        found = _masking(dropout_rate=0.3).graph(1000).needs.most_gone
        # Binomial(1000, 0.3) is above it once in 2^20, and five deviations are 72.
        self.assertBetween(found, 300 + 4.5 * 14.5, 300 + 5.1 * 14.5)
        self.assertEqual(_masking().graph(1000).needs.most_gone, 50)
        self.assertEqual(_masking(tolerated_dropout=0.2).graph(10).needs.most_gone, 2)

    def test_drop_outs_follow_from_the_masks_own_stream(self):
        masking = _masking(dropout_rate=0.3)
        vectors = np.ones((40, 1), np.int64)
        found = masking.add(40, 1, 1, lambda who: vectors[who], _STREAM)
        gone = protocol.drop_outs(40, 0.3, _STREAM.at("masked sum"))
        late = [client for client, step in gone.items() if step is Step.UNMASKING]
        self.assertEqual(set(found.summed), set(range(40)) - set(gone) | set(late))

    def test_options_without_masks(self):
        with self.assertRaisesRegex(
            ValueError, "dropout_rate=0.1 is for secure_sum=ma"
        ):
            engine_options.SecureSumOptions(dropout_rate=0.1)
        ideal = engine_options.SecureSumOptions()
        self.assertIsNone(masked_sums.MaskedSums.of(ideal))
        with self.assertRaisesRegex(ValueError, "it has to be 'masked'"):
            masked_sums.MaskedSums(ideal)

    def test_too_much(self):
        masking = _masking()
        with self.assertRaisesRegex(
            ValueError, r"about \d\d minutes per round; most_minutes is 30: raise it"
        ):
            masking.check(6500, 2_400_000, 2**33)
        with (
            mock.patch.object(memory, "available_bytes", return_value=1000),
            self.assertRaisesRegex(
                ValueError, "1.0 MiB of memory, and 0.0 MiB are available"
            ),
        ):
            masking.check(100, 1000, 1)
        with self.assertRaisesRegex(ValueError, "num_clients is 2; it has to be"):
            masking.check(2, 1000, 1)
        masking.check(100, 10_000, 1)

    @parameterized.parameters(
        dict(runtime=engine_options.RuntimeOptions(engine_options.Runtime.IN_PROCESS)),
        dict(engine=engine_options.EngineOptions(engine_options.Engine.RAY)),
    )
    def test_what_gives_no_clients_own_vectors(self, **chosen):
        self.addCleanup(engine_options.choose)
        engine_options.choose(**chosen)
        with self.assertRaisesRegex(ValueError, "have to be 'embedded' and 'worker'"):
            _masking().check(100, 10_000, 1)

    @parameterized.parameters((1, 1, 1), (7, 1, 3), (8, 1, 4), (1000, 2**33, 43))
    def test_modulus(self, clients, largest, bits):
        self.assertEqual(masked_sums.modulus_bits(clients, largest), bits)
        self.assertLess(clients * largest, 2**bits)

    def test_statement_says_how(self):
        tally = contract_cases.Tally("a", "a")
        stated = _masking().stated(tally.plan.statement(None, 0.9), 20)
        text = stated.to_markdown()
        self.assertIn("Sums are masked (docs/masked_sum.md): each of 20 clients", text)
        self.assertIn("without exception", text)
        plan = training_plan.plan_of(
            timers.Timers(num_clients=9, cohort_size=4, num_rounds=1, timer_hours=0),
            update_noise.TreeNoise(num_rounds=1, clip_norm=1.0, noise_multiplier=1.0),
        )
        planned = plan.statement(None, 1e-6)
        self.assertIn("in the clear", planned.setting)
        self.assertIn("masking protocol", _masking().stated(planned, 4).setting)


if __name__ == "__main__":
    absltest.main()
