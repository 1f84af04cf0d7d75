"""Custom parts, by name: `module:Class`, or `module:function`; and their failures.

Modules are those of the checkout, of installed packages, and of the working directory.
Whatever custom code raises, on import or in a call, is one line for the user: the flag
that names it, file and line, and the exception (`failure`).
"""

import importlib
import inspect
import os
import pathlib
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any

from absl import flags

from federated_hh.files import installation

# The loaded parts, as `--flag=module:Class`.
_LOADED: list[str] = []
_HOUSE = ("benchmarks", "federated_hh", "scripts", "studies", "training")
_LIBRARY = pathlib.Path(os.__file__).parent
# A place in a function that TensorFlow traced, in the message of its error.
_TRACED = re.compile(r'File "(.+)", line (\d+), in (\S+)')
# Errors by which this code tells its users something; others are faults.
TOLD = (
    *(ValueError, OSError, RuntimeError, MemoryError, ArithmeticError),
    flags.Error,
)


class CustomCodeError(ValueError):
    """Custom code that failed; the message has flag, file, line and exception."""


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
    _LOADED.append(f"--{option.removeprefix('--')}={name}")
    try:
        return getattr(importlib.import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if _place(error) is not None:
            raise CustomCodeError(failure(error)) from error
        if not isinstance(
            error, ImportError | AttributeError | ValueError | TypeError | SyntaxError
        ):
            raise
        where = ""
        if isinstance(error, ModuleNotFoundError):
            where = f", neither in the checkout nor in {directory}"
        raise ValueError(
            f"{option} is {name!r}; it has to be {expected} ({error}{where})"
        ) from error


def failure(error: BaseException) -> str | None:
    """Returns what an error of custom code is, in one line; None for other errors.

    An error is custom code's where the innermost frame, packages aside, is; or where
    this code fails by surprise under a custom part. What this code refuses, such as a
    flag's value, is no failure of the part that passed it on.

    Args:
        error: The error, with its traceback.
    """
    if isinstance(error, CustomCodeError):
        return str(error)
    place = next(iter(getattr(error, "__notes__", ())), None) or _place(error)
    frames = _frames(error)
    if place is None and (_is_refusal(error) or not _LOADED or not frames):
        return None
    by = ", ".join(dict.fromkeys(_LOADED))
    if place is None:
        path, line, name = frames[-1]
        place = f"{path}:{line}, {name}, fails by what the custom code gave it"
    return (
        f"{by}{': ' if by else ''}{place}: {_described(error)}. --verbosity=1 shows "
        "the traceback."
    )


def _place(error: BaseException) -> str | None:
    """Returns file, line and function of the custom code that an error is of."""
    if isinstance(error, SyntaxError) and _is_custom(
        pathlib.Path(error.filename or "")
    ):
        return f"{error.filename}:{error.lineno}"
    traced = _TRACED.findall(_text(error))
    for path, line, name in reversed([*_frames(error), *traced]):
        if _is_custom(pathlib.Path(path)):
            return f"{path}:{line}, {name}"
        if _is_refusal(error):
            return None
    return None


def _is_refusal(error: BaseException) -> bool:
    """Returns whether this code ends by an error on purpose."""
    is_meant = isinstance(error, (*TOLD, SystemExit))
    return is_meant and not isinstance(error, RecursionError)


def _frames(error: BaseException) -> list[tuple[pathlib.Path, int, str]]:
    """Returns file, line and function of an error's frames, packages' left out."""
    found = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = pathlib.Path(frame.f_code.co_filename)
        if "site-packages" in path.parts or path.is_relative_to(_LIBRARY):
            continue
        if path.is_file() and not path.name.startswith("__autograph_generated"):
            found.append((path, line, frame.f_code.co_qualname))
    return found


def _is_custom(path: pathlib.Path) -> bool:
    return path.is_file() and not any(
        path.is_relative_to(installation.HOME / name) for name in _HOUSE
    )


def _described(error: BaseException) -> str:
    """Returns an exception's name and the first line of its message."""
    lines = _text(error).splitlines()
    starts = [at for at, line in enumerate(lines) if _TRACED.search(line)]
    if starts:  # the error itself, after the last traced file and its source line
        lines = [line.strip() for line in lines[starts[-1] + 2 :] if line.strip()]
        return lines[0] if lines else type(error).__name__
    message = lines[0].rstrip(".") if lines else "no message"
    return f"{type(error).__name__}: {message}"


def _text(error: BaseException) -> str:
    """Returns an error's own message."""
    details = getattr(error, "details", None)  # of an error in another process
    try:
        return (details() if callable(details) else str(error)).strip()
    except Exception:  # of the exception's own text
        return "its message cannot be shown"
