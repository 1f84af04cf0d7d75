"""Tests of federated training against Algorithm 1 as the paper writes it."""

import collections
import dataclasses
import math
import tempfile
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.populations.columns import client_text
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.dp_ftrl import model_updates, update_noise
from federated_hh.privacy.dp_ftrl import plan as training_plan
from federated_hh.privacy.guarantee import Adjacency
from federated_hh.randomness import identities, integer_noise, noise_keys
from federated_hh.rounds import (
    checkpoints,
    client_bytes,
    masked_sums,
    steps,
    timers,
)
from federated_hh.runtime.worker.engine_options import SecureSumOptions
from tests.training import training_test_case as common
from training.federated import client_update, dp_ftrl, model_average, server_optimizers
from training.text import examples

_TREE, _GAUSSIAN = update_noise.TreeNoise, update_noise.GaussianNoise
_NONE = model_updates.NoNoise
_SHAPES = {"a": (3, 2), "b": (4,)}


class _Rounds:
    """Stands where no client has to train: a model's shapes alone."""

    def __init__(self, about="clients"):
        self._about = about

    def describe(self):
        return {"about": self._about}

    def check_masking(self, *of):
        del of  # nothing is masked

    def client_bytes(self, *of):
        del of
        return client_bytes.ClientBytes(8, 4)

    class mapped:  # noqa: N801
        class text:  # noqa: N801
            keeps_empty_clients = True

    class model:  # noqa: N801
        @staticmethod
        def initial_weights(seed):
            random = np.random.default_rng(seed)
            return collections.OrderedDict(
                (name, random.normal(size=shape).astype(np.float32))
                for name, shape in _SHAPES.items()
            )


def plan_with(mechanism, *, num_clients, cohort_size, num_rounds, **settings):
    """Returns the plan of a class of mechanisms and its settings."""
    sampler = timers.Timers(
        num_clients=num_clients, cohort_size=cohort_size, num_rounds=num_rounds
    )
    return training_plan.plan_of(sampler, mechanism(num_rounds=num_rounds, **settings))


class Server:
    """A run whose sums the test makes; no client trains."""

    def __init__(
        self,
        seed=1,
        noise_key=1,
        about="clients",
        weights=None,
        momentum=0.9,
        **options,
    ):
        values = dict(
            mechanism=_TREE,
            cohort_size=10,
            num_rounds=100,
            noise_multiplier=0.5,
            clip_norm=2.0,
        )
        optimizer = options.pop("optimizer", server_optimizers.Sgdm(0.3, momentum))
        average = options.pop("average", None)
        values |= options
        if values["mechanism"] is _NONE:
            del values["noise_multiplier"]
        goal = values["cohort_size"]
        self.algorithm = dp_ftrl.DpFtrl(
            _Rounds(about),
            plan_with(num_clients=40, **values),
            weights or _Rounds.model.initial_weights(1),
            clients=np.arange(40),
            optimizer=optimizer,
            average=average,
        )
        self.mechanism = self.algorithm.plan.mechanism
        self.steps = steps.Steps(
            self.algorithm, seed=seed, noise_key=noise_keys.NoiseKey.of_seed(noise_key)
        )
        self.place = self.steps.begin()
        self.cohort = np.arange(goal)

    @property
    def state(self):
        return self.place.state

    def update(self, sums):
        """Takes a step; returns what the mechanism released, and the metrics."""
        query = self.algorithm.next_query(self.place.state)
        drawn = plan_lib.Draw(self.cohort, self.place.sampler_state)
        step = self.steps.update(self.place, query, drawn, sums)
        self.place = step.progress
        return step.released, step.metrics


def sums_of(values, num_below=5, num_clients=10, clip_norm=2.0):
    """Returns the sums of a round from floats by name."""
    unit = clip_norm / 2**32
    total = collections.OrderedDict(
        (name, np.rint(np.asarray(part) / unit).astype(np.int64))
        for name, part in values.items()
    )
    return model_updates.UpdateSum(total, num_clients, num_below, 0)


def random_sums(number, **options):
    random = np.random.default_rng(100 + number)
    return sums_of(
        {name: random.normal(size=shape) for name, shape in _SHAPES.items()}, **options
    )


def zero_sums(**options):
    zeros = {name: np.zeros(shape) for name, shape in _SHAPES.items()}
    return sums_of(zeros, **options)


class EmptiedTest(common.TrainingTestCase):
    """Sums before the noise, before and after one client is emptied."""

    clip_norm = 0.05

    def sums(self, clients, clip):
        """Returns the exact sums of a round, over their noise, and its statement."""
        network = common.bigram_model()
        plan = plan_with(
            _GAUSSIAN,
            num_clients=3,
            cohort_size=3,
            num_rounds=1,
            noise_multiplier=2.0,
            clip_norm=self.clip_norm,
            adaptive_clip=clip,
        )
        weights = network.initial_weights(1)
        algorithm = dp_ftrl.DpFtrl(self.rounds(network, clients), plan, weights)
        key = noise_keys.NoiseKey.of_seed(1)
        taken = steps.Steps(algorithm, seed=1, noise_key=key)
        place = taken.begin()
        query = algorithm.next_query(place.state)
        total = taken.ask(place, query, np.arange(3))
        drawn = taken.draw(place)
        with mock.patch.object(
            integer_noise.Independent,
            "add",
            autospec=True,
            side_effect=integer_noise.Independent.add,
        ) as add:
            taken.update(place, query, drawn, total)
        exact = [call.args[1] / call.args[2] for call in add.call_args_list]
        return np.concatenate(exact), plan.statement(None, 1e-6)

    @parameterized.parameters(
        # Beyond the tracked norm, with a bit of -1/2; and below it, with 1/2.
        (None, [[4, 5, 6]], 1.0),
        (None, [[1]], None),
        (update_noise.AdaptiveClip(1.5), [[4, 5, 6]], 1.0),
        (update_noise.AdaptiveClip(1.5), [], 0.0),
    )
    def test_emptying_moves_sums_as_far_as_is_stated(self, clip, sentences, share):
        others = common.random_clients(2, seed=1)
        before, statement = self.sums([others[0], sentences, others[1]], clip)
        after, _ = self.sums([others[0], [], others[1]], clip)
        rho = np.square(before - after).sum() / 2
        (emptied,) = [
            g.rho for g in statement.guarantees if g.adjacency is Adjacency.EMPTIED
        ]
        self.assertLessEqual(rho, emptied)
        if share is not None:
            self.assertAlmostEqual(rho / emptied, share, places=5)
        self.assertLen(before, common.NUM_TOKENS**2 + (clip is not None))


class ServerTest(parameterized.TestCase):
    @parameterized.parameters(
        dict(),
        dict(mechanism=_NONE, noise_multiplier=0),
        dict(mechanism=_GAUSSIAN, momentum=0.0),
        dict(restart_rounds=(2, 5)),
    )
    def test_algorithm_1(self, **options):
        server = Server(**options)
        first = server.state.weights
        beta = options.get("momentum", 0.9)
        private_sum = {name: np.zeros(shape) for name, shape in _SHAPES.items()}
        momentum = {name: np.zeros(shape) for name, shape in _SHAPES.items()}
        exact = options.get("mechanism") is _NONE
        for number in range(9):
            sums = random_sums(number)
            released, metrics = server.update(sums)
            for name in _SHAPES:
                # PrivateSum of all rounds so far, its mean, momentum on that, and the
                # step from the first weights.
                noiseless = sums.parts[name] * 2.0 / 2**32
                difference = np.abs(released.total[name] - noiseless).max()
                self.assertEqual(difference < 1e-6, exact)
                private_sum[name] += released.total[name]
                momentum[name] *= beta
                momentum[name] += private_sum[name] / 10
                np.testing.assert_allclose(
                    server.state.weights[name],
                    first[name] + 0.3 * momentum[name],
                    rtol=1e-4,
                    atol=1e-4,
                )
            norm = np.sqrt(sum(np.sum(p**2.0) for p in released.total.values())) / 10
            self.assertAlmostEqual(metrics["update_norm"], norm, places=5)
        self.assertEqual(server.state.round_number, 9)
        self.assertEqual(metrics["noise_stddev"], 0.0 if exact else 1.0)

    def test_an_optimizer_comes_after_the_noise(self):
        # Two runs of one identity but for the optimizer, which the plan does not have.
        servers = [Server(optimizer=o(0.3)) for o in server_optimizers.BY_NAME.values()]
        plans = {identities.canonical(server.algorithm.plan) for server in servers}
        self.assertLen(plans, 1)
        for server in servers:
            server.update(random_sums(0))
            server.update(random_sums(1))
        ends = [server.state.weights["a"] for server in servers]
        for i, end in enumerate(ends):
            for other in ends[:i]:
                self.assertGreater(np.abs(end - other).max(), 1e-3)

    def test_the_average_is_of_what_would_be_there_without_it(self):
        # Without noise, which depends on a run's identity.
        settings = {"mechanism": _NONE, "noise_multiplier": 0}
        plain = Server(**settings)
        averaged = Server(**settings, average=model_average.ModelAverage(0.15))
        expected = plain.state.weights["a"].astype(np.float64)
        np.testing.assert_array_equal(averaged.state.model["a"], expected)
        # (1 + t) / (10 + t) is less than the decay after no round only.
        for number, decay in enumerate((0.1, 0.15, 0.15, 0.15)):
            for server in (plain, averaged):
                server.update(random_sums(number))
            last = plain.state.weights["a"]
            np.testing.assert_array_equal(averaged.state.weights["a"], last)
            self.assertIs(plain.state.model, plain.state.weights)
            expected = decay * expected + (1 - decay) * last
            np.testing.assert_allclose(
                averaged.state.model["a"], expected, rtol=0, atol=1e-6
            )
        identities = [server.algorithm.describe() for server in (plain, averaged)]
        self.assertEqual(identities[1], identities[0] | {"model_average": 0.15})

    def test_an_optimizer_that_would_be_spoiled_is_kept(self):
        # The square of the mean is infinite in Adam's memory, and the step is none.
        server = Server(
            mechanism=_NONE,
            noise_multiplier=0,
            clip_norm=math.inf,
            optimizer=server_optimizers.Adam(),
        )
        parts = {n: np.zeros(shape, np.float32) for n, shape in _SHAPES.items()}
        parts["a"][0, 0] = 1e30
        with self.assertRaisesRegex(dp_ftrl.NonFiniteModelError, "round 0"):
            server.update(model_updates.UpdateSum(parts, 10, 5, 0))

    def test_it_ends_after_its_rounds(self):
        server = Server(num_rounds=2)
        for number in range(2):
            server.update(random_sums(number))
        self.assertIsNone(server.algorithm.next_query(server.state))

    def test_a_step_that_would_spoil_the_model_is_not_taken(self):
        server = Server(mechanism=_NONE, noise_multiplier=0, clip_norm=math.inf)
        parts = {n: np.zeros(shape, np.float32) for n, shape in _SHAPES.items()}
        parts["a"][0, 0] = np.inf
        before = server.state.weights["a"].copy()
        with self.assertRaisesRegex(dp_ftrl.NonFiniteModelError, "round 0"):
            server.update(model_updates.UpdateSum(parts, 10, 5, 0))
        np.testing.assert_array_equal(server.state.weights["a"], before)

    def test_a_round_without_a_finite_update_stops_the_run(self):
        server = Server()
        sums = dataclasses.replace(random_sums(0), num_non_finite=10)
        server.algorithm.rounds.train = lambda *_: sums
        query = server.algorithm.next_query(server.state)
        with self.assertRaisesRegex(dp_ftrl.NonFiniteModelError, "no client's update"):
            server.steps.ask(server.place, query, server.cohort)
        # Where four have dropped out, it is the six who are left that count.
        five, six = (
            model_updates.PartialUpdateSum(sums.parts, 10, 0, non_finite, 6)
            for non_finite in (5, 6)
        )
        server.algorithm.rounds.train = lambda *_: five
        server.steps.ask(server.place, query, server.cohort)
        server.algorithm.rounds.train = lambda *_: six
        with self.assertRaisesRegex(dp_ftrl.NonFiniteModelError, "no client's update"):
            server.steps.ask(server.place, query, server.cohort)

    def test_clients_are_numbered_among_those_who_train(self):
        server = Server()
        server.algorithm.clients = np.arange(40) * 3 + 1
        asked = []

        def train(weights, clients, *_):
            asked.extend(clients)
            return random_sums(0)

        server.algorithm.rounds.train = train
        query = server.algorithm.next_query(server.state)
        server.steps.ask(server.place, query, np.arange(30, 40))
        self.assertEqual(asked, list(range(91, 121, 3)))

    def test_a_run_of_other_clients_is_another(self):
        text = client_text.ClientText.from_rows(
            f"{self.create_tempdir().full_path}/text",
            [(str(i), [[4, 5]]) for i in range(12)],
        )
        rounds = client_update.FederatedRounds(
            common.bigram_model(),
            examples.MappedText(text, examples.ClientLimits()),
            client_update.LocalTraining(0.5),
        )
        plan = plan_with(
            _NONE, num_clients=9, cohort_size=3, num_rounds=4, clip_norm=1.0
        )
        first, last = (
            dp_ftrl.DpFtrl(
                rounds, plan, rounds.model.initial_weights(1), clients=clients
            ).describe()
            for clients in (np.arange(9), np.arange(3, 12))
        )
        self.assertNotEqual(first, last)
        self.assertEqual({**first, "clients": None}, {**last, "clients": None})

    @parameterized.parameters(
        (dict(weights={"a": np.zeros(2)}), "be the model's, "),
        (dict(clients=np.arange(39)), "num_clients is 40; it has to be 39"),
    )
    def test_bad_input(self, options, regex):
        plan = Server().algorithm.plan
        values = dict(weights=_Rounds.model.initial_weights(1), clients=np.arange(40))
        with self.assertRaisesRegex(ValueError, regex):
            dp_ftrl.DpFtrl(_Rounds(), plan, **values | options)


class NoiseOfOtherRunsTest(parameterized.TestCase):
    @parameterized.parameters(_TREE, _GAUSSIAN)
    def test_two_runs_that_differ_in_anything_have_other_noise(self, mechanism):
        # With the same draws, the one less the other would be the sums' difference.
        adaptive = update_noise.AdaptiveClip(count_stddev=3.0)

        def noise_of(sums=None, goal=10, **options):
            server = Server(
                mechanism=mechanism, adaptive_clip=adaptive, cohort_size=goal, **options
            )
            sums = sums or zero_sums(num_clients=goal)
            released, _ = server.update(sums)
            flat = [
                (released.total[n] - sums.parts[n] * 2.0 / 2**32).ravel()
                for n in _SHAPES
            ]
            scale = server.mechanism.delta_multiplier(0) * 2.0
            below = sums.num_below / goal - 0.5
            count = -math.log(released.tracked_norm / 2.0) / 0.2 - below
            return np.append(np.concatenate(flat) / scale, count * goal / 3.0)

        warm = _Rounds.model.initial_weights(9)
        base = noise_of()
        np.testing.assert_array_equal(base, noise_of())
        others = [
            noise_of(noise_multiplier=1.0),
            noise_of(num_rounds=99),
            noise_of(momentum=0.5),
            noise_of(optimizer=server_optimizers.Adam(0.3)),
            noise_of(optimizer=server_optimizers.Yogi(0.3)),
            noise_of(optimizer=server_optimizers.Adam(0.3, epsilon=1e-4)),
            noise_of(about="other clients"),
            noise_of(goal=11),
            noise_of(seed=2),
            noise_of(noise_key=2),
            noise_of(weights=warm),
            # What nothing describes, such as other cohorts, shows in the sums.
            noise_of(zero_sums(num_below=6)),
            noise_of(random_sums(1)),
            noise_of(random_sums(2)),
        ]
        for i, one in enumerate([base, *others]):
            for other in others[i:]:
                # Ten numbers of the updates' noise and one of the count's.
                self.assertGreater(np.abs(one - other)[:10].min(), 1e-4)
                self.assertGreater(abs(one - other)[10], 1e-4)

    def test_nobody_without_the_key_can_check_a_guess_of_the_sums(self):
        # All that a checkpoint has, of the same sums under two keys.
        found = []
        for noise_key in (1, 2):
            server = Server(noise_key=noise_key)
            server.update(random_sums(1))
            arrays = {}
            checkpoints.encode(server.place, arrays)
            arrays["history"] = np.frombuffer(server.place.history, np.uint8)
            found.append(arrays)
        names = [
            n for n in found[0] if n.startswith(("mechanism_state", "history", "state"))
        ]
        self.assertLen(names, 7)
        for name in names:
            same = np.count_nonzero(found[0][name] == found[1][name])
            self.assertLess(same, found[0][name].size / 4 + 1, name)

    def test_what_rounds_describe(self):
        with tempfile.TemporaryDirectory() as scratch:

            def describe(
                name,
                clients=([[4, 5]], [[6]]),
                rate=0.5,
                epochs=1,
                masking=None,
                **limits,
            ):
                text = client_text.ClientText.from_rows(
                    f"{scratch}/{name}", [(str(i), c) for i, c in enumerate(clients)]
                )
                language_model = limits.pop("model", common.bigram_model())
                return client_update.FederatedRounds(
                    language_model,
                    examples.MappedText(text, examples.ClientLimits(**limits)),
                    client_update.LocalTraining(rate, epochs),
                    masking=masking and masked_sums.MaskedSums.of(masking),
                ).describe()

            masked = SecureSumOptions(secure_sum="masked")
            found = [
                describe("a"),
                describe("b", clients=([[4, 5]], [[7]])),
                describe("c", rate=0.25),
                describe("d", epochs=2),
                describe("e", max_words=3),
                describe("f", max_sentences=3),
                describe("g", batch_size=3),
                describe("h", model=common.small_cifg()),
                describe("j", masking=dataclasses.replace(masked, dropout_rate=0.1)),
                describe("k", masking=dataclasses.replace(masked, dropout_rate=0.25)),
            ]
            self.assertLen({str(description) for description in found}, len(found))
            self.assertEqual(found[0], describe("i"))
            # Where nobody drops out, masks leave the sums as they are.
            self.assertEqual(found[0], describe("l", masking=masked))


class FederatedTest(common.TrainingTestCase):
    def test_the_clip_norm_follows_the_norms_of_clients(self):
        """Algorithm 1: bits are of C^t, and C_theta becomes it at restarts alone."""
        clients = common.random_clients(9, seed=3)
        rounds = self.rounds(common.bigram_model(), clients)
        # So little noise that a count is seen without it.
        adaptive = update_noise.AdaptiveClip(1e-3, quantile=0.3, learning_rate=1.0)
        plan = plan_with(
            _TREE,
            num_clients=9,
            cohort_size=5,
            num_rounds=6,
            noise_multiplier=1e-6,
            clip_norm=0.2,
            adaptive_clip=adaptive,
            restart_rounds=(2,),
        )
        algorithm = dp_ftrl.DpFtrl(rounds, plan, rounds.model.initial_weights(1))
        by_hand = steps.Steps(
            algorithm, seed=1, noise_key=noise_keys.NoiseKey.of_seed(1)
        )
        place = by_hand.begin()
        clip_norm = tracked = 0.2
        apart = 0
        for number in range(6):
            query = algorithm.next_query(place.state)
            self.assertEqual(query.facts["clip_norm"], clip_norm)
            drawn = by_hand.draw(place)
            norms = [
                common.norm_of(
                    common.plain_delta(
                        rounds.model,
                        place.state.weights,
                        clients[i],
                        rounds.mapped.limits,
                        client_update.LocalTraining(0.5),
                    )
                )
                for i in drawn.cohort
            ]
            below, below_clip = (
                np.count_nonzero(np.less_equal(norms, norm))
                for norm in (tracked, clip_norm)
            )
            apart += below != below_clip
            tracked *= math.exp(-(below / 5 - 0.3))
            sums = by_hand.ask(place, query, drawn.cohort)
            step = by_hand.update(place, query, drawn, sums)
            place = step.progress
            if number == 2:
                clip_norm = step.metrics["tracked_norm"]
            np.testing.assert_allclose(
                step.metrics["tracked_norm"], tracked, rtol=0.005
            )
            self.assertEqual(step.metrics["tracked_norm"], place.state.tracked_norm)
            self.assertEqual(place.state.clip_norm, clip_norm)
        # Bits of the norm that updates are clipped to would be others.
        self.assertGreater(apart, 0)

    def test_it_learns(self):
        # Everybody writes 4 5 6 7 in a circle. Of the four words that are used of each
        # sentence, three follow from the one before; the first words of the five
        # sentences are 4, 5, 6, 7 and 4. So the best accuracy is (3 + 2/5) / 4.
        clients = [[[4 + (i + j) % 4 for j in range(5)] for i in range(6)]] * 8
        rounds = self.rounds(common.bigram_model(), clients)
        algorithm = dp_ftrl.DpFtrl(
            rounds,
            plan_with(
                _NONE, num_clients=8, cohort_size=4, num_rounds=10, clip_norm=math.inf
            ),
            rounds.model.initial_weights(1),
            optimizer=server_optimizers.Sgdm(4.0, momentum=0.0),
        )
        by_hand = steps.Steps(
            algorithm, seed=1, noise_key=noise_keys.NoiseKey.of_seed(1)
        )
        place = by_hand.begin()
        before = rounds.evaluate(place.state.weights, np.arange(8))
        while (query := algorithm.next_query(place.state)) is not None:
            drawn = by_hand.draw(place)
            total = by_hand.ask(place, query, drawn.cohort)
            place = by_hand.update(place, query, drawn, total).progress
        after = rounds.evaluate(place.state.weights, np.arange(8))
        self.assertAlmostEqual(after["one_suggestion"], 0.85)
        self.assertLess(after["loss"], before["loss"] / 2)


if __name__ == "__main__":
    absltest.main()
