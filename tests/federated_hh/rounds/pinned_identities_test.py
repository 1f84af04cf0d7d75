"""Pins what random numbers depend on, so that moving code changes no result."""

import importlib
import inspect
from unittest import mock

from absl.testing import absltest, parameterized

from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.dp_ftrl import blt, correlated_noise, toeplitz, update_noise
from federated_hh.randomness import identities, noise_keys
from federated_hh.rounds import algorithm, samplers, steps, timers
from federated_hh.runtime.worker import startup
from tests import ROOT
from tests.federated_hh.rounds import contract_cases

_KEY = noise_keys.NoiseKey(7, is_secret=True)
# By case: its identity at seed 7, and the digest of all sums of its first repeat.
_PINNED = {
    "tally": ["9527e9196e87e633", "86db0e1ae71c906c"],
    "tally_saved_seldom": ["9527e9196e87e633", "86db0e1ae71c906c"],
    "triehh": ["4cf6404d86ade9ee", "1fb8b373073482d9"],
    "ldp_triehh": ["790ee4eb8f1c469e", "53f9e753ba2e7030"],
    "median_length": ["2d0899fec6e6bb46", "9ea391f3b872a969"],
    "opt_prefix_tree": ["ea673aab38f5f0ad", "dfd8dfd2cdb57878"],
    "sfp": ["ac4ea72ecef9787b", "45c319cbd7008696"],
    "set_union": ["12d64cfc0c6b5bda", "b5747c9d0d7a4d1b"],
    "set_union_adaptive": ["bb9b4fcb114c589d", "93c3304f31bbb01a"],
    "statistics": ["2ed6ab093717cc94", "fe8dca328b88b673"],
    "statistics_two_servers": ["34a76f6433c481c7", "ba177d7410620fea"],
    "distribution": ["f9a375af2e7d4969", "0dbd09d1e5a20504"],
    "sums": ["325b96b7ccd8b9cd", "a9027324758ab317"],
    "long_sums": ["aee00f07b9768f96", "91753f07efdbfae8"],
    "rotated": ["070241de1e8271e5", "fa5933f1ea8e218a"],
    "training": ["6b7ed516184606fe"],
}
_TEXTS = {
    "Everybody(num_clients=9)": samplers.Everybody(9),
    "BandedNoise(num_rounds=4, clip_norm=0.5, noise_multiplier=2.0, "
    "adaptive_clip=None, restart_rounds=(), matrix=SquareRoot(bands=3))": (
        correlated_noise.BandedNoise(
            num_rounds=4,
            clip_norm=0.5,
            noise_multiplier=2.0,
            matrix=toeplitz.SquareRoot(3),
        )
    ),
    "Blt(forgotten=(0.5,), weights=(0.25,))": blt.Blt((0.5,), (0.25,)),
    "GaussianNoise(num_rounds=4, clip_norm=0.5, noise_multiplier=2.0, "
    "adaptive_clip=None)": update_noise.GaussianNoise(
        num_rounds=4, clip_norm=0.5, noise_multiplier=2.0
    ),
    "DiurnalAvailability(mean_charging=0.375, amplitude=0.225, idle_share=0.5)": (
        timers.DiurnalAvailability()
    ),
}
# What algorithms and plans are made of.
_PARTS = (
    algorithm.Algorithm,
    plan_lib.Sampler,
    plan_lib.Contribution,
    plan_lib.Mechanism,
    toeplitz.Matrix,
)


class PinnedTest(parameterized.TestCase):
    @parameterized.parameters(*contract_cases.CASES)
    def test_identity_and_history(self, case):
        folder = self.create_tempdir().full_path
        # They are of the processor, which is no part of what is pinned.
        self.enter_context(mock.patch.object(startup, "arithmetic", return_value={}))
        made = contract_cases.CASES[case].make(folder, "a", "a")
        found = [steps.identity_of(made, 7, "")]
        if case != "training":  # its sums are rounded as the processor does
            by_hand = steps.Steps(made, seed=7, noise_key=_KEY)
            place = by_hand.begin()
            with made.worker():
                while (query := made.next_query(place.state)) is not None:
                    drawn = by_hand.draw(place)
                    total = by_hand.ask(place, query, drawn.cohort)
                    place = by_hand.update(place, query, drawn, total).progress
            found.append(place.history.hex())
        self.assertEqual([text[:16] for text in found], _PINNED[case])

    def test_texts_of_parts(self):
        for text, part in _TEXTS.items():
            self.assertEqual(identities.canonical(part), text)

    def test_every_part_of_the_house_has_an_identity(self):
        for root in ("federated_hh", "training"):
            for path in (ROOT / root).rglob("*.py"):
                if "__main__" not in path.read_text():
                    module = path.relative_to(ROOT).with_suffix("")
                    importlib.import_module(".".join(module.parts))
        found = []
        for part in _PARTS:
            waiting = list(part.__subclasses__())
            while waiting:
                kind = waiting.pop()
                waiting += kind.__subclasses__()
                found.append(kind)
        self.assertNotEmpty(found)
        for kind in set(found):
            if kind.__module__.partition(".")[0] in ("tests", "examples", "__main__"):
                continue
            if inspect.isabstract(kind):
                continue
            with self.subTest(kind.__qualname__):
                self.assertTrue(identities.has_identity(kind))


if __name__ == "__main__":
    absltest.main()
