"""Tests of the theorem of training: planned and realised costs, and statements."""

import collections
import dataclasses
import itertools
import math

import numpy as np
from absl.testing import absltest, parameterized
from scipy import linalg

from examples import decaying_noise
from federated_hh.privacy import guarantee as guarantee_lib
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import realised
from federated_hh.privacy.dp_ftrl import (
    blt,
    correlated_noise,
    model_updates,
    participation_table,
    rotated_updates,
    update_noise,
)
from federated_hh.privacy.dp_ftrl import plan as training_plan
from federated_hh.randomness import identities
from federated_hh.rounds import samplers, timers


@dataclasses.dataclass(frozen=True)
class SamplerState:
    """Stands for a sampler's state."""

    table: participation_table.ParticipationTable


def tree(num_rounds=13, **options):
    values = dict(noise_multiplier=2.0, clip_norm=1.0)
    return update_noise.TreeNoise(num_rounds=num_rounds, **values | options)


def gaussian(num_rounds=13, **options):
    values = dict(noise_multiplier=2.0, clip_norm=1.0)
    return update_noise.GaussianNoise(num_rounds=num_rounds, **values | options)


def plan_of(mechanism, num_clients=30, cohort_size=6, **options):
    sampler = timers.Timers(
        num_clients=num_clients,
        cohort_size=cohort_size,
        num_rounds=mechanism.num_rounds,
        **options,
    )
    return training_plan.plan_of(sampler, mechanism)


def random_cohorts(num_rounds, seed=3, num_clients=30, size=6):
    random = np.random.default_rng(seed)
    return [
        np.sort(random.choice(num_clients, size, replace=False))
        for _ in range(num_rounds)
    ]


def record_of(*repeats, num_clients=30):
    """Returns the record of repeats, each given by its cohorts."""
    rounds, states = [], []
    for repeat, cohorts in enumerate(repeats):
        table = participation_table.ParticipationTable.empty(num_clients)
        for number, cohort in enumerate(cohorts):
            table = table.record(cohort, number)
            rounds.append(realised.Round.of(repeat, number + 1, cohort))
        states.append(SamplerState(table))
    return plan_lib.Record(realised.RealisedRounds(tuple(rounds)), tuple(states))


def so_far(record):
    """Returns a record's repeats, as the loop hands them to a theorem."""
    counts = collections.Counter(found.repeat for found in record.rounds.rounds)
    return [
        plan_lib.Repeat(counts[repeat], places)
        for repeat, places in enumerate(record.sampler_states)
    ]


def rho_of(statement, adjacency=guarantee_lib.Adjacency.ZERO_OUT):
    (found,) = [g for g in statement.guarantees if g.adjacency is adjacency]
    return found.rho


def nodes_of(blocks):
    """Returns the sums that noise is added to, of trees over blocks of rounds.

    Args:
        blocks: The rounds of each tree: consecutive.

    Returns:
        [nodes, rounds]: 1 where a round is in a node.
    """
    rows = [
        np.isin(np.concatenate(blocks), rounds[first : first + size])
        for rounds in blocks
        for size in (1, 2, 4, 8)
        for first in range(0, len(rounds) - size + 1, size)
    ]
    return np.array(rows, float)


class RealisedTest(parameterized.TestCase):
    @parameterized.parameters(
        (tree(), ()),
        (tree(restart_rounds=(4, 8)), (4, 8)),
        (gaussian(), range(12)),
    )
    def test_the_client_who_costs_the_most(self, mechanism, restarts):
        # By hand: for each client and each node, who is in it how often.
        cohorts = random_cohorts(13)
        nodes = nodes_of(np.split(np.arange(13), [r + 1 for r in restarts]))
        taken = np.array([np.bincount(cohort, minlength=30) for cohort in cohorts])
        square_sums = np.square(nodes @ taken).sum(axis=0)
        plan, record = plan_of(mechanism), record_of(cohorts)
        statement = plan.statement(record, 1e-6)
        self.assertAlmostEqual(rho_of(statement), max(square_sums) / 8)
        spent = plan.theorem.spent(plan, so_far(record), 1e-6)
        self.assertEqual(spent["rho"], rho_of(statement))
        self.assertEqual(spent["epsilon"], statement.guarantees[0].epsilon)
        limits = plan_lib.Limits(
            statement.parameters["MaxP"],
            statement.parameters["MinS (rounds strictly between)"],
        )
        self.assertLessEqual(rho_of(statement), mechanism.zcdp(limits, 13))
        if isinstance(mechanism, update_noise.TreeNoise):
            self.assertLess(rho_of(statement), 0.95 * mechanism.zcdp(limits, 13))

    def test_limits_as_they_were(self):
        plan = plan_of(tree(10), num_clients=5, cohort_size=1)
        cohorts = [np.array([c]) for c in (1, 0, 0, 1, 2, 2, 4, 3, 4, 1)]
        apart = [np.array([c]) for c in (1, 0, 2, 1, 3)]
        for repeats, separation, most in (
            ([cohorts[:1]], 0, 1),
            ([cohorts[6:8]], 1, 1),
            ([cohorts], 0, 3),
            ([apart], 2, 2),
            ([apart, cohorts], 0, 3),
        ):
            found = plan.statement(record_of(*repeats, num_clients=5), 1e-6)
            self.assertEqual(found.basis, "realised")
            self.assertEqual(
                found.parameters["MinS (rounds strictly between)"], separation
            )
            self.assertEqual(found.parameters["MaxP"], most)

    def test_repeats_add_up(self):
        plan = plan_of(tree())
        repeats = [random_cohorts(13, seed) for seed in (1, 2)]
        both = plan.statement(record_of(*repeats), 1e-6)
        alone = [plan.statement(record_of(cohorts), 1e-6) for cohorts in repeats]
        self.assertAlmostEqual(rho_of(both), sum(map(rho_of, alone)))
        self.assertEqual(both.realised, realised.Realised(26, 26 * 6))
        self.assertEqual(both.parameters["repeats"], 2)
        planned = plan.statement(None, 1e-6, repeats=2)
        self.assertAlmostEqual(rho_of(planned), 2 * rho_of(plan.statement(None, 1e-6)))
        self.assertLessEqual(rho_of(both), rho_of(planned))
        # In the middle of the second repeat.
        part = record_of(repeats[0], repeats[1][:5])
        found = plan.theorem.spent(plan, so_far(part), 1e-6)["rho"]
        self.assertBetween(found, rho_of(alone[0]), rho_of(both))

    def test_only_a_table_of_the_rounds_says_what_was_realised(self):
        plan, cohorts = plan_of(tree()), random_cohorts(13)
        record = record_of(cohorts)
        (places,) = record.sampler_states
        for wrong, error, regex in (
            (None, TypeError, "has to be a run's participation table"),
            (
                SamplerState(
                    dataclasses.replace(
                        places.table, participations=places.table.participations + 1
                    )
                ),
                ValueError,
                "counts and list differ",
            ),
            (
                record_of(random_cohorts(13, 9)).sampler_states[0],
                ValueError,
                "have different clients",
            ),
            (
                record_of(cohorts[:12]).sampler_states[0],
                ValueError,
                "have different clients",
            ),
            (
                record_of([*cohorts, cohorts[0]]).sampler_states[0],
                ValueError,
                "have different clients",
            ),
        ):
            changed = dataclasses.replace(record, sampler_states=(wrong,))
            with self.assertRaisesRegex(error, regex):
                plan.statement(changed, 1e-6)


class CorrelatedTest(absltest.TestCase):
    # Matrices by hand: see also `correlated_noise_test`.
    mechanism = correlated_noise.BltNoise(
        num_rounds=13,
        noise_multiplier=2.0,
        clip_norm=1.0,
        matrix=blt.Blt((0.1, 0.5), (0.2, 0.3)),
        restart_rounds=(5,),
    )

    def test_realised_and_planned(self):
        plan, cohorts = plan_of(self.mechanism, min_separation=2), random_cohorts(13)
        record = record_of(cohorts)
        values = [1, *(0.2 * 0.9**t + 0.3 * 0.5**t for t in range(12))]
        blocks = linalg.block_diag(
            *(linalg.toeplitz(values[:n], np.zeros(n)) for n in (6, 7))
        )
        taken = np.array([np.bincount(cohort, minlength=30) for cohort in cohorts])
        rho = np.square(blocks @ taken).sum(axis=0).max() / 8
        statement = plan.statement(record, 1e-6)
        self.assertAlmostEqual(rho_of(statement), rho, places=4)
        self.assertGreater(rho_of(statement), rho)
        spent = plan.theorem.spent(plan, so_far(record), 1e-6)
        self.assertEqual(spent["rho"], rho_of(statement))
        # MinS 2, 13 rounds: five times at most, in blocks of 6 and 7 rounds.
        columns = blocks[:, [0, 3, 6, 9, 12]].sum(axis=1)
        planned = plan.statement(None, 1e-6)
        self.assertAlmostEqual(rho_of(planned), np.square(columns).sum() / 8, places=4)
        text = planned.to_markdown()
        self.assertIn("Kalinin and Lampert 2024", text)
        self.assertIn("Blt(forgotten=(0.1, 0.5), weights=(0.2, 0.3))", text)


_ADAPTIVE = dict(adaptive_clip=update_noise.AdaptiveClip(1.5))


class AdjacencyTest(parameterized.TestCase):
    """Each guarantee against all that a client can do, one after the other."""

    @parameterized.product(options=[{}, _ADAPTIVE], name=["tree", "blt", "gaussian"])
    def test_all_that_a_client_can_do(self, options, name):
        matrix = blt.Blt((0.1, 0.5), (0.2, 0.3))
        first = [1, *(0.2 * 0.9**t + 0.3 * 0.5**t for t in range(4))]
        # What has the noise, of the sums of rounds; the trees start anew after three.
        mechanism, sums = {
            "tree": (
                tree(5, restart_rounds=(2,), **options),
                nodes_of([[0, 1, 2], [3, 4]]),
            ),
            "gaussian": (gaussian(5, **options), np.eye(5)),
            "blt": (
                correlated_noise.BltNoise(
                    num_rounds=5,
                    noise_multiplier=2.0,
                    clip_norm=1.0,
                    matrix=matrix,
                    **options,
                ),
                linalg.toeplitz(first, np.zeros(5)),
            ),
        }[name]
        is_adaptive = bool(options)
        units = update_noise.COUNT_UNIT
        count_noise = mechanism.count_stddev() if is_adaptive else math.inf
        worst = dict.fromkeys(guarantee_lib.Adjacency, 0.0)
        # A client's update, in one of two directions, and its bit, in an integer sum
        # of twice the number of clients below, less their number.
        held = [(u, bit) for u in (-1, 0, 1) for bit in (-1, 1)]
        moves = {
            guarantee_lib.Adjacency.ZERO_OUT: {(u, bit) for u, bit in held},
            guarantee_lib.Adjacency.EMPTIED: {(u, bit - 1) for u, bit in held},
            guarantee_lib.Adjacency.REPLACE_CLIENT: {
                (u - v, bit - other) for u, bit in held for v, other in held
            },
        }
        rounds = (itertools.combinations(range(5), n) for n in range(4))
        for times in itertools.chain(*rounds):
            if min(np.diff(times), default=2) < 2:
                continue  # with at least one round between two
            for adjacency, possible in moves.items():
                for chosen in itertools.product(possible, repeat=len(times)):
                    moved = np.zeros((5, 2))
                    moved[list(times)] = np.reshape(chosen, (-1, 2))
                    # 2^32 is an update's norm, in the sum that has integer noise.
                    apart = sums @ moved / [mechanism.delta_multiplier(0), 1]
                    apart[:, 1] *= units / count_noise
                    cost = np.square(apart).sum() / 2
                    worst[adjacency] = max(worst[adjacency], cost)
        plan = plan_of(mechanism, cohort_size=1, min_separation=1)
        statement = plan.statement(None, 1e-6)
        self.assertLen(statement.guarantees, 3)
        for guarantee in statement.guarantees:
            exact = worst[guarantee.adjacency]
            self.assertGreaterEqual(guarantee.rho, exact * (1 - 1e-12))
            # Floats that correlate noise cost a little more.
            self.assertLess(guarantee.rho, exact * (1.001 if name == "blt" else 1.0001))
        zeroed, emptied, replaced = [g.rho for g in statement.guarantees]
        self.assertAlmostEqual(emptied / zeroed, 7 / 3 if is_adaptive else 1)
        self.assertAlmostEqual(replaced / zeroed, 4)
        text = statement.to_markdown()
        self.assertEqual("rho of zero_out times 2.334, as" in text, is_adaptive)

    def test_noise_that_decays(self):
        # A bound: of all rounds the factor of the one with the most noise.
        mechanism = decaying_noise.DecayingNoise(
            num_rounds=3, noise_multiplier=2.0, clip_norm=1.0, decay=0.5, **_ADAPTIVE
        )
        statement = plan_of(mechanism, cohort_size=1).statement(None, 1e-6)
        exact = sum(
            1 / mechanism.delta_multiplier(t) ** 2 + 1 / 1.5**2 for t in range(3)
        )
        emptied = rho_of(statement, guarantee_lib.Adjacency.EMPTIED)
        self.assertBetween(emptied, exact / 2, 7 / 3 * rho_of(statement) * (1 + 1e-9))

    def test_where_clients_without_sentences_are_left_out(self):
        for contribution in (model_updates.ClippedUpdate(), RotatedTest.rotated):
            left_out = dataclasses.replace(
                contribution, population_has_empty_clients=False
            )
            sampler = plan_of(tree()).sampler
            statements = []
            for one in (contribution, left_out):
                plan = training_plan.plan_of(sampler, tree(), one)
                statements.append(plan.statement(None, 1e-6))
            adjacencies = [[g.adjacency.name for g in s.guarantees] for s in statements]
            expected = ["ZERO_OUT", "EMPTIED", "REPLACE_CLIENT"]
            self.assertEqual(adjacencies, [expected, expected[::2]])
            public = "whether a client has any sentence is not protected"
            kept, dropped = [public in s.to_markdown() for s in statements]
            self.assertEqual((kept, dropped), (False, True))
            # Random numbers are functions of the repr: they are the same.
            self.assertEqual(*map(identities.canonical, (contribution, left_out)))

    def test_no_table_of_replacement(self):
        statement = plan_of(tree()).statement(None, 1e-6)
        self.assertNotIn("replaced", " ".join(statement.parameters))


class RotatedTest(parameterized.TestCase):
    """Algorithm 2: what everything costs, times (C_inflated / C)^2."""

    # q is 1, and the norm of 64 integers from 0 to 64 inflated to that of 88.5 (88).
    rotated = rotated_updates.RotatedUpdate(
        clip_norm=1.0, scale=8.0, num_values=60, num_clients=6
    )

    @parameterized.parameters(tree(), gaussian(), CorrelatedTest.mechanism)
    def test_planned_and_realised(self, mechanism):
        factor = (64 + 16 + 8 + 4) / 64
        exact = plan_of(mechanism, min_separation=1)
        plan = training_plan.plan_of(exact.sampler, mechanism, self.rotated)
        cohorts = [np.arange(6) + 6 * (t % 4) for t in range(13)]
        record = record_of(cohorts)
        found = {
            basis: [one.statement(of, 1e-6) for one in (plan, exact)]
            for basis, of in (("planned", None), ("realised", record))
        }
        for basis, statements in found.items():
            self.assertEqual(statements[0].basis, basis)
            mine, others = map(rho_of, statements)
            self.assertAlmostEqual(mine / others, factor, places=6)
            self.assertGreater(mine, others * factor)
        self.assertLess(rho_of(found["realised"][0]), rho_of(found["planned"][0]))
        spent = plan.theorem.spent(plan, so_far(record), 1e-6)
        self.assertEqual(spent["rho"], rho_of(found["realised"][0]))
        statement = found["planned"][0]
        self.assertAlmostEqual(
            statement.parameters["C_inflated / C"], math.sqrt(factor), places=6
        )
        # C_inf = ceil(2 log 64) = 9, 6 clients: 0 to 108.
        self.assertEqual(statement.parameters["bits of the modulus, a parameter"], 7)
        self.assertEqual(
            statement.parameters["bytes that a client sends in a round"], 56
        )
        self.assertIn("All of it times (C_inflated / C)^2", statement.accounting)
        self.assertIn("modulo a power of two", statement.setting)
        self.assertIn("one that wraps tells more", statement.to_markdown())
        self.assertNotIn("C_inflated", found["planned"][1].to_markdown())

    def test_without_noise(self):
        mechanism = model_updates.NoNoise(num_rounds=3, clip_norm=1.0)
        sampler = plan_of(mechanism).sampler
        plan = training_plan.plan_of(sampler, mechanism, self.rotated)
        found = plan.statement(None, 1e-6)
        self.assertEqual(found.guarantees, ())
        self.assertIn("Algorithm 2", found.setting)

    def test_another_cohort(self):
        with self.assertRaisesRegex(ValueError, "cohort_size is 5; it has to be 6"):
            training_plan.plan_of(
                plan_of(tree(), cohort_size=5).sampler, tree(), self.rotated
            )


class PlannedTest(parameterized.TestCase):
    @parameterized.parameters(
        (dict(), 0, 4),
        (dict(min_separation=1), 1, 2),
        (dict(max_participation=2), 0, 2),
        (dict(min_separation=2, max_participation=4), 2, 2),
    )
    def test_limits(self, options, separation, most):
        plan = plan_of(tree(4), num_clients=9, cohort_size=3, **options)
        found = plan.statement(None, 1e-6)
        self.assertEqual(found.basis, "planned")
        self.assertEqual(found.parameters["MinS (rounds strictly between)"], separation)
        self.assertEqual(found.parameters["MaxP"], most)
        self.assertEqual(
            rho_of(found), plan.mechanism.zcdp(plan_lib.Limits(most, separation), 4)
        )

    def test_points_and_numbers(self):
        # Xu et al. 2023, Table 2, fr-FR: rho 0.61, epsilon 7.32 unrounded.
        plan = plan_of(
            tree(1300, noise_multiplier=7.0, clip_norm=5.0),
            num_clients=2_500_000,
            cohort_size=6500,
            min_separation=290,
            max_participation=4,
        )
        statement = plan.statement(None, 1e-10)
        guarantee, emptied, _ = statement.guarantees
        self.assertEqual(emptied.epsilon, guarantee.epsilon)
        self.assertAlmostEqual(guarantee.rho, 60 / 98)
        self.assertAlmostEqual(guarantee.epsilon, 7.3199, places=3)
        self.assertIs(guarantee.adjacency, guarantee_lib.Adjacency.ZERO_OUT)
        self.assertEqual(guarantee.noise_rounds, 1300)
        self.assertEqual(statement.parameters["MaxP"], 4)
        self.assertIn("Algorithm 1", statement.to_markdown())
        self.assertIn("docs/integer_noise.md", statement.to_markdown())
        self.assertIn("2^-53 to epsilon and 2^-97 (1 + exp", statement.to_markdown())

    @parameterized.parameters((1e-10, True), (1e-40, False))
    def test_whether_the_drawn_noise_has_it(self, delta, is_proved):
        plan = plan_of(tree(2, noise_multiplier=1.0), cohort_size=5, min_separation=1)
        text = plan.statement(None, delta)
        guarantee, *_ = text.guarantees
        self.assertEqual(guarantee.is_upper_bound, is_proved)
        self.assertEqual("nothing is proved" in guarantee.bound, not is_proved)
        printed = "(upper bound)" if is_proved else "(not a proved upper bound)"
        self.assertIn(printed, text.to_markdown())

    def test_without_noise(self):
        for clip_norm in (1.0, math.inf):
            plan = plan_of(model_updates.NoNoise(num_rounds=4, clip_norm=clip_norm))
            statement = plan.statement(None, 1e-10)
            self.assertEmpty(statement.guarantees)
            self.assertIn("**No guarantee.** No noise", statement.to_markdown())
            done = so_far(record_of(random_cohorts(4)))
            spent = plan.theorem.spent(plan, done, 1e-6)
            self.assertEqual(spent, {"rho": math.inf, "epsilon": math.inf})


class RefusedTest(absltest.TestCase):
    def test_combinations_without_a_theorem(self):
        sampler = plan_of(tree()).sampler
        for change in (
            dict(sampler=samplers.UniformCohorts(30, 6)),
            dict(contribution=model_updates.Update()),
        ):
            parts = dict(
                sampler=sampler,
                contribution=model_updates.ClippedUpdate(),
                mechanism=tree(),
            )
            with self.assertRaisesRegex(ValueError, "no theorem is proved"):
                plan_lib.Plan(**parts | change)

    def test_an_infinite_clip_norm_and_clipped_updates(self):
        with self.assertRaisesRegex(ValueError, "clip_norm is inf, which does not go"):
            plan_lib.Plan(
                sampler=plan_of(tree()).sampler,
                contribution=model_updates.ClippedUpdate(),
                mechanism=model_updates.NoNoise(num_rounds=13, clip_norm=math.inf),
            )

    def test_noise_without_room(self):
        with self.assertRaisesRegex(ValueError, "could exceed 64 bits"):
            plan_of(tree(4), num_clients=2**30, cohort_size=2**29)


if __name__ == "__main__":
    absltest.main()
