"""A property: whatever a client makes up is refused, and the others are summed."""

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.statistics.two_servers import client, messages, server
from tests.federated_hh.statistics.two_servers import cases, oracle

_P = oracle.P61
_HEADER = 40


def _words(message):
    return np.frombuffer(message, "<u8").copy()


def _root(value):
    """Returns a square root modulo p, or None; p is 3 modulo 4."""
    root = pow(value, (_P + 1) // 4, _P)
    return root if root * root % _P == value % _P else None


class Cheat:
    """Makes the messages of one report wrong, each time in another way.

    A report is wrong in its values, with the best proof that there is for it, or in
    its form, or in its proof.
    """

    VALUES = ("value", "minus_one", "two", "half", "compensating", "all", "row")
    FORMS = (
        "wraps",
        "wraps_all",
        "short",
        "long",
        "empty",
        "header_only",
        "cells",
        "minimum",
        "batch",
        "not_matching",
        "one_bit",
        "blind",
        "as_is",
    )
    PROOFS = (
        "tampered",
        "tampered_one",
        "zero",
        "others",
        "proof_short",
        "proof_long",
        "proof_wraps",
        "proof_batch",
        "no_proof",
    )

    def __init__(self, bit_proof, generator):
        self._proof, self._random = bit_proof, generator

    def value(self):
        return int(self._random.integers(2, _P - 1))

    def table(self, kind, table):
        """Makes the cells of a table wrong, in place."""
        w, g = self._proof.wires, self._proof.gates
        places = self._random.permutation(self._proof.num_cells)
        places = [(place // g, 1 + place % g) for place in places.tolist()]
        first = places[0]
        if kind == "compensating" and len(places) > 1:
            # Two cells of one gate, if there are, with x (x - 1) + y (y - 1) = 0.
            same = [other for other in places[1:] if other[1] == first[1]]
            second = (same or places[1:])[0]
            root = None
            while root is None:
                x = self.value()
                root = _root((1 - 4 * x * (x - 1)) % _P)
            table[first] = x
            table[second] = (1 + root) * pow(2, -1, _P) % _P
        elif kind == "all":
            table[:, 1:] = self._random.integers(2, _P, (w, g), dtype=np.uint64)
        elif kind == "row":  # adds up to what a report could
            for place in places:
                table[place] = self.value()
            rest = sum(int(table[place]) for place in places[1:])
            table[first] = (1 - rest) % _P
            if len(places) == 1:
                table[first] = 2
        else:
            numbers = {"minus_one": _P - 1, "two": 2, "half": (_P + 1) // 2}
            table[first] = numbers.get(kind) or self.value()

    def form(self, kind, first, second):
        """Returns wrong shares of the report that two messages are of."""
        parts = [_words(first), _words(second)]
        at = int(self._random.integers(2))
        place = int(self._random.integers(5, len(first) // 8))
        mine = parts[at]
        if kind == "wraps":
            mine[place] += np.uint64(_P)
        elif kind == "wraps_all":
            for part in parts:
                part[5:] += np.uint64(_P)
        elif kind in ("cells", "minimum", "batch"):
            mine[{"batch": 2, "minimum": 3, "cells": 4}[kind]] += np.uint64(1)
        elif kind == "not_matching":
            mine[5:] = self._random.integers(0, _P, len(mine) - 5, dtype=np.uint64)
        elif kind == "one_bit":
            bit = np.uint64(1 << int(self._random.integers(1, 60)))
            table_place = (
                5 + 1 + (place - 5) // (self._proof.gates + 1) * (self._proof.gates + 1)
            )  # the first cell of a wire
            mine[table_place] = int(mine[table_place] ^ bit) % _P
        elif kind == "blind":
            place = 5 + (place - 5) // (self._proof.gates + 1) * (self._proof.gates + 1)
            mine[place] = (int(mine[place]) + self.value()) % _P
        elif kind == "as_is":  # in the clear, to one of them
            mine[5:] = self._random.integers(0, 2, len(mine) - 5)
        messages = [part.tobytes() for part in parts]
        length = len(messages[at])
        keep = {
            "short": int(self._random.integers(1, length)),
            "empty": 0,
            "header_only": _HEADER,
        }.get(kind, length)
        messages[at] = messages[at][:keep]
        if kind == "long":
            messages[at] += bytes(8 * int(self._random.integers(1, 4)))
        return messages

    def proof(self, kind, first, second, others):
        """Returns wrong shares of a proof; None for one that is not sent."""
        parts = [_words(first), _words(second)]
        at = int(self._random.integers(2))
        place = int(self._random.integers(3, len(first) // 8))
        mine = parts[at]
        if kind == "tampered":
            mine[3:] = self._random.integers(0, _P, len(mine) - 3, dtype=np.uint64)
        elif kind == "tampered_one":
            mine[place] = (int(mine[place]) + self.value()) % _P
        elif kind == "zero":
            for part in parts:
                part[3:] = 0
        elif kind == "others":
            for part, other in zip(parts, others, strict=True):
                part[3:] = _words(other)[3:]
        elif kind == "proof_wraps":
            mine[place] += np.uint64(_P)
        elif kind == "proof_batch":
            mine[2] += np.uint64(1)
        messages = [part.tobytes() for part in parts]
        if kind == "proof_short":
            messages[at] = messages[at][:-8]
        elif kind == "proof_long":
            messages[at] += bytes(8)
        elif kind == "no_proof":
            messages[at] = None
        return messages


class CheatingBlock(client.ClientBlock):
    """Clients of which some have tables that are not of 0 and 1."""

    def spoil(self, change, places):
        """Changes the tables of some clients, in place."""
        self._wrong = [*places]
        for place in self._wrong:
            change(self._tables[place])

    def proofs(self, challenge):
        """Returns all proofs; wrong tables have the best that there are for them."""
        gammas = server.gammas_of(self._proof, challenge)
        right = self._tables.copy()
        right[self._wrong, :, 1:] = 0
        values = self._proof.prove(right, gammas)
        for place in self._wrong:
            table = self._tables[place].tolist()
            values[place] = oracle.proof(table, gammas.tolist(), _P)
        first, second = (
            messages.encode(self._names, (self._batch,), part)
            for part in self._split(values, "proofs")
        )
        return first, second


class MalformedTest(parameterized.TestCase):
    @parameterized.parameters((1, 900), (2, 1500), (5, 2500), (12, 3000), (30, 2200))
    def test_all_malformed_reports_are_refused(self, num_cells, malformed):
        """Of 10,100 in all, among some that are honest, and are summed."""
        honest = 50
        generator = np.random.default_rng(num_cells)
        batches = cases.Batches(num_cells, minimum=honest)
        cheat = Cheat(batches.proof, generator)
        kinds = [*cheat.VALUES, *cheat.FORMS, *cheat.PROOFS]
        batches.open()
        reports = cases.reports_of(honest + malformed, num_cells, seed=num_cells)
        places = generator.permutation(len(reports))
        good, bad = np.sort(places[:honest]), places[honest:].tolist()
        kind_of = {place: kinds[i % len(kinds)] for i, place in enumerate(bad)}
        clients = batches.clients(reports, kind=CheatingBlock)
        todo = iter([k for k in kind_of.values() if k in cheat.VALUES])
        clients.spoil(
            lambda table: cheat.table(next(todo), table),
            [place for place, kind in kind_of.items() if kind in cheat.VALUES],
        )

        def change_shares(first, second):
            for place, kind in kind_of.items():
                if kind in cheat.FORMS:
                    first[place], second[place] = cheat.form(
                        kind, first[place], second[place]
                    )
            return first, second

        def change_proofs(first, second):
            originals = first[:], second[:]
            for place, kind in kind_of.items():
                if kind in cheat.PROOFS:
                    # Of a neighbour: what a replayed proof would be.
                    other = originals[0][place - 1], originals[1][place - 1]
                    first[place], second[place] = cheat.proof(
                        kind, first[place], second[place], other
                    )
            return tuple([m for m in part if m is not None] for part in (first, second))

        shares, proofs = batches.send(clients, change_shares, change_proofs)
        refused = {server.MALFORMED, server.LATE, server.INCOMPLETE, server.NOT_PROVED}
        seen = {*shares[0].refused, *shares[1].refused}
        seen |= {*proofs[0].refused, *proofs[1].refused}
        self.assertEqual(seen, refused)
        counts, accepted = batches.close()
        self.assertEqual(accepted, honest)
        np.testing.assert_array_equal(counts, reports[good].sum(axis=0))


class HonestTest(absltest.TestCase):
    def test_none_of_a_hundred_thousand_honest_reports_is_refused(self):
        batches = cases.Batches(272, minimum=100_000)
        batches.open()
        total = np.zeros(272, np.int64)
        for number in range(20):
            reports = cases.reports_of(5000, 272, seed=number)
            total += reports.sum(axis=0)
            answers = batches.send(batches.clients(reports))
            self.assertEqual([a.refused for pair in answers for a in pair], [{}] * 4)
            batches.pair.talk.clear()
        counts, accepted = batches.close()
        self.assertEqual(accepted, 100_000)
        np.testing.assert_array_equal(counts, total)


if __name__ == "__main__":
    absltest.main()
