"""Central training: training on text in the clear, without a guarantee.

It is for public text, and for baselines that private training is compared with. The
statement is there so that nobody takes such a model for a private one.
"""

import dataclasses

from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import statement
from federated_hh.privacy.guarantee import Adjacency
from federated_hh.randomness import identities


@identities.identity("Text")
@dataclasses.dataclass(frozen=True)
class Text(plan_lib.Contribution):
    """All of a client's text, in the clear."""


class _Theorem(plan_lib.Theorem):
    """Nothing is proved: nothing holds."""

    def check(self, plan: plan_lib.Plan) -> None:
        """Finds nothing to refuse."""

    def check_round(
        self, plan: plan_lib.Plan, number: int, facts: plan_lib.Facts
    ) -> None:
        """Finds nothing to refuse."""

    def statement(
        self,
        plan: plan_lib.Plan,
        record: plan_lib.Record | None,
        delta: float,
        repeats: int,
    ) -> statement.PrivacyStatement:
        """Returns that there is no guarantee; see `Plan.statement`."""
        return statement.PrivacyStatement(
            setting="Central training: the trainer has all of the text.",
            protected=(
                "Nothing. The model is trained on its clients' raw text: use public "
                "text, or share the model only with those who may see the text."
            ),
            adjacency=Adjacency.ZERO_OUT,
            mechanism="Gradient steps on batches of sentences, mixed over clients.",
            mechanism_output="The model after every step.",
            guarantees=(),
            no_guarantee_reason="No noise is added, and nothing is clipped.",
            parameters={"clients": plan.sampler.num_clients},
            accounting="There is nothing to account for.",
            assumptions=("None: nothing is guaranteed.",),
            not_counted=("All that the model reveals about the text.",),
            realised=None if record is None else record.rounds.summary(),
        )


def plan_of(sampler: plan_lib.Sampler) -> plan_lib.Plan:
    """Returns the plan of a central training.

    Args:
        sampler: Whose text a round is of: everybody's.
    """
    return plan_lib.Plan(
        sampler=sampler, contribution=Text(), mechanism=plan_lib.NoNoise()
    )


plan_lib.register(plan_lib.Sampling.LIMITED, Text, plan_lib.NoNoise, _Theorem())
