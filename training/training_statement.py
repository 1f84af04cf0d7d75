"""The privacy statement of a training run, point by point as Xu et al. 2023 report.

Appendix A of the paper follows Ponomareva et al. 2023, Section 5.3.
"""

import dataclasses
import math

from privacy import conversions, realised, statement
from training.dp_ftrl_parameters import Mechanism, ServerParameters

_ADJACENCY = (
    "zero-out of one client: in a neighbouring data set, one client's update is "
    "replaced by zeros in every round that it takes part in (Kairouz et al. 2021, "
    "Definition 1.1)"
)
_UNIT = "device: all that one client holds, however much"
_MECHANISMS = {
    Mechanism.TREE: (
        "DP-FTRL: tree-aggregated Gaussian noise on prefix sums of clipped updates, in "
        "Honaker's efficient form, released as residuals, with server momentum "
        "(Kairouz et al. 2021; Xu et al. 2023, Algorithm 1)"
    ),
    Mechanism.GAUSSIAN: (
        "DP-FedAvg: independent Gaussian noise on each round's sum of clipped updates "
        "(McMahan et al. 2018), without amplification by sampling"
    ),
    Mechanism.NONE: "FedAvg: sums without noise (McMahan et al. 2017)",
}
_ACCOUNTING = {
    Mechanism.TREE: (
        "zCDP of the noise trees (Kairouz et al. 2021, appendix D), the worst case "
        "over all participations that MinS and MaxP allow, restarts included"
    ),
    Mechanism.GAUSSIAN: "zCDP of MaxP Gaussian mechanisms, one a participation",
}


@dataclasses.dataclass(frozen=True)
class Participation:
    """What a statement rests on.

    Attributes:
        num_rounds: Rounds that were done, or are planned; at least 1.
        min_separation: MinS: rounds strictly between two participations of a client.
        max_participation: MaxP: rounds that a client takes part in at most.
        basis: "planned": the limits that are enforced; "realised": what the table of
            all clients says that happened.
    """

    num_rounds: int
    min_separation: int
    max_participation: int
    basis: str


_VERIFIABILITY = {
    Mechanism.TREE: (
        "The accounting is open source and can be run again from the parameters below "
        "with privacy.run_accounting --mechanism=dp_ftrl; the run itself is a "
        "simulation."
    ),
    Mechanism.GAUSSIAN: (
        "The accounting is open source: rho is MaxP / (2 z^2), which "
        "privacy.run_accounting has no mechanism for; the run itself is a simulation."
    ),
    Mechanism.NONE: "There is no claim to check.",
}


def training_statement(
    parameters: ServerParameters,
    participation: Participation,
    delta: float,
    public_data: str,
) -> statement.PrivacyStatement:
    """Makes the privacy statement of a run.

    Args:
        parameters: Mechanism, noise and clip: those that the run used.
        participation: How often and how soon again clients take part.
        delta: Of the (epsilon, delta) guarantee, in (0, 1).
        public_data: What the run took from elsewhere (vocabulary, first weights).

    Raises:
        ValueError: If a value is out of range.
    """
    has_noise = parameters.mechanism is not Mechanism.NONE
    return statement.PrivacyStatement(
        setting=(
            "Central DP: the server is trusted to add the noise, and to forget what it "
            "summed. " + _sums(parameters)
        ),
        protected=(
            "The text of every well-behaved client in this one training run. Not "
            "protected, because public: " + public_data
        ),
        unit=_UNIT,
        adjacency=_ADJACENCY,
        mechanism=_MECHANISMS[parameters.mechanism],
        mechanism_output=(
            "All noisy sums of the run; so every intermediate model, those that "
            "clients receive included, and the last one."
        ),
        guarantees=(
            (_guarantee(parameters, participation, delta),) if has_noise else ()
        ),
        no_guarantee_reason=None if has_noise else "No noise is added.",
        parameters=_table(parameters, participation),
        accounting=_ACCOUNTING.get(parameters.mechanism, "None: there is no noise.")
        + ".",
        assumptions=(
            "A client takes part in at most MaxP rounds, with at least MinS rounds "
            "strictly between two of them. "
            + (
                "The simulation admits no client that would break it."
                if participation.basis == "planned"
                else "These are the most and the fewest of all clients in the "
                "participation table of the run."
            ),
            "Clients clip their updates as they are told; a client that does not "
            "weakens its own guarantee, and nobody else's.",
            "The noise is that of a real Gaussian: rounding to float32 and the "
            "pseudo-random generator are taken to make no difference. Whoever knows "
            "the run's seed can take the noise off: keep it secret, or use another, "
            "where the data is not public.",
        ),
        not_counted=(
            "Choices made by looking at other runs on the same clients (learning "
            "rates, clip norm), and the choice of a checkpoint by held-out clients.",
            "Metrics on held-out clients, who train nothing: they are exact.",
            "The number of clients whose update was not finite, which the metrics show "
            "without noise; and who took part when.",
            "The baseline of words by frequency, whose counts of the training clients' "
            "words have no noise; the number of clients and a fingerprint of the data.",
            "Further runs on the same clients, one that begins with this run's model "
            "included: their zCDP adds up.",
        ),
        verifiability=_VERIFIABILITY[parameters.mechanism],
        realised=realised.unrecorded(participation.basis),
    )


def _sums(parameters: ServerParameters) -> str:
    if math.isinf(parameters.clip_norm):
        return "Updates, which nothing bounds, are summed in the open."
    return (
        "Updates are clipped, encoded as integers of at most the clip norm, and added "
        "by a secure sum, which would hide single ones from the server; the simulation "
        "computes it in the open."
    )


def _guarantee(
    parameters: ServerParameters, participation: Participation, delta: float
) -> statement.Guarantee:
    rho = parameters.zcdp(
        participation.num_rounds,
        participation.min_separation,
        participation.max_participation,
    )
    return statement.Guarantee(
        epsilon=conversions.zcdp_to_epsilon(rho, delta),
        delta=delta,
        rho=rho,
        bound=f"zCDP, converted by the {conversions.ZcdpConversion.GAUSSIAN.value}",
        is_upper_bound=True,
        one_sided=False,
        unit=_UNIT,
        adjacency=_ADJACENCY,
    )


def _table(
    parameters: ServerParameters, participation: Participation
) -> dict[str, float | int | str]:
    values: dict[str, float | int | str] = {
        "mechanism": parameters.mechanism.value,
        "rounds": participation.num_rounds,
        "report goal m": parameters.report_goal,
        "noise multiplier z": parameters.noise_multiplier,
        "noise multiplier on updates z_delta": parameters.delta_noise_multiplier,
        "MinS (rounds strictly between)": participation.min_separation,
        "MaxP": participation.max_participation,
        "restart rounds": ", ".join(
            str(r) for r in parameters.restart_rounds if r < participation.num_rounds
        )
        or "none",
    }
    if math.isfinite(parameters.clip_norm):
        values["first clip norm"] = parameters.clip_norm
    if parameters.adaptive_clip is not None:
        adaptive = parameters.adaptive_clip
        values["noise on clipped counts sigma_b"] = adaptive.count_stddev
        values["target quantile"] = adaptive.quantile
    return values
