"""Batches of reports for tests, and ways to look into servers."""

import dataclasses
import pickle
from collections.abc import Generator
from typing import Any

import numpy as np

from federated_hh.randomness import streams
from federated_hh.statistics.two_servers import client, field, proof, server


def reports_of(number, num_cells, seed=1):
    """Returns random reports: bool [number, num_cells]."""
    return np.random.default_rng(seed).random((number, num_cells)) < 0.3


@dataclasses.dataclass(frozen=True)
class Told:
    """A message from one server to the other.

    Attributes:
        step: The name of the step in which it did.
        index: The index of the server that spoke.
        message: Its content.
    """

    step: str
    index: int
    message: bytes


class LocalPair:
    """Servers in this process, whose talk is kept.

    Attributes:
        servers: The two.
        talk: All that one told the other so far.
    """

    def __init__(self):
        self.servers = (server.Server(0), server.Server(1))
        self.talk: list[Told] = []

    def step(
        self, name: str, first: Any = (), second: Any = ()
    ) -> tuple[server.Answer, server.Answer]:
        """Has both servers take a step; see `Pair`."""
        answers: list[server.Answer] = []
        talks: list[Generator[bytes, bytes, server.Answer]] = []
        for one, argument in zip(self.servers, (first, second), strict=True):
            found = getattr(one, name)(*(() if argument == () else (argument,)))
            if isinstance(found, server.Answer):
                answers.append(found)
            else:
                talks.append(found)
        if talks:
            answers = self._converse(name, talks)
        return answers[0], answers[1]

    def _converse(self, name: str, talks) -> list[server.Answer]:
        heard: list[bytes | None] = [None, None]
        answers: list[server.Answer] = []
        while not answers:
            said = []
            for index, talk in enumerate(talks):
                try:
                    said.append(talk.send(heard[index]))
                    self.talk.append(Told(name, index, said[-1]))
                except StopIteration as end:
                    answers.append(end.value)
            heard = said[::-1]
        return answers


class Batches:
    """Two servers in this process, and clients that do what a test says.

    Attributes:
        pair: The servers.
    """

    def __init__(self, num_cells=6, minimum=3, servers=None):
        self.pair = LocalPair() if servers is None else servers
        self.proof = proof.BitProof(num_cells, field.Field())
        self.minimum, self.number, self.blocks = minimum, -1, 0

    def open(self, minima=None):
        """Opens a batch, by default with the same minimum at both."""
        self.number += 1
        first, second = (
            server.Terms(self.number, self.proof.num_cells, minimum, key)
            for key, minimum in enumerate(minima or [self.minimum] * 2)
        )
        self.pair.step("open", first, second)

    def clients(self, reports, minimum=None, kind=client.ClientBlock):
        """Returns clients with these reports, their random numbers their own."""
        self.blocks += 1
        return kind(
            self.proof,
            reports,
            batch=self.number,
            minimum_cohort=self.minimum if minimum is None else minimum,
            stream=streams.Stream(7, ("block", self.blocks)),
        )

    def send(self, clients, change_shares=None, change_proofs=None):
        """Sends what clients have to, changed by functions of both uploads.

        Returns:
            What the servers answer to the shares, and to the proofs.
        """
        shares = clients.shares()
        shares = change_shares(*shares) if change_shares else shares
        answers = self.pair.step("shares", *shares)
        proofs = clients.proofs(answers[0].challenge)
        proofs = change_proofs(*proofs) if change_proofs else proofs
        return answers, self.pair.step("proofs", *proofs)

    def close(self):
        """Ends the batch; returns the sum or None, and how many were accepted."""
        first, second = self.pair.step("close")
        if first.accepted != second.accepted:
            raise AssertionError(f"accepted: {first.accepted}, {second.accepted}")
        shares = [first.sum_share, second.sum_share]
        if any(share is None for share in shares):
            if not all(share is None for share in shares):
                raise AssertionError("only one server releases")
            return None, first.accepted
        return self.proof.field.add(*shares).astype(np.int64), first.accepted


def words_in(uploads):
    """Returns the words of 64 bits of messages, small ones left out."""
    words = np.frombuffer(b"".join(uploads), "<u8")
    return {word.tobytes() for word in words[words > 2**32]}


def kept_words(one, words):
    """Returns those of some words that a server has anywhere in its state."""
    state = pickle.dumps(one)
    if one._batch is not None and one._batch.tables.base is not None:
        # Where the array is a part of a larger one.
        state += pickle.dumps(one._batch.tables.base)
    return {word for word in words if word in state}
