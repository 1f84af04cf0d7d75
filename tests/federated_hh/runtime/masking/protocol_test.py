"""Tests of masked sums: the sum, who may drop out, what is refused, what is seen."""

import collections
import contextlib
import types
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized
from cryptography import exceptions
from cryptography.hazmat.primitives.asymmetric import x25519
from scipy import stats

from federated_hh.randomness import streams
from federated_hh.runtime.masking import client as client_lib
from federated_hh.runtime.masking import graph, masks, messages, protocol, server
from federated_hh.runtime.masking.messages import Step

_STREAM = streams.Stream(3, ("test",))


def _inputs(clients, size, bits, seed=1):
    generator = np.random.default_rng(seed)
    return generator.integers(0, 2**bits, (clients, size), np.uint64)


def _sum(found, inputs, bits, gone, transcript=None, stream=_STREAM):
    return protocol.masked_sum(
        found,
        bits=bits,
        size=inputs.shape[1],
        vectors=lambda clients: inputs[clients],
        stream=stream,
        gone=gone,
        transcript=transcript,
    )


class SumTest(parameterized.TestCase):
    @parameterized.product(
        dropout=(0.0, 0.05, 0.3), bits=(1, 20, 32, 40, 64), is_complete=(True, False)
    )
    def test_sum_of_those_who_stay(self, dropout, bits, is_complete):
        needs = graph.Needs.of_shares(40, dropout, 0.1)
        found = graph.Graph(needs, 39, 20) if is_complete else None
        found = found or graph.Graph(needs, 30, 7)
        inputs = _inputs(40, 33, min(bits, 63), seed=bits)
        steps = tuple(Step)
        gone = {2 + 3 * i: steps[i % 4] for i in range(needs.most_gone)}
        outcome = _sum(found, inputs, bits, gone)
        stay = [c for c in range(40) if gone.get(c) in (None, Step.UNMASKING)]
        self.assertEqual(outcome.summed.tolist(), stay)
        # In Python's integers, which have no size.
        expected = [
            sum(int(number) for number in column) % 2**bits for column in inputs[stay].T
        ]
        self.assertEqual(outcome.total.tolist(), expected)

    @parameterized.parameters(Step.KEYS, Step.SHARES, Step.INPUT)
    def test_so_many_may_drop_out_in_a_step_and_no_more(self, step):
        needs = graph.Needs(12, 3, 1)
        found = graph.choose(needs)
        inputs = _inputs(12, 5, 16)
        outcome = _sum(found, inputs, 32, dict.fromkeys((0, 4, 11), step))
        summed = np.delete(np.arange(12), [0, 4, 11])
        np.testing.assert_array_equal(outcome.summed, summed)
        np.testing.assert_array_equal(outcome.total, inputs[summed].sum(axis=0))
        with (
            mock.patch.object(masks, "unpacked", wraps=masks.unpacked) as taken,
            self.assertRaisesRegex(
                messages.MaskedSumError,
                f"8 of 12 clients remained after sending their {step.value}; "
                "at least 9 have to. Nothing was released",
            ),
        ):
            _sum(found, inputs, 32, dict.fromkeys((0, 4, 7, 11), step))
        if step in (Step.KEYS, Step.SHARES):
            taken.assert_not_called()

    def test_what_the_answers_open_is_the_sum(self):
        # Or a second attempt, with a client less, would tell that client's vector.
        found = graph.choose(graph.Needs(12, 3, 1))
        inputs = _inputs(12, 5, 16)
        opened = 0
        for number in range(1, 12):
            transcript = messages.Transcript(keep=True)
            gone = dict.fromkeys(range(number), Step.UNMASKING)
            with contextlib.suppress(messages.MaskedSumError):
                outcome = _sum(found, inputs, 32, gone, transcript)
                np.testing.assert_array_equal(outcome.total, inputs.sum(axis=0))
                opened += 1
                continue
            answers = [m for m in transcript.kept if hasattr(m, "seeds")]
            shares = collections.Counter(c for m in answers for c in m.seeds)
            self.assertLess(min(shares[c] for c in range(12)), found.threshold)
        self.assertBetween(opened, 4, 10)

    def test_too_few_neighbours_left(self):
        # Few enough are gone, but they stand together on the ring.
        needs = graph.Needs(20, 6, 0)
        found = graph.Graph(needs, 4, 3)
        near = found.ring(_STREAM.generator("ring").permutation(20))
        gone = dict.fromkeys(near[7].tolist()[:2], Step.UNMASKING)
        with self.assertRaisesRegex(
            messages.MaskedSumError, r"2 neighbours of client \d+ answered; at least"
        ):
            _sum(found, _inputs(20, 3, 8), 16, gone)
        gone = dict.fromkeys(near[7].tolist()[:2], Step.KEYS)
        with self.assertRaisesRegex(
            messages.MaskedSumError, r"2 neighbours of client \d+ are there; at least"
        ):
            _sum(found, _inputs(20, 3, 8), 16, gone)

    def test_same_stream_same_messages(self):
        found = graph.choose(graph.Needs(6, 1, 0))
        inputs = _inputs(6, 4, 8)
        views = []
        for stream in (_STREAM, _STREAM, _STREAM.at("other")):
            transcript = messages.Transcript(keep=True)
            _sum(found, inputs, 12, {2: Step.INPUT}, transcript, stream)
            views.append(transcript.kept)
        self.assertEqual(views[0], views[1])
        self.assertNotEqual(views[0], views[2])

    def test_bytes_are_those_of_the_messages(self):
        found = graph.choose(graph.Needs(5, 1, 0))
        transcript = messages.Transcript(keep=True)
        outcome = _sum(found, _inputs(5, 7, 8), 20, {2: Step.INPUT}, transcript)
        # Ids have 4 bytes, keys 32, a sealed pair of shares of 34 bytes a tag of 16,
        # and a number of 20 bits 3.
        up = 5 * 68 + 5 * (4 + 4 * (4 + 84)) + 4 * (4 + 21)
        up += 4 * (4 + 3 * (4 + 34) + (4 + 34))
        down = 5 * 4 * 68 + 4 * 4 * (4 + 84) + 4 * 4 * 4
        self.assertEqual((outcome.bytes_up, outcome.bytes_down), (up, down))
        inputs = [m for m in transcript.kept if isinstance(m, messages.MaskedInput)]
        self.assertEqual([len(m.packed) for m in inputs], [21] * 4)

    def test_bad_arguments(self):
        found = graph.choose(graph.Needs(4, 0, 0))
        with self.assertRaisesRegex(ValueError, "bits is 65; .* and at most 64"):
            _sum(found, _inputs(4, 2, 8), 65, {})
        with self.assertRaisesRegex(ValueError, "size is 0; .* of at least 1"):
            _sum(found, np.zeros((4, 0), np.uint64), 8, {})
        with self.assertRaisesRegex(ValueError, r"shape \(3,\); it has to be \[2\]"):
            protocol.masked_sum(
                found,
                bits=8,
                size=2,
                vectors=lambda clients: [np.zeros(3, np.uint64)] * 4,
                stream=_STREAM,
                gone={},
            )

    def test_drawn_drop_outs(self):
        gone = protocol.drop_outs(20_000, 0.3, _STREAM)
        self.assertEqual(gone, protocol.drop_outs(20_000, 0.3, _STREAM))
        # Five standard deviations each: false alarms are below one in a million.
        self.assertAlmostEqual(len(gone), 6000, delta=5 * np.sqrt(20_000 * 0.21))
        for step in Step:
            count = sum(found is step for found in gone.values())
            self.assertAlmostEqual(count, 1500, delta=5 * np.sqrt(1500))
        self.assertEqual(protocol.drop_outs(100, 0.0, _STREAM), {})


class RefusalTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.terms = client_lib.Terms(size=2, bits=8, threshold=2)
        near = np.array([[j for j in range(5) if j != i] for i in range(5)])
        self.server = server.Server(self.terms, near, 3)
        self.clients = [
            client_lib.Client(i, self.terms, _STREAM.bits("client", i))
            for i in range(5)
        ]
        keys = {c.number: c.public_keys() for c in self.clients}
        rosters = self.server.rosters(keys)
        shared = {c.number: c.shares(rosters[c.number]) for c in self.clients}
        self.mail = self.server.mail(shared)
        self.inputs = [
            c.masked(np.ones(2, np.uint32), self.mail[c.number])
            for c in self.clients[:4]
        ]

    @parameterized.parameters(
        ((1, 2, 3), (3, 4), "is asked for both secrets of client 3"),
        ((1, 2, 7), (), "has no shares of client 7"),
        ((1, 2, 3), (0,), "has no shares of client 0"),
        ((1,), (2, 3, 4), "is told that 1 of its neighbours are in the sum"),
    )
    def test_a_client_refuses(self, summed, dropped, message):
        request = messages.UnmaskRequest(0, summed, dropped)
        with self.assertRaisesRegex(messages.RefusedError, f"client 0 {message}"):
            self.clients[0].unmasked(request)

    def test_a_client_answers_once(self):
        self.clients[0].unmasked(messages.UnmaskRequest(0, (1, 2, 3), (4,)))
        with self.assertRaisesRegex(messages.RefusedError, "a second time"):
            self.clients[0].unmasked(messages.UnmaskRequest(0, (1, 2, 4), (3,)))

    def test_the_server_never_asks_for_both(self):
        for masked in self.inputs:
            self.server.take(masked)
        asked = {True: set(), False: set()}
        for request in self.server.requests().values():
            asked[True] |= set(request.summed)
            asked[False] |= set(request.dropped)
        self.assertEqual(asked, {True: {0, 1, 2, 3}, False: {4}})

    def test_the_server_takes_one_input_of_a_client(self):
        self.server.take(self.inputs[0])
        for masked in (self.inputs[0], messages.MaskedInput(9, bytes(2))):
            with self.assertRaisesRegex(messages.MaskedSumError, "a second input"):
                self.server.take(masked)

    def test_a_key_that_is_not_the_clients(self):
        for masked in self.inputs:
            self.server.take(masked)
        requests = self.server.requests()
        answers = {c: self.clients[c].unmasked(requests[c]) for c in requests}
        # Shares of somebody else's secret, but of the right form.
        answers = {
            c: messages.UnmaskShares(c, found.seeds, {4: found.seeds[(c + 1) % 4]})
            for c, found in answers.items()
        }
        with self.assertRaisesRegex(
            (messages.MaskedSumError, ValueError), "not its own|not belong together"
        ):
            self.server.opened(answers)

    def test_shares_are_sealed_for_one_reader(self):
        sealed = {other: self.mail[0].sealed[other] for other in (2, 3, 4)}
        mail = messages.Mail(1, sealed)
        self.clients[1].masked(np.ones(2, np.uint32), mail)
        with self.assertRaises(exceptions.InvalidTag):
            self.clients[1].unmasked(messages.UnmaskRequest(1, (2, 3), ()))


class KeysTest(absltest.TestCase):
    """Each secret and key serves once, which right sums alone would not show."""

    def setUp(self):
        super().setUp()
        self.found = graph.Graph(graph.Needs(8, 2, 1), 6, 3)
        self.transcript = messages.Transcript(keep=True)
        # By purpose, the secrets and their keys; and the keys that sealed something.
        self.derived = collections.defaultdict(list)
        self.sealed = []

    def sum(self, inputs, bits):
        derived, encrypt = masks.derived_key, client_lib.aead.AESGCM

        def noted(secret, purpose):
            key = derived(secret, purpose)
            self.derived[purpose].append((secret, key))
            return key

        def sealing(key):
            cipher = encrypt(key)

            def note(*arguments):
                self.sealed.append(key)
                return cipher.encrypt(*arguments)

            return types.SimpleNamespace(encrypt=note, decrypt=cipher.decrypt)

        with (
            mock.patch.object(masks, "derived_key", noted),
            mock.patch.object(client_lib.aead, "AESGCM", sealing),
        ):
            return _sum(self.found, inputs, bits, {}, self.transcript)

    def test_no_key_serves_twice(self):
        self.sum(_inputs(8, 3, 8), 16)
        # All have one nonce, so that a key must not seal a second message.
        self.assertLen(self.sealed, 8 * 6)
        self.assertLen(set(self.sealed), 8 * 6)
        purpose = client_lib.seed_purpose()
        # Each derived by the client, and by the server.
        seeds = {secret for secret, _ in self.derived[purpose]}
        self.assertLen(seeds, 8)
        keys = {k for found in self.derived.values() for _, k in found}
        # Of seeds, of pairs that are neighbours, and of sealing.
        self.assertLen(keys, 8 + 8 * 6 // 2 + 8 * 6)
        # A seed that is opened is nobody's private key.
        told = [m for m in self.transcript.kept if isinstance(m, messages.PublicKeys)]
        public = [key for m in told for key in (m.sealing, m.masking)]
        of_seeds = [
            x25519.X25519PrivateKey.from_private_bytes(s).public_key() for s in seeds
        ]
        public += [key.public_bytes_raw() for key in of_seeds]
        self.assertLen(set(public), 8 * 3)

    def test_without_its_pair_masks_an_input_is_masked_still(self):
        # So looks one that comes when its sender is taken for gone already.
        inputs = np.zeros((8, 20_000), np.uint64)
        self.sum(inputs, 8)
        for one in self.transcript.kept:
            if not isinstance(one, messages.MaskedInput):
                continue
            left = masks.unpacked(one.packed, 8).astype(np.uint32)
            for other in range(8):
                pair = client_lib.pair_purpose(one.client, other)
                for _, key in self.derived[pair][:1]:
                    masks.add_mask(left, key, subtract=one.client < other)
            counts = np.bincount(left % 256, minlength=256)
            self.assertGreater(stats.chisquare(counts).pvalue, 1e-7)


class ViewTest(parameterized.TestCase):
    """The server's view depends on the vectors' sum alone."""

    def view(self, inputs, gone, changes):
        """Returns all messages, the sum, and each purpose's key.

        Args:
            inputs: uint64 [8, size].
            gone: Who drops out, before what.
            changes: Numbers added to a key's mask: uint32 [size] by key.
        """
        found = graph.Graph(graph.Needs(8, 2, 1), 6, 3)
        transcript, keys = messages.Transcript(keep=True), {}
        derived, add = masks.derived_key, masks.add_mask

        def noted(secret, purpose):
            keys[purpose] = derived(secret, purpose)
            return keys[purpose]

        def changed(total, key, *, subtract=False):
            add(total, key, subtract=subtract)
            if key in changes:
                total += changes[key] * np.uint32(2**32 - 1 if subtract else 1)

        with (
            mock.patch.object(masks, "derived_key", noted),
            mock.patch.object(masks, "add_mask", changed),
        ):
            outcome = _sum(found, inputs, 24, gone, transcript)
        return transcript.kept, outcome.total.tolist(), keys

    @parameterized.parameters(
        ({},), ({2: Step.INPUT},), ({2: Step.KEYS, 5: Step.UNMASKING},)
    )
    def test_other_vectors_of_the_same_sum_and_other_masks_look_the_same(self, gone):
        inputs = _inputs(8, 5, 20)
        expected, total, keys = self.view(inputs, gone, {})
        pairs = [
            (0, other)
            for other in range(1, 8)
            if client_lib.pair_purpose(0, other) in keys
            and gone.get(other) in (None, Step.UNMASKING)
        ]
        self.assertGreater(len(pairs), 2)
        for one, other in pairs:
            moved = np.arange(5, dtype=np.uint64) * np.uint64(1000 + other)
            others = inputs.copy()
            others[one] += moved
            others[other] -= moved
            others &= np.uint64(2**24 - 1)
            self.assertNotEqual(self.view(others, gone, {})[0], expected)
            # The mask that the two have in common, as likely as any other.
            key = keys[client_lib.pair_purpose(one, other)]
            shift = {key: np.uint32(2**32 - 1) * moved.astype(np.uint32)}
            seen, same, _ = self.view(others, gone, shift)
            self.assertEqual(seen, expected)
            self.assertEqual(same, total)

    def test_masked_inputs_are_uniform(self):
        found = graph.choose(graph.Needs(5, 1, 1))
        transcript = messages.Transcript(keep=True)
        inputs = np.zeros((5, 50_000), np.uint64)
        inputs[1] = 255
        _sum(found, inputs, 8, {}, transcript)
        seen = [m.packed for m in transcript.kept if hasattr(m, "packed")]
        self.assertLen(seen, 5)
        for one in seen:
            counts = np.bincount(np.frombuffer(one, np.uint8), minlength=256)
            # All six tests together raise a false alarm once in 10^5 seeds.
            self.assertGreater(stats.chisquare(counts).pvalue, 1e-6)
        both = [np.frombuffer(one, np.uint8).astype(np.int64) for one in seen[:2]]
        joint = np.bincount(both[0] // 16 * 16 + both[1] // 16, minlength=256)
        self.assertGreater(stats.chisquare(joint).pvalue, 1e-6)

    def test_only_masks_of_those_who_are_gone_are_opened(self):
        for gone in ({}, {2: Step.INPUT}, {2: Step.SHARES}):
            kept, _, _ = self.view(_inputs(8, 5, 20), gone, {})
            answers = [m for m in kept if isinstance(m, messages.UnmaskShares)]
            keys = {owner for answer in answers for owner in answer.keys}
            seeds = {owner for answer in answers for owner in answer.seeds}
            self.assertEqual(keys, {2} if Step.INPUT in gone.values() else set())
            self.assertEqual(seeds, set(range(8)) - gone.keys())


if __name__ == "__main__":
    absltest.main()
