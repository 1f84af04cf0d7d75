"""The proof that every cell of a shared report is 0 or 1, a fully linear one.

It is that of Boneh, Boneh, Corrigan-Gibbs, Gilboa and Ishai 2019 (section 4.2), as in
Prio3's `SumVec`, for a circuit whose every gate has to give 0. The L cells stand in a
table of w wires and g gates. Wire i is the polynomial f_i of degree g through a random
blind at 0 and its cells at 1 to g. Gate k is sum_i gamma_i f_i(k) (f_i(k) - 1), the
gammas random. The proof is the polynomial

    P = sum_i gamma_i f_i (f_i - 1),

of degree 2g. It is 0 at 1 to g, so that its values at 0 and at g + 1 to 2g say all. The
servers hold shares of the f_i and of P, evaluate them at a random point t, open the
values there, and check the equation. `docs/two_servers.md` has why it is sound and what
it shows.
"""

import fractions
import functools
import math

import numpy as np

from federated_hh.options import checks
from federated_hh.statistics.two_servers import field as field_lib

# More would take long to prepare a proof for.
_MOST_GATES = 64


class BitProof:
    """The proof for reports of some number of cells.

    Attributes:
        field: Field of the shares.
        num_cells: L.
        wires: w.
        gates: g; w g is at least L, and cells beyond L are ignored.
    """

    def __init__(
        self, num_cells: int, field: field_lib.Field, *, gates: int | None = None
    ):
        """Chooses the table.

        Args:
            num_cells: L, at least 1.
            field: Field of the shares.
            gates: g; by default about the root of L, at most 64.

        Raises:
            ValueError: If the field is too small for the gates.
        """
        checks.holds(num_cells >= 1, "at least 1", num_cells=num_cells)
        if gates is None:
            wires = -(-num_cells // min(_MOST_GATES, math.isqrt(num_cells - 1) + 1))
            gates = -(-num_cells // wires)
        checks.holds(
            1 <= gates <= (field.modulus - 1) // 2,
            f"from 1 to (modulus - 1) / 2, {(field.modulus - 1) // 2:,}",
            gates=gates,
        )
        self.field, self.num_cells = field, num_cells
        self.gates, self.wires = gates, -(-num_cells // gates)

    @property
    def table_size(self) -> int:
        """Values of a shared report: the blind and the cells of each wire."""
        return self.wires * (self.gates + 1)

    @property
    def proof_size(self) -> int:
        """Values of a shared proof."""
        return self.gates + 1

    @property
    def soundness_error(self) -> fractions.Fraction:
        """The most that a report with another value than 0 and 1 is accepted with."""
        p = self.field.modulus
        return fractions.Fraction(1, p) + fractions.Fraction(
            2 * self.gates, p - self.gates
        )

    def table(self, reports: np.ndarray, blinds: np.ndarray) -> np.ndarray:
        """Returns reports as tables.

        Args:
            reports: bool [reports, cells].
            blinds: uint64 [reports, wires].

        Returns:
            uint64 [reports, wires, 1 + gates].
        """
        cells = np.zeros((len(reports), self.wires * self.gates), np.uint64)
        cells[:, : self.num_cells] = reports
        cells = cells.reshape(len(reports), self.wires, self.gates)
        return np.concatenate([blinds[..., np.newaxis], cells], axis=2)

    def cells(self, table: np.ndarray) -> np.ndarray:
        """Returns the cells of a table [wires, 1 + gates], flat or not: [cells]."""
        table = table.reshape(self.wires, self.gates + 1)
        return table[:, 1:].reshape(-1)[: self.num_cells]

    def prove(self, tables: np.ndarray, gammas: np.ndarray) -> np.ndarray:
        """Returns the proofs of well-formed tables.

        Args:
            tables: uint64 [reports, wires, 1 + gates], all but the blinds 0 or 1.
            gammas: uint64 [wires].

        Returns:
            uint64 [reports, 1 + gates]: P at 0 and at g + 1 to 2g.
        """
        weights = field_lib.Matrix.of_elements(self.field, gammas[:, np.newaxis])
        proofs = np.empty((len(tables), self.proof_size), np.uint64)
        for tile in field_lib.tiles(len(tables), self.table_size):
            blinds = np.ascontiguousarray(tables[tile, :, :1])
            data = [field_lib.limbs(blinds), tables[tile, :, 1:].astype(np.float64)]
            values = self._extension.product(np.concatenate(data, axis=2))
            values = np.concatenate([blinds, values], axis=2)
            products = self._times_less_one(values).swapaxes(1, 2)
            proofs[tile] = weights.product(field_lib.limbs(products))[..., 0]
        return proofs

    def query(self, tables: np.ndarray, proofs: np.ndarray, point: int) -> np.ndarray:
        """Returns a server's opening: its share of the f_i and of P at a point.

        Args:
            tables: uint64 [reports, table_size]: shares.
            proofs: uint64 [reports, proof_size]: shares.
            point: t, none of 1 to g.

        Returns:
            uint64 [reports, wires + 1].
        """
        if 1 <= point <= self.gates:
            raise ValueError(f"point is {point}; 1 to {self.gates} show the cells")
        g = self.gates
        of_wires, of_proof = (
            field_lib.Matrix.of_elements(self.field, column[:, np.newaxis])
            for column in (
                self._lagrange(g, point),
                self._lagrange(2 * g, point)[[0, *range(g + 1, 2 * g + 1)]],
            )
        )
        opened = np.empty((len(tables), self.wires + 1), np.uint64)
        tables = tables.reshape(len(tables), self.wires, g + 1)
        for tile in field_lib.tiles(len(tables), self.table_size):
            found = of_wires.product(field_lib.limbs(tables[tile]))
            opened[tile, :-1] = found[..., 0]
            found = of_proof.product(field_lib.limbs(proofs[tile]))
            opened[tile, -1] = found[..., 0]
        return opened

    def accepts(
        self, mine: np.ndarray, theirs: np.ndarray, gammas: np.ndarray
    ) -> np.ndarray:
        """Returns whether each report is well-formed: bool [reports].

        Args:
            mine: uint64 [reports, wires + 1], as `query` returns it.
            theirs: Likewise, of the other server.
            gammas: uint64 [wires].
        """
        weights = field_lib.Matrix.of_elements(self.field, gammas[:, np.newaxis])
        values = self.field.add(mine, theirs)
        products = self._times_less_one(np.ascontiguousarray(values[:, :-1]))
        return weights.product(field_lib.limbs(products))[:, 0] == values[:, -1]

    def point(self, number: int) -> int:
        """Returns the points that may be asked for, all but 1 to g, by number.

        Args:
            number: In [0, modulus - gates).
        """
        return number if number == 0 else number + self.gates

    def _times_less_one(self, values: np.ndarray) -> np.ndarray:
        one = np.ones(1, np.uint64)
        return self.field.multiply(values, self.field.subtract(values, one))

    @functools.cached_property
    def _extension(self) -> field_lib.Matrix:
        """The map from a blind's limbs and cells at 1 to g to values at g + 1 to 2g."""
        g = self.gates
        points = [self._lagrange(g, point) for point in range(g + 1, 2 * g + 1)]
        rows = np.stack(points, axis=1)
        rows = np.concatenate([field_lib.expanded(self.field, rows[:1]), rows[1:]])
        return field_lib.Matrix(self.field, rows, field_lib.LIMBS * (2**16 - 1) + g)

    def _lagrange(self, degree: int, point: int) -> np.ndarray:
        """Returns the weights of a polynomial's values, 0 to its degree, at a point."""
        p = self.field.modulus
        before, after = [1], [1]
        for node in range(degree):
            before.append(before[-1] * (point - node) % p)
            after.append(after[-1] * (point - degree + node) % p)
        found = []
        for node in range(degree + 1):
            below = math.factorial(node) * math.factorial(degree - node)
            below *= (-1) ** (degree - node)
            found.append(before[node] * after[degree - node] * pow(below, -1, p))
        return self.field.elements(found)
