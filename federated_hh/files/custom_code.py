"""Code of a user's own that can change a result: modules, and cells of a notebook."""

import ast
import functools
import hashlib
import importlib.util
import pathlib
import site
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# Where the code of this project is that can change a result.
ROOMS = ("examples", "federated_hh", "studies", "training")
_HOUSE = pathlib.Path(__file__).resolve().parents[2]
_INSTALLED = tuple(
    pathlib.Path(path).resolve()
    for path in {
        *(sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
    }
)


def digest(values: Iterable[Any]) -> str:
    """Returns SHA-256 of the code of a user's own that values are made by.

    Args:
        values: Classes, functions and objects. The modules of their classes count, of
            what objects hold, and all modules of the user's that those import. Of what
            is defined in a notebook its functions count, and what they name that is in
            the notebook too.
    """
    cells: dict[str, Any] = {}
    names = {name for value in values for name in _modules_of(value, cells, {})}
    total = hashlib.sha256(repr(sorted(cells.items())).encode())
    for file in sorted(_own_files(names)):
        total.update(f"{file.name}\0".encode())
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def _modules_of(
    value: Any, cells: dict[str, Any], seen: dict[int, Any]
) -> Iterator[str]:
    """Finds the modules that a value comes from; what is in none goes to `cells`."""
    if id(value) in seen or isinstance(value, (str, bytes, int, float, type(None))):
        return
    seen[id(value)] = value  # kept, so that no other object gets its id
    if isinstance(value, functools.partial):
        value = (value.func, value.args, value.keywords)
    if isinstance(value, Mapping):
        value = (*value.keys(), *value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        for part in value:
            yield from _modules_of(part, cells, seen)
        return
    kind = value if isinstance(value, (type, types.FunctionType)) else type(value)
    for base in getattr(kind, "__mro__", (kind,)):
        yield base.__module__
        if base.__module__ == "__main__" and not _file_of("__main__"):
            yield from _collect(base, base.__qualname__, cells)
    if kind is not value and _may_hold_own_code(kind.__module__):
        try:
            held = vars(value)
        except TypeError:  # it has slots
            held = {name: getattr(value, name, None) for name in _slots(value)}
        yield from _modules_of(dict(held), cells, seen)


def _slots(value: Any) -> tuple[str, ...]:
    slots = getattr(type(value), "__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _may_hold_own_code(module: str) -> bool:
    """Returns whether objects of a module's classes may hold a user's code."""
    file = _file_of(module)
    return file is None or not any(map(file.is_relative_to, _INSTALLED))


def _own_files(names: Iterable[str]) -> set[pathlib.Path]:
    """Returns the files of a user's modules, and of all of the user's they import."""
    waiting, seen, files = list(names), set(), set()
    others = (*_INSTALLED, *(_HOUSE / room for room in ROOMS))
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        file = _file_of(name)
        if file is None or any(map(file.is_relative_to, others)):
            continue
        files.add(file)
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        waiting += _imported(file.read_bytes(), package)
    return files


def _file_of(module: str) -> pathlib.Path | None:
    """Returns a module's file; None where there is none, as of a notebook."""
    if module.partition(".")[0] in sys.builtin_module_names:
        return None
    try:
        loaded = sys.modules.get(module)
        if loaded is None:
            spec = importlib.util.find_spec(module)
            file = spec.origin if spec else None
        else:
            file = loaded.__file__
        return pathlib.Path(file).resolve(strict=True) if file else None
    except Exception:  # of whatever a user's module, or one that stands for it, raises
        return None


@functools.lru_cache(maxsize=1024)
def _imported(source: bytes, package: str) -> tuple[str, ...]:
    """Returns the names of modules that a package's module imports, wherever in it."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # an extension module
        return ()
    return tuple(_imports(tree, package))


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                kept = parents[: len(parents) - node.level + 1]
                base = ".".join([*kept, base] if base else kept)
            yield from _with_parents(base)
            for alias in node.names:
                yield f"{base}.{alias.name}"


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        yield ".".join(parts[:length])


def _collect(value: Any, name: str, cells: dict[str, Any]) -> Iterator[str]:
    """Adds what a value of a notebook does, by name; finds modules that it uses."""
    if name in cells:
        return
    cells[name] = ""
    if isinstance(value, (int, float, str, bytes, type(None))):
        cells[name] = repr(value)
    elif isinstance(value, (list, tuple, set, frozenset, Mapping)):
        parts = value.items() if isinstance(value, Mapping) else value
        if isinstance(value, (set, frozenset)):
            parts = sorted(value, key=repr)
        cells[name] = f"{type(value).__name__} {len(value)}"
        for number, part in enumerate(parts):
            yield from _collect(part, f"{name}[{number}]", cells)
    elif isinstance(value, types.ModuleType):
        yield value.__name__
    elif isinstance(value, type) and value.__module__ == "__main__":
        for key, member in vars(value).items():
            if key not in ("__dict__", "__weakref__", "__module__"):
                yield from _collect(_function_of(member), f"{name}.{key}", cells)
        for base in value.__bases__:
            yield from _collect(base, base.__qualname__, cells)
    elif isinstance(value, types.FunctionType) and value.__module__ == "__main__":
        cells[name] = repr(_instructions(value.__code__))
        given = (value.__defaults__, value.__kwdefaults__)
        yield from _collect(given, f"{name}()", cells)
        for used in sorted(_names(value.__code__)):
            if used in value.__globals__:
                yield from _collect(value.__globals__[used], used, cells)
    else:
        kind = value if isinstance(value, (type, types.FunctionType)) else type(value)
        yield kind.__module__


def _function_of(member: Any) -> Any:
    """Returns the function in a property, class method, static method or the like."""
    for name in ("__func__", "fget", "func", "__wrapped__"):
        found = getattr(member, name, None)
        if isinstance(found, types.FunctionType):
            return found
    return member


def _instructions(code: types.CodeType) -> tuple[Any, ...]:
    """Returns what code does, without where it stands."""
    constants = tuple(map(_constant, code.co_consts))
    return code.co_code, constants, code.co_names, code.co_varnames


def _constant(value: Any) -> Any:
    if isinstance(value, types.CodeType):
        return _instructions(value)
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    if isinstance(value, frozenset):
        return ("set", *sorted(map(repr, value)))
    return repr(value)


def _names(code: types.CodeType) -> set[str]:
    inner = (value for value in code.co_consts if isinstance(value, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))
