"""Privacy statements read back from their JSON."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from federated_hh.privacy.guarantee import Adjacency, Guarantee
from federated_hh.privacy.realised import Realised
from federated_hh.privacy.statement import (
    LATER_FIELDS,
    SCHEMA_VERSION,
    PrivacyStatement,
)
from federated_hh.privacy.voting_rounds import VotingRounds


def read(text: str) -> PrivacyStatement:
    """Reads a statement.

    Args:
        text: JSON, from `PrivacyStatement.to_json`.

    Returns:
        The statement, equal to the one that was written.

    Raises:
        ValueError: The text is not a JSON object, has another schema version, or a
            field is missing, unknown or out of range; the message names it.
    """
    fields = json.loads(text)
    if not isinstance(fields, dict):
        raise ValueError("a privacy statement has to be a JSON object")
    version = fields.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"schema_version is {version!r}; it has to be {SCHEMA_VERSION} for this "
            "release. The statement belongs to another release; make it again from "
            "its run's flags"
        )
    _check_names(
        PrivacyStatement, fields, "the statement", "basis", "unit", "definitions"
    )
    basis, definitions = fields.pop("basis"), fields.pop("definitions")
    _take_adjacency(fields, "the statement")
    guarantees = fields["guarantees"]
    if not isinstance(guarantees, list):
        raise ValueError(f"guarantees is {guarantees!r}; it has to be a list")
    for index, guarantee in enumerate(guarantees):
        where = f"guarantees[{index}]"
        if not isinstance(guarantee, dict):
            raise ValueError(f"{where} is {guarantee!r}; it has to be an object")
        _check_names(Guarantee, guarantee, where, "unit")
        _take_adjacency(guarantee, where)
        if isinstance(guarantee.get("voting"), dict):
            _check_names(VotingRounds, guarantee["voting"], f"voting of {where}")
            guarantee["voting"] = VotingRounds(**guarantee["voting"])
    fields["guarantees"] = [
        Guarantee(**_with_infinities(guarantee, ("epsilon", "rho")))
        for guarantee in guarantees
    ]
    if isinstance(fields["realised"], dict):
        _check_names(Realised, fields["realised"], "realised")
        fields["realised"] = Realised(**fields["realised"])
    if isinstance(fields["parameters"], dict):
        parameters = fields["parameters"]
        fields["parameters"] = _with_infinities(parameters, parameters)
    made = PrivacyStatement(**fields)
    if basis != made.basis:
        raise ValueError(
            f"basis is {basis!r}, but realised says {made.basis!r}: one of them "
            "was changed"
        )
    # Releases word them differently; the names decide.
    names = made.definitions.keys()
    if not isinstance(definitions, dict) or definitions.keys() != names:
        raise ValueError(
            f"definitions is {definitions!r}; it must define {', '.join(names)}"
        )
    return made


def _take_adjacency(fields: dict[str, Any], where: str) -> None:
    """Makes a field a member, and takes away the unit that follows from it."""
    by_name = {adjacency.value: adjacency for adjacency in Adjacency}
    name = fields["adjacency"]
    if name not in by_name:
        raise ValueError(
            f"adjacency of {where} is {name!r}; it has to be one of "
            f"{', '.join(by_name)}"
        )
    fields["adjacency"] = by_name[name]
    unit, expected = fields.pop("unit"), fields["adjacency"].unit.value
    if unit != expected:
        raise ValueError(f"unit of {where} is {unit!r}; it has to be {expected!r}")


def _with_infinities(fields: Mapping[str, Any], names: Any) -> dict[str, Any]:
    return {
        name: math.inf if value == "inf" and name in names else value
        for name, value in fields.items()
    }


def _check_names(kind: type, fields: Mapping[str, Any], where: str, *more: str):
    expected = {*more, *(field.name for field in dataclasses.fields(kind))}
    for problem, names in (
        ("is missing", expected - fields.keys() - LATER_FIELDS.keys()),
        ("is unknown", fields.keys() - expected),
    ):
        for name in sorted(names):
            raise ValueError(f"field {name} of {where} {problem}")
