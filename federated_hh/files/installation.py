"""The location of this code: a checkout, or an environment's packages."""

import importlib.metadata
import os
import pathlib
import shlex
import shutil
import sys
import sysconfig

from federated_hh.files import programs

_DISTRIBUTION = "federated-hh"

HOME = pathlib.Path(__file__).resolve().parents[2]


def is_installed() -> bool:
    """Returns whether the code is among an environment's packages."""
    return pathlib.Path(sysconfig.get_path("purelib")).resolve() == HOME


def release() -> str:
    """Returns the version that was installed; pyproject.toml has it."""
    return importlib.metadata.version(_DISTRIBUTION)


def command(module: str) -> str:
    """Returns what runs a program of this house on a command line.

    Args:
        module: The program's module.
    """
    name = module if is_installed() else programs.short_name(module)
    return f"{launcher()} {name}"


def launcher() -> str:
    """Returns what a module's name stands behind on a command line, where one is."""
    if is_installed():
        is_on_path = shutil.which("python") == sys.executable
        return f"{'python' if is_on_path else shlex.quote(sys.executable)} -m"
    script = HOME / "scripts" / "run"
    if pathlib.Path.cwd() == HOME:
        return "scripts/run"
    return shlex.quote(str(script))


def cache() -> pathlib.Path:
    """Returns the directory for data that can be made again.

    In a checkout it is there; of installed packages it is the user's.
    """
    if not is_installed():
        return HOME / ".cache"
    users = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(users) / _DISTRIBUTION
