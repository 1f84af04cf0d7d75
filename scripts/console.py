"""The programs by the names that they have where the packages are installed.

Each of the console scripts calls `main`, which runs the module of its name as
`python -m MODULE` does.
"""

import os
import pathlib
import runpy
import sys

from simulation import installation

# By the names in pyproject.toml.
PROGRAMS = {
    "run-triehh": "federated_hh.run_triehh",
    "run-ldp-triehh": "federated_hh.run_ldp_triehh",
    "run-statistics": "federated_hh.run_statistics",
    "run-algorithm": "rounds.run_algorithm",
    "run-training": "training.run_training",
    "pretrain": "training.pretrain",
    "predict-next-word": "training.predict_next_word",
    "evaluate-keyboard": "training.evaluate_keyboard",
    "run-accounting": "privacy.run_accounting",
    "fit-population": "simulation.fit_population",
    "reproduce": "scripts.reproduce",
    "compare-runs": "scripts.compare",
}


def main() -> None:
    """Runs the program that the script is named for."""
    name = pathlib.Path(sys.argv[0]).name
    if sys.argv[1:2] in (["--completion"], ["--complete"]):
        from scripts import programs  # which imports this module

        sys.exit(programs.main(sys.argv[1:]))
    if sys.argv[1:2] == ["--version"]:
        print(installation.release())
        return
    # Algorithms, models and randomizers of the user's own stand in the directory; they
    # come last, so that no folder there hides one of these packages.
    sys.path.append(os.getcwd())
    runpy.run_module(PROGRAMS[name], run_name="__main__", alter_sys=True)
