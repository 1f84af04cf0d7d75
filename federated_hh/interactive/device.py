"""A device's own decisions: verify, budget, then answer with noise or not at all."""

import dataclasses
from collections.abc import Sequence

from federated_hh.interactive import budget, device_log, store, verification
from federated_hh.interactive import recipe as recipe_lib
from federated_hh.randomizers import one_hot
from privacy import device_policy, shuffling


@dataclasses.dataclass(frozen=True)
class Approval:
    """What ships with a device for an analysis.

    Attributes:
        policy: What may be spent.
        query_class: What may be asked.
    """

    policy: device_policy.Policy
    query_class: verification.QueryClass

    def __post_init__(self):
        if self.policy.fields.keys() != self.query_class.fields:
            raise ValueError(
                f"fields of the policy are {', '.join(self.policy.fields)}; they have "
                f"to be those of the query class, "
                f"{', '.join(sorted(self.query_class.fields))}"
            )

    def objection(self, recipe: recipe_lib.Recipe) -> str | None:
        """Returns why a recipe is not even looked into, or None where it is."""
        if recipe.version not in self.policy.versions:
            return f"version {recipe.version} of recipes is not known"
        if recipe.analysis != self.policy.analysis:
            return f"the analysis {recipe.analysis} is not approved"
        for name in recipe.cohorts:
            if name not in self.policy.cohorts:
                return f"the cohort {name} is not approved as not sensitive"
        return None


def randomizer_of(
    policy: device_policy.Policy, recipe: recipe_lib.Recipe
) -> one_hot.AsymmetricOneHotEncoding | one_hot.SymmetricOneHotEncoding:
    """Returns what a recipe's answers are randomized with.

    Args:
        policy: Names the encoding.
        recipe: Has epsilon for replacement, which is twice that of the symmetric
            encoding's own, for deletion.
    """
    if policy.randomizer is shuffling.Randomizer.ASYMMETRIC_ONE_HOT:
        return one_hot.AsymmetricOneHotEncoding(
            recipe.local_epsilon, recipe.content.num_cells
        )
    return one_hot.SymmetricOneHotEncoding(
        recipe.local_epsilon / 2, recipe.content.num_cells
    )


@dataclasses.dataclass(frozen=True)
class Devices:
    """A block of devices. Each decides on its own; they share a process.

    Attributes:
        approval: What ships with each.
        events: Their events.
        sandbox: Where queries run; it holds one device's rows at a time.
        accountant: What each has spent.
        log: What each shows its owner.
    """

    approval: Approval
    events: store.EventStore
    sandbox: verification.Sandbox
    accountant: budget.Accountant
    log: device_log.DeviceLog

    def admitted(self, devices: Sequence[int], recipe: recipe_lib.Recipe) -> list[bool]:
        """Decides which devices answer, each on its own, and charges those.

        That follows from the recipe and from recipes before it, never from the
        device's data. The log says why not.

        Args:
            devices: That are asked, each once.
            recipe: What they are asked.
        """
        refusals: list[str | None] = [self.approval.objection(recipe)] * len(devices)
        if refusals and refusals[0] is None:
            try:
                fields = self.sandbox.verify(recipe.query, [*recipe.content.types])
            except verification.QueryRefusedError as error:
                reason = f"{verification.PUBLIC_REASON}: {error}"
                refusals = [reason] * len(devices)
            else:
                refusals = [
                    None if found is None else f"check {found.check}: {found.reason}"
                    for found in self.accountant.charge_each(devices, fields, recipe)
                ]
        self.log.refused(
            [
                (device, refusal)
                for device, refusal in zip(devices, refusals, strict=True)
                if refusal is not None
            ],
            recipe,
        )
        return [refusal is None for refusal in refusals]

    def true_cell(
        self, device: int, recipe: recipe_lib.Recipe, now: float, chance: float
    ) -> int:
        """Returns the cell that an admitted query is answered with, before the noise.

        A device without a row that fits reports on cell 0, "out of vocabulary", and
        so does one whose query fails on its rows.

        Args:
            device: That is asked.
            recipe: What it is asked.
            now: In seconds; older events have expired.
            chance: In [0, 1), which of the rows that fit is taken.
        """
        stream = self.approval.query_class.stream.name
        try:
            rows = self.sandbox.answer(
                recipe.query,
                [*recipe.content.types],
                self.events.rows(stream, device, now),
            )
        except verification.QueryFailedError:
            rows = []
        cells = recipe.content.best_cells(rows)
        return cells[int(chance * len(cells))] if cells else 0
