"""Stable identities: the written names that streams and resumed runs depend on.

A run's random numbers are a function of its algorithm and plan. Both enter as text that
is written down here and in the classes, never as a `repr` or a module's name. A class
that moves or is renamed keeps its identity, and with it every result.

    @identities.identity("Threshold", "threshold max_rounds")
    @dataclasses.dataclass(frozen=True)
    class Threshold: ...

    identities.canonical(Threshold(5, 4))  # Threshold(threshold=5, max_rounds=4)

The fields that an identity names are always written, in its order. Any other field is
written only where its value is not the default, so that a new field at its default
changes nothing.

A class without an identity has the one of its address, `module:Class`, and renaming it
makes other random numbers. Subclasses do not inherit an identity, only
the fields that no sum depends on.
"""

import dataclasses
import enum
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T", bound=type)

_ATTRIBUTE = "_stable_identity"


@dataclasses.dataclass(frozen=True)
class _Identity:
    """A class's identity.

    Attributes:
        text: The written name.
        fields: The fields that are always written, in this order.
        without: The fields that no sum depends on, never written.
    """

    text: str
    fields: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


def identity(text: str, fields: str = "", *, without: str = "") -> Callable[[T], T]:
    """Returns a decorator that gives a class its identity.

    Args:
        text: The written name; never changed once results depend on it.
        fields: Names of the dataclass's fields that are always written, with blanks
            between them: those of the day on which the identity was written. A field
            that is gone since is written as a property or constant of its name.
        without: Names of fields that no sum depends on.

    Raises:
        TypeError: If the class has no such field.
    """
    made = _Identity(text, tuple(fields.split()), tuple(without.split()))

    def give(kind: T) -> T:
        known = {f.name for f in dataclasses.fields(kind)} if made.fields else set()
        for name in made.fields:
            if name not in known and not hasattr(kind, name):
                raise TypeError(
                    f"identity {text!r} names {name}, which is neither a field nor a "
                    "constant"
                )
        setattr(kind, _ATTRIBUTE, made)
        return kind

    return give


def has_identity(kind: type) -> bool:
    """Returns whether a class has an identity of its own, not that of its address."""
    return _ATTRIBUTE in vars(kind)


def name_of(kind: type) -> str:
    """Returns a class's identity: its written name, or `module:Class`."""
    if has_identity(kind):
        return vars(kind)[_ATTRIBUTE].text
    return f"{kind.__module__}:{kind.__qualname__}"


def label_of(kind: type) -> str:
    """Returns the last part of a class's identity, as statements print it."""
    return name_of(kind).rpartition(":")[2].rpartition(".")[2]


def canonical(value: Any) -> str:
    """Returns a value's canonical text.

    Args:
        value: A dataclass, enumeration, class, tuple, list or mapping of plain values;
            or an object whose method `canonical_text` says all that it depends on.

    Raises:
        ValueError: If there is anything else in it, such as an array or a function.
    """
    if isinstance(value, enum.Enum):
        return f"<{name_of(type(value))}.{value.name}: {canonical(value.value)}>"
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return format(value, "d")
    if isinstance(value, float):
        # The shortest digits that mean this number.
        return float.__repr__(value)
    if isinstance(value, str):
        inner = json.dumps(value)[1:-1].replace('\\"', '"').replace("'", "\\'")
        return f"'{inner}'"
    if isinstance(value, type):
        return f"<class '{name_of(value)}'>"
    if hasattr(value, "canonical_text"):
        return value.canonical_text()
    if dataclasses.is_dataclass(value):
        parts = ", ".join(f"{name}={canonical(v)}" for name, v in _written(value))
        return f"{name_of(type(value))}({parts})"
    if isinstance(value, Mapping):
        parts = ", ".join(
            f"{canonical(name)}: {canonical(v)}" for name, v in value.items()
        )
        return f"{{{parts}}}"
    if isinstance(value, tuple):
        parts = ", ".join(map(canonical, value))
        return f"({parts},)" if len(value) == 1 else f"({parts})"
    if isinstance(value, list):
        return f"[{', '.join(map(canonical, value))}]"
    raise ValueError(
        f"{value!r} is a {type(value).__name__}, which has no canonical text; use "
        "dataclasses of plain values, or give its class a method canonical_text()"
    )


def settings(value: Any) -> dict[str, Any]:
    """Returns a dataclass's written fields by name, as JSON can hold them.

    Args:
        value: A dataclass of plain values, tuples and further dataclasses.
    """
    return {
        name: settings(v)
        if dataclasses.is_dataclass(v) and not isinstance(v, type)
        else v
        for name, v in _written(value)
    }


def _written(value: Any) -> Iterator[tuple[str, Any]]:
    fields = vars(type(value)).get(_ATTRIBUTE, _Identity("")).fields
    left_out = {
        name
        for base in type(value).__mro__
        if has_identity(base)
        for name in vars(base)[_ATTRIBUTE].without
    }
    for name in fields:
        yield name, getattr(value, name)
    for field in dataclasses.fields(value):
        if field.name in fields or field.name in left_out:
            continue
        found = getattr(value, field.name)
        if not _is_default(field, found):
            yield field.name, found


def _is_default(field: dataclasses.Field, value: Any) -> bool:
    if field.default is not dataclasses.MISSING:
        default = field.default
    elif field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    else:
        return False
    # 1 == 1.0 == True, and their texts differ.
    return type(value) is type(default) and bool(value == default)
