"""The theorem of federated training, and its statement, point by point.

Cohorts of clients who keep to limits send clipped updates, and noise is added to the
sums: zCDP by the number and spacing of a client's participations. Appendix A of Xu et
al. 2023 follows Ponomareva et al. 2023, Section 5.3.
"""

import dataclasses
import fractions
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from federated_hh.privacy import conversions, drawn_noise, realised, rounding, statement
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.dp_ftrl import (
    correlated_noise,
    model_updates,
    rotated_updates,
    update_noise,
)
from federated_hh.privacy.dp_ftrl.participation_table import ParticipationTable
from federated_hh.privacy.guarantee import Adjacency, Guarantee

_Plan: TypeAlias = plan_lib.Plan[
    Any, model_updates.Update, model_updates.UpdateMechanism
]
_WHO_IS_PUBLIC = (
    "Clients without sentences were left out of the population. Its members and their "
    "rounds are therefore assumed to be public: whether a client has any sentence is "
    "not protected."
)


@dataclasses.dataclass(frozen=True)
class _Participation:
    """The limits on clients' participation in each repeat.

    Attributes:
        repeats: Number of repeats.
        num_rounds: The number of rounds of all repeats together.
        longest: Rounds of the longest repeat.
        limits: MaxP and MinS: as planned, or the most and the fewest of all clients.
        rho: zCDP of all repeats together.
        realised: Realised participations; None before a run.
    """

    repeats: int
    num_rounds: int
    longest: int
    limits: plan_lib.Limits
    rho: float
    realised: realised.Realised | None


def _planned(plan: _Plan, repeats: int) -> _Participation:
    """Returns the worst that the plan's limits allow."""
    num_rounds = plan.mechanism.num_rounds
    limits = plan.sampler.limits(num_rounds)
    rho = _sum(plan, [plan.mechanism.zcdp(limits, num_rounds)] * repeats)
    return _Participation(repeats, repeats * num_rounds, num_rounds, limits, rho, None)


def _realised(plan: _Plan, record: plan_lib.Record) -> _Participation:
    """Returns the participation limits that all clients' tables realised.

    Raises:
        TypeError: If the sampler kept no participation tables.
        ValueError: If they are not of the rounds that were written down.
    """
    rounds: list[list[realised.Round]] = [[] for _ in range(record.rounds.num_repeats)]
    for asked in record.rounds.rounds:
        rounds[asked.repeat].append(asked)
    repeats = [
        plan_lib.Repeat(len(asked), state)
        for asked, state in zip(rounds, record.sampler_states, strict=True)
    ]
    tables = [_table_of(repeat) for repeat in repeats]
    for table, of_repeat in zip(tables, rounds, strict=True):
        table.check(of_repeat)
    # Where nobody took part twice, nobody did so sooner than a whole repeat.
    separations = (table.min_separation() for table in tables)
    return _Participation(
        repeats=len(repeats),
        num_rounds=len(record.rounds.rounds),
        longest=max(map(len, rounds)),
        limits=plan_lib.Limits(
            max(table.max_participation() for table in tables),
            min(
                len(asked) - 1 if least is None else least
                for least, asked in zip(separations, rounds, strict=True)
            ),
        ),
        rho=_observed(plan, repeats),
        realised=record.rounds.summary(),
    )


def _observed(plan: _Plan, repeats: Sequence[plan_lib.Repeat]) -> float:
    """Returns rho of those who really took part: the sum of all repeats'."""
    rhos = []
    for repeat in repeats:
        table = _table_of(repeat)
        rhos.append(
            plan.mechanism.observed_zcdp(
                table.log_clients, table.log_rounds, repeat.rounds
            )
        )
    return _sum(plan, rhos)


def _sum(plan: _Plan, rhos: Sequence[float]) -> float:
    """Adds up the cost of repeats, for the plan's longest updates."""
    if any(map(math.isinf, rhos)):
        return math.inf
    total = sum(map(fractions.Fraction, rhos), fractions.Fraction())
    return rounding.upwards(total * plan.contribution.rho_factor)


def _table_of(repeat: plan_lib.Repeat) -> ParticipationTable:
    table = getattr(repeat.sampler_state, "table", None)
    if not isinstance(table, ParticipationTable):
        raise TypeError(
            f"table is a {type(table).__name__}: it has to be a run's participation "
            "table."
        )
    return table


def plan_of(
    sampler: plan_lib.Sampler,
    mechanism: model_updates.UpdateMechanism,
    contribution: model_updates.Update | None = None,
) -> _Plan:
    """Returns the plan of a training run.

    Args:
        sampler: Sampler of the cohorts.
        mechanism: Release of a sum; clients clip where its clip norm is
            finite.
        contribution: Encoding of updates; None for exact integers where clients
            clip, and for updates as they are where they do not.

    Raises:
        ValueError: If no theorem is proved for them, or a noisy sum could leave its 64
            bits.
    """
    if contribution is None:
        is_clipped = math.isfinite(mechanism.clip_norm)
        kind = model_updates.ClippedUpdate if is_clipped else model_updates.Update
        contribution = kind()
    return plan_lib.Plan(
        sampler=sampler, contribution=contribution, mechanism=mechanism
    )


class _Theorem(plan_lib.Theorem):
    """docs/integer_noise.md, and `tree_aggregation`."""

    def check(self, plan: _Plan) -> None:
        """Raises `ValueError` where updates and mechanism do not go together."""
        plan.contribution.check(plan.sampler.cohort_size, plan.mechanism)

    def check_round(
        self, plan: plan_lib.Plan, number: int, facts: plan_lib.Facts
    ) -> None:
        """Raises `ValueError` for a round beyond the last."""
        plan_lib.check_number(number, plan.mechanism.num_rounds, "num_rounds")

    def statement(
        self,
        plan: _Plan,
        record: plan_lib.Record | None,
        delta: float,
        repeats: int,
    ) -> statement.PrivacyStatement:
        """Returns the statement; see `federated_hh.privacy.plan.Plan.statement`."""
        if record is None:
            participation = _planned(plan, repeats)
        else:
            participation = _realised(plan, record)
        mechanism = plan.mechanism
        has_noise = isinstance(mechanism, update_noise.AddedNoise)
        is_planned = participation.realised is None
        return statement.PrivacyStatement(
            num_repeats=participation.repeats,
            setting=(
                "Central DP: the server is trusted to add the noise and to forget the "
                "exact sums. " + _sums(plan)
            ),
            protected=(
                "The text of every well-behaved client in this one training run. Not "
                "protected: public data, such as the vocabulary and the initial "
                "weights."
            ),
            adjacency=Adjacency.ZERO_OUT,
            mechanism=mechanism.about,
            mechanism_output=(
                "All noisy sums of the run, and with them every intermediate model, "
                "those that clients receive included, and the last one."
            ),
            guarantees=_guarantees(plan, participation, delta),
            no_guarantee_reason=None if has_noise else "No noise is added.",
            parameters=_table(plan, participation),
            accounting=_accounting(plan, is_planned),
            assumptions=_assumptions(plan, participation),
            not_counted=(
                "Choices made by looking at other runs on the same clients (learning "
                "rates, clip norm), and the choice of a checkpoint by held-out "
                "clients.",
                "The clients' participations, from which the guarantee is computed.",
                "The stop of a run at a round without any finite update, which is "
                "seen without noise.",
                statement.SIMULATOR_KNOWLEDGE,
                "Further runs on the same clients, including one that starts from this "
                "run's model: their zCDP adds up.",
            ),
            verifiability=mechanism.verifiability,
            realised=participation.realised,
        )

    def spent(
        self, plan: _Plan, repeats: Sequence[plan_lib.Repeat], delta: float
    ) -> plan_lib.Metrics:
        """Returns rho and epsilon so far, for those who really took part.

        Who took part, which they follow from, is taken to be public.
        """
        rho = _observed(plan, repeats)
        if math.isinf(rho):
            return {"rho": rho, "epsilon": rho}
        num_rounds = sum(repeat.rounds for repeat in repeats)
        drawn = drawn_noise.zcdp_to_epsilon(rho, delta, num_rounds)
        return {"rho": rho, "epsilon": drawn.epsilon}


def _assumptions(plan: _Plan, participation: _Participation) -> tuple[str, ...]:
    has_noise = isinstance(plan.mechanism, update_noise.AddedNoise)
    of_a_repeat = " of each repeat" if participation.repeats > 1 else ""
    return (
        f"A client takes part in at most MaxP rounds{of_a_repeat}, with at least MinS "
        "rounds strictly between two of them. "
        + (
            "The simulation admits no client that would break this."
            if participation.realised is None
            else "These are the extremes of all clients in the run's participation "
            "table."
        ),
        _clip_assumption(plan),
        _noise_assumption(participation) if has_noise else "There is no noise.",
        *(() if plan.contribution.population_has_empty_clients else (_WHO_IS_PUBLIC,)),
    )


def _clip_assumption(plan: _Plan) -> str:
    text = (
        "Clients clip their updates; a client that does not weakens its own guarantee, "
        "and nobody else's."
    )
    if not isinstance(plan.contribution, rotated_updates.RotatedUpdate):
        return text
    return (
        text + " But all keep their integers within C_inf of 0: sums are taken modulo "
        "2^k, which has room for no more, and one that wraps tells more of everybody."
    )


def _noise_assumption(participation: _Participation) -> str:
    # Fewer than twice as many nodes as rounds, of at most 2^31 values each.
    numbers = 32 + math.ceil(math.log2(participation.num_rounds))
    return (
        "The noise is integer: a Gaussian rounded at random, up to a factor "
        "1 +- 2^-98 and a part of probability 2^-141, of each number "
        "(docs/integer_noise.md has the proof). Over the run that adds less than "
        f"2^{numbers - 96} to epsilon and 2^{numbers - 140} (1 + exp(epsilon)) + "
        f"2^{numbers - 96} delta to delta: upper bounds include them. Its bits are "
        "SHAKE256 of the noise key, of the run and of its sums, which is assumed to be "
        "random to all without the key. Whoever has it can remove the noise: unless "
        "the data are public, it must be a secret of 128 random bits."
    )


def _accounting(plan: _Plan, is_planned: bool) -> str:
    mechanism = plan.mechanism
    text = mechanism.planned if is_planned else mechanism.realised
    is_rotated = isinstance(plan.contribution, rotated_updates.RotatedUpdate)
    if not is_rotated or not isinstance(mechanism, update_noise.AddedNoise):
        return text
    return (
        text + " All of it times (C_inflated / C)^2: noise is z C, and the integers of "
        "secure aggregation have a norm of C_inflated at most (Xu et al. 2023, section "
        "2.4; docs/secure_aggregation.md)."
    )


def _sums(plan: _Plan) -> str:
    if plan.contribution.norm_factor is None:
        return "Updates, which nothing bounds, are summed in the clear."
    if isinstance(plan.contribution, rotated_updates.RotatedUpdate):
        return (
            "Updates are clipped, rotated and rounded at random to small integers, "
            "which a secure sum modulo a power of two would hide from the server (Xu "
            "et al. 2023, Algorithm 2); the simulation computes it in the clear."
        )
    return (
        "Updates are clipped, encoded as integers of at most the clip norm, and added "
        "by a secure sum, which would hide single ones from the server; "
        f"{statement.SUMMED_IN_THE_CLEAR}."
    )


def _guarantees(
    plan: _Plan, participation: _Participation, delta: float
) -> tuple[Guarantee, ...]:
    """Returns the guarantees of each adjacency; docs/integer_noise.md has the proof."""
    if not isinstance(plan.mechanism, update_noise.AddedNoise):
        return ()
    emptied = plan.mechanism.emptied_factor
    sends = "zeros" if emptied == 1 else "zeros, and a bit that differs by 1 at most"
    costs = {
        Adjacency.ZERO_OUT: (fractions.Fraction(1), ""),
        Adjacency.EMPTIED: (emptied, f"a client without sentences sends {sends}"),
        Adjacency.REPLACE_CLIENT: (
            fractions.Fraction(4),
            "two clients differ by at most twice as much as one does from zeros",
        ),
    }
    if not plan.contribution.population_has_empty_clients:
        del costs[Adjacency.EMPTIED]
    return tuple(
        _guarantee(adjacency, *cost, participation, delta)
        for adjacency, cost in costs.items()
    )


def _guarantee(
    adjacency: Adjacency,
    factor: fractions.Fraction,
    why: str,
    participation: _Participation,
    delta: float,
) -> Guarantee:
    rho = rounding.upwards(fractions.Fraction(participation.rho) * factor)
    drawn = drawn_noise.zcdp_to_epsilon(rho, delta, participation.num_rounds)
    bound = f"zCDP, converted by the {conversions.ZcdpConversion.GAUSSIAN.value}"
    if why:
        times = rounding.rounded_up(float(factor))
        bound = f"rho of zero_out times {times}, as {why}; {bound}"
    if not drawn.is_proved:
        bound += (
            ", for continuous noise. For the integer noise as it is drawn, nothing is "
            "proved at this delta: what its proof adds to delta (see the assumptions) "
            "may be more than half of it. Ask for a larger --delta, or add more noise"
        )
    return Guarantee(
        epsilon=drawn.epsilon,
        delta=delta,
        rho=rho,
        noise_rounds=participation.num_rounds,
        bound=bound,
        is_upper_bound=drawn.is_proved,
        one_sided=False,
        adjacency=adjacency,
    )


def _table(plan: _Plan, participation: _Participation) -> dict[str, float | int | str]:
    values: dict[str, float | int | str] = {"rounds": participation.longest}
    if participation.repeats > 1:
        values["repeats"] = participation.repeats
    return values | {
        "report goal m": plan.sampler.cohort_size,
        "MinS (rounds strictly between)": participation.limits.min_separation,
        "MaxP": participation.limits.max_participation,
        **plan.mechanism.parameters(participation.longest),
        **plan.contribution.parameters(),
    }


for _contribution, _mechanism in (
    (model_updates.ClippedUpdate, update_noise.TreeNoise),
    (model_updates.ClippedUpdate, update_noise.GaussianNoise),
    (model_updates.ClippedUpdate, correlated_noise.CorrelatedNoise),
    (rotated_updates.RotatedUpdate, update_noise.TreeNoise),
    (rotated_updates.RotatedUpdate, update_noise.GaussianNoise),
    (rotated_updates.RotatedUpdate, correlated_noise.CorrelatedNoise),
    (model_updates.Update, model_updates.NoNoise),
):
    plan_lib.register(plan_lib.Sampling.LIMITED, _contribution, _mechanism, _Theorem())
