"""Tests of client work that XLA compiles: the worker's bits, in few executables."""

import collections
import json
import os
import re
import subprocess
import sys

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.runtime.worker import engine_options

# All rounds of each finder, in a process in which XLA has not yet read its flags.
_ROUNDS = """
import json, sys
import numpy as np
import tensorflow as tf
from federated_hh.heavy_hitters import alphabet, contributions, selection
from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh import parameters as ldp_triehh_parameters
from federated_hh.heavy_hitters.triehh import algorithm as triehh
from federated_hh.populations import population
from federated_hh.populations.languages import tokenizers
from federated_hh.privacy.triehh import guarantees
from federated_hh.randomness import noise_keys
from federated_hh.rounds import steps
from federated_hh.runtime import runtime
from federated_hh.runtime.worker import engine_options, startup
from tests.federated_hh.rounds import contract_cases

directory, backend = sys.argv[1:]
startup.prepare_in_process()
if backend == "xla":
    # A second device stands for a GPU.
    one = tf.config.LogicalDeviceConfiguration()
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [one, one])
    tf.debugging.set_log_device_placement(True)
    engine_options.choose(engine_options.RuntimeOptions(
        engine_options.Runtime.IN_PROCESS, "/CPU:1", xla=True))
words, generated = (
    population.prepare_words(population.PopulationOptions(
        num_clients=3000, seed=1, tokenizer="triehh", source=source,
        empty_clients="keep"), directory)
    for source in ("synthetic", "generated"))
symbols = alphabet.Alphabet(tokenizers.get_tokenizer("triehh").alphabet)

def votes(selected, words=words):
    parameters = guarantees.TrieHHParameters(words.num_clients, 1001, 4, 5)
    plan = triehh.plan_of(parameters, selection.WordSelection(selected))
    return triehh.TrieHH(words, plan, symbols)

def reports(sampling, epsilon, max_prefixes, words=words):
    parameters = ldp_triehh_parameters.LdpTrieHHParameters(
        cohort_size=1001, max_depth=2, max_prefixes=max_prefixes,
        contribution_bound=3, epsilon=epsilon,
        sampler=contributions.ItemSampler.GREEDY)
    return ldp_triehh.LdpTrieHH(
        words, parameters, symbols, num_blocks=2,
        report_sampling=ldp_triehh_parameters.ReportSampling(sampling))

def sums(finder):
    by_hand = steps.Steps(finder, seed=2, noise_key=noise_keys.NoiseKey.of_seed(2))
    progress = by_hand.begin()
    while (query := finder.next_query(progress.state)) is not None:
        drawn = by_hand.draw(progress)
        total = by_hand.ask(progress, query, drawn.cohort)
        yield [np.asarray(part).tolist() for part in tf.nest.flatten(total)]
        progress = by_hand.update(progress, query, drawn, total).progress

finders = {
    "most_frequent": votes("most_frequent"),
    "by_frequency": votes("by_frequency"),
    "aggregate": reports("aggregate", 4.0, 20),
    "rows_drawn_again": reports("per_report", 3.0, 5),
    "more_draws_than_items": reports("per_report", 1.0, 20),
    "complements": reports("per_report", 0.1, 5),
    "votes_generated": votes("by_frequency", generated),
    "reports_generated": reports("per_report", 4.0, 20, generated),
    **{
        name: contract_cases.CASES[name].make(f"{directory}/{backend}-{name}", "a", "a")
        for name in ("opt_prefix_tree", "sfp", "set_union", "median_length")
    },
}
with runtime.computing():
    for name, finder in finders.items():
        print(json.dumps([name, list(sums(finder))]), flush=True)
"""


def _run(directory: str, backend: str) -> tuple[dict, list[str], dict]:
    """Returns the sums of each finder's rounds, and how they were computed.

    Returns:
        The sums by finder; the functions that XLA compiled; operations' devices.
    """
    hlo = os.path.join(directory, f"hlo-{backend}")
    done = subprocess.run(
        [sys.executable, "-c", _ROUNDS, directory, backend],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "XLA_FLAGS": f"--xla_dump_to={hlo} --xla_dump_hlo_as_text",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    files = os.listdir(hlo) if os.path.isdir(hlo) else []
    names = [
        re.match(r"module_\d+\.a_inference_(\w+?)_\d+_.*before_opt", f) for f in files
    ]
    sums = dict(
        json.loads(line) for line in done.stdout.splitlines() if line[:1] == "["
    )
    devices = collections.defaultdict(set)
    placed = re.findall(
        r"\((\w+)\): .*device:(\w+:\d)$", done.stdout + done.stderr, re.MULTILINE
    )
    for kind, device in placed:
        devices[kind].add(device)
    return sums, [name[1] for name in names if name], devices


class CompiledRoundsTest(absltest.TestCase):
    def test_bits_are_the_workers(self):
        directory = self.create_tempdir().full_path
        expected, compiled_by_worker, _ = _run(directory, "worker")
        found, compiled, devices = _run(directory, "xla")
        self.assertEqual(compiled_by_worker, [])
        self.assertEqual(list(found), list(expected))
        for name, rounds in expected.items():
            self.assertEqual(found[name], rounds, name)
            total = sum(np.sum(part) for sums in rounds for part in sums)
            self.assertGreater(total, 10, name)
        # Votes have one executable a round, as all blocks have the same shapes. The
        # last of the two blocks has fewer reports, and each level other candidates.
        self.assertEqual(
            collections.Counter(compiled),
            {"votes_of_symbols": 15, "counted": 8, "_attempt": 16, "tally": 16},
        )
        # No column crosses to the device.
        for kind in ("ImmutableConst", "RaggedRange"):
            self.assertEqual(devices[kind], {"CPU:0"}, kind)
        self.assertEqual(devices["PartitionedCall"], {"CPU:1"})


class OptionsTest(parameterized.TestCase):
    def test_the_worker_cannot_compile(self):
        with self.assertRaisesRegex(ValueError, "--xla is for --runtime=in_process"):
            engine_options.RuntimeOptions(xla=True)


if __name__ == "__main__":
    absltest.main()
