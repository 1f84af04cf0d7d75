"""The benchmarks' harness: flags, a case's main, its tables, and how they were made.

A case is a module: a dataclass of options, a function that measures, and a `Case` of
both, whose `main` is the program.
"""

import dataclasses
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from absl import flags

from federated_hh.options import option_flags
from federated_hh.options.fields import check, option
from federated_hh.runtime.worker import startup

if TYPE_CHECKING:
    import pandas as pd

# So that flags belong to the case.
flags.disclaim_key_flags()

_DIGITS = 6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """A case's options; each class of them is checked."""

    def __post_init__(self):
        check(self)


def results_dir(folder: str) -> Any:
    """Returns the option of a case's folder of results."""
    return option(f"results/{folder}", "Folder of the tables.")


class Run:
    """A measurement that goes on: scratch space, and a folder of tables and plots.

    Attributes:
        scratch: Directory that is removed at the end.
        about: Record of how the tables were made, for about.json.
        about_name: Name of that file.
    """

    def __init__(self, scratch: str, directory: str | None, data: str | None):
        """Notes the state of the code, before results change the tree.

        Args:
            scratch: Directory that is removed at the end.
            directory: Folder of results, made if it does not exist; None to print
                tables only.
            data: Description of the data.
        """
        from federated_hh.files import software

        spec = sys.modules["__main__"].__spec__
        program = spec.name if spec else sys.argv[0]
        command = " ".join(["scripts/run", program, *sys.argv[1:]])
        self.scratch, self._directory = scratch, directory
        packages = software.package_versions()
        self.about_name = "about.json"
        self.about: dict[str, Any] = {
            # Neither directory changes a result.
            "command": re.sub(r" --?(cache|results)_dir[= ]\S+", "", command),
            "commit": software.version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "load_average": os.getloadavg(),
            "versions": {
                "python": platform.python_version(),
                **{name: packages[name] for name in ("numpy", "tensorflow")},
            },
        }
        if data is not None:
            self.about["data"] = data
        if directory is not None:
            self.use(directory)

    def use(self, directory: str) -> None:
        """Sets the folder of results, made if it does not exist."""
        self._directory = directory
        os.makedirs(directory, exist_ok=True)

    def write(self, name: str, contents: bytes) -> None:
        """Writes a file, such as a plot."""
        from federated_hh.files import atomic_files

        if self._directory is not None:
            atomic_files.write_file(os.path.join(self._directory, name), contents)

    def show(self, name: str, table: "pd.DataFrame", digits: int = _DIGITS) -> None:
        """Prints a table, the last 60 rows of a long one, and writes it.

        Args:
            name: File name without ".csv".
            table: The table.
            digits: Significant digits in the file.
        """
        from federated_hh.files import tables

        shown = table.tail(60).to_string(index=False, float_format="{:.4g}".format)
        print(f"\n{name}\n{shown}", flush=True)
        self.write(
            f"{name}.csv", tables.write(table, significant_digits=digits).encode()
        )

    def plot(
        self,
        name: str,
        figure: Any,
        axes: Any,
        *,
        logarithmic: str = "xy",
        **legend: Any,
    ) -> None:
        """Writes a plot with a legend.

        Args:
            name: File name without ".png".
            figure: A figure of `reports.plots`.
            axes: Its axes.
            logarithmic: The axes with a logarithmic scale: "x", "y", "xy" or "".
            **legend: Options of the legend.
        """
        from federated_hh.reports import plots

        for letter in logarithmic:
            getattr(axes, f"set_{letter}scale")("log")
        axes.legend(frameon=False, **legend)
        self.write(f"{name}.png", plots.png(figure))

    def text(self) -> str:
        """Returns the record of how the tables were made, as JSON."""
        return json.dumps(self.about, indent=2) + "\n"


Measure = Callable[[Any, Run], str | None]


class Case:
    """A benchmark: options, a measurement, and the program of both."""

    def __init__(self, options: type, measure: Measure, data: str | None = None):
        """Registers the options' flags for the module that calls.

        Args:
            options: Dataclass of options; `results_dir`, if there is one, is where
                tables go.
            measure: Given options and a `Run`, measures, and shows tables; returns an
                error to end with, or None.
            data: Description of the data, for about.json.
        """
        self._flags: option_flags.OptionFlags[Any] = option_flags.define(options)
        self._measure, self._data = measure, data
        self.parse = self._flags.parse

    def main(self, argv: list[str]) -> None:
        """Measures, prints and writes; ends with exit code 1 on an error."""
        del argv
        startup.silence_tensorflow()
        options = self._flags.read()
        with tempfile.TemporaryDirectory(prefix="benchmark_") as scratch:
            run = Run(scratch, getattr(options, "results_dir", None), self._data)
            problem = self._measure(options, run)
            run.write(run.about_name, run.text().encode())
        if problem:
            sys.exit(f"error: {problem}")


def one_thread() -> None:
    """Makes TensorFlow compute with one thread, before it has computed anything."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def cpu_seconds(work: Callable[[], object]) -> float:
    """Returns the processor seconds of this process for a piece of work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def seconds(work: Callable[[], object]) -> float:
    """Returns the seconds of a piece of work."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
