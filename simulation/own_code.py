"""Code of a user's own that can change a result: modules, and cells of a notebook."""

import hashlib
import inspect
import pathlib
import site
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from typing import Any

# Where the code of this project is that can change a result.
ROOMS = (
    "examples",
    "federated_hh",
    "privacy",
    "randomness",
    "rounds",
    "simulation",
    "studies",
    "training",
)
_HOUSE = pathlib.Path(__file__).resolve().parent.parent
_INSTALLED = tuple(
    pathlib.Path(path).resolve()
    for path in {
        *(sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
    }
)


def digest(kinds: Iterable[type]) -> str:
    """Returns SHA-256 of the code of a user's own that classes are made of.

    Args:
        kinds: The classes. The modules that they and their bases are in count, and all
            modules of the user's that those import. Of a class in a notebook its
            functions count, and what they name that is in the notebook too.
    """
    total = hashlib.sha256()
    bases = {base for kind in kinds for base in kind.__mro__}
    for name, module in sorted(_own_modules(base.__module__ for base in bases)):
        source = _source(module)
        if source is None:
            of_cells = (base for base in bases if base.__module__ == name)
            parts: dict[str, bytes] = {}
            for base in of_cells:
                _collect(base, base.__qualname__, parts)
            source = repr(sorted(parts.items()))
        total.update(f"{name}\0{source}\0".encode())
    return total.hexdigest()


def _own_modules(names: Iterable[str]) -> Iterator[tuple[str, types.ModuleType]]:
    waiting, seen = list(names), set()
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        if name in seen or module is None or not _is_own(module):
            continue
        seen.add(name)
        yield name, module
        for value in list(vars(module).values()):
            if isinstance(value, types.ModuleType):
                waiting.append(value.__name__)
            elif isinstance(of := getattr(value, "__module__", None), str):
                waiting.append(of)


def _is_own(module: types.ModuleType) -> bool:
    if module.__name__.partition(".")[0] in sys.stdlib_module_names:
        return False
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ == "__main__"
    path = pathlib.Path(file).resolve()
    others = (*_INSTALLED, *(_HOUSE / room for room in ROOMS))
    return not any(path.is_relative_to(folder) for folder in others)


def _source(module: types.ModuleType) -> str | None:
    try:
        return inspect.getsource(module)
    except (OSError, TypeError):
        return None


def _collect(value: Any, name: str, parts: dict[str, bytes]) -> None:
    """Adds what a function, class or plain value of a notebook does, by name."""
    if name in parts:
        return
    if isinstance(value, (int, float, str, bytes, tuple, type(None))):
        parts[name] = repr(value).encode()
    elif isinstance(value, type) and value.__module__ == "__main__":
        parts[name] = b"class"
        for key, member in vars(value).items():
            _collect(inspect.unwrap(_function_of(member)), f"{name}.{key}", parts)
    elif isinstance(value, types.FunctionType) and value.__module__ == "__main__":
        parts[name] = repr((_instructions(value.__code__), value.__defaults__)).encode()
        for used in _names(value.__code__):
            if used in value.__globals__:
                _collect(value.__globals__[used], used, parts)


def _function_of(member: Any) -> Any:
    """Returns the function in a property, class method or static method."""
    return getattr(member, "__func__", getattr(member, "fget", member))


def _instructions(code: types.CodeType) -> tuple[Any, ...]:
    """Returns what code does, without where it stands."""
    constants = tuple(
        _instructions(value) if isinstance(value, types.CodeType) else repr(value)
        for value in code.co_consts
    )
    return code.co_code, constants, code.co_names, code.co_varnames


def _names(code: types.CodeType) -> set[str]:
    inner = (value for value in code.co_consts if isinstance(value, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))
