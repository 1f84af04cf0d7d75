"""Tables of an answer over one or two of its arguments."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from federated_hh.options import fields
from federated_hh.privacy.accounting import arguments
from federated_hh.privacy.accounting.arguments import Rows

# Values of an argument without a range: from a tenth of the given one to ten times it.
_FACTORS = (0.1, 10.0)
_STEPS, _MOST_STEPS = 5, 200
# Mechanisms that answer the same question, so that one stands beside the other.
# Multipliers cannot be compared, as noise adds up over rounds in different ways.
_PER_MECHANISM = "noise on the worst prefix sum"
_OF_TRAINING = ("dp_ftrl", "blt", "banded", "dp_fedavg")


def table(
    answers: Mapping[str, Callable[..., Rows]],
    mechanism: str,
    values: Mapping[str, Any],
    vary: Sequence[str],
    quantity: str = "",
    notes: dict[str, list[str]] | None = None,
    beside: tuple[str, ...] = (),
) -> Rows:
    """Returns a quantity over one or two arguments of an answer.

    Args:
        answers: The answers by mechanism.
        mechanism: The mechanism that was asked for.
        values: Values of the flags that were set, by name.
        vary: One or two of "NAME", "NAME=LOW:HIGH" or "NAME=LOW:HIGH:POINTS", the
            first down the rows, the second across the columns. Without a range the
            values go from a tenth to ten times the given one. "mechanism" takes those
            of training.
        quantity: Beginning of the quantity's name; by default the answer's first.
        notes: Is given each basis of delta, and each limit that binds, with the
            quantities that it holds for.
        beside: Beginnings of quantities that have a column of their own where one
            argument is varied.

    Returns:
        A row for each value of the first argument, with the quantity's name; "-"
        where there is no answer.

    Raises:
        ValueError: An argument cannot be varied, or nothing has an answer.
    """
    if not 1 <= len(vary) <= 2:
        raise ValueError(f"--vary={','.join(vary)}: give one or two names of flags")
    axes = dict(_axis(text, answers[mechanism], mechanism, values) for text in vary)
    (first, down), *rest = axes.items()
    if len(axes) < len(vary):
        raise ValueError(f"--vary={','.join(vary)}: {first} is given twice")
    other, across = rest[0] if rest else (None, [None])
    if "mechanism" in axes and values.get("epsilon"):
        quantity = _PER_MECHANISM
    name, errors, rows = quantity, [], []
    notes = {} if notes is None else notes
    for value in down:
        row: dict[str, Any] = {"quantity": "", first: value}
        for column in across:
            given = {**values, first: value}
            if other is not None:
                given[other] = column
            of = given.pop("mechanism", mechanism)
            try:
                found = arguments.call(answers[of], of, given)
            except ValueError as error:
                errors.append(error)
                row[_column(other, column)] = "-"
                continue
            for told in found:
                if label := _label(told):
                    labels = notes.setdefault(told["basis"], [])
                    labels += [] if label in labels else [label]
            named = next(r for r in found if r["quantity"].startswith(quantity))
            name = named["quantity"]
            row[_column(other, column)] = named["value"]
            if beside and other is None:
                more = [r for r in found if r["quantity"].startswith(beside)]
                row |= {r["quantity"]: r["value"] for r in more}
        rows.append(row)
    if all(cell == "-" for row in rows for cell in list(row.values())[2:]):
        raise errors[0]
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{**dict.fromkeys(columns, "-"), **row, "quantity": name} for row in rows]


def _label(row: Mapping[str, Any]) -> str:
    """Returns the name of a row of delta, or of a limit that binds; or ""."""
    name = row["quantity"]
    if name.startswith("epsilon to quote at"):
        return name
    is_told = name.startswith("delta") or "is not reached" in name
    return f"{name}: {row['value']:.3g}" if is_told else ""


def _axis(
    text: str, answer: Callable[..., Rows], mechanism: str, values: Mapping[str, Any]
) -> tuple[str, list[Any]]:
    """Returns an argument's name and the values that it takes."""
    name, equals, bounds = text.strip().partition("=")
    name = name.removeprefix("--")
    if name == "mechanism" and mechanism in _OF_TRAINING and not equals:
        return name, [*_OF_TRAINING]
    options = fields.fields_of(arguments.options_class([answer]))
    field = options.get(name)
    if name == "epsilon" and field is None and "local_epsilon" in options:
        raise ValueError(
            f"--vary={text}: --local_epsilon is what --mechanism={mechanism} spends; "
            "vary that, such as --vary=local_epsilon=2:10. The central epsilon stands "
            "beside it"
        )
    if field is None or field.kind not in (int, float):
        numbers = [n for n, known in options.items() if known.kind in (int, float)]
        raise ValueError(
            f"--vary={text}: it has to be a number that --mechanism={mechanism} takes: "
            f"{', '.join(numbers)}"
        )
    low, _, rest = bounds.partition(":")
    high, _, steps = rest.partition(":")
    try:
        ends, points = [float(low), float(high)], int(steps or _STEPS)
    except ValueError:
        if equals:
            raise ValueError(
                f"--vary={text}: it has to be {name}=LOW:HIGH or "
                f"{name}=LOW:HIGH:POINTS, such as {name}=1:100:20"
            ) from None
        points = _STEPS
        default = inspect.signature(answer).parameters[name].default
        centre = values.get(name, default)
        if not isinstance(centre, int | float):
            raise ValueError(
                f"--vary={text}: give --{name}, around which it varies, or "
                f"--vary={name}=LOW:HIGH"
            ) from None
        ends = [factor * centre for factor in _FACTORS]
    if not 0 < ends[0] < ends[1]:
        raise ValueError(f"--vary={text}: LOW has to be above 0 and below HIGH")
    if not 2 <= points <= _MOST_STEPS:
        raise ValueError(
            f"--vary={text}: POINTS is {points}; it has to be in 2..{_MOST_STEPS}"
        )
    spaced = [float(f"{value:.3g}") for value in np.geomspace(ends[0], ends[1], points)]
    if field.kind is int:
        spaced = sorted({max(1, round(value)) for value in spaced})
    # A tenth, or ten times, may lie outside the argument's range.
    kept = []
    for value in spaced:
        try:
            kept.append(field.accept(value))
        except ValueError as error:
            if equals:
                raise ValueError(f"--vary={text}: {name}={value:g} {error}") from None
    return name, kept


def _column(name: str | None, value: Any) -> str:
    if name is None:
        return "value"
    if isinstance(value, str):
        return value
    return f"{name} = {value:,}" if isinstance(value, int) else f"{name} = {value:g}"
