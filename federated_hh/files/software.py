"""Versions of code and packages that can change a result, besides flags."""

import functools
import hashlib
import importlib.metadata
import json
import subprocess
from typing import Any

from federated_hh.files import custom_code, installation

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

    Of installed packages, which may stand in a repository of somebody else's, it is
    the version.
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


# Each reads and parses a file.
_package_version = functools.cache(importlib.metadata.version)


@functools.cache
def sources_digest() -> str:
    """Returns a hash of this code: 16 hexadecimal digits.

    Tells changed code apart where `version` cannot: with changes that are not
    committed, and without git.
    """
    root = installation.HOME
    total = hashlib.sha256()
    for package in custom_code.ROOMS:
        for file in sorted((root / package).rglob("*.py")):
            total.update(f"{file.relative_to(root)}\0".encode())
            total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:16]


def digest() -> str:
    """Returns a hash of all versions that can change a result."""
    versions = {**package_versions(), "this code": sources_digest()}
    return hashlib.sha256(json.dumps(versions).encode()).hexdigest()[:16]


def digest_with(*values: Any) -> str:
    """Returns a hash of `digest` and of code of the user's own.

    Args:
        *values: What is made by it; see `own_code`.
    """
    text = digest() + custom_code.digest(values)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def changed_versions(run: dict[str, Any]) -> list[str]:
    """Returns what has another version now than when a run began, as texts.

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
