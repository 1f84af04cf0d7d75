"""Tests of two servers as the aggregator of devices' reports."""

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy.local import device_reports_plan, query_sizing
from federated_hh.randomness import streams
from federated_hh.rounds import samplers
from federated_hh.statistics.devices import fleet
from federated_hh.statistics.two_servers import aggregator
from tests.federated_hh.statistics import cases, collected
from tests.federated_hh.statistics.two_servers import cases as server_cases


def _stream(number=1):
    return streams.Stream(7, ("round", number))


class TwoServersTest(parameterized.TestCase):
    def test_adds_the_reports_that_devices_log(self):
        approval, stored = cases.approval(), cases.stored(300)
        recipe = cases.recipe(
            query="select ngrams from KeyboardNGrams",
            dataTypeContent={"ngrams": cases.FIGURE_4["dataTypeContent"]["ngrams"]},
            privacyBudget__minimumCohort=5000,
        )
        in_the_open = collected.Collected()
        batches = []
        for one in (in_the_open, aggregator.TwoServers()):
            devices = fleet.DeviceFleet(approval, stored, one)
            with devices.worker():
                batches.append(devices.ask(recipe, np.arange(300), (), _stream()))
        # Too few for what the devices asked for.
        self.assertIsNone(batches[1].counts)
        self.assertEqual(batches[1].reports, 300)
        self.assertEqual(batches[1].minimum_cohort, 5000)
        shared = aggregator.TwoServers(server_cases.LocalPair())
        shared.begin(recipe.content.num_cells, 300, _stream())
        shared.add(in_the_open.reports, 300)
        found = shared.close()
        np.testing.assert_array_equal(found.counts, batches[0].counts)
        self.assertEqual(
            found, device_reports_plan.CheckedBatch(found.counts, 300, 300, 0)
        )

    def test_blocks_and_batches_add_up(self):
        shared = aggregator.TwoServers(server_cases.LocalPair())
        # 30 blocks of the clients.
        for number, size in ((0, 7), (1, 70_000)):
            reports = server_cases.reports_of(40, size, seed=number)
            shared.begin(size, 80, _stream(1))
            for part in (reports[:30], reports[30:], reports):
                shared.add(part, 80)
            found = shared.close()
            self.assertEqual((found.reports, found.refused), (80, 0))
            np.testing.assert_array_equal(found.counts, 2 * reports.sum(axis=0))

    def test_counts_the_bytes_that_reach_the_servers(self):
        received = {"shares": 0, "proofs": 0}

        class Watched(server_cases.LocalPair):
            def step(self, name, first=(), second=()):
                if name in received:
                    received[name] += sum(map(len, [*first, *second]))
                return super().step(name, first, second)

        shared = aggregator.TwoServers(Watched(), drop_out=0.3)
        shared.begin(50, 10, _stream())
        shared.add(server_cases.reports_of(40, 50), 10)
        sent = 40
        found = shared.close()
        self.assertGreater(found.refused, 0)
        of_client = shared.client_bytes(50, 40)
        self.assertEqual(of_client.upload, round(sum(received.values()) / sent))
        # Those who stay get the challenge, of 16 bytes.
        self.assertEqual(of_client.download, round(16 * found.reports / sent))

    def test_a_batch_one_short_is_kept_back(self):
        shared = aggregator.TwoServers(server_cases.LocalPair())
        for minimum, is_released in ((11, False), (10, True)):
            shared.begin(6, minimum, _stream())
            shared.add(server_cases.reports_of(10, 6), minimum)
            found = shared.close()
            self.assertEqual(found.counts is not None, is_released)
            self.assertEqual(found.reports, 10)

    def test_devices_that_drop_out_were_charged_and_are_not_summed(self):
        approval, stored = cases.approval(), cases.stored(300)
        recipe = cases.recipe(
            query="select ngrams from KeyboardNGrams",
            dataTypeContent={"ngrams": cases.FIGURE_4["dataTypeContent"]["ngrams"]},
        )
        shared = aggregator.TwoServers(server_cases.LocalPair(), drop_out=0.2)
        devices = fleet.DeviceFleet(approval, stored, shared)
        batch = devices.ask(recipe, np.arange(300), (), _stream())
        self.assertEqual(batch.reports + batch.refused, 300)
        # Six standard deviations.
        self.assertLess(abs(batch.refused - 60), 6 * np.sqrt(300 * 0.2 * 0.8))
        for number in range(300):
            spent = devices.devices.accountant.spent(number)
            self.assertEqual(spent["the analysis"].reports, 1)
        again = devices.ask(recipe, np.arange(300), (), _stream())
        self.assertEqual(again.refused, batch.refused)

    def test_a_query_asks_for_no_more_than_will_stay(self):
        self.assertEqual(query_sizing.reports_expected(3000, 0.0), 3000)
        generator = np.random.default_rng(5)
        for size, drop_out in ((100, 0.5), (3000, 0.05), (10**6, 0.2)):
            expected = query_sizing.reports_expected(size, drop_out)
            stay = generator.binomial(size, 1 - drop_out, 20_000)
            self.assertGreaterEqual(stay.min(), expected)
            self.assertLess(stay.min() - expected, 4 * stay.std())
        self.assertEqual(query_sizing.reports_expected(2, 0.9), 0)

    def test_what_was_refused_is_a_metric(self):
        mechanism = device_reports_plan.MinimumCohort()
        facts = {device_reports_plan.MINIMUM_COHORT: 5}
        batch = device_reports_plan.CheckedBatch(np.arange(3), 7, 5, 2)
        released = mechanism.release(batch, None, facts, _stream())
        self.assertEqual(released.metrics, {"refused": 2})
        np.testing.assert_array_equal(released.value.counts, np.arange(3))
        batch = device_reports_plan.Batch(np.arange(3), 7, 5)
        self.assertEqual(mechanism.release(batch, None, facts, _stream()).metrics, {})

    def test_the_statement_says_what_is_assumed_of_the_servers(self):
        statements = [
            device_reports_plan.plan_lib.Plan(
                sampler=samplers.DisjointCohorts(90, 30),
                contribution=device_reports_plan.DeviceReports(
                    policy=cases.approval().policy, max_queries=3, aggregation=name
                ),
                mechanism=device_reports_plan.MinimumCohort(),
            ).statement(None, 1e-6)
            for name in ("secure_sum", aggregator.TwoServers.name)
        ]
        of_servers = set(statements[1].assumptions) - set(statements[0].assumptions)
        text = " ".join(of_servers)
        for part in ("(two_servers)", "do not collude", "One that is and lies"):
            self.assertIn(part, text)

    def test_arguments(self):
        for drop_out in (-0.1, 1.0):
            with self.assertRaisesRegex(ValueError, f"drop_out is {drop_out}"):
                aggregator.TwoServers(drop_out=drop_out)
        shared = aggregator.TwoServers(server_cases.LocalPair())
        shared.begin(6, 3, _stream())
        with self.assertRaisesRegex(ValueError, r"reports has the shape \(2, 7\)"):
            shared.add(np.zeros((2, 7), bool), 3)


if __name__ == "__main__":
    absltest.main()
