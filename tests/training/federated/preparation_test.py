"""Tests that what a user sets reaches what runs."""

import tempfile

from absl.testing import absltest, parameterized

from federated_hh.options import fields
from federated_hh.populations import vocabulary
from federated_hh.populations.columns import client_text
from federated_hh.rounds import steps
from tests.training import training_test_case as common
from training.federated import model_average, plans, preparation
from training.federated.options import TrainingOptions

_GIVEN = {
    "cohort_size": 10,
    "num_rounds": 20,
    "num_units": 3,
    "embedding_size": 2,
    "num_held_out_clients": 4,
    "clip_norm": 1.0,
    "noise_multiplier": 0.5,
}
_ADAPTIVE = {"adaptive_clip": True}
_ADAM = {"server_optimizer": "adam"}
_BLT, _BANDED = {"mechanism": "blt"}, {"mechanism": "banded"}
_ROTATED = {"update_encoding": "rotated"}
# Of each option another value, and with which others it counts.
_OTHER: dict[str, tuple[object, dict[str, object]]] = {
    "adaptive_clip": (True, {}),
    "target_quantile": (0.25, _ADAPTIVE),
    "clip_learning_rate": (0.5, _ADAPTIVE),
    "clipped_count_stddev": (7.0, _ADAPTIVE),
    "first_restart": (5, _ADAPTIVE),
    "restart_period": (6, {**_ADAPTIVE, "first_restart": 2}),
    "server_learning_rate": (0.75, {}),
    "server_optimizer": ("adam", {}),
    "momentum": (0.25, {}),
    "server_beta1": (0.25, _ADAM),
    "server_beta2": (0.25, _ADAM),
    "server_epsilon": (0.25, _ADAM),
    "model_average": (0.25, {}),
    "num_units": (5, {}),
    "embedding_size": (3, {}),
    "initial_bias": ("public", {}),
    "max_sentences": (3, {}),
    "max_words": (3, {}),
    "batch_size": (3, {}),
    "num_held_out_clients": (5, {}),
    "mechanism": ("dp_fedavg", {}),
    "blt_buffers": (1, _BLT),
    "bands": (3, _BANDED),
    "cohort_size": (11, {}),
    "num_rounds": (21, {}),
    "noise_multiplier": (0.75, {}),
    "epsilon": (9.0, {"noise_multiplier": None}),
    "clip_norm": (0.5, {}),
    "update_encoding": ("rotated", {}),
    "rounding_scale": (1e4, _ROTATED),
    "client_learning_rate": (0.25, {}),
    "client_epochs": (2, {}),
    "over_selection": (1.5, {}),
    "drop_out": (0.25, {"over_selection": 2.0}),
    "timer_hours": (1, {}),
    "round_minutes": (7, {}),
    "min_separation": (2, {}),
    "max_participation": (2, {}),
    "diurnal": (False, {}),
    "precision": ("bfloat16", {}),
}
# What a run reports, and in which parts it works.
_NOT_OF_SUMS = {"delta": 1e-5, "evaluate_every": 3, "checkpoint_every": 3}
_NOT_OF_SUMS |= {"num_blocks": 3, "allow_useless_noise": True}
_NOT_OF_SUMS["allow_unknown_words"] = True
# Tested where runs are: of the words, of networks and weights of the user's own, and of
# the process.
_ELSEWHERE = {"vocabulary", "vocabulary_size", "model", "initial_model", "onednn"}
_ELSEWHERE |= {"tied_embeddings"}


class PreparationTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.words = vocabulary.Vocabulary.of_language(common.NUM_TOKENS - 4)
        scratch = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.text = client_text.ClientText.from_rows(
            f"{scratch}/text", [(str(i), [[4, 5, 6]]) for i in range(400)]
        )

    def facts(self, **changes):
        """Returns what a run is, to those who resume it, of some options."""
        options = TrainingOptions(**_GIVEN | changes)
        prepared = preparation.prepare(options, self.words, self.text, seed=1)
        size = prepared.network.num_parameters()
        return steps.facts_of(
            prepared.algorithm(
                plans.plan(options, len(prepared.clients.training), size),
                options.optimizer(),
                model_average.ModelAverage.of(options.model_average),
            )
        )

    def test_all_options_are_tried(self):
        tried = [*_OTHER, *_NOT_OF_SUMS, *_ELSEWHERE]
        self.assertCountEqual(tried, fields.fields_of(TrainingOptions))

    @parameterized.parameters(*_OTHER)
    def test_another_value_is_another_run(self, name):
        value, given = _OTHER[name]
        self.assertNotEqual(self.facts(**given), self.facts(**given | {name: value}))

    def test_what_is_of_no_sum_can_change(self):
        self.assertEqual(self.facts(), self.facts(**_NOT_OF_SUMS))


if __name__ == "__main__":
    absltest.main()
