"""Prepares a pytest run as `absltest.main()` and the binaries prepare theirs."""

import ast
import functools
import os
import pathlib

import pytest
from absl import flags, logging

from federated_hh.runtime.worker import startup

# Whatever the processor, as tests compare bits.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
startup.silence_tensorflow()

# Temporary directories of absl's tests are flags.
if not flags.FLAGS.is_parsed():
    flags.FLAGS(["pytest"])


@functools.cache
def large_files() -> frozenset[pathlib.Path]:
    """Returns the test files that tests/BUILD lists as large."""
    here = pathlib.Path(__file__).parent
    found = set()
    for call in ast.walk(ast.parse((here / "BUILD").read_text())):
        if not isinstance(call, ast.Call):
            continue
        given = {word.arg: word.value for word in call.keywords}
        if ast.unparse(call.func) == "room_tests" and "large" in given:
            folder = here / ast.literal_eval(call.args[0])
            for name in ast.literal_eval(given["large"]):
                found |= set(folder.rglob(f"{name}.py"))
        elif ast.unparse(given.get("size", call.func)) == "'large'":
            found |= {here / name for name in ast.literal_eval(given["srcs"])}
    return frozenset(found)


def pytest_ignore_collect(
    collection_path: pathlib.Path, config: pytest.Config
) -> bool | None:
    """Leaves out large files where none of their tests is asked for: imports cost."""
    if config.option.markexpr == "not program" and collection_path in large_files():
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of large files, so that `-m "not program"` leaves them out."""
    for item in items:
        if item.path in large_files():
            item.add_marker(pytest.mark.program)


@pytest.fixture(autouse=True)
def log_everything():
    """Lets tests see what is logged, whatever ran before them."""
    logging.set_verbosity(logging.INFO)
