"""Studies' runs of training as forks of a process that has TensorFlow."""

import subprocess
from unittest import mock

from tests import forked_programs

_run = subprocess.run


def patched():
    """Returns a patch that makes `training_runs.train` start forks."""

    def run(command, **options):
        if "-m" not in command:
            return _run(command, **options)
        _, _, _, module, *flags = command
        return forked_programs.run(module, *flags)

    return mock.patch.object(subprocess, "run", run)
