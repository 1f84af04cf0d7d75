"""The privacy statement of a training run, point by point as Xu et al. 2023 report.

Appendix A of the paper follows Ponomareva et al. 2023, Section 5.3.
"""

import math

from privacy import conversions, statement
from training import drawn_noise
from training.dp_ftrl_parameters import Mechanism, ServerParameters
from training.run_participation import RunParticipation

_ADJACENCY = (
    "zero-out of one client: in a neighbouring data set, one client's update is "
    "replaced by zeros in every round that it takes part in (Kairouz et al. 2021, "
    "Definition 1.1)"
)
_UNIT = "device: all that one client holds, however much"
_MECHANISMS = {
    Mechanism.TREE: (
        "DP-FTRL: Gaussian noise on the integer sums of a tree's nodes; from the nodes "
        "with noise alone, prefix sums of clipped updates in Honaker's efficient form, "
        "released as residuals, with server momentum (Kairouz et al. 2021; Xu et al. "
        "2023, Algorithm 1)"
    ),
    Mechanism.GAUSSIAN: (
        "DP-FedAvg: independent Gaussian noise on each round's integer sum of clipped "
        "updates (McMahan et al. 2018), without amplification by sampling"
    ),
    Mechanism.NONE: "FedAvg: sums without noise (McMahan et al. 2017)",
}
_ACCOUNTING = {
    (Mechanism.TREE, "planned"): (
        "zCDP of the noise trees (Kairouz et al. 2021, appendix D), the worst case "
        "over all participations that MinS and MaxP allow, restarts included"
    ),
    (Mechanism.TREE, "realised"): (
        "zCDP of the noise trees (Kairouz et al. 2021, appendix D), restarts included, "
        "for the client whose participations, as they were, cost the most"
    ),
    (Mechanism.GAUSSIAN, "planned"): (
        "zCDP of MaxP Gaussian mechanisms, one a participation"
    ),
    (Mechanism.GAUSSIAN, "realised"): (
        "zCDP of MaxP Gaussian mechanisms, one a participation"
    ),
}


_VERIFIABILITY = {
    Mechanism.TREE: (
        "The accounting is open source. privacy.run_accounting --mechanism=dp_ftrl "
        "gives the worst case of the parameters below; what was realised, which may "
        "be less, follows from the list of participations in the run's checkpoints "
        "(privacy.tree_aggregation.observed_zcdp). The run itself is a simulation."
    ),
    Mechanism.GAUSSIAN: (
        "The accounting is open source: rho is MaxP / (2 z^2), which "
        "privacy.run_accounting has no mechanism for; the run itself is a simulation."
    ),
    Mechanism.NONE: "There is no claim to check.",
}


def training_statement(
    parameters: ServerParameters,
    participation: RunParticipation,
    delta: float,
    public_data: str,
) -> statement.PrivacyStatement:
    """Makes the privacy statement of a run.

    Args:
        parameters: Mechanism, noise and clip: those that the run used.
        participation: How often and how soon again clients take part; only one made
            of a run's table makes a statement of what was realised.
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
        accounting=_ACCOUNTING.get(
            (parameters.mechanism, participation.basis), "None: there is no noise"
        )
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
            _noise_assumption(parameters, participation),
        ),
        not_counted=(
            "Choices made by looking at other runs on the same clients (learning "
            "rates, clip norm), and the choice of a checkpoint by held-out clients.",
            "Who took part when, from which the guarantee is computed.",
            statement.SIMULATOR_KNOWLEDGE,
            "Further runs on the same clients, one that begins with this run's model "
            "included: their zCDP adds up.",
        ),
        verifiability=_VERIFIABILITY[parameters.mechanism],
        realised=participation.summary(),
    )


def _noise_assumption(
    parameters: ServerParameters, participation: RunParticipation
) -> str:
    if parameters.mechanism is Mechanism.NONE:
        return "There is no noise."
    # Fewer than twice as many nodes as rounds, of at most 2^31 values each.
    numbers = 32 + math.ceil(math.log2(participation.num_rounds))
    return (
        "The noise is integer: a Gaussian rounded at random, up to a factor "
        "1 +- 2^-98 and a part of probability 2^-141, of each number "
        "(docs/integer_noise.md has the proof). Over the run that adds less than "
        f"2^{numbers - 96} to epsilon and 2^{numbers - 140} (1 + exp(epsilon)) + "
        f"2^{numbers - 96} delta to delta: an upper bound has them in it. Its bits are "
        "SHAKE256 of the noise key, "
        "of the run and of its sums, which is taken for random by all who do not have "
        "the key. Whoever has it can take the noise off: where the data is not "
        "public, it has to be a secret of 128 random bits."
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
    parameters: ServerParameters, participation: RunParticipation, delta: float
) -> statement.Guarantee:
    rho = participation.zcdp(parameters)
    drawn = drawn_noise.zcdp_to_epsilon(rho, delta, participation.num_rounds)
    bound = f"zCDP, converted by the {conversions.ZcdpConversion.GAUSSIAN.value}"
    if not drawn.is_proved:
        bound += (
            ", for continuous noise. For the integer noise as it is drawn, nothing is "
            "proved at this delta: what its proof adds to delta (see the assumptions) "
            "may be more than half of it. Ask for a larger --delta, or add more noise"
        )
    return statement.Guarantee(
        epsilon=drawn.epsilon,
        delta=delta,
        rho=rho,
        bound=bound,
        is_upper_bound=drawn.is_proved,
        one_sided=False,
        unit=_UNIT,
        adjacency=_ADJACENCY,
    )


def _table(
    parameters: ServerParameters, participation: RunParticipation
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
