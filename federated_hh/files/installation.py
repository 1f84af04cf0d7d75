"""The installation: the programs, their exit codes, and the location of the code."""

import importlib.metadata
import os
import pathlib
import shlex
import shutil
import sys
import sysconfig

_DISTRIBUTION = "federated-hh"

HOME = pathlib.Path(__file__).resolve().parents[2]

# Exit codes, for programs that run others; 130 is that of an interrupt.
FAILED = 1
# Flags or data do not fit, as absl has it: no run was begun.
WRONG_USE = 2
# A model would no longer be finite: the same flags end there again.
NOT_FINITE = 3

# The list of programs: names for `scripts/run`, and their modules.
PROGRAMS = {
    "triehh": "federated_hh.run_triehh",
    "ldp_triehh": "federated_hh.run_ldp_triehh",
    "opt_prefix_tree": "federated_hh.run_opt_prefix_tree",
    "set_union": "federated_hh.run_set_union",
    "statistics": "federated_hh.run_statistics",
    "algorithm": "federated_hh.run_algorithm",
    "training": "training.run_training",
    "pretrain": "training.pretrain",
    "predict_next_word": "training.predict_next_word",
    "evaluate_keyboard": "training.evaluate_keyboard",
    "accounting": "federated_hh.run_accounting",
    "fit_population": "federated_hh.fit_population",
    "compare": "federated_hh.compare",
}
# In a checkout only.
IN_A_CHECKOUT = {"reproduce": "scripts.reproduce"}


def short_name(module: str) -> str:
    """Returns the short name of a module's program, or the module if it has none."""
    names = {module: name for name, module in {**PROGRAMS, **IN_A_CHECKOUT}.items()}
    return names.get(module, module)


def console_scripts() -> dict[str, str]:
    """Returns the modules by the names that pyproject.toml installs them under."""
    return {
        module.rpartition(".")[2].replace("_", "-"): module
        for module in PROGRAMS.values()
    }


def is_installed() -> bool:
    """Returns whether the code is among an environment's packages."""
    return pathlib.Path(sysconfig.get_path("purelib")).resolve() == HOME


def release() -> str:
    """Returns the version that was installed; pyproject.toml has it."""
    return importlib.metadata.version(_DISTRIBUTION)


def command(module: str) -> str:
    """Returns the command that runs a program of this project.

    Args:
        module: The program's module.
    """
    name = module if is_installed() else short_name(module)
    return f"{launcher()} {name}"


def launcher() -> str:
    """Returns the words before a module's name on a command line."""
    if is_installed():
        is_on_path = shutil.which("python") == sys.executable
        return f"{'python' if is_on_path else shlex.quote(sys.executable)} -m"
    script = HOME / "scripts" / "run"
    if pathlib.Path.cwd() == HOME:
        return "scripts/run"
    return shlex.quote(str(script))


def cache() -> pathlib.Path:
    """Returns the directory for data that can be regenerated.

    A checkout has its own; installed packages use the user's.
    """
    if not is_installed():
        return HOME / ".cache"
    users = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(users) / _DISTRIBUTION
