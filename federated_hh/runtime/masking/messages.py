"""Messages between the parties of a masked sum, and their transcript.

A client talks to the server only. Its messages to other clients go through the server,
encrypted.
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import TypeAlias


class Step(enum.Enum):
    """The steps of a sum, named by the clients' messages."""

    KEYS = "keys"
    SHARES = "shares"
    INPUT = "input"
    UNMASKING = "unmasking"


class MaskedSumError(RuntimeError):
    """A masked sum could not be opened, or must not be; nothing of it was released."""


class RefusedError(MaskedSumError):
    """A client refused a request."""


# A client's number in a message.
ID_BYTES = 4


@dataclasses.dataclass(frozen=True)
class PublicKeys:
    """Step 1, from a client: its public keys.

    Attributes:
        client: Whose.
        sealing: The public key that shares are encrypted with: 32 bytes.
        masking: The public key that masks are made of: 32 bytes.
    """

    client: int
    sealing: bytes
    masking: bytes

    @property
    def num_bytes(self) -> int:
        """Returns the message's bytes."""
        return ID_BYTES + len(self.sealing) + len(self.masking)


@dataclasses.dataclass(frozen=True)
class Roster:
    """Step 2, to a client: the keys of its neighbours who are present.

    Attributes:
        client: To whom.
        neighbours: Their keys, in ascending order of their numbers.
    """

    client: int
    neighbours: tuple[PublicKeys, ...]

    @property
    def num_bytes(self) -> int:
        """Returns the message's bytes."""
        return sum(keys.num_bytes for keys in self.neighbours)


@dataclasses.dataclass(frozen=True)
class SealedShares:
    """Step 2, from a client: for each neighbour its shares, which only that one reads.

    Attributes:
        client: Whose secrets.
        sealed: Sealed shares, by the neighbour.
    """

    client: int
    sealed: Mapping[int, bytes]

    @property
    def num_bytes(self) -> int:
        """Returns the message's bytes."""
        return ID_BYTES + _num_bytes(self.sealed)


@dataclasses.dataclass(frozen=True)
class Mail:
    """Step 3, to a client: the shares that its neighbours sealed for it.

    Attributes:
        client: To whom.
        sealed: Sealed shares, by the neighbour who sealed them.
    """

    client: int
    sealed: Mapping[int, bytes]

    @property
    def num_bytes(self) -> int:
        """Returns the message's bytes."""
        return _num_bytes(self.sealed)


@dataclasses.dataclass(frozen=True)
class MaskedInput:
    """Step 3, from a client: its vector with all its masks.

    Attributes:
        client: Whose.
        packed: The numbers, in as few whole bytes each as hold one.
    """

    client: int
    packed: bytes

    @property
    def num_bytes(self) -> int:
        """Returns the message's bytes."""
        return ID_BYTES + len(self.packed)


@dataclasses.dataclass(frozen=True)
class UnmaskRequest:
    """Step 4, to a client: whose shares are wanted, and which.

    Attributes:
        client: To whom.
        summed: Neighbours whose input is in the sum: of their self-masks' seeds.
        dropped: Neighbours whose input never came: of their masking keys.
    """

    client: int
    summed: tuple[int, ...]
    dropped: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Returns the message's bytes."""
        return ID_BYTES * (len(self.summed) + len(self.dropped))


@dataclasses.dataclass(frozen=True)
class UnmaskShares:
    """Step 4, from a client: the shares that it was asked for.

    Attributes:
        client: From whom.
        seeds: The seeds of the neighbours' self-masks.
        keys: The keys of the neighbours' masking keys.
    """

    client: int
    seeds: Mapping[int, bytes]
    keys: Mapping[int, bytes]

    @property
    def num_bytes(self) -> int:
        """Returns the message's bytes."""
        return ID_BYTES + _num_bytes(self.seeds) + _num_bytes(self.keys)


ToServer: TypeAlias = PublicKeys | SealedShares | MaskedInput | UnmaskShares
ToClient: TypeAlias = Roster | Mail | UnmaskRequest


class Transcript:
    """All messages between clients and server: the server's whole view.

    Attributes:
        kept: All messages in order, if they are kept; otherwise empty.
        bytes_up: Bytes that clients sent.
        bytes_down: Bytes that clients received.
    """

    def __init__(self, *, keep: bool = False):
        """Begins empty.

        Args:
            keep: Whether messages are kept, which takes the memory of all of them.
        """
        self._keep = keep
        self.kept: list[ToServer | ToClient] = []
        self.bytes_up = 0
        self.bytes_down = 0

    def up(self, message: ToServer) -> None:
        """Notes a message to the server."""
        self.bytes_up += message.num_bytes
        self._note(message)

    def down(self, message: ToClient) -> None:
        """Notes a message to a client."""
        self.bytes_down += message.num_bytes
        self._note(message)

    def _note(self, message: ToServer | ToClient) -> None:
        if self._keep:
            self.kept.append(message)


def _num_bytes(parts: Mapping[int, bytes]) -> int:
    return sum(ID_BYTES + len(part) for part in parts.values())
