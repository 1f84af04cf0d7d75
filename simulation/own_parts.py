"""Parts of a user's own, by name: `module:Class`."""

import importlib
import inspect
from typing import Any


def load(option: str, name: str, what: str, base: type = object) -> Any:
    """Returns a class.

    Args:
        option: What asks for it, in errors.
        name: As `module:Class`.
        what: What the class has to be, in errors: "an algorithm".
        base: What it has to be derived from.

    Raises:
        ValueError: If there is none of that name, it is derived from something else,
            or it leaves methods open.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (
        ImportError,
        AttributeError,
        ValueError,
        TypeError,
        SyntaxError,
    ) as error:
        raise ValueError(
            f"{option} is {name!r}; it has to be module:Class of {what} ({error})"
        ) from error
    if (
        not inspect.isclass(found)
        or not issubclass(found, base)
        or inspect.isabstract(found)
    ):
        raise ValueError(
            f"{option} is {name!r}, which is not {what}: that is a class derived from "
            f"{base.__name__} that leaves no method of it open"
        )
    return found
