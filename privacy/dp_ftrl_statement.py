"""The privacy statement of a DP-FTRL run."""

from privacy import conversions, realised, statement
from privacy.tree_aggregation import TreeAggregation

_NOT_COUNTED = (
    "Hyperparameter tuning, and the choice of a checkpoint by evaluation metrics.",
    "Public pretraining data, and the evaluation metrics that a simulation computes "
    "on the clients' data.",
    "Further runs with the same clients: they compose (see privacy.ledger).",
)


def dp_ftrl_statement(
    run: TreeAggregation,
    *,
    delta: float,
    basis: str = "planned",
    accounted_noise: str = "the noise multiplier of the model deltas",
    group_size: int = 1,
) -> statement.PrivacyStatement:
    """Makes the privacy statement of one DP-FTRL run.

    Args:
        run: The run; its noise multiplier is the one to account with (after the
            split for clip estimation and the inflation of the clip norm by SecAgg).
        delta: Delta to state epsilon at, in (0, 1).
        basis: "planned" (MaxP and MinS as configured) or "realised" (as observed).
        accounted_noise: What the noise multiplier stands for, in words.
        group_size: Devices of a user to state a guarantee for in addition; 1 for
            none.

    Returns:
        The statement, with the points of Xu et al. 2023, appendix A.

    Raises:
        ValueError: An argument is outside its range.
    """
    adjacency = "zero-out: one device's contributions replaced by zeros in all rounds"
    bound = "zCDP of the tree, then the " + conversions.ZcdpConversion.GAUSSIAN.value
    guarantees = [
        statement.Guarantee(
            epsilon=conversions.zcdp_to_epsilon(rho, delta),
            delta=delta,
            rho=rho,
            bound=bound,
            is_upper_bound=True,
            one_sided=False,
            unit=unit,
            adjacency=adjacency,
        )
        for unit, rho in (
            ("device", run.rho),
            (
                f"user with {group_size} devices",
                conversions.group_zcdp(run.rho, group_size),
            ),
        )[: 2 if group_size > 1 else 1]
    ]
    return statement.PrivacyStatement(
        setting=(
            "Central DP: the server is trusted to add the noise, and to keep nothing "
            "but the noised sums."
        ),
        protected=(
            "All training data of every device that follows the protocol, in one "
            "training run."
        ),
        unit="device",
        adjacency=adjacency,
        mechanism="DP-FTRL with tree-aggregated Gaussian noise (Xu et al. 2023)",
        mechanism_output=(
            "The noised sums of all rounds, and so every model of the run, those sent "
            "to devices included."
        ),
        guarantees=tuple(guarantees),
        parameters={
            "noise_multiplier (z)": run.noise_multiplier,
            "the noise multiplier is": accounted_noise,
            "num_rounds (T)": run.num_rounds,
            "max_participation (MaxP)": run.max_participation,
            "min_separation (MinS, rounds strictly between)": run.min_separation,
            "rounds of each tree": ", ".join(map(str, run.tree_lengths)),
            "squared sensitivity (S2)": run.square_sum,
            "delta": delta,
        },
        accounting=(
            "Exact worst case of the squared sensitivity S2 over all ways to take part "
            "under MaxP and MinS; zCDP rho = S2 / (2 z^2); epsilon from the privacy "
            "loss distribution of one Gaussian mechanism."
        ),
        assumptions=(
            "A device takes part at most MaxP times, with at least MinS rounds "
            "strictly between, which a timer on the device enforces.",
            "A device that is absent contributes zeros; the number of devices of a "
            "round is not protected.",
            "Every contribution is clipped to the clip norm that the noise is scaled "
            "to, and that norm does not depend on the data within a tree but through "
            "noised counts.",
        ),
        not_counted=_NOT_COUNTED,
        realised=realised.unrecorded(basis),
    )
