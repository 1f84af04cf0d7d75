"""The accountant on a device: its spent budget (McMillan et al. 2022, section 4.3).

Spent budgets are kept in SQLite. A query is charged, on disk, before it is answered: a
device that stops in between has lost budget and told nothing.
"""

import contextlib
import dataclasses
import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence

from federated_hh.privacy.local import device_policy
from federated_hh.statistics.recipes import recipe as recipe_lib

_ANALYSIS = "the analysis"
# What is kept of each scope, in this order.
COLUMNS = tuple(field.name for field in dataclasses.fields(device_policy.Spent))


@dataclasses.dataclass(frozen=True)
class Refusal:
    """The reason why a query is not answered.

    Attributes:
        check: The check of section 4.3: 1, 2 or 3.
        reason: For the device's log.
    """

    check: int
    reason: str


def decide(
    policy: device_policy.Policy,
    spent: Mapping[str, device_policy.Spent],
    fields: Collection[str],
    recipe: recipe_lib.Recipe,
) -> Refusal | None:
    """Returns why a query must not be answered, or None where it may.

    Args:
        policy: The policy of the analysis.
        spent: So far, by scope; see `scopes`.
        fields: All data fields that the query reads.
        recipe: The query's.
    """
    for scope in scopes(fields):
        check = 1 if scope == _ANALYSIS else 2
        name = scope if check == 1 else f"the field {scope}"
        limits = policy.limits if check == 1 else policy.fields.get(scope)
        if limits is None:
            return Refusal(check, f"{name} is not part of the analysis")
        if recipe.local_epsilon > limits.local_epsilon:
            return Refusal(
                check,
                f"{name} allows a local epsilon of {limits.local_epsilon:g}, and "
                f"{recipe.local_epsilon:g} is asked for",
            )
        before = spent.get(scope, device_policy.Spent())
        if reason := policy.refusal(before, limits, cost_of(policy, recipe)):
            return Refusal(check, f"of {name} {reason}")
    epsilon = policy.cohort_epsilon(recipe.local_units, recipe.minimum_cohort)
    if epsilon > recipe.aggregate_epsilon:
        return Refusal(
            3,
            f"a cohort of {recipe.minimum_cohort:,} has an aggregate epsilon of "
            f"{epsilon:.6g}, more than the {recipe.aggregate_epsilon:g} asked for",
        )
    return None


def cost_of(
    policy: device_policy.Policy, recipe: recipe_lib.Recipe
) -> device_policy.Spent:
    """Returns the cost of an answer to a recipe, by scope."""
    return policy.cost(
        recipe.aggregate_units, recipe.local_units, recipe.minimum_cohort
    )


def scopes(fields: Collection[str]) -> list[str]:
    """Returns the scopes of a query: the analysis, then the fields that it reads."""
    return [_ANALYSIS, *sorted(fields)]


class Accountant(contextlib.AbstractContextManager):
    """The spent budgets of a block of devices, which share nothing."""

    def __init__(self, policy: device_policy.Policy, path: str = ":memory:"):
        """Opens the database, or makes it.

        Args:
            policy: The policy of the analysis.
            path: The path of the database; in memory by default.

        Raises:
            ValueError: If the budgets on file were spent under another analysis,
                randomizer, delta or composition. Limits may change.
        """
        self._policy = policy
        self._database = sqlite3.connect(path, isolation_level=None)
        # On disk when a transaction ends, whatever happens to the power.
        self._database.execute("pragma synchronous = extra")
        numbers = ", ".join(f"{name} integer not null" for name in COLUMNS)
        self._database.execute(
            "create table if not exists spent (device integer, scope text, "
            f"{numbers}, primary key (device, scope)) without rowid"
        )
        self._check_terms(path)

    def _check_terms(self, path: str) -> None:
        """Writes down the terms of the policy, or compares them with those on file."""
        self._database.execute(
            "create table if not exists terms (name text primary key, value text)"
        )
        self._database.execute("begin immediate")
        known = dict(self._database.execute("select name, value from terms"))
        for name, value in self._policy.terms.items():
            if known.setdefault(name, value) != value:
                self._database.execute("rollback")
                self._database.close()
                raise ValueError(
                    f"{path} has what was spent under a policy with {name} "
                    f"{known[name]}; the policy has {value}, and cannot go on from it"
                )
        self._database.executemany(
            "insert or ignore into terms values (?, ?)", known.items()
        )
        self._database.execute("commit")

    def spent(self, device: int) -> dict[str, device_policy.Spent]:
        """Returns a device's spent budget, by scope."""
        found = self._database.execute(
            f"select scope, {', '.join(COLUMNS)} from spent where device = ?",
            (device,),
        )
        return {scope: device_policy.Spent(*numbers) for scope, *numbers in found}

    def charge(
        self, device: int, fields: Collection[str], recipe: recipe_lib.Recipe
    ) -> Refusal | None:
        """Charges a query, or refuses it and charges nothing.

        Args:
            device: Device of the cohort.
            fields: All data fields that the query reads.
            recipe: The query's.

        Returns:
            None where it is charged, for good: it may be answered once now.
        """
        return self.charge_each([device], fields, recipe)[0]

    def charge_each(
        self,
        devices: Sequence[int],
        fields: Collection[str],
        recipe: recipe_lib.Recipe,
    ) -> list[Refusal | None]:
        """Charges each of some devices a query, as `charge` does, in one transaction.

        Args:
            devices: Devices of the cohort, each once.
            fields: All data fields that the query reads.
            recipe: The query's.

        Returns:
            By device. All that is charged is on disk, before any device may answer.

        Raises:
            ValueError: If a device comes twice.
        """
        if len(set(devices)) < len(devices):
            raise ValueError(
                "devices has one twice; each may be charged once at a time"
            )
        names = scopes(fields)
        # By what was spent before: what becomes of the query, and what is spent after.
        decided: dict[tuple, tuple[Refusal | None, list[tuple]]] = {}
        refusals: list[Refusal | None] = []
        self._database.execute("begin immediate")
        with self._database:
            before = self._spent_by(devices, names)
            rows = []
            for device in devices:
                spent = before.get(device, {})
                kind = tuple(spent.get(name) for name in names)
                if kind not in decided:
                    decided[kind] = self._decide(spent, fields, recipe)
                refusal, after = decided[kind]
                refusals.append(refusal)
                rows += [(device, *row) for row in after]
            places = ", ".join("?" * (2 + len(COLUMNS)))
            self._database.executemany(
                f"insert or replace into spent values ({places})", rows
            )
        return refusals

    def _spent_by(
        self, devices: Sequence[int], names: Collection[str]
    ) -> dict[int, dict[str, tuple[int, ...]]]:
        """Returns devices' spent budgets of some scopes, by device and scope."""
        found: dict[int, dict[str, tuple[int, ...]]] = {}
        rows = self._database.execute(
            f"select device, scope, {', '.join(COLUMNS)} from spent "
            "where device in (select value from json_each(?))",
            (json.dumps([*devices]),),
        )
        for device, scope, *numbers in rows:
            if scope in names:
                found.setdefault(device, {})[scope] = tuple(numbers)
        return found

    def _decide(
        self,
        spent: Mapping[str, tuple[int, ...]],
        fields: Collection[str],
        recipe: recipe_lib.Recipe,
    ) -> tuple[Refusal | None, list[tuple]]:
        """Returns the decision on a query, and the rows of spent budgets after it."""
        before = {
            scope: device_policy.Spent(*numbers) for scope, numbers in spent.items()
        }
        refusal = decide(self._policy, before, fields, recipe)
        if refusal is not None:
            return refusal, []
        none, cost = device_policy.Spent(), cost_of(self._policy, recipe)
        return None, [
            (scope, *dataclasses.astuple(before.get(scope, none).and_(cost)))
            for scope in scopes(fields)
        ]

    def forget(self, devices: Iterable[int]) -> None:
        """Resets devices' budgets for another simulated repeat."""
        self._database.executemany(
            "delete from spent where device = ?", ((device,) for device in devices)
        )

    def __exit__(self, *exception) -> None:
        self._database.close()
