"""Options of the sums of contributions: in the clear, or under masks."""

import dataclasses

from federated_hh.options.fields import OptionError, check, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecureSumOptions:
    """The sum of clients' contributions.

    Raises:
        OptionError: If an option is not allowed, or options do not go together.
    """

    secure_sum: str = option(
        "ideal",
        "ideal: the simulation computes the sum that a secure sum would give. masked: "
        "by the messages of a masking protocol between each client and the server, "
        "which docs/masked_sum.md describes.",
        choices=("ideal", "masked"),
    )
    dropout_rate: float = option(
        0.0,
        "With --secure_sum=masked: the probability that a client of the cohort is gone "
        "in the middle of a round's sum.",
        least=0,
        below=1,
    )
    tolerated_dropout: float | None = option(
        None,
        "With --secure_sum=masked: the share of a cohort that may be gone in a round; "
        "with more its sum fails. Unset: 0.05, or what --dropout_rate exceeds once in "
        "2^correctness_bits rounds, if that is more.",
        least=0,
        below=1,
    )
    corrupt_share: float = option(
        0.05,
        "With --secure_sum=masked: the share of a cohort that may collude with the "
        "server.",
        least=0,
        below=1,
    )
    security_bits: int = option(
        40,
        "With --secure_sum=masked: one of the others' vectors may come to light with a "
        "probability of 2^-security_bits a round. Few clients are all each other's "
        "neighbours, and then it cannot.",
        least=1,
        most=128,
        why="keys have 128 bits",
    )
    correctness_bits: int = option(
        20,
        "With --secure_sum=masked: with the tolerated drop-out, a sum fails with a "
        "probability of 2^-correctness_bits at most.",
        least=1,
        most=128,
    )
    most_minutes: float = option(
        30.0,
        "With --secure_sum=masked: a run is refused whose masks are estimated to take "
        "longer a round.",
        above=0,
        most=7 * 24 * 60,
        unit="minutes",
    )

    def __post_init__(self):
        check(self)
        if self.secure_sum == "masked":
            return
        for field in dataclasses.fields(SecureSumOptions):
            value = getattr(self, field.name)
            if field.name != "secure_sum" and value != field.default:
                named = f"{{{field.name}=}}"
                raise OptionError(
                    self, f"{named} is for {{secure_sum}}=masked; leave it out"
                )

    @property
    def is_masked(self) -> bool:
        """Whether sums are masked."""
        return self.secure_sum == "masked"
