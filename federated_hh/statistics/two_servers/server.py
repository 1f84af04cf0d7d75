"""One of two servers: it holds shares, checks proofs with the other, and adds up.

A step that needs the other server is a generator: it yields its message to the other,
and is sent the other's. The two take the same steps in the same order.
"""

import collections
import dataclasses
import hashlib
import itertools
from collections.abc import Generator, Mapping
from typing import TypeAlias

import numpy as np

from federated_hh.options import checks
from federated_hh.randomness import streams
from federated_hh.statistics.two_servers import field as field_lib
from federated_hh.statistics.two_servers import messages, proof

_KEY_BYTES = 16

# Why a report is refused.
MALFORMED = "malformed"
LATE = "late"
DUPLICATE = "duplicate"
INCOMPLETE = "incomplete"
NOT_PROVED = "not proved"

Talk: TypeAlias = Generator[bytes, bytes, "Answer"]


@dataclasses.dataclass(frozen=True)
class Answer:
    """A server's answer to the outside after a step.

    Attributes:
        refused: Number of messages refused in the step, by reason; `INCOMPLETE` are
            reports of which one of the servers lacks a message that it can use.
        challenge: Challenge for the proofs of the clients whose shares have come.
            None where no batch is open.
        accepted: Reports of the batch that are accepted so far.
        sum_share: uint64 [cells]: its share of the sum of a batch that is released.
    """

    refused: Mapping[str, int]
    challenge: bytes | None = None
    accepted: int = 0
    sum_share: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Terms:
    """The terms of a batch; public, the key apart.

    Attributes:
        number: The number of the batch; each is above that of the one before.
        num_cells: The number of cells of each report.
        minimum_cohort: Fewer accepted reports are not released, and a report that asks
            for more is refused.
        key: The key of the server's random numbers for the batch, in [0, 2^128); each
            server has its own.
    """

    number: int
    num_cells: int
    minimum_cohort: int
    key: int = dataclasses.field(repr=False)


class _Batch:
    """A server's part of a batch: shares, sums of shares and names, nothing else."""

    def __init__(self, terms: Terms):
        self.terms = terms
        self.proof = proof.BitProof(terms.num_cells, field_lib.Field())
        self.total = np.zeros(self.proof.table_size, np.uint64)
        self.accepted, self.blocks = 0, 0
        # A digest of the identifiers of those that are accepted, in order.
        self.names = b""
        self.gammas = np.zeros(self.proof.wires, np.uint64)
        self.forget_waiting()

    def forget_waiting(self) -> None:
        """Deletes the reports that are shared and not yet proved."""
        self.waiting: list[bytes] = []
        # New, as a part of the old array would keep all of it.
        self.tables = np.zeros((0, self.proof.table_size), np.uint64)


class Server:
    """A server, whichever of the two it is.

    Of a batch that has ended it remembers the identifiers of the reports, nothing else.
    """

    def __init__(self, index: int):
        """Begins without a batch.

        Args:
            index: 0 or 1.
        """
        checks.holds(index in (0, 1), "0 or 1", index=index)
        self._index = index
        self._batch: _Batch | None = None
        self._last = -1
        self._seen: set[bytes] = set()

    def open(self, terms: Terms) -> Answer:
        """Opens a batch, and deletes the rest of the last one.

        Raises:
            ValueError: If the batch is none after the last, or a term is out of range.
        """
        checks.holds(
            terms.number > self._last,
            f"above {self._last}, the last batch's",
            number=terms.number,
        )
        checks.holds(
            terms.minimum_cohort >= 1, "at least 1", minimum_cohort=terms.minimum_cohort
        )
        self._batch, self._last = _Batch(terms), terms.number
        return Answer({})

    def shares(self, uploads: list[bytes]) -> Talk:
        """Receives shares of reports, and asks for their proofs.

        Shares without a proof from the call before are deleted.

        Args:
            uploads: As `messages` has them, of any length and content.
        """
        batch = self._batch
        if batch is None:
            return Answer({LATE: len(uploads)} if uploads else {})
        refused: collections.Counter[str] = collections.Counter()
        mine, tables = self._fresh(batch, uploads, refused)
        batch.blocks += 1
        part = self._random(batch, "gammas")
        theirs = yield part + b"".join(mine)
        places = _in_both(self._index, mine, theirs[_KEY_BYTES:])
        # Those that only this server has, and those that only the other one has.
        others = (len(theirs) - _KEY_BYTES) // messages.IDENTIFIER_BYTES
        refused[INCOMPLETE] += len(mine) + others - 2 * len(places)
        batch.waiting = [mine[place] for place in places]
        batch.tables = tables if _is_all(places, tables) else tables[places]
        # Nobody knew both parts before both servers had all shares.
        challenge = _together(part, theirs)
        batch.gammas = gammas_of(batch.proof, challenge)
        return Answer(+refused, challenge, batch.accepted)

    def proofs(self, uploads: list[bytes]) -> Talk:
        """Checks the proofs of shared reports, and adds those that hold.

        Args:
            uploads: As `messages` has them, of any length and content.
        """
        batch = self._batch
        if batch is None:
            return Answer({LATE: len(uploads)} if uploads else {})
        refused: collections.Counter[str] = collections.Counter()
        mine, at, values = self._proved(batch, uploads, refused)
        part = self._random(batch, "point")
        theirs = yield part + b"".join(mine)
        places = _in_both(self._index, mine, theirs[_KEY_BYTES:])
        refused[INCOMPLETE] += len(batch.waiting) - len(places)
        at = [at[place] for place in places]
        tables = batch.tables if _is_all(at, batch.tables) else batch.tables[at]
        values = values if _is_all(places, values) else values[places]
        # Nobody knew both parts before both servers had all proofs.
        point = _point_of(batch.proof, _together(part, theirs))
        opened = batch.proof.query(tables, values, point)
        theirs = yield opened.astype("<u8").tobytes()
        others = np.frombuffer(theirs, "<u8").reshape(opened.shape)
        is_good = batch.proof.accepts(opened, others, batch.gammas)
        names = [batch.waiting[place] for place in at]
        batch.forget_waiting()
        self._add(batch, names, tables, is_good)
        refused[NOT_PROVED] = int(len(is_good) - is_good.sum())
        return Answer(+refused, None, batch.accepted)

    def close(self) -> Talk:
        """Ends the batch: gives its share of the sum, or nothing, and keeps neither."""
        batch, self._batch = self._batch, None
        if batch is None:
            return Answer({})
        terms = batch.terms
        said = repr((terms.number, terms.num_cells, terms.minimum_cohort))
        said += f" {batch.accepted} {batch.names.hex()}"
        theirs = yield said.encode()
        refused = {INCOMPLETE: len(batch.waiting)} if batch.waiting else {}
        if theirs != said.encode() or batch.accepted < terms.minimum_cohort:
            return Answer(refused, None, batch.accepted)
        total = batch.proof.cells(batch.total)
        return Answer(refused, None, batch.accepted, total)

    def _fresh(self, batch, uploads, refused) -> tuple[list[bytes], np.ndarray]:
        """Returns names and tables of shares that are as they have to be."""
        parsed = messages.parse(uploads, 3, batch.proof.table_size)
        _, minima, cells = parsed.headers.T
        is_right = minima <= batch.terms.minimum_cohort
        is_right &= cells == batch.terms.num_cells
        places = []
        for place in _usable(batch, parsed, is_right, refused):
            name = parsed.identifiers[place]
            if name in self._seen:
                refused[DUPLICATE] += 1
            else:
                self._seen.add(name)
                places.append(place)
        values = parsed.values
        values = values if _is_all(places, values) else values[places]
        return [parsed.identifiers[place] for place in places], values

    def _proved(
        self, batch, uploads, refused
    ) -> tuple[list[bytes], list[int], np.ndarray]:
        """Returns names, places among the tables, and values of proofs for them."""
        parsed = messages.parse(uploads, 1, batch.proof.proof_size)
        place_of = {name: place for place, name in enumerate(batch.waiting)}
        found: dict[bytes, int] = {}
        for place in _usable(batch, parsed, True, refused):
            name = parsed.identifiers[place]
            if name in found:
                refused[DUPLICATE] += 1
            elif name in place_of:  # else it is counted: it is not with both
                found[name] = place
        values, places = parsed.values, [*found.values()]
        values = values if _is_all(places, values) else values[places]
        return [*found], [place_of[name] for name in found], values

    def _add(self, batch, names, tables, is_good) -> None:
        batch.total = batch.proof.field.add(
            batch.total,
            batch.proof.field.sum(tables if is_good.all() else tables[is_good]),
        )
        good = b"".join(itertools.compress(names, is_good.tolist()))
        batch.names = hashlib.sha256(batch.names + good).digest()
        batch.accepted += int(is_good.sum())

    def _random(self, batch: _Batch, purpose: str) -> bytes:
        bits = streams.KeyedBits(batch.terms.key, "server", purpose)
        return bits.bytes(batch.blocks, _KEY_BYTES)


def _usable(batch: _Batch, parsed: messages.Parsed, is_right, refused) -> list[int]:
    """Counts late and malformed messages; returns the places of the others."""
    is_right = is_right & (
        parsed.values.max(axis=1, initial=0) < batch.proof.field.modulus
    )
    is_late = parsed.headers[:, 0] != batch.terms.number
    refused[MALFORMED] += parsed.malformed + int((~is_right & ~is_late).sum())
    refused[LATE] += int(is_late.sum())
    return np.flatnonzero(is_right & ~is_late).tolist()


def gammas_of(bit_proof: proof.BitProof, challenge: bytes) -> np.ndarray:
    """Returns the coefficients that a challenge stands for: uint64 [wires]."""
    bits = streams.KeyedBits(int.from_bytes(challenge, "little"), "gammas")
    return bit_proof.field.random(bits, bit_proof.wires)


def _point_of(bit_proof: proof.BitProof, challenge: bytes) -> int:
    """Returns the point that a challenge stands for, uniform among those allowed."""
    number = allowed = bit_proof.field.modulus - bit_proof.gates
    bits = streams.KeyedBits(int.from_bytes(challenge, "little"), "point")
    block = 0
    while number >= allowed:
        drawn = int.from_bytes(bits.bytes(block, 8), "little")
        number, block = drawn >> (64 - bit_proof.field.exponent), block + 1
    return bit_proof.point(number)


def _together(mine: bytes, theirs: bytes) -> bytes:
    """Returns both servers' parts of a random number, combined."""
    return bytes(a ^ b for a, b in zip(mine, theirs[:_KEY_BYTES], strict=True))


def _in_both(index: int, mine: list[bytes], theirs: bytes) -> list[int]:
    """Returns the places in `mine` of common names, in the order of server 0's."""
    others = messages.split_identifiers(theirs)
    if index == 0:
        known = set(others)
        return [place for place, name in enumerate(mine) if name in known]
    place_of = {name: place for place, name in enumerate(mine)}
    return [place_of[name] for name in others if name in place_of]


def _is_all(places: list[int], rows: np.ndarray) -> bool:
    """Returns whether places are those of all rows, in order: nothing to copy."""
    return len(places) == len(rows) and places == [*range(len(rows))]
