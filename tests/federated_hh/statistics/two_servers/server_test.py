"""Tests of batches: what two servers take, refuse, release and forget."""

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.statistics.two_servers import messages, server
from tests.federated_hh.statistics.two_servers import cases


def _without(uploads, *places):
    return [part for place, part in enumerate(uploads) if place not in places]


class SumTest(parameterized.TestCase):
    @parameterized.product(num_cells=(1, 2, 6, 17, 100), blocks=(1, 3))
    def test_sum_is_that_of_the_reports(self, num_cells, blocks):
        batches = cases.Batches(num_cells)
        for number in range(2):
            batches.open()
            total = 0
            for block in range(blocks):
                reports = cases.reports_of(40 + block, num_cells, seed=10 * number)
                batches.send(batches.clients(reports))
                total = total + reports.sum(axis=0)
            counts, accepted = batches.close()
            np.testing.assert_array_equal(counts, total)
            self.assertEqual(accepted, sum(40 + block for block in range(blocks)))

    def test_uploads_may_come_in_any_order(self):
        batches = cases.Batches()
        batches.open()
        reports = cases.reports_of(9, 6)
        order = np.random.default_rng(3).permutation(9)
        batches.send(
            batches.clients(reports),
            lambda a, b: (a, [b[i] for i in order]),
            lambda a, b: ([a[i] for i in order[::-1]], b),
        )
        counts, accepted = batches.close()
        np.testing.assert_array_equal(counts, reports.sum(axis=0))
        self.assertEqual(accepted, 9)

    def test_a_share_of_a_sum_says_nothing_alone(self):
        batches = cases.Batches()
        batches.open()
        batches.send(batches.clients(cases.reports_of(500, 6)))
        for answer in batches.pair.step("close"):
            # Of sums of at most 500, in a field of 2^61.
            self.assertGreater(int(answer.sum_share.min()), 2**32)


class MinimumTest(parameterized.TestCase):
    @parameterized.parameters((4, False), (5, True), (6, True))
    def test_released_at_the_minimum_and_not_below(self, number, is_released):
        batches = cases.Batches(minimum=5)
        batches.open()
        clients = batches.clients(cases.reports_of(number, 6))
        shares = clients.shares()
        batches.send(clients)
        counts, accepted = batches.close()
        self.assertEqual(counts is not None, is_released)
        self.assertEqual(accepted, number)
        for one, uploads in zip(batches.pair.servers, shares, strict=True):
            words = cases.words_in(part[40:] for part in uploads)
            self.assertNotEmpty(words)
            self.assertEmpty(cases.kept_words(one, words))
            self.assertIsNone(one._batch)

    def test_accepted_reports_are_what_counts(self):
        batches = cases.Batches(minimum=5)
        batches.open()
        batches.send(
            batches.clients(cases.reports_of(6, 6)),
            lambda a, b: ([a[0][:-8], *a[1:]], b),
            lambda a, b: (a, [*b[:-1], bytes(len(b[-1]))]),
        )
        self.assertEqual(batches.close(), (None, 4))

    def test_servers_that_disagree_release_nothing(self):
        batches = cases.Batches()
        batches.open(minima=(3, 4))
        batches.send(batches.clients(cases.reports_of(9, 6)))
        self.assertEqual(batches.close(), (None, 9))
        batches.open()
        batches.send(batches.clients(cases.reports_of(9, 6)))
        batches.pair.servers[1]._batch.accepted -= 1
        answers = batches.pair.step("close")
        self.assertEqual([answer.sum_share for answer in answers], [None, None])
        batches.open()
        batches.send(batches.clients(cases.reports_of(9, 6)))
        batches.pair.servers[0]._batch.names = bytes(32)
        self.assertEqual(batches.close(), (None, 9))

    def test_reports_that_ask_for_more_are_not_added(self):
        batches = cases.Batches(minimum=3)
        batches.open()
        answers, _ = batches.send(batches.clients(cases.reports_of(5, 6), minimum=4))
        for answer in answers:
            self.assertEqual(answer.refused, {server.MALFORMED: 5})
        # One that asks the servers for different things.
        few = batches.clients(cases.reports_of(5, 6), minimum=2)
        many = batches.clients(cases.reports_of(5, 6), minimum=4)
        shares = few.shares()[0], many.shares()[1]
        batches.pair.step("shares", *shares)
        batches.pair.step("proofs", *few.proofs(bytes(16)))
        reports = cases.reports_of(4, 6, seed=9)
        batches.send(batches.clients(reports, minimum=2))
        counts, accepted = batches.close()
        np.testing.assert_array_equal(counts, reports.sum(axis=0))
        self.assertEqual(accepted, 4)


class RefusedTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.batches = cases.Batches()
        self.batches.open()
        self.reports = cases.reports_of(10, 6)

    def check(self, expected, accepted):
        counts, found = self.batches.close()
        self.assertEqual(found, accepted)
        np.testing.assert_array_equal(counts, expected.sum(axis=0))

    def test_duplicates_count_once(self):
        answers, _ = self.batches.send(
            self.batches.clients(self.reports),
            lambda a, b: ([*a, a[3], a[3]], [b[3], *b]),
            lambda a, b: ([a[2], *a], [*b, b[2]]),
        )
        self.assertEqual(answers[0].refused, {server.DUPLICATE: 2})
        self.assertEqual(answers[1].refused, {server.DUPLICATE: 1})
        self.check(self.reports, 10)

    def test_replays_within_a_batch_and_into_a_later_one_are_refused(self):
        clients = self.batches.clients(self.reports)
        self.batches.send(clients)
        answers, last = self.batches.send(clients)
        for answer in (*answers, *last):
            self.assertEqual(answer.accepted, 10)
        self.assertEqual(answers[0].refused, {server.DUPLICATE: 10})
        self.check(self.reports, 10)
        self.batches.open()

        def renumbered(*both):
            number = self.batches.number.to_bytes(8, "little")
            return tuple([m[:16] + number + m[24:] for m in part] for part in both)

        answers, _ = self.batches.send(clients, renumbered, renumbered)
        for answer in answers:
            self.assertEqual(answer.refused, {server.DUPLICATE: 10})
        self.assertEqual(self.batches.close(), (None, 0))

    def test_late_reports_are_refused(self):
        clients = self.batches.clients(self.reports)
        self.batches.send(clients)
        late = self.batches.clients(cases.reports_of(4, 6, seed=5))
        self.check(self.reports, 10)
        # No batch is open.
        for step, uploads in (
            ("shares", late.shares()),
            ("proofs", late.proofs(bytes(16))),
        ):
            for answer in self.batches.pair.step(step, *uploads):
                self.assertEqual(answer.refused, {server.LATE: 4})
                self.assertIsNone(answer.challenge)
        self.assertEqual(self.batches.close(), (None, 0))
        # Another batch is open.
        self.batches.open()
        answers, last = self.batches.send(late)
        self.assertEqual(answers[1].refused, {server.LATE: 4})
        self.assertEqual(last[1].refused, {server.LATE: 4})
        self.batches.send(self.batches.clients(self.reports))
        self.check(self.reports, 10)

    def test_proofs_after_the_batch_was_closed_are_late(self):
        clients = self.batches.clients(self.reports)
        challenge = self.batches.pair.step("shares", *clients.shares())[0].challenge
        shares = cases.words_in(part[40:] for part in clients.shares()[0])
        zero = self.batches.pair.servers[0]
        self.assertNotEmpty(cases.kept_words(zero, shares))
        answers = self.batches.pair.step("close")
        for answer in answers:
            self.assertEqual(answer.refused, {server.INCOMPLETE: 10})
            self.assertIsNone(answer.sum_share)
        self.assertEmpty(cases.kept_words(zero, shares))
        for answer in self.batches.pair.step("proofs", *clients.proofs(challenge)):
            self.assertEqual(answer.refused, {server.LATE: 10})

    @parameterized.parameters(0, 1)
    def test_reports_with_one_server_only_are_left_out_by_both(self, gone_from):
        def gone(first, second):
            uploads = [first, second]
            uploads[gone_from] = _without(uploads[gone_from], 2, 7)
            return tuple(uploads)

        clients = self.batches.clients(self.reports)
        answers, last = self.batches.send(clients, gone)
        for answer in answers:
            self.assertEqual(answer.refused, {server.INCOMPLETE: 2})
        for answer in last:
            self.assertEqual((answer.refused, answer.accepted), ({}, 8))
        shares = [part[40:] for part in clients.shares()[1 - gone_from]]
        for place in (2, 7):
            words = cases.words_in([shares[place]])
            one = self.batches.pair.servers[1 - gone_from]
            self.assertEmpty(cases.kept_words(one, words))
        self.check(np.delete(self.reports, [2, 7], axis=0), 8)

    @parameterized.parameters(((1, 4), ()), ((), (1, 4)), ((1,), (4,)))
    def test_reports_whose_proof_is_with_one_only_are_left_out(self, first, second):
        clients = self.batches.clients(self.reports)
        _, last = self.batches.send(
            clients,
            None,
            lambda a, b: (_without(a, *first), _without(b, *second)),
        )
        for answer in last:
            self.assertEqual(answer.refused, {server.INCOMPLETE: 2})
        self.check(np.delete(self.reports, [1, 4], axis=0), 8)

    def test_shares_without_proofs_go_with_the_next_ones(self):
        first = self.batches.clients(self.reports)
        self.batches.pair.step("shares", *first.shares())
        others = cases.reports_of(8, 6, seed=4)
        self.batches.send(self.batches.clients(others))
        words = cases.words_in(part[40:] for part in first.shares()[0])
        self.assertEmpty(cases.kept_words(self.batches.pair.servers[0], words))
        self.check(others, 8)

    def test_opening_deletes_what_was_open(self):
        clients = self.batches.clients(self.reports)
        self.batches.send(clients)
        self.batches.open()
        words = cases.words_in(part[40:] for part in clients.shares()[1])
        self.assertEmpty(cases.kept_words(self.batches.pair.servers[1], words))
        self.assertEqual(self.batches.close(), (None, 0))

    def test_terms(self):
        one = server.Server(0)
        one.open(server.Terms(3, 6, 5, 1))
        with self.assertRaisesRegex(ValueError, "number is 3"):
            one.open(server.Terms(3, 6, 5, 1))
        with self.assertRaisesRegex(ValueError, "minimum_cohort is 0"):
            one.open(server.Terms(4, 6, 0, 1))
        with self.assertRaisesRegex(ValueError, "index is 2"):
            server.Server(2)


class WhatIsSeenTest(absltest.TestCase):
    def test_a_server_has_its_shares_and_what_the_other_opens(self):
        batches = cases.Batches(num_cells=30, minimum=4)
        batches.open()
        clients = batches.clients(cases.reports_of(12, 30))
        shares = clients.shares()
        answers = batches.pair.step("shares", *shares)
        words = [cases.words_in(part[40:] for part in uploads) for uploads in shares]
        self.assertEmpty(words[0] & words[1])
        for index, one in enumerate(batches.pair.servers):
            self.assertEqual(cases.kept_words(one, words[index]), words[index])
            self.assertEmpty(cases.kept_words(one, words[1 - index]))
        proofs = clients.proofs(answers[0].challenge)
        batches.pair.step("proofs", *proofs)
        # Nothing of a share is left when its proof was checked.
        for index, one in enumerate(batches.pair.servers):
            self.assertEmpty(cases.kept_words(one, words[index]))
        batches.close()
        secret = words[0] | words[1]
        for uploads in proofs:
            secret |= cases.words_in(part[24:] for part in uploads)
        opened = batches.proof.wires + 1
        lengths = {}
        for told in batches.pair.talk:
            lengths.setdefault((told.step, told.index), []).append(len(told.message))
            self.assertEmpty([word for word in secret if word in told.message])
        names = 16 + 12 * messages.IDENTIFIER_BYTES
        for index in range(2):
            self.assertEqual(lengths["shares", index], [names])
            self.assertEqual(lengths["proofs", index], [names, 12 * opened * 8])
            self.assertLen(lengths["close", index], 1)

    def test_what_is_opened_is_uniform(self):
        # 40,000 values of a report that is the same; 16 bins of the field.
        batches = cases.Batches(num_cells=16, minimum=4)
        batches.open()
        batches.send(batches.clients(np.ones((8000, 16), bool)))
        opened = [
            np.frombuffer(told.message, "<u8").reshape(8000, 5)
            for told in batches.pair.talk
            if told.step == "proofs" and len(told.message) == 8000 * 5 * 8
        ]
        self.assertLen(opened, 2)
        together = batches.proof.field.add(*opened)
        for values in (*opened, together):
            for column in values.T:
                bins = np.bincount((column >> np.uint64(57)).astype(int), minlength=16)
                self.assertLess(np.abs(bins - 500).max(), 6 * np.sqrt(500))

    def test_challenges_are_of_both_servers_and_differ(self):
        batches = cases.Batches()
        batches.open()
        found = set()
        for seed in range(3):
            clients = batches.clients(cases.reports_of(5, 6, seed))
            answers, _ = batches.send(clients)
            self.assertEqual(answers[0].challenge, answers[1].challenge)
            found.add(answers[0].challenge)
        parts = {
            told.message[:16] for told in batches.pair.talk if told.step == "shares"
        }
        self.assertLen(found, 3)
        self.assertLen(parts, 6)
        self.assertEmpty(found & parts)


if __name__ == "__main__":
    absltest.main()
