"""Tests of what tells one version of the code from another."""

import functools
import importlib
import linecache
import pathlib
import sys
import types
from unittest import mock

from absl.testing import absltest, parameterized

from federated_hh.files import software


class _Holder:
    def __init__(self, held):
        self.held = held


class SoftwareTest(absltest.TestCase):
    def test_the_digest_is_of_the_sources(self):
        digest = software.sources_digest()
        self.assertRegex(digest, "^[0-9a-f]{16}$")
        read = pathlib.Path.read_bytes

        def changed(path):
            return read(path) + b"\n" * path.match("federated_hh/files/software.py")

        with mock.patch.object(pathlib.Path, "read_bytes", changed):
            self.assertNotEqual(software.sources_digest.__wrapped__(), digest)
        self.assertEqual(software.sources_digest.__wrapped__(), digest)


class OwnModulesTest(parameterized.TestCase):
    @parameterized.parameters(
        (("class Mine: x = 1",), ("class Mine: x = 2",)),
        # What it imports, and what that imports.
        (
            ("from more_of_a_user import f\nclass Mine: x = f", "def f(): return 1"),
            ("from more_of_a_user import f\nclass Mine: x = f", "def f(): return 2"),
        ),
        # A constant, and an import in a function.
        (
            ("from more_of_a_user import X\nclass Mine: x = X", "X = 1"),
            ("from more_of_a_user import X\nclass Mine: x = X", "X = 2"),
        ),
        (
            ("class Mine:\n  def f(self):\n    import more_of_a_user", "X = 1"),
            ("class Mine:\n  def f(self):\n    import more_of_a_user", "X = 2"),
        ),
    )
    def test_the_source_of_a_users_module_counts(self, *versions):
        found = set()
        for source, *more in versions:
            folder = pathlib.Path(self.create_tempdir().full_path)
            (folder / "module_of_a_user.py").write_text(source)
            for imported in more:
                (folder / "more_of_a_user.py").write_text(imported)
            sys.path.insert(0, str(folder))
            try:
                module = importlib.import_module("module_of_a_user")
                found.add(software.digest_with(module.Mine()))
                self.assertEqual(
                    software.digest_with(module.Mine),
                    software.digest_with(module.Mine()),
                )
            finally:
                sys.path.remove(str(folder))
                del sys.modules["module_of_a_user"]
                sys.modules.pop("more_of_a_user", None)
                linecache.clearcache()
                importlib.invalidate_caches()
        self.assertLen(found, 2)

    def test_what_objects_hold_counts(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / "held_by_a_user.py").write_text("class Held: pass\ndef f(): pass")
        with mock.patch.object(sys, "path", [str(folder), *sys.path]):
            module = importlib.import_module("held_by_a_user")
            nothing = software.digest_with(_Holder([1]))
            for held in (module.Held(), {"a": [module.f]}, functools.partial(module.f)):
                found = software.digest_with(_Holder(held))
                self.assertNotEqual(found, nothing, held)
        del sys.modules["held_by_a_user"]

    def test_modules_that_raise_do_no_harm(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / "odd_of_a_user.py").write_text(
            "class Raises:\n"
            "  def __getattribute__(self, name): raise RuntimeError(name)\n"
            "x = Raises()\n"
            "class Mine: pass"
        )
        with mock.patch.object(sys, "path", [str(folder), *sys.path]):
            module = importlib.import_module("odd_of_a_user")
            with mock.patch.dict(sys.modules, {"lazy_of_a_user": module.x}):
                self.assertLen(software.digest_with(module.Mine()), 16)
        del sys.modules["odd_of_a_user"]
        self.assertEqual(software.digest_with(1), software.digest_with("a"))

    @parameterized.parameters(
        ("", True),
        ("# a remark, and another line\n\n", True),
        ("import math\ndef unused(): return math.pi\n", True),
        ("FACTOR = 3\n", False),
        ("def helper(x): return x + 2\n", False),
        ("class Base:\n  def g(self): return 2\n", False),
        ("LIST = [1, {'a': 3}]\n", False),
        ("def helper(x, *, k=4): return x + 1\n", False),
    )
    def test_cells_of_a_notebook_count(self, change, is_same):
        cells = """
FACTOR = 2
LIST = [1, {'a': 2}]
def helper(x, *, k=3): return x + 1 if x in {"the", "of"} else LIST
class Base:
    def g(self): return 1
"""
        mine = """
class Mine(Base):
    def f(self, x): return [helper(v) * FACTOR for v in x]
"""
        found = set()
        for source in (cells + mine, cells + change + mine):
            main = types.ModuleType("__main__")
            # As in a notebook: of a module without a file.
            exec(compile(source, "<cell>", "exec"), vars(main))
            with mock.patch.dict(sys.modules, {"__main__": main}):
                found.add(software.digest_with(main.Mine()))
        self.assertEqual(len(found) == 1, is_same)


if __name__ == "__main__":
    absltest.main()
