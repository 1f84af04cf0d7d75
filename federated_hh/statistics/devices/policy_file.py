"""The devices' policy as a JSON file; `policy.schema.json` beside this is its schema.

{"AnalysisIdentifier": "com.example.survey", "versions": ["1"], "cohorts": [],
 "table": "DeviceTable", "columns": {"age": {"type": "INTEGER", "reports": 1,
 "localEpsilon": 6, "cohortAggregateEpsilon": 1}}, "limits": {"reports": 1,
 "localEpsilon": 6, "cohortAggregateEpsilon": 1}, "randomizer": "asymmetric",
 "delta": 1e-06, "composition": "basic"}
"""

import json
import math
import pathlib
from typing import Any

from federated_hh.files import plain_files
from federated_hh.privacy.local import device_policy
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.statistics.devices import device
from federated_hh.statistics.recipes import checked_json, events, store, verification

SCHEMA_FILE = pathlib.Path(__file__).with_name("policy.schema.json")
_FIELDS = (
    *("AnalysisIdentifier", "versions", "cohorts", "table", "columns", "limits"),
    *("randomizer", "delta", "composition"),
)
_LIMITS = ("reports", "localEpsilon", "cohortAggregateEpsilon")
_RANDOMIZERS = {
    "asymmetric": shuffling.Randomizer.ASYMMETRIC_ONE_HOT,
    "symmetric": shuffling.Randomizer.SYMMETRIC_ONE_HOT,
}


class PolicyError(ValueError):
    """A file has no policy; the message names the file and the field."""


def read(path: str) -> device.Approval:
    """Reads the approval that ships with every device.

    Args:
        path: The file, in UTF-8.

    Raises:
        PolicyError: If a field is missing, unknown, of another type, out of range or
            contradicts another, or if there is no such file.
    """
    try:
        text = plain_files.read_text(path)
        return _of(checked_json.loads("the policy", text))
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise PolicyError(f"{path}: {error}") from error


def approved(
    stream: store.EventStream,
    *,
    analysis: str,
    limits: device_policy.Limits,
    fields: dict[str, device_policy.Limits],
    randomizer: str,
    delta: float,
    composition: str,
    **others: Any,
) -> device.Approval:
    """Returns an approval whose composition spends `delta` once more.

    Args:
        stream: The table.
        analysis: The approved identifier.
        limits: Limits of the whole analysis.
        fields: Limits by approved column.
        randomizer: "asymmetric" or "symmetric".
        delta: The delta of a query's aggregate.
        composition: Value of a `device_policy.Composition`.
        **others: Other fields of a `device_policy.Policy`.
    """
    kind = device_policy.Composition(composition)
    order = None
    if kind is device_policy.Composition.RENYI:
        order = device_policy.renyi_order(limits.aggregate_epsilon, delta)
    return device.Approval(
        device_policy.Policy(
            analysis=analysis,
            limits=limits,
            fields=fields,
            randomizer=_RANDOMIZERS[randomizer],
            delta=delta,
            composition=kind,
            slack=None if kind is device_policy.Composition.BASIC else delta,
            order=order,
            **others,
        ),
        verification.QueryClass(stream, frozenset(fields)),
    )


def to_json(approval: device.Approval) -> str:
    """Returns the text that `read` reads as this approval."""
    policy, stream = approval.policy, approval.query_class.stream
    return json.dumps(
        {
            "AnalysisIdentifier": policy.analysis,
            "versions": [*policy.versions],
            "cohorts": [*policy.cohorts],
            "table": stream.name,
            "columns": {
                name: {"type": stream.fields[name], **_shown(limits)}
                for name, limits in policy.fields.items()
            },
            "limits": _shown(policy.limits),
            "randomizer": next(
                name for name, r in _RANDOMIZERS.items() if r is policy.randomizer
            ),
            "delta": policy.delta,
            "composition": policy.composition.value,
        },
        indent=2,
        ensure_ascii=False,
    )


def told(approval: device.Approval) -> str:
    """Returns the approved identifier, table, columns and limits, in a line.

    A column's limits are named where they are not those of the whole analysis.
    """
    policy, stream = approval.policy, approval.query_class.stream
    columns = ", ".join(
        f"{name} ({stream.fields[name]}"
        + (f": {_told(limits)})" if limits != policy.limits else ")")
        for name, limits in policy.fields.items()
    )
    return (
        f"approved are the AnalysisIdentifier {policy.analysis} and the columns "
        f"{columns} of the table {stream.name}, within {_told(policy.limits)} (delta "
        f"{policy.delta:g})"
    )


def _told(limits: device_policy.Limits) -> str:
    return (
        f"{limits.reports} report{'s' * (limits.reports > 1)}, localEpsilon "
        f"{limits.local_epsilon:g} and cohortAggregateEpsilon "
        f"{limits.aggregate_epsilon:g}"
    )


def _of(given: Any) -> device.Approval:
    fields = checked_json.fields_of("the policy", given, _FIELDS)
    table = checked_json.text("table", fields["table"])
    described = checked_json.mapping("columns", fields["columns"])
    types, limits = {}, {}
    for name, column in described.items():
        where = f"columns.{name}"
        known = checked_json.fields_of(where, column, ("type", *_LIMITS))
        types[name] = checked_json.one_of(f"{where}.type", known["type"], store.TYPES)
        limits[name] = _limits(where, known)
    stream = events.STREAM
    if table == stream.name:
        for name, kind in types.items():
            checked_json.one_of(f"column {name} of {table}", name, [*stream.fields])
            checked_json.one_of(f"columns.{name}.type", kind, [stream.fields[name]])
    else:
        stream = store.EventStream(table, types, retention=math.inf)
    delta = float(checked_json.number("delta", fields["delta"]))
    whole = checked_json.fields_of("limits", fields["limits"], _LIMITS)
    return approved(
        stream,
        analysis=checked_json.text("AnalysisIdentifier", fields["AnalysisIdentifier"]),
        limits=_limits("limits", whole),
        fields=limits,
        randomizer=checked_json.one_of(
            "randomizer", fields["randomizer"], [*_RANDOMIZERS]
        ),
        delta=delta,
        composition=checked_json.one_of(
            "composition",
            fields["composition"],
            [each.value for each in device_policy.Composition],
        ),
        versions=checked_json.texts("versions", fields["versions"]),
        cohorts=checked_json.texts("cohorts", fields["cohorts"]),
    )


def _limits(where: str, fields: Any) -> device_policy.Limits:
    local, aggregate = (
        checked_json.millionths(f"{where}.{name}", fields[name]) / device_policy.UNITS
        for name in _LIMITS[1:]
    )
    reports = checked_json.integer(f"{where}.reports", fields["reports"], 1)
    try:
        return device_policy.Limits(
            aggregate_epsilon=aggregate, reports=reports, local_epsilon=local
        )
    except ValueError as error:
        raise checked_json.FieldError(f"{where}.{error}") from None


def _shown(limits: device_policy.Limits) -> dict[str, Any]:
    return {
        "reports": limits.reports,
        "localEpsilon": limits.local_epsilon,
        "cohortAggregateEpsilon": limits.aggregate_epsilon,
    }
