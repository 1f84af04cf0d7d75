"""Tests of runs in other languages: twenty in one process, demos as programs."""

import dataclasses
import math
import pathlib
import re

from absl.testing import absltest, parameterized

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import selection
from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh.options import LdpTrieHHOptions
from federated_hh.heavy_hitters.triehh import algorithm as triehh
from federated_hh.heavy_hitters.triehh.options import TrieHHOptions
from federated_hh.populations import client_sentences, population, vocabulary
from federated_hh.populations.columns import left_out
from federated_hh.populations.languages import (
    languages,
    sentence_tokenizers,
    tokenizers,
)
from federated_hh.populations.options import population_options
from federated_hh.randomness import noise_keys
from federated_hh.rounds import run
from federated_hh.run_directory import directory as run_directory
from tests import ROOT, forked_programs, short_word_lists
from training.federated import held_out, plans, preparation
from training.federated.options import TrainingOptions
from training.keyboard import layout as layout_lib
from training.reports import federated as training_report

# Every script, layout of another geometry, and rule of spelling.
_TWENTY = (
    *("ar", "bn", "ca", "cs", "de", "el", "es", "fa", "fi", "fr", "he", "hi", "it"),
    *("ko", "nb", "pl", "ru", "ta", "tr", "uk"),
)
_TINY = {
    "num_units": 4,
    "embedding_size": 4,
    "max_words": 5,
    "max_sentences": 2,
    "batch_size": 4,
    "num_held_out_clients": 20,
    "cohort_size": 10,
    "num_rounds": 5,
    "noise_multiplier": 1e-3,
    "clip_norm": 1.0,
    "client_learning_rate": 1.0,
    "diurnal": False,
    "num_blocks": 1,
}


class LanguagesTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        # The tail of the large lists takes seconds, and few of its words are typed.
        short_word_lists.use(self, 30_000)
        self.scratch = pathlib.Path(self.create_tempdir().full_path)

    def _run(self, algorithm, name, observers=()):
        made = run_directory.RunDirectory.create(
            self.scratch / name,
            program=name,
            flags=(),
            facts={},
            noise_key=noise_keys.NoiseKey.of_seed(1),
        )
        with made:
            done = run.run(algorithm, made, seed=1, observers=observers)
            return done.states[0], made.metrics()

    @parameterized.parameters(*_TWENTY)
    def test_words_of_the_language(self, code):
        options = population_options.PopulationOptions(
            language=code, num_clients=4000, mean_words_per_client=10.0
        )
        clients = population.prepare(options, self.scratch)
        lost = left_out.LeftOut.of(clients)
        if lost is not None:
            self.assertLess(lost.share, 0.05)
            self.assertEqual(lost.remedy, "")
        split = tokenizers.get_tokenizer("words").split
        listed = {each for word in languages.words(code) for each in split(word)}
        self.assertContainsSubset(clients.words.to_pylist(), listed)
        alphabet = alphabet_lib.Alphabet(options.characters)

        parameters = TrieHHOptions(epsilon=8, delta="1e-4", max_length=6)
        plan = triehh.plan_of(
            parameters.parameters_for(clients.num_clients),
            selection.WordSelection.MOST_FREQUENT,
        )
        state, _ = self._run(triehh.TrieHH(clients, plan, alphabet), "triehh")
        found = [word.text for word in state.trie.words()]
        self.assertNotEmpty(found)
        self.assertContainsSubset(found, listed)

        reports = LdpTrieHHOptions(
            epsilon=10,  # with which 4,000 clients suffice for words of three letters
            cohort_size=1000,
            max_depth=3,
            max_prefixes=100,
            contribution_bound=10,
        )
        algorithm = ldp_triehh.LdpTrieHH(clients, reports.parameters(), alphabet)
        state, _ = self._run(algorithm, "ldp_triehh")
        found = [word.text for word in state.found]
        self.assertGreaterEqual(len(found), 5)
        self.assertContainsSubset(found, listed)

        words = vocabulary.Vocabulary.of_language(50, code)
        self.assertContainsSubset(words.words, listed)
        layout = layout_lib.KeyboardLayout.of(None, code)
        self.assertTrue(layout.can_type(words.words[0]))
        text = client_sentences.prepare(
            dataclasses.replace(options, num_clients=100),
            words,
            sentence_tokenizers.get_sentence_tokenizer("keyboard"),
            self.scratch,
            population_options.LanguageOptions(context_words=20),
        )
        training = TrainingOptions(**_TINY)
        prepared = preparation.prepare(training, words, text, 1)
        size = prepared.network.num_parameters()
        plan = plans.plan(training, len(prepared.clients.training), size)
        evaluation = held_out.Evaluation(prepared.rounds, prepared.clients.held_out)
        algorithm = prepared.algorithm(plan, training.optimizer())
        _, metrics = self._run(algorithm, "training", [evaluation])
        # An untrained model gives all tokens the same probability.
        self.assertLess(
            metrics["held_out_loss"].iloc[-1], math.log(words.num_tokens) - 0.5
        )


class VocabularyTest(absltest.TestCase):
    def test_capitals_need_a_vocabulary_with_capitals(self):
        options = TrainingOptions(**_TINY)
        with self.assertRaisesRegex(ValueError, "--case=keep: .*--vocabulary=text:"):
            options.read_vocabulary(population_options.PopulationOptions(case="keep"))

    def test_a_command_begins_with_words_of_the_vocabulary(self):
        for words, expected in (
            (["are", "how"], '"how are"'),
            (["और", "how"], "'और'"),
            (["$(x)"], "'$(x)'"),
        ):
            begins = training_report.first_words(vocabulary.Vocabulary(words))
            self.assertEqual(begins, expected)


class DemosTest(parameterized.TestCase):
    @parameterized.product(
        code=["de", "ru", "hi", "ko"], program=["ldp_triehh", "training"]
    )
    def test_demo(self, code, program):
        scratch = pathlib.Path(self.create_tempdir().full_path)
        done = forked_programs.run(
            program,
            f"--flagfile={ROOT / f'configs/{program}_language.flagfile'}",
            f"--language={code}",
            f"--output_dir={scratch / 'run'}",
            f"--population_cache={scratch}",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("--alphabet=", done.stderr)
        small = code in ("hi", "ko")
        self.assertEqual("has only a small list" in done.stderr, small, done.stderr)
        if program == "ldp_triehh":
            first = re.search("the largest estimates first: (.*?)\\. ", done.stdout)
            self.assertContainsSubset(
                first[1].split(", "), languages.words(code).keys()
            )


if __name__ == "__main__":
    absltest.main()
