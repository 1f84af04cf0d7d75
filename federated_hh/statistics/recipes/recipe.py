"""Recipes: an analyst's messages to devices (McMillan et al. 2022, figure 4).

A recipe is JSON; `recipe.schema.json` beside this file is its JSON Schema. To the
figure it adds `privacyBudget`, which section 4.1 says a recipe has, and writes a node
of a prefix tree that is deeper than the first level as the path to it, its tokens
separated by blanks ("hello world"). "null" among the children of a node is allowed
and has no meaning.
"""

import dataclasses
import json
import pathlib
from typing import Any

from federated_hh.files import json_files, plain_files
from federated_hh.privacy.local.device_policy import UNITS
from federated_hh.statistics.recipes import checked_json, contents

SCHEMA_FILE = pathlib.Path(__file__).with_name("recipe.schema.json")
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
    def has_budget(self) -> bool:
        """Whether it says what an answer may cost."""
        return self.minimum_cohort > 0

    @property
    def local_epsilon(self) -> float:
        """Epsilon of a report."""
        return self.local_units / UNITS

    @property
    def aggregate_epsilon(self) -> float:
        """Epsilon of the aggregate."""
        return self.aggregate_units / UNITS

    @classmethod
    def parse(cls, text: str, may_lack_budget: bool = False) -> "Recipe":
        """Reads a recipe.

        Args:
            text: JSON.
            may_lack_budget: Whether the privacyBudget may be missing; it is 0 then,
                which no device takes.

        Raises:
            RecipeError: If a field is missing, unknown, of another type, out of range
                or contradicts another; the message names it.
        """
        try:
            return cls._of(checked_json.loads("the recipe", text), may_lack_budget)
        except checked_json.FieldError as error:
            raise RecipeError(str(error)) from None

    @classmethod
    def _of(cls, given: Any, may_lack_budget: bool) -> "Recipe":
        if may_lack_budget and isinstance(given, dict):
            given = {"privacyBudget": None, **given}
        fields = checked_json.fields_of("the recipe", given, _FIELDS)
        for name, only in _CONSTANTS.items():
            if fields[name] != only:
                raise RecipeError(
                    f"{name} is {json_files.shown(fields[name])}; it has to be {only!r}"
                )
        local, aggregate, minimum = 0, 0, 0
        if fields["privacyBudget"] is not None or not may_lack_budget:
            budget = checked_json.fields_of(
                "privacyBudget", fields["privacyBudget"], _BUDGET
            )
            local, aggregate = (
                checked_json.millionths(f"privacyBudget.{name}", budget[name])
                for name in _BUDGET[:2]
            )
            minimum = checked_json.integer(
                "privacyBudget.minimumCohort", budget["minimumCohort"], 2
            )
        try:
            content = contents.Content.of(fields["dataTypeContent"])
        except contents.ContentError as error:
            raise RecipeError(f"dataTypeContent{error}") from None
        return cls(
            identifier=checked_json.text(
                "recipeIdentifier", fields["recipeIdentifier"]
            ),
            version=checked_json.text("version", fields["version"]),
            analysis=checked_json.text(
                "AnalysisIdentifier", fields["AnalysisIdentifier"]
            ),
            query=checked_json.text("query", fields["query"]),
            cohorts=checked_json.texts("cohorts", fields["cohorts"]),
            content=content,
            local_units=local,
            aggregate_units=aggregate,
            minimum_cohort=minimum,
        )

    @classmethod
    def read(cls, path: str, may_lack_budget: bool = False) -> "Recipe":
        """Reads a recipe from a file, in UTF-8; see `parse`.

        Raises:
            RecipeError: See `parse`; or if there is no such file. The message begins
                with the file.
        """
        try:
            text = plain_files.read_text(path)
            return cls.parse(text, may_lack_budget)
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
