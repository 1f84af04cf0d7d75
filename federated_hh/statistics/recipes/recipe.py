"""Recipes: an analyst's messages to devices (McMillan et al. 2022, figure 4).

A recipe is JSON; `recipe.schema.json` beside this file is its JSON Schema. To the
figure it adds `privacyBudget`, which section 4.1 says a recipe has, and writes a node
of a prefix tree that is deeper than the first level as the path to it, its tokens
separated by blanks ("hello world"). "null" among the children of a node is allowed
and has no meaning.
"""

import dataclasses
import decimal
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from federated_hh.privacy.local.device_policy import UNITS
from federated_hh.statistics.recipes import contents

SCHEMA_FILE = pathlib.Path(__file__).with_name("recipe.schema.json")
_MOST_EPSILON = 100
_FIELDS = (
    "recipeIdentifier",
    "version",
    "intervalTimeType",
    "AnalysisIdentifier",
    "query",
    "cohorts",
    "dataRecorderType",
    "dataTypeContent",
    "privacyBudget",
)
_CONSTANTS = {
    "intervalTimeType": "sinceBeginning",
    "dataRecorderType": "dataContentType",
}
_BUDGET = ("localEpsilon", "cohortAggregateEpsilon", "minimumCohort")


class RecipeError(ValueError):
    """A text is no recipe; the message names the field."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A query with all that a device has to know of it.

    Attributes:
        identifier: Unique among the recipes of an analysis.
        version: The version of the format; a device knows some versions.
        analysis: Analysis that the query is part of.
        query: A SELECT, whose columns are the fields of `content`.
        cohorts: Names of data that are not sensitive.
        content: Mapping from the query's rows to cells.
        local_units: Epsilon of a report, in millionths.
        aggregate_units: Epsilon of the aggregate, in millionths.
        minimum_cohort: The fewest reports that the aggregate may be of.
    """

    identifier: str
    version: str
    analysis: str
    query: str
    cohorts: tuple[str, ...]
    content: contents.Content
    local_units: int
    aggregate_units: int
    minimum_cohort: int

    @property
    def local_epsilon(self) -> float:
        """Epsilon of a report."""
        return self.local_units / UNITS

    @property
    def aggregate_epsilon(self) -> float:
        """Epsilon of the aggregate."""
        return self.aggregate_units / UNITS

    @classmethod
    def parse(cls, text: str) -> "Recipe":
        """Reads a recipe.

        Args:
            text: JSON.

        Raises:
            RecipeError: If a field is missing, unknown, of another type, out of range
                or contradicts another; the message names it.
        """
        try:
            fields = json.loads(
                text,
                parse_float=decimal.Decimal,
                parse_constant=_no_number,
                object_pairs_hook=_without_repeats,
            )
        except RecipeError:
            raise
        except (ValueError, RecursionError) as error:
            raise RecipeError(f"the recipe is no JSON: {error}") from None
        fields = _object("the recipe", fields, _FIELDS)
        for name, only in _CONSTANTS.items():
            if fields[name] != only:
                raise RecipeError(
                    f"{name} is {_shown(fields[name])}; it has to be {only!r}"
                )
        cohorts = fields["cohorts"]
        if not isinstance(cohorts, list):
            raise RecipeError(f"cohorts is {_shown(cohorts)}; it has to be a list")
        if len({_text("cohorts", name) for name in cohorts}) < len(cohorts):
            raise RecipeError("cohorts names something twice")
        budget = _object("privacyBudget", fields["privacyBudget"], _BUDGET)
        minimum = budget["minimumCohort"]
        if type(minimum) is not int or not 2 <= minimum < 2**53:
            raise RecipeError(
                f"privacyBudget.minimumCohort is {_shown(minimum)}; it has to be a "
                "whole number of at least 2"
            )
        try:
            content = contents.Content.of(fields["dataTypeContent"])
        except contents.ContentError as error:
            raise RecipeError(f"dataTypeContent{error}") from None
        return cls(
            identifier=_text("recipeIdentifier", fields["recipeIdentifier"]),
            version=_text("version", fields["version"]),
            analysis=_text("AnalysisIdentifier", fields["AnalysisIdentifier"]),
            query=_text("query", fields["query"]),
            cohorts=tuple(cohorts),
            content=content,
            local_units=_units(budget, "localEpsilon"),
            aggregate_units=_units(budget, "cohortAggregateEpsilon"),
            minimum_cohort=minimum,
        )

    @classmethod
    def read(cls, path: str) -> "Recipe":
        """Reads a recipe from a file, in UTF-8.

        Raises:
            RecipeError: See `parse`; or if there is no such file. The message begins
                with the file.
        """
        try:
            return cls.parse(pathlib.Path(path).read_text("utf-8"))
        except OSError as error:
            raise RecipeError(f"{path}: {error.strerror}") from error
        except ValueError as error:
            raise RecipeError(f"{path}: {error}") from error

    def to_json(self) -> str:
        """Returns the text that `parse` reads as this recipe."""
        return json.dumps(
            {
                "recipeIdentifier": self.identifier,
                "version": self.version,
                "intervalTimeType": _CONSTANTS["intervalTimeType"],
                "AnalysisIdentifier": self.analysis,
                "query": self.query,
                "cohorts": list(self.cohorts),
                "dataRecorderType": _CONSTANTS["dataRecorderType"],
                "dataTypeContent": self.content.to_fields(),
                "privacyBudget": {
                    "localEpsilon": self.local_epsilon,
                    "cohortAggregateEpsilon": self.aggregate_epsilon,
                    "minimumCohort": self.minimum_cohort,
                },
            },
            indent=1,
        )


def _units(budget: Mapping[str, Any], name: str) -> int:
    value = budget[name]
    if type(value) not in (int, decimal.Decimal):
        raise RecipeError(
            f"privacyBudget.{name} is {_shown(value)}; it has to be a number"
        )
    # Compared first: a number of a billion digits is none to multiply.
    if 0 < value <= _MOST_EPSILON:
        exact = decimal.Decimal(value) * UNITS
        if exact == exact.to_integral_value():
            return int(exact)
    raise RecipeError(
        f"privacyBudget.{name} is {_shown(value)}; it has to be above 0, at most "
        f"{_MOST_EPSILON}, and a whole number of millionths"
    )


def _object(name: str, value: Any, fields: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise RecipeError(f"{name} is {_shown(value)}; it has to be an object")
    prefix = "" if name == "the recipe" else f"{name}."
    for unknown in value.keys() - set(fields):
        raise RecipeError(
            f"{prefix}{unknown} is no field of a recipe; those are {', '.join(fields)}"
        )
    for missing in [field for field in fields if field not in value]:
        raise RecipeError(f"{prefix}{missing} is missing")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise RecipeError(
            f"{name} is {_shown(value)}; it has to be a text that is not empty"
        )
    return value


def _shown(value: Any) -> str:
    shown = str(value) if isinstance(value, decimal.Decimal) else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _no_number(name: str) -> Any:
    raise RecipeError(f"the recipe has {name}, which is no number of JSON")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RecipeError(f"{twice} is there twice in one object")
    return fields
