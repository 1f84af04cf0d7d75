"""Privacy statements read back from their JSON."""

import math
import pathlib
from collections.abc import Mapping
from typing import Any

from federated_hh.files import json_files
from federated_hh.privacy.guarantee import Adjacency, Guarantee
from federated_hh.privacy.realised import Realised
from federated_hh.privacy.statement import SCHEMA_VERSION, PrivacyStatement
from federated_hh.privacy.voting_rounds import VotingRounds

_SCHEMA_FILE = pathlib.Path(__file__).with_name("statement.schema.json")


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
    fields = json_files.parse(text, json_files.OBJECT)
    version = fields.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"schema_version is {version!r}; it has to be {SCHEMA_VERSION} for this "
            "release. The statement belongs to another release; make it again from "
            "its run's flags"
        )
    json_files.check(fields, json_files.schema_of(_SCHEMA_FILE))
    basis, definitions = fields.pop("basis"), fields.pop("definitions")
    by_name = {adjacency.value: adjacency for adjacency in Adjacency}
    for holder in (fields, *fields["guarantees"]):
        holder["adjacency"] = by_name[holder["adjacency"]]
        del holder["unit"]  # it follows
    for guarantee in fields["guarantees"]:
        if guarantee.get("voting") is not None:
            guarantee["voting"] = VotingRounds(**guarantee["voting"])
    fields["guarantees"] = [
        Guarantee(**_with_infinities(guarantee, ("epsilon", "rho")))
        for guarantee in fields["guarantees"]
    ]
    if fields["realised"] is not None:
        fields["realised"] = Realised(**fields["realised"])
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
    if definitions.keys() != names:
        raise ValueError(
            f"definitions is {definitions!r}; it must define {', '.join(names)}"
        )
    return made


def _with_infinities(fields: Mapping[str, Any], names: Any) -> dict[str, Any]:
    return {
        name: math.inf if value == "inf" and name in names else value
        for name, value in fields.items()
    }
