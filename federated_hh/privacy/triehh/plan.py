"""TrieHH as a plan: uniform cohorts, a vote a client, a threshold.

Other algorithms with one vote a client and round are covered too, at the same price.
"""

import dataclasses
from typing import Any, TypeAlias

import numpy as np

from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import statement
from federated_hh.privacy.triehh import statement as triehh_statement
from federated_hh.privacy.triehh.guarantees import TrieHHParameters
from federated_hh.randomness import identities, streams


@identities.identity(
    "OneVote",
    "redraws_each_round population_has_empty_users",
    without="extends_prefixes",
)
@dataclasses.dataclass(frozen=True)
class OneVote(plan_lib.Contribution):
    """At most one vote a client and round, for one candidate.

    Attributes:
        redraws_each_round: Whether a client draws one of its words again in every round
            (Zhu et al. 2020, Algorithm 3); else it votes with the same one throughout.
        population_has_empty_users: Whether users without a word are counted in the
            population, as the adjacency has it.
        extends_prefixes: Whether votes are TrieHH's: in round i for the prefix of i
            symbols of the client's word, if the last round kept that of i - 1. It
            decides no number but the paper's own bound, which is of TrieHH alone. In
            any algorithm, a client that holds nothing must vote for nothing, not for a
            candidate "none", and what is asked may depend on which candidates were
            kept, not on their votes (docs/triehh_privacy.md).
    """

    redraws_each_round: bool
    population_has_empty_users: bool = True
    extends_prefixes: bool = False


@dataclasses.dataclass(frozen=True)
class Kept:
    """The candidates that a threshold lets through.

    Attributes:
        candidates: int64 [kept], ascending: those with enough votes.
        votes: int64 [kept]. No guarantee covers them.
    """

    candidates: np.ndarray
    votes: np.ndarray


@identities.identity("Threshold", "threshold max_rounds")
@dataclasses.dataclass(frozen=True)
class Threshold(plan_lib.Mechanism[None]):
    """Releases which candidates have enough votes.

    Attributes:
        threshold: theta, at least 1.
        max_rounds: L, the most rounds of a run; at least 1.
    """

    threshold: int
    max_rounds: int

    def release(
        self, total: Any, state: None, facts: plan_lib.Facts, stream: streams.Stream
    ) -> plan_lib.Release[None]:
        """Returns `Kept`, of a vector of votes."""
        del facts, stream
        kept = np.flatnonzero(total >= self.threshold)
        return plan_lib.Release(Kept(kept, total[kept]), state)


_Plan: TypeAlias = plan_lib.Plan[Any, OneVote, Threshold]


def parameters_of(plan: _Plan) -> TrieHHParameters:
    """Returns the parameters of TrieHH's accounting."""
    return TrieHHParameters(
        population_size=plan.sampler.num_clients,
        cohort_size=plan.sampler.cohort_size,
        threshold=plan.mechanism.threshold,
        max_length=plan.mechanism.max_rounds,
    )


class _Theorem(plan_lib.Theorem):
    """docs/triehh_privacy.md."""

    def check(self, plan: _Plan) -> None:
        """Raises `ValueError` where a parameter is out of range."""
        parameters_of(plan)

    def check_round(
        self, plan: plan_lib.Plan, number: int, facts: plan_lib.Facts
    ) -> None:
        """Raises `ValueError` for a round beyond the last."""
        plan_lib.check_number(number, plan.mechanism.max_rounds, "max_rounds")

    def statement(
        self,
        plan: _Plan,
        record: plan_lib.Record | None,
        delta: float,
        repeats: int,
    ) -> statement.PrivacyStatement:
        """Returns the statement; see `triehh_statement`."""
        return triehh_statement.triehh_statement(
            parameters_of(plan),
            delta=delta,
            redraws_each_round=plan.contribution.redraws_each_round,
            extends_prefixes=plan.contribution.extends_prefixes,
            rounds=record.rounds if record else None,
            num_runs=repeats,
            population_has_empty_users=plan.contribution.population_has_empty_users,
        )


plan_lib.register(plan_lib.Sampling.UNIFORM, OneVote, Threshold, _Theorem())
