"""Code that can change a result, besides flags: versions and custom code."""

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import itertools
import json
import pathlib
import site
import subprocess
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from federated_hh.files import installation

# Packages of this project whose code can change a result.
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


def custom_digest(values: Iterable[Any]) -> str:
    """Returns the SHA-256 of the custom code behind some values.

    Args:
        values: Classes, functions and objects. The modules of their classes count,
            those of the objects that they hold, and all custom modules that those
            import. Of a class or function of a notebook its instructions count, and
            everything of the notebook that it names.
    """
    cells: dict[str, Any] = {}
    names = {name for value in values for name in _modules_of(value, cells, {})}
    total = hashlib.sha256(repr(sorted(cells.items())).encode())
    for file in sorted(_custom_files(names)):
        total.update(f"{file.name}\0".encode())
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def _modules_of(
    value: Any, cells: dict[str, Any], seen: dict[int, Any]
) -> Iterator[str]:
    """Yields the modules behind a value; adds values outside modules to `cells`."""
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
    if kind is not value and _may_hold_custom_code(kind.__module__):
        try:
            held = dict(vars(value))
        except TypeError:  # it has slots
            slots = getattr(type(value), "__slots__", ())
            names = (slots,) if isinstance(slots, str) else slots
            held = {name: getattr(value, name, None) for name in names}
        yield from _modules_of(held, cells, seen)


def _may_hold_custom_code(module: str) -> bool:
    """Returns whether objects of a module's classes may hold custom code."""
    file = _file_of(module)
    return file is None or not any(map(file.is_relative_to, _INSTALLED))


def _custom_files(names: Iterable[str]) -> set[pathlib.Path]:
    """Returns the files of custom modules, and of all custom modules they import."""
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
    """Returns a module's file; None for a notebook or a built-in module."""
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
    except Exception:  # a custom module, or its stand-in, may raise anything
        return None


@functools.lru_cache(maxsize=1024)
def _imported(source: bytes, package: str) -> tuple[str, ...]:
    """Returns the names of all modules that a package's module imports."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # an extension module
        return ()
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found += _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                kept = parents[: len(parents) - node.level + 1]
                base = ".".join([*kept, base] if base else kept)
            found += _with_parents(base)
            found += [f"{base}.{alias.name}" for alias in node.names]
    return tuple(found)


def _with_parents(name: str) -> Iterator[str]:
    return itertools.accumulate(name.split("."), "{}.{}".format)


def _collect(value: Any, name: str, cells: dict[str, Any]) -> Iterator[str]:
    """Adds a notebook's value to `cells`, by name; yields modules that it uses."""
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
    """Returns the instructions of code, without file and line numbers."""
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


# The packages whose versions can change a result.
_PACKAGES = (
    "tensorflow-federated",
    "tensorflow",
    "tensorflow-privacy",
    "dp-accounting",
    "numpy",
    "scipy",
    "wordfreq",
)


def version() -> str:
    """Returns the commit of this code, "-dirty" if it was changed, or "unknown".

    For installed packages, which may be inside another repository, it is the version.
    """
    if installation.is_installed():
        return installation.release()
    root = installation.HOME
    try:
        described = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return described.stdout.strip()


def package_versions() -> dict[str, str]:
    """Returns the versions of the packages that can change a result."""
    return {name: _package_version(name) for name in _PACKAGES}


@functools.cache  # each reads and parses a file
def _package_version(name: str) -> str:
    """Returns a package's version; TensorFlow without CUDA has a name of its own."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if name != "tensorflow":
            raise
        return importlib.metadata.version("tensorflow-cpu")


@functools.cache
def sources_digest() -> str:
    """Returns a hash of this code: 16 hexadecimal digits.

    It distinguishes changed code where `version` cannot: with uncommitted changes, and
    without git.
    """
    root = installation.HOME
    total = hashlib.sha256()
    for package in ROOMS:
        for file in sorted((root / package).rglob("*.py")):
            total.update(f"{file.relative_to(root)}\0".encode())
            total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:16]


def digest() -> str:
    """Returns a hash of all versions that can change a result."""
    versions = {**package_versions(), "this code": sources_digest()}
    return hashlib.sha256(json.dumps(versions).encode()).hexdigest()[:16]


def digest_with(*values: Any) -> str:
    """Returns a hash of `digest` and of custom code.

    Args:
        *values: Classes, functions and objects; see `custom_digest`.
    """
    text = digest() + custom_digest(values)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def changed_versions(run: dict[str, Any]) -> list[str]:
    """Returns the versions that changed since a run began, as texts.

    Args:
        run: Contents of the run's `run.json`.
    """
    now = package_versions()
    changed = [
        f"{name} {began}, now {now.get(name)}"
        for name, began in run["packages"].items()
        if now.get(name) != began
    ]
    if run["sources"] != sources_digest():
        changed.append(
            f"this code of {run['version']} (sources {run['sources']}), now "
            f"{version()} (sources {sources_digest()})"
        )
    return changed
