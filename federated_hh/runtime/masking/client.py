"""A client of a masked sum: its knowledge, messages and refusals."""

import dataclasses

import numpy as np
from cryptography.hazmat.primitives.asymmetric import x25519
from cryptography.hazmat.primitives.ciphers import aead

from federated_hh.options import checks
from federated_hh.randomness import streams
from federated_hh.runtime.masking import masks, messages, shamir

# A key seals one message, so that all of them have the same nonce.
_NONCE = bytes(12)


@dataclasses.dataclass(frozen=True)
class Terms:
    """The public parameters of a sum.

    Attributes:
        size: Numbers of a vector, at least 1.
        bits: Vectors are summed modulo 2^bits; in 1..64.
        threshold: Number of neighbours that open a client's secret; at least 2.

    Raises:
        ValueError: If a value is out of range.
    """

    size: int
    bits: int
    threshold: int

    def __post_init__(self):
        masks.dtype_of(self.bits)
        checks.integer(size=self.size, least=1)
        checks.integer(threshold=self.threshold, least=2)


def seed_purpose() -> bytes:
    """Returns the purpose of a self-mask's key."""
    return b"self-mask"


def pair_purpose(one: int, other: int) -> bytes:
    """Returns the purpose of the key of two clients' mask."""
    return b"pair mask %d %d" % (min(one, other), max(one, other))


def _sealing_purpose(sender: int, receiver: int) -> bytes:
    return b"shares %d to %d" % (sender, receiver)


class Client:
    """A client in one sum; its methods are called once each, in this order."""

    def __init__(self, number: int, terms: Terms, bits: streams.KeyedBits):
        """Draws its secrets.

        Args:
            number: Its own.
            terms: The terms of the sum.
            bits: Its own random bits, for this sum alone.
        """
        self.number = number
        self._terms = terms
        self._bits = bits
        secrets = [bits.bytes(i, shamir.SECRET_BYTES, "secrets") for i in range(3)]
        self._seed, self._masking_bytes, sealing = secrets
        self._sealing = x25519.X25519PrivateKey.from_private_bytes(sealing)
        self._masking = x25519.X25519PrivateKey.from_private_bytes(self._masking_bytes)
        self._keys: dict[int, messages.PublicKeys] = {}
        # With the neighbours, for shares.
        self._agreed: dict[int, bytes] = {}
        self._sealed: dict[int, bytes] = {}
        self._is_asked = False

    def public_keys(self) -> messages.PublicKeys:
        """Returns the public keys for everybody."""
        return messages.PublicKeys(
            self.number,
            self._sealing.public_key().public_bytes_raw(),
            self._masking.public_key().public_bytes_raw(),
        )

    def shares(self, roster: messages.Roster) -> messages.SealedShares:
        """Shares its secrets among its neighbours.

        Raises:
            MaskedSumError: If too few are there to open them.
        """
        self._keys = {keys.client: keys for keys in roster.neighbours}
        self._check_neighbours(len(self._keys), "are there")
        seeds, keys = shamir.share(
            [self._seed, self._masking_bytes],
            len(self._keys),
            self._terms.threshold,
            self._bits,
        )
        sealed = {
            other: self._seal(other, seed + key)
            for other, seed, key in zip(self._keys, seeds, keys, strict=True)
        }
        return messages.SealedShares(self.number, sealed)

    def masked(self, vector: np.ndarray, mail: messages.Mail) -> messages.MaskedInput:
        """Returns its vector with its own mask and one for each remaining neighbour.

        Args:
            vector: Integers [size], of the type of `masks.dtype_of`.
            mail: From the neighbours who shared their secrets.

        Raises:
            MaskedSumError: If they are too few.
        """
        self._sealed = dict(mail.sealed)
        self._check_neighbours(len(self._sealed), "shared their secrets")
        total = vector.copy()
        masks.add_mask(total, masks.derived_key(self._seed, seed_purpose()))
        for other in self._sealed:
            purpose = pair_purpose(self.number, other)
            secret = masks.agreed_secret(self._masking, self._keys[other].masking)
            key = masks.derived_key(secret, purpose)
            # One of two clients adds the mask, the other subtracts it.
            masks.add_mask(total, key, subtract=self.number > other)
        return messages.MaskedInput(self.number, masks.packed(total, self._terms.bits))

    def unmasked(self, request: messages.UnmaskRequest) -> messages.UnmaskShares:
        """Returns the shares that it is asked for: of each neighbour's one secret.

        With both, a client's vector could be read.

        Raises:
            RefusedError: If both secrets of a neighbour are asked for, or anything a
                second time, of somebody who shared none with it, or so that too few
                inputs are in the sum.
        """
        if self._is_asked:
            self._refuse("is asked for shares a second time")
        self._is_asked = True
        both = set(request.summed) & set(request.dropped)
        if both:
            self._refuse(f"is asked for both secrets of client {min(both)}")
        strangers = {*request.summed, *request.dropped} - set(self._sealed)
        if strangers:
            self._refuse(f"has no shares of client {min(strangers)}, and is asked")
        if len(request.summed) < self._terms.threshold:
            self._refuse(
                f"is told that {len(request.summed)} of its neighbours are in the "
                f"sum; they have to be at least {self._terms.threshold}"
            )
        return messages.UnmaskShares(
            self.number,
            {other: self._opened(other)[0] for other in request.summed},
            {other: self._opened(other)[1] for other in request.dropped},
        )

    def _seal(self, other: int, shares: bytes) -> bytes:
        purpose = _sealing_purpose(self.number, other)
        secret = masks.agreed_secret(self._sealing, self._keys[other].sealing)
        self._agreed[other] = secret
        key = masks.derived_key(secret, purpose)
        return aead.AESGCM(key).encrypt(_NONCE, shares, purpose)

    def _opened(self, other: int) -> tuple[bytes, bytes]:
        """Returns a neighbour's sealed shares: of its seed, and of its masking key."""
        purpose = _sealing_purpose(other, self.number)
        key = masks.derived_key(self._agreed[other], purpose)
        shares = aead.AESGCM(key).decrypt(_NONCE, self._sealed[other], purpose)
        return shares[: shamir.SHARE_BYTES], shares[shamir.SHARE_BYTES :]

    def _check_neighbours(self, left: int, what: str) -> None:
        if left < self._terms.threshold:
            raise messages.MaskedSumError(
                f"masked sum: {left} neighbours of client {self.number} {what}; at "
                f"least {self._terms.threshold} have to. Nothing was released"
            )

    def _refuse(self, why: str) -> None:
        raise messages.RefusedError(
            f"masked sum: client {self.number} {why}. Nothing was released"
        )
