"""Custom parts, by name: `module:Class`, or `module:function`.

Modules are those of the checkout, of installed packages, and of the working directory.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any


def load(option: str, name: str, what: str, base: type = object) -> Any:
    """Returns a class.

    Args:
        option: Option that names it, for errors.
        name: As `module:Class`.
        what: Noun for errors, such as "an algorithm".
        base: Required base class.

    Raises:
        ValueError: If there is none of that name, it is not a subclass, or it has
            abstract methods.
    """
    found = _found(option, name, f"module:Class of {what}")
    if (
        not inspect.isclass(found)
        or not issubclass(found, base)
        or inspect.isabstract(found)
    ):
        raise ValueError(
            f"{option} is {name!r}, which is not {what}: a subclass of "
            f"{base.__name__} that implements all of its abstract methods"
        )
    return found


def load_function(option: str, name: str, what: str) -> Callable[..., Any]:
    """Returns a function, or another thing that can be called.

    Args:
        option: Option that names it, for errors.
        name: As `module:function`.
        what: Noun for errors, such as "a function of a number".

    Raises:
        ValueError: If there is none of that name, or it cannot be called.
    """
    found = _found(option, name, f"module:function of {what}")
    if not callable(found):
        raise ValueError(
            f"{option} is {name!r}, which is a {type(found).__name__}; it has to be "
            f"{what}"
        )
    return found


def _found(option: str, name: str, expected: str) -> Any:
    module, _, attribute = name.partition(":")
    directory = os.getcwd()
    # Last, so that nothing there hides this code or its packages.
    if directory not in sys.path:
        sys.path.append(directory)
    try:
        return getattr(importlib.import_module(module), attribute)
    except (
        ImportError,
        AttributeError,
        ValueError,
        TypeError,
        SyntaxError,
    ) as error:
        where = ""
        if isinstance(error, ModuleNotFoundError):
            where = f", neither in the checkout nor in {directory}"
        raise ValueError(
            f"{option} is {name!r}; it has to be {expected} ({error}{where})"
        ) from error
