"""Tests of the proof: complete, sound, and showing nothing, by enumeration."""

import itertools

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.statistics.two_servers import field as field_lib
from federated_hh.statistics.two_servers import proof as proof_lib
from tests.federated_hh.statistics.two_servers import oracle

_TINY = field_lib.Field(3)
_P = _TINY.modulus


def _vectors(size):
    """Returns all vectors of the tiny field: uint64 [7^size, size]."""
    return np.indices((_P,) * size).reshape(size, -1).T.astype(np.uint64)


def _codes(*parts):
    """Returns a number for each row of arrays of the tiny field, side by side."""
    codes = np.zeros(len(parts[0]), np.int64)
    for column in np.concatenate(parts, axis=1).T.astype(np.int64):
        codes = codes * _P + column
    return codes


def _random(generator, field, *shape):
    return generator.integers(0, field.modulus, shape, dtype=np.uint64)


class BitProofTest(parameterized.TestCase):
    @parameterized.product(
        exponent=(7, 31, 61), num_cells=(1, 2, 3, 7, 12, 30, 50), gates=(None, 1, 5)
    )
    def test_is_the_proof_that_the_oracle_makes(self, exponent, num_cells, gates):
        field = field_lib.Field(exponent)
        p = field.modulus
        bits = proof_lib.BitProof(num_cells, field, gates=gates)
        generator = np.random.default_rng(num_cells)
        reports = generator.random((4, num_cells)) < 0.4
        tables = bits.table(reports, _random(generator, field, 4, bits.wires))
        self.assertEqual(tables.shape, (4, bits.wires, bits.gates + 1))
        gammas = _random(generator, field, bits.wires)
        proofs = bits.prove(tables, gammas)
        for table, found, report in zip(tables, proofs, reports, strict=True):
            np.testing.assert_array_equal(bits.cells(table), report)
            expected = oracle.proof(table.tolist(), gammas.tolist(), p)
            self.assertEqual(found.tolist(), expected)
        for point in (0, bits.gates + 1, p - 1):
            flat = tables.reshape(4, bits.table_size)
            opened = bits.query(flat, proofs, point)
            for row, table, found in zip(opened, tables, proofs, strict=True):
                values = [
                    oracle.at(wire, range(len(wire)), point, p)
                    for wire in table.tolist()
                ]
                last = oracle.proof_at(found.tolist(), point, p)
                self.assertEqual(row.tolist(), [*values, last])

    @parameterized.parameters(1, 2, 5, 16, 17, 272, 1000)
    def test_honest_reports_are_accepted(self, num_cells):
        field = field_lib.Field()
        bits = proof_lib.BitProof(num_cells, field)
        self.assertGreaterEqual(bits.wires * bits.gates, num_cells)
        generator = np.random.default_rng(num_cells)
        reports = generator.random((300, num_cells)) < generator.random((300, 1))
        reports[0], reports[1] = True, False
        tables = bits.table(reports, _random(generator, field, 300, bits.wires))
        gammas = _random(generator, field, bits.wires)
        proofs = bits.prove(tables, gammas)
        tables = tables.reshape(300, bits.table_size)
        shares = [_random(generator, field, *part.shape) for part in (tables, proofs)]
        others = [
            field.subtract(part, share)
            for part, share in zip((tables, proofs), shares, strict=True)
        ]
        point = int(generator.integers(bits.gates + 1, field.modulus))
        mine, theirs = bits.query(*shares, point), bits.query(*others, point)
        self.assertTrue(bits.accepts(mine, theirs, gammas).all())
        # One more in any value that is opened, and none is.
        for column in range(bits.wires + 1):
            wrong = mine.copy()
            wrong[:, column] = field.add(wrong[:, column], np.ones(1, np.uint64))
            self.assertFalse(bits.accepts(wrong, theirs, gammas).any())

    def test_sizes_are_near_the_root(self):
        for num_cells in (272, 1000, 4096):
            bits = proof_lib.BitProof(num_cells, field_lib.Field())
            self.assertLess(bits.proof_size, 1.1 * num_cells**0.5 + 2)
            self.assertLess(bits.table_size, num_cells + 3 * num_cells**0.5)

    def test_arguments(self):
        with self.assertRaisesRegex(ValueError, "num_cells is 0"):
            proof_lib.BitProof(0, _TINY)
        for gates in (0, 4):
            with self.assertRaisesRegex(ValueError, f"gates is {gates}"):
                proof_lib.BitProof(9, _TINY, gates=gates)
        bits = proof_lib.BitProof(4, _TINY, gates=2)
        for point in (1, 2):
            with self.assertRaisesRegex(ValueError, f"point is {point}"):
                bits.query(np.zeros((1, 6)), np.zeros((1, 3)), point)

    def test_points_are_all_but_those_of_cells(self):
        bits = proof_lib.BitProof(4, _TINY, gates=2)
        self.assertEqual([bits.point(i) for i in range(_P - 2)], [0, 3, 4, 5, 6])


class ZeroKnowledgeTest(parameterized.TestCase):
    """A server's view has the same law for all reports, counted in full."""

    def view(self, bits, server, report, gammas, point, cells, blinds=None):
        """Returns how often each view of a server comes: int64 [views].

        A view is the server's share of the table and of the proof, and what the other
        one opens, over all blinds and shares, given its share of the cells.
        """
        w = bits.wires
        rows = _vectors(2 * w + bits.proof_size)
        if blinds is not None:
            rows = rows[(rows[:, :w] == blinds).all(axis=1)]
        tables = bits.table(np.tile(report, (len(rows), 1)), rows[:, :w])
        proofs = bits.prove(tables, gammas)
        # Server 1 has what was drawn, and server 0 the difference.
        drawn_cells = np.tile(cells.reshape(w, -1), (len(rows), 1, 1))
        if server == 0:
            drawn_cells = _TINY.subtract(tables[:, :, 1:], drawn_cells)
        drawn = np.concatenate([rows[:, w : 2 * w, np.newaxis], drawn_cells], axis=2)
        drawn = drawn.reshape(len(rows), bits.table_size)
        shares = [drawn, rows[:, 2 * w :]]
        rest = [
            _TINY.subtract(tables.reshape(drawn.shape), drawn),
            _TINY.subtract(proofs, shares[1]),
        ]
        mine, others = (shares, rest) if server == 1 else (rest, shares)
        kept = mine[0].reshape(tables.shape)[:, :, 1:].reshape(len(rows), -1)
        np.testing.assert_array_equal(kept, np.tile(cells, (len(rows), 1)))
        told = bits.query(*others, point)
        codes = _codes(mine[0].reshape(tables.shape)[:, :, 0], mine[1], told)
        return np.bincount(codes, minlength=_P ** (2 * w + 1 + bits.proof_size))

    @parameterized.product(gates=(1, 2), server=(0, 1))
    def test_views_do_not_depend_on_the_report(self, gates, server):
        bits = proof_lib.BitProof(2, _TINY, gates=gates)
        generator = np.random.default_rng(gates)
        reports = [np.array(r) for r in itertools.product((False, True), repeat=2)]
        for point in (gates + 1, _P - 1):
            for gammas in (np.full(bits.wires, 3), np.arange(bits.wires)):
                cells = _random(generator, _TINY, 2)
                args = gammas.astype(np.uint64), point, cells
                views = [self.view(bits, server, r, *args) for r in reports]
                self.assertGreater(np.count_nonzero(views[0]), _P**3)
                for view in views[1:]:
                    np.testing.assert_array_equal(view, views[0])
                # The test would see what blinds that are known would show.
                known = np.zeros(bits.wires, np.uint64)
                views = [self.view(bits, server, r, *args, known) for r in reports]
                differ = [not np.array_equal(views[0], view) for view in views]
                self.assertTrue(any(differ))


class SoundnessTest(parameterized.TestCase):
    @parameterized.parameters((1, 1), (2, 1), (2, 2), (3, 3))
    def test_best_cheating_stays_below_the_bound(self, num_cells, gates):
        """All tables that are not of 0 and 1, with the best proof for each."""
        bits = proof_lib.BitProof(num_cells, _TINY, gates=gates)
        w, points = bits.wires, [bits.point(i) for i in range(_P - gates)]
        tables, proofs = _vectors(bits.table_size), _vectors(bits.proof_size)
        cells = tables.reshape(len(tables), w, gates + 1)[:, :, 1:]
        tables = tables[(cells > 1).any(axis=(1, 2))]
        no_proof = np.zeros((len(tables), bits.proof_size), np.uint64)
        no_table = np.zeros((len(proofs), bits.table_size), np.uint64)
        wires = np.stack([bits.query(tables, no_proof, t)[:, :-1] for t in points])
        last = np.stack([bits.query(no_table, proofs, t)[:, -1] for t in points])
        opened = _vectors(w + 1)
        best = np.zeros(len(tables))
        for gammas in _vectors(w):
            # Which value of P the servers accept for values of the wires.
            accepted = bits.accepts(opened, np.zeros_like(opened), gammas)
            self.assertEqual(accepted.sum(), _P**w)
            wanted = np.zeros(_P**w, np.uint64)
            wanted[_codes(opened[accepted, :-1])] = opened[accepted, -1]
            asked = wanted[_codes(wires.reshape(-1, w)).reshape(len(points), -1)]
            hits = np.zeros((len(tables), len(proofs)), np.int8)
            for of_tables, of_proofs in zip(asked, last, strict=True):
                hits += of_tables[:, np.newaxis] == of_proofs
            best += hits.max(axis=1)
        best /= _P**w * len(points)
        bound = float(bits.soundness_error)
        self.assertAlmostEqual(bound, 1 / _P + 2 * gates / (_P - gates))
        self.assertLessEqual(best.max(), bound)
        # Nor is the bound a loose one, as long as it is one.
        self.assertGreater(best.max(), 0.6 * min(bound, 1.0))

    def test_error_of_the_field_that_is_used(self):
        for num_cells, bits_of_error in ((272, 55.8), (10_000, 53.9), (2**24, 53.9)):
            bits = proof_lib.BitProof(num_cells, field_lib.Field())
            self.assertLess(float(bits.soundness_error), 2**-bits_of_error)


if __name__ == "__main__":
    absltest.main()
