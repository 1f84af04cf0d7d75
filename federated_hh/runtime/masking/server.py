"""The server of a masked sum, which follows the protocol and sees its messages."""

from collections.abc import Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric import x25519

from federated_hh.runtime.masking import client as client_lib
from federated_hh.runtime.masking import masks, messages, shamir
from federated_hh.runtime.masking.messages import MaskedSumError, Step


class Server:
    """The server in one sum.

    Attributes:
        summed: Whose input is in the sum, in the order in which it came.
    """

    def __init__(
        self, terms: client_lib.Terms, neighbours: np.ndarray, least_left: int
    ):
        """Begins without a message.

        Args:
            terms: The terms of the sum.
            neighbours: int64 [clients, k]: each client's, ascending.
            least_left: Least number of clients that have sent their input; without one
                that has, nobody is asked to unmask.
        """
        self._terms = terms
        self._neighbours = neighbours
        self._least_left = least_left
        self._keys: dict[int, messages.PublicKeys] = {}
        self._shared: dict[int, messages.SealedShares] = {}
        self._total = np.zeros(terms.size, masks.dtype_of(terms.bits))
        self.summed: dict[int, None] = {}

    def rosters(
        self, keys: Mapping[int, messages.PublicKeys]
    ) -> dict[int, messages.Roster]:
        """Receives public keys, and returns them by recipient."""
        self._check_left(Step.KEYS, len(keys))
        self._keys = dict(keys)
        return {
            client: messages.Roster(
                client,
                tuple(keys[other] for other in self._near(client) if other in keys),
            )
            for client in keys
        }

    def mail(
        self, shared: Mapping[int, messages.SealedShares]
    ) -> dict[int, messages.Mail]:
        """Receives sealed shares, and returns them by recipient."""
        self._check_left(Step.SHARES, len(shared))
        self._shared = dict(shared)
        return {
            client: messages.Mail(
                client,
                {
                    other: shared[other].sealed[client]
                    for other in self._near(client)
                    if other in shared
                },
            )
            for client in shared
        }

    def take(self, masked: messages.MaskedInput) -> None:
        """Adds a masked input up.

        Raises:
            MaskedSumError: If it is of no client who shared secrets, or its second.
        """
        if masked.client not in self._shared or masked.client in self.summed:
            raise MaskedSumError(
                f"masked sum: client {masked.client} shared no secrets, or sent a "
                "second input. Nothing was released"
            )
        self._total += masks.unpacked(masked.packed, self._terms.bits)
        self.summed[masked.client] = None

    def requests(self) -> dict[int, messages.UnmaskRequest]:
        """Returns the requests for shares to each client, after the last input."""
        self._check_left(Step.INPUT, len(self.summed))
        found = {}
        for client in self.summed:
            near = [other for other in self._near(client) if other in self._shared]
            found[client] = messages.UnmaskRequest(
                client,
                tuple(other for other in near if other in self.summed),
                tuple(other for other in near if other not in self.summed),
            )
        return found

    def opened(self, shares: Mapping[int, messages.UnmaskShares]) -> np.ndarray:
        """Removes the masks, and returns the sum: uint64 [size], modulo 2^bits.

        Whatever the answers open is the round's sum, however few clients gave them: a
        sum that lies open in the server's view must not be asked for once more, as the
        difference of the two would be the vectors of a few.

        Args:
            shares: From those who answered.

        Raises:
            MaskedSumError: If too few of a client's neighbours did.
        """
        # By whose secret it is: from whom, and the share.
        seeds: dict[int, dict[int, bytes]] = {}
        keys: dict[int, dict[int, bytes]] = {}
        for sender, answer in shares.items():
            for found, given in ((seeds, answer.seeds), (keys, answer.keys)):
                for owner, part in given.items():
                    found.setdefault(owner, {})[sender] = part
        # All of them first: where one cannot be opened, nothing is.
        own = [self._open(client, seeds) for client in self.summed]
        gone = [client for client in self._shared if client not in self.summed]
        lost = {client: self._open(client, keys) for client in gone}
        for seed in own:
            key = masks.derived_key(seed, client_lib.seed_purpose())
            masks.add_mask(self._total, key, subtract=True)
        for client, secret in lost.items():
            self._take_off_pairs(client, secret)
        largest = self._total.dtype.type((1 << self._terms.bits) - 1)
        return (self._total & largest).astype(np.uint64)

    def _take_off_pairs(self, gone: int, secret: bytes) -> None:
        """Removes masks that neighbours added for a client whose input never came."""
        private = x25519.X25519PrivateKey.from_private_bytes(secret)
        if private.public_key().public_bytes_raw() != self._keys[gone].masking:
            raise MaskedSumError(
                f"masked sum: the shares of client {gone} open a key that is not its "
                "own. Nothing was released"
            )
        for other in self._near(gone):
            if other in self.summed:
                purpose = client_lib.pair_purpose(gone, other)
                agreed = masks.agreed_secret(private, self._keys[other].masking)
                key = masks.derived_key(agreed, purpose)
                masks.add_mask(self._total, key, subtract=other < gone)

    def _open(self, owner: int, found: Mapping[int, Mapping[int, bytes]]) -> bytes:
        """Returns a client's secret, from the first shares that are enough."""
        given = found.get(owner, {})
        near = [other for other in self._near(owner) if other in self._keys]
        points = [(place, o) for place, o in enumerate(near, 1) if o in given]
        points = points[: self._terms.threshold]
        if len(points) < self._terms.threshold:
            raise MaskedSumError(
                f"masked sum: {len(points)} neighbours of client {owner} answered; at "
                f"least {self._terms.threshold} have to. Nothing was released"
            )
        return shamir.reconstruct(
            tuple(place for place, _ in points), [given[o] for _, o in points]
        )

    def _near(self, client: int) -> list[int]:
        return self._neighbours[client].tolist()

    def _check_left(self, step: Step, left: int) -> None:
        if left < self._least_left:
            raise MaskedSumError(
                f"masked sum: {left} of {len(self._neighbours)} clients remained "
                f"after sending their {step.value}; at least {self._least_left} have "
                "to. Nothing was released"
            )
