"""Tests of the numbers that programs take: what nobody can mean is refused at once.

`run_accounting_test` holds the same of its program.
"""

import json
import os
import subprocess
import sys

from absl.testing import absltest, parameterized

from tests import ROOT

# A program, flags that it needs, and the values that it takes all the same.
_PROGRAMS = (
    ("federated_hh.run_triehh", ("--epsilon=4",), set()),
    ("federated_hh.run_ldp_triehh", (), {("epsilon", "inf")}),
    ("federated_hh.run_opt_prefix_tree", (), {("epsilon", "inf")}),
    ("federated_hh.run_set_union", (), set()),
    ("federated_hh.run_statistics", (), set()),
    ("training.run_training", ("--cohort_size=5", "--clip_norm=1"), set()),
    ("scripts.reproduce", ("--study=oov_table1",), set()),
)
_TRY = """
import importlib, json, sys
from absl import flags
module = importlib.import_module(sys.argv[1])
from federated_hh.command_line import experiment_flags
given = [sys.argv[1], *sys.argv[2:]]
if hasattr(module, "define_study_flags"):
    module.define_study_flags(given)
sys.argv = [module.__file__]
flags.FLAGS(given)
# A check that a program adds to that of its options, or theirs alone.
check_flags = getattr(module, "_check_flags", None) or module._PROGRAM.check
check_flags()  # so that what is refused below is refused for its value
tried, taken = 0, []
for name in [f.name for f in flags.FLAGS.get_key_flags_for_module(module.__name__)]:
    kind = flags.FLAGS[name].flag_type()
    if kind not in ("int", "float"):
        continue
    for value in {
        "int": ("-1", str(2**64), str(2**70)), "float": ("-1", "1e300", "inf", "nan")
    }[kind]:
        flags.FLAGS.unparse_flags()
        tried += 1
        try:
            flags.FLAGS([*given, f"--{name}={value}"])
            experiment_flags.check_numbers([name])
            check_flags()
            taken.append((name, value))
        except (flags.Error, ValueError):
            pass
print(json.dumps([tried, sorted(set(taken))]))
"""


class FlagsTest(parameterized.TestCase):
    @parameterized.parameters(*_PROGRAMS)
    def test_every_number_has_bounds(self, program, given, allowed):
        done = subprocess.run(
            [sys.executable, "-P", "-c", _TRY, program, *given],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        tried, taken = json.loads(done.stdout)
        self.assertGreater(tried, 10)
        self.assertEqual({tuple(pair) for pair in taken}, allowed)


if __name__ == "__main__":
    absltest.main()
