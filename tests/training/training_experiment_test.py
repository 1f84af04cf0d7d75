"""Tests of what a run is held to: participation, statements, baselines."""

import dataclasses
import math

import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized

from randomness import noise_keys
from simulation import participation_timers as timers
from simulation import run_directory
from tests.training import training_test_case as common
from training import (
    dp_ftrl,
    evaluation,
    examples,
    run_participation,
    training_statement,
)
from training import dp_ftrl_parameters as lib
from training import training_experiment as experiment

_KEY = noise_keys.NoiseKey.of_seed(1)


def parameters(mechanism=lib.Mechanism.NONE, **options):
    values = dict(report_goal=3, num_rounds=4, noise_multiplier=0, clip_norm=math.inf)
    return lib.ServerParameters(mechanism, **values | options)


def rule(num_clients=9, **options):
    values = dict(report_goal=3, num_rounds=4, seed=1)
    return timers.ParticipationRule(num_clients=num_clients, **values | options)


class ParticipationTest(parameterized.TestCase):
    def test_split(self):
        clients = experiment.Clients.split(20, 6, seed=1)
        both = np.concatenate([clients.training, clients.held_out])
        np.testing.assert_array_equal(np.sort(both), np.arange(20))
        self.assertLen(clients.held_out, 6)
        for size in (0, 20):
            with self.assertRaisesRegex(ValueError, "must be in 1..19"):
                experiment.Clients.split(20, size, seed=1)

    def test_realised(self):
        table = timers.ParticipationTable.empty(5)
        table = table.record(np.array([0, 1]), 0)
        once = run_participation.Realised(table, 1)
        self.assertEqual((once.min_separation, once.max_participation), (0, 1))
        table = table.record(np.array([1, 2]), 3).record(np.array([1]), 9)
        found = run_participation.Realised(table, 10)
        self.assertEqual((found.min_separation, found.max_participation), (2, 3))
        self.assertEqual(found.basis, "realised")

    @parameterized.parameters(
        dict(restart_rounds=()),
        dict(restart_rounds=(4, 8)),
        dict(mechanism=lib.Mechanism.GAUSSIAN),
    )
    def test_realised_is_the_client_who_costs_the_most(self, **options):
        # By hand: for each client and each node, who is in it how often.
        table = timers.ParticipationTable.empty(30)
        random = np.random.default_rng(3)
        cohorts = [random.choice(30, 6, replace=False) for _ in range(13)]
        for number, cohort in enumerate(cohorts):
            table = table.record(cohort, number)
        values = dict(noise_multiplier=2.0, clip_norm=1.0, num_rounds=13, report_goal=6)
        server = parameters(**dict(mechanism=lib.Mechanism.TREE) | values | options)
        trees = np.split(np.arange(13), [r + 1 for r in server.restart_rounds])
        if server.mechanism is lib.Mechanism.GAUSSIAN:
            trees = np.split(np.arange(13), range(1, 13))
        nodes = [
            tree[first : first + size]
            for tree in trees
            for size in (1, 2, 4, 8)
            for first in range(0, len(tree) - size + 1, size)
        ]
        square_sums = [
            sum(sum(client in cohorts[r] for r in node) ** 2 for node in nodes)
            for client in range(30)
        ]
        found = run_participation.Realised(table, 13)
        self.assertAlmostEqual(found.zcdp(server), max(square_sums) / 8)
        worst = run_participation.Planned(
            13, found.min_separation, found.max_participation
        )
        self.assertLessEqual(found.zcdp(server), worst.zcdp(server))
        if server.mechanism is lib.Mechanism.TREE:
            self.assertLess(found.zcdp(server), 0.95 * worst.zcdp(server))

    def test_only_a_table_says_what_was_realised(self):
        with self.assertRaisesRegex(TypeError, "only the participation table"):
            run_participation.Realised((10, 2, 3), 10)
        with self.assertRaises(TypeError):
            run_participation.Planned(10, 2, 3, "realised")
        table = timers.ParticipationTable.empty(5).record(np.array([0, 1]), 0)
        for wrong in (
            dataclasses.replace(table, log_clients=table.log_clients[:1]),
            dataclasses.replace(table, participations=table.participations + 1),
        ):
            with self.assertRaisesRegex(ValueError, "counts other participations"):
                run_participation.Realised(wrong, 1)

    @parameterized.parameters(
        (dict(), 0, 4),
        (dict(min_separation=1), 1, 2),
        (dict(max_participation=2), 0, 2),
        (dict(min_separation=2, max_participation=4), 2, 2),
    )
    def test_planned(self, options, separation, most):
        found = run_participation.Planned.of(rule(**options))
        self.assertEqual(
            (found.min_separation, found.max_participation), (separation, most)
        )
        self.assertEqual(found.basis, "planned")

    def test_schedule(self):
        for name, value in (
            ("evaluate_every", 0),
            ("checkpoint_every", 0),
            ("delta", 1),
        ):
            with self.assertRaisesRegex(ValueError, f"{name} is {value}"):
                experiment.Schedule(**{name: value})


class StatementTest(absltest.TestCase):
    def test_points_and_numbers(self):
        # Xu et al. 2023, Table 2, fr-FR: rho 0.61, epsilon 7.32 unrounded.
        run = parameters(
            lib.Mechanism.TREE,
            report_goal=6500,
            num_rounds=1300,
            noise_multiplier=7.0,
            clip_norm=5.0,
        )
        participation = run_participation.Planned(1300, 290, 4)
        statement = training_statement.training_statement(
            run, participation, 1e-10, "nothing."
        )
        (guarantee,) = statement.guarantees
        self.assertAlmostEqual(guarantee.rho, 60 / 98)
        self.assertAlmostEqual(guarantee.epsilon, 7.3199, places=3)
        self.assertIn("zero-out", guarantee.adjacency)
        self.assertEqual(statement.parameters["MaxP"], 4)
        self.assertIn("Algorithm 1", statement.to_markdown())
        self.assertEqual(statement.basis, "planned")
        self.assertIn("docs/integer_noise.md", statement.to_markdown())
        self.assertIn("2^-53 to epsilon and 2^-97 (1 + exp", statement.to_markdown())

    def test_without_noise(self):
        participation = run_participation.Planned(4, 0, 4)
        statement = training_statement.training_statement(
            parameters(), participation, 1e-10, "nothing."
        )
        self.assertEmpty(statement.guarantees)
        self.assertIn("**None.** No noise", statement.to_markdown())


class RunRoundsTest(common.TrainingTestCase):
    def _run(self, clients, server, participation, split=None, initial_weights=None):
        process = dp_ftrl.DpFtrlProcess(
            self.rounds(common.bigram_model(), clients), server, seed=1, noise_key=1
        )
        split = split or experiment.Clients(np.arange(9), np.arange(9, 12))
        path = self.create_tempdir().full_path
        with run_directory.RunDirectory.create(
            path, program="p", flags=(), facts={}, noise_key=_KEY
        ) as directory:
            schedule = experiment.Schedule(evaluate_every=2, checkpoint_every=3)
            result = experiment.run_rounds(
                process, participation, split, directory, schedule, initial_weights
            )
            return result, directory.metrics(), process

    def test_rounds(self):
        clients = common.random_clients(12, seed=1)
        result, metrics, process = self._run(
            clients, parameters(), rule(min_separation=1, max_participation=2)
        )
        self.assertEqual(result.state.round_number, 4)
        self.assertLen(metrics, 4)
        table = result.participation.table
        self.assertEqual(table.participations.sum(), 12)
        self.assertLessEqual(table.max_participation(), 2)
        self.assertTrue(np.all(np.isinf(metrics["rho"])))
        expected = process.rounds.evaluate(result.state.weights, np.arange(9, 12))
        self.assertEqual(metrics["held_out_loss"].iloc[-1], expected["loss"])

    def test_initial_weights(self):
        clients = common.random_clients(12, seed=1)
        participation = rule(num_rounds=1)
        weights = common.bigram_model().initial_weights(7)
        result, _, process = self._run(
            clients, parameters(num_rounds=1), participation, initial_weights=weights
        )
        _, cohort = timers.next_cohort(
            participation, timers.initial_state(participation)
        )
        expected = process.next(process.initialize(weights), cohort.clients).state
        np.testing.assert_array_equal(
            result.state.weights["table"], expected.weights["table"]
        )
        with self.assertRaisesRegex(ValueError, "weights has"):
            self._run(
                clients, parameters(), rule(), initial_weights={"table": np.zeros(3)}
            )

    def test_resumed_to_the_same_result_from_initial_weights(self):
        clients = common.random_clients(12, seed=1)
        weights = common.bigram_model().initial_weights(7)
        server = parameters(
            lib.Mechanism.TREE, noise_multiplier=0.5, clip_norm=0.5, momentum=0.5
        )
        whole, metrics, process = self._run(
            clients, server, rule(), initial_weights=weights
        )
        schedule = experiment.Schedule(evaluate_every=2, checkpoint_every=3)
        split = experiment.Clients(np.arange(9), np.arange(9, 12))
        path = self.create_tempdir().full_path
        train, done = process.rounds.train, []

        def interrupted(*arguments):
            done.append(1)
            if len(done) == 4:
                raise KeyboardInterrupt
            return train(*arguments)

        with run_directory.RunDirectory.create(
            path, program="p", flags=(), facts={}, noise_key=_KEY
        ) as directory:
            process.rounds.train = interrupted
            with self.assertRaises(KeyboardInterrupt):
                experiment.run_rounds(
                    process, rule(), split, directory, schedule, weights
                )
        process.rounds.train = train
        with run_directory.RunDirectory.resume(
            path, program="p", facts={}, noise_key=_KEY
        ) as directory:
            result = experiment.run_rounds(
                process, rule(), split, directory, schedule, weights
            )
            again = directory.metrics()
        for name in ("weights", "momentum"):
            np.testing.assert_array_equal(
                getattr(result.state, name)["table"],
                getattr(whole.state, name)["table"],
            )
        pd.testing.assert_frame_equal(
            again.drop(columns="seconds"),
            metrics.drop(columns="seconds"),
            check_exact=True,
        )

    def test_an_error_loses_no_round_and_other_parameters_do_not_go_on(self):
        clients = common.random_clients(12, seed=1)
        rounds = self.rounds(common.bigram_model(), clients)
        server = parameters(lib.Mechanism.TREE, noise_multiplier=0.5, clip_norm=0.5)
        schedule = experiment.Schedule(evaluate_every=9, checkpoint_every=9)
        split = experiment.Clients(np.arange(9), np.arange(9, 12))
        path = self.create_tempdir().full_path
        train, done = rounds.train, []

        def spoilt(*arguments):
            done.append(1)
            sums = train(*arguments)
            if len(done) < 3:
                return sums
            return dataclasses.replace(sums, num_non_finite=3)

        rounds.train = spoilt
        process = dp_ftrl.DpFtrlProcess(rounds, server, seed=1, noise_key=1)
        with (
            run_directory.RunDirectory.create(
                path, program="p", flags=(), facts={}, noise_key=_KEY
            ) as directory,
            self.assertRaisesRegex(dp_ftrl.NonFiniteModelError, "round 2"),
        ):
            experiment.run_rounds(process, rule(), split, directory, schedule)
        rounds.train = train

        others = common.random_clients(12, seed=2)
        other_rounds = self.rounds(common.bigram_model(), others)

        def resume(process):
            with run_directory.RunDirectory.resume(
                path, program="p", facts={}, noise_key=_KEY
            ) as directory:
                experiment.run_rounds(process, rule(), split, directory, schedule)
                return directory.metrics()

        noisier = dataclasses.replace(server, noise_multiplier=5.0)
        for other in (
            dp_ftrl.DpFtrlProcess(rounds, noisier, seed=1, noise_key=1),
            dp_ftrl.DpFtrlProcess(rounds, server, seed=2, noise_key=1),
            dp_ftrl.DpFtrlProcess(rounds, server, seed=1, noise_key=2),
            dp_ftrl.DpFtrlProcess(other_rounds, server, seed=1, noise_key=1),
        ):
            with self.assertRaisesRegex(ValueError, "another configuration"):
                resume(other)
        self.assertEqual(resume(process)["round"].tolist(), [1, 2, 3, 4])

    def test_what_does_not_fit(self):
        clients = common.random_clients(12, seed=1)
        for server, participation, regex in (
            (
                parameters(report_goal=2),
                rule(),
                "report_goal is 3 for the clients and 2",
            ),
            (parameters(), rule(num_rounds=5), "num_rounds is 5 for the clients and 4"),
            (parameters(), rule(num_clients=10), "num_clients is 10, 9 clients train"),
        ):
            with self.assertRaisesRegex(ValueError, regex):
                self._run(clients, server, participation)

    def test_targets_are_those_of_the_batches(self):
        clients = common.random_clients(6, seed=4)
        limits = examples.ClientLimits(max_sentences=4, max_words=4, batch_size=3)
        text = self.text(clients)
        found = examples.targets(text, np.array([1, 4]), limits)
        expected = [
            token
            for client in (1, 4)
            for sentence in clients[client][:4]
            for token in common.sequence(sentence, 4)[1]
        ]
        self.assertEqual(found.tolist(), expected)

    def test_the_unigram_baseline_is_what_a_constant_model_reaches(self):
        clients = common.random_clients(12, seed=5)
        limits = examples.ClientLimits(max_sentences=4, max_words=4, batch_size=3)
        split = experiment.Clients(np.arange(8), np.arange(8, 12))
        rounds = self.rounds(common.bigram_model(), clients, limits)
        found = experiment.unigram_baseline(
            rounds.mapped.text, split, limits, common.NUM_TOKENS
        )
        training = examples.targets(rounds.mapped.text, split.training, limits)
        counts = np.bincount(training, minlength=common.NUM_TOKENS) + 1.0
        counts[0] = 1e-30
        row = np.log(counts / counts.sum()).astype(np.float32)
        weights = {"table": np.tile(row, (common.NUM_TOKENS, 1))}
        expected = rounds.evaluate(weights, split.held_out)
        self.assertEqual(list(found), list(expected))
        for name, value in expected.items():
            self.assertAlmostEqual(found[name], value, places=5, msg=name)


class EvaluationTableTest(absltest.TestCase):
    def test_names_of_metrics_without_an_evaluation(self):
        sums = {name: 1.0 for name in evaluation.SUMS}
        found = experiment._evaluate(  # as in a round without an evaluation
            None,
            dp_ftrl.TrainingState(1, {}, {}, 1.0, 1.0, None, None, b""),
            None,
            False,
            experiment.Schedule(evaluate_every=2),
        )
        names = [f"held_out_{name}" for name in evaluation.metrics_of_sums(sums)]
        self.assertEqual(list(found), names)


if __name__ == "__main__":
    absltest.main()
