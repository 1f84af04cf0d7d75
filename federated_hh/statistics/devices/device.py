"""A device's decisions: verify, check the budget, then answer with noise or refuse."""

import dataclasses
import enum
from collections.abc import Iterable, Sequence

from federated_hh.privacy.local import device_policy
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.randomizers import one_hot
from federated_hh.statistics.devices import budget, device_log
from federated_hh.statistics.recipes import recipe as recipe_lib
from federated_hh.statistics.recipes import store, verification


class Told(enum.Enum):
    """The reasons of a refusal that an analyst may know: nothing hidden is in them."""

    VERSION = "devices do not know the version of the recipe"
    ANALYSIS = "the AnalysisIdentifier is not approved"
    COHORT = "cohorts has what is not approved as not sensitive"
    QUERY = verification.PUBLIC_REASON
    CHECK_1 = "check 1, of what the whole analysis may spend"
    CHECK_2 = "check 2, of what a data field may spend"
    CHECK_3 = (
        "check 3: minimumCohort reports of localEpsilon do not have the "
        "cohortAggregateEpsilon"
    )


class RecipeRefusedError(ValueError):
    """A recipe must not be answered; the message is for the device's log.

    Attributes:
        told: Part that an analyst may know.
    """

    def __init__(self, told: Told, message: str):
        super().__init__(message)
        self.told = told


@dataclasses.dataclass(frozen=True)
class Approval:
    """The approval that ships with a device for an analysis.

    Attributes:
        policy: Policy with the limits.
        query_class: Class of the allowed queries.
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

    def verify(
        self, recipe: recipe_lib.Recipe, sandbox: verification.Sandbox
    ) -> frozenset[str]:
        """Returns the data fields that a recipe reads, before any budget.

        Args:
            recipe: From an analyst.
            sandbox: The sandbox of the query class.

        Raises:
            RecipeRefusedError: If the recipe must not be answered, whatever is left.
        """
        if recipe.version not in self.policy.versions:
            raise RecipeRefusedError(
                Told.VERSION, f"version {recipe.version} of recipes is not known"
            )
        if recipe.analysis != self.policy.analysis:
            raise RecipeRefusedError(
                Told.ANALYSIS, f"the analysis {recipe.analysis} is not approved"
            )
        for name in recipe.cohorts:
            if name not in self.policy.cohorts:
                raise RecipeRefusedError(
                    Told.COHORT, f"the cohort {name} is not approved as not sensitive"
                )
        try:
            return sandbox.verify(recipe.query, [*recipe.content.types])
        except verification.QueryRefusedError as error:
            raise RecipeRefusedError(
                Told.QUERY, f"{verification.PUBLIC_REASON}: {error}"
            ) from None


def randomizer_of(
    policy: device_policy.Policy, recipe: recipe_lib.Recipe
) -> one_hot.AsymmetricOneHotEncoding | one_hot.SymmetricOneHotEncoding:
    """Returns the local randomizer of a recipe's answers.

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
        approval: Approval that ships with each device.
        events: Their events.
        sandbox: Database that runs queries; it holds one device's rows at a time.
        accountant: Spent budgets of the devices.
        log: Log that each shows its owner.
    """

    approval: Approval
    events: store.EventStore
    sandbox: verification.Sandbox
    accountant: budget.Accountant
    log: device_log.DeviceLog

    def admitted(self, devices: Sequence[int], recipe: recipe_lib.Recipe) -> list[bool]:
        """Decides for each device whether it answers, and charges those that do.

        That follows from the recipe and from recipes before it, never from the
        device's data. The log says why not.

        Args:
            devices: Devices of the cohort, each once.
            recipe: Recipe of the query.
        """
        refusals: list[str | None]
        try:
            fields = self.approval.verify(recipe, self.sandbox)
        except RecipeRefusedError as error:
            refusals = [str(error)] * len(devices)
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

        A device without a row that fits reports on cell 0, "(other)", and
        so does one whose query fails on its rows.

        Args:
            device: Device of the cohort.
            recipe: Recipe of the query.
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


def told(
    approval: Approval,
    recipe: recipe_lib.Recipe,
    earlier: Iterable[recipe_lib.Recipe] = (),
) -> str | None:
    """Returns the reason of a refusal that an analyst may know; None without refusal.

    See `refusal`.
    """
    found = refusal(approval, recipe, earlier)
    return None if found is None else found.told.value


def refusal(
    approval: Approval,
    recipe: recipe_lib.Recipe,
    earlier: Iterable[recipe_lib.Recipe] = (),
) -> RecipeRefusedError | None:
    """Returns the refusal of a recipe, as in a device's log; None without refusal.

    It follows from the approval, which every device has, and from the recipes so far:
    an analyst could find it out with a device that holds no data.

    Args:
        approval: Approval that ships with each device.
        recipe: The recipe.
        earlier: Those that devices were asked before.
    """
    with (
        verification.Sandbox(approval.query_class) as sandbox,
        budget.Accountant(approval.policy) as accountant,
    ):
        found: RecipeRefusedError | None = None
        for one in (*earlier, recipe):
            found = None
            try:
                fields = approval.verify(one, sandbox)
            except RecipeRefusedError as error:
                found = error
                continue
            if not one.has_budget:
                continue
            refused = accountant.charge(0, fields, one)
            found = None if refused is None else _of_check(refused)
    return found


def _of_check(refused: budget.Refusal) -> RecipeRefusedError:
    return RecipeRefusedError(
        Told[f"CHECK_{refused.check}"], f"check {refused.check}: {refused.reason}"
    )
