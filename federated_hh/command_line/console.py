"""The programs by the names that they have where the packages are installed.

Each of the console scripts calls `main`, which runs the module of its name as
`python -m MODULE` does.
"""

import importlib.util
import os
import pathlib
import runpy
import sys

from federated_hh.files import installation


def main() -> None:
    """Runs the program that the script is named for."""
    name = pathlib.Path(sys.argv[0]).name
    if sys.argv[1:2] in (["--completion"], ["--complete"]):
        from federated_hh.command_line import programs

        sys.exit(programs.main(sys.argv[1:]))
    if sys.argv[1:2] == ["--version"]:
        print(installation.release())
        return
    # Custom algorithms, models and randomizers are in the current directory, which is
    # last so that no folder there hides one of these packages.
    sys.path.append(os.getcwd())
    module = installation.console_scripts()[name]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except ModuleNotFoundError as error:
        if importlib.util.find_spec("tensorflow_federated"):
            raise
        print(
            f"error: {name} needs {error.name}, which the extra `simulation` installs "
            "on Python 3.11; docs/guide/installing.md says how.",
            file=sys.stderr,
        )
        sys.exit(2)
