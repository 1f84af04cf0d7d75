"""Tests of what is said of a model that may have seen the clients' text."""

import pathlib
import shutil
from unittest import mock

import numpy as np
from absl.testing import absltest

from federated_hh.populations.columns import client_text
from federated_hh.randomness import noise_keys
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import record as run_record
from training.federated import initial_model, shared_text
from training.models import finished_runs as keyboard_runs
from training.text import text_record

_SENTENCE = list(range(4, 4 + text_record.NUM_WORDS))


class SharedTextTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        self.model = self.scratch / "model"
        self.model.mkdir()

    def text(self, name, rows):
        return client_text.ClientText.from_rows(self.scratch / name, rows.items())

    def record(self, rows, name="public"):
        text = self.text(name, rows)
        everybody = np.arange(text.num_clients)
        record = text_record.TextRecord.of(text, everybody, 9, "public.csv")
        record.write(self.model, "w")
        return record

    def examine(self, text, is_allowed=False, is_synthetic=False):
        return shared_text.examine(
            str(self.model),
            text,
            weights="w",
            is_synthetic=is_synthetic,
            is_allowed=is_allowed,
        )

    def test_nothing_is_shared(self):
        self.record({"a": [_SENTENCE], "b": [[4, 5]]})
        private = self.text("private", {"c": [_SENTENCE[::-1], [4, 5]]})
        found = self.examine(private)
        self.assertLen(found.not_counted, 1)
        self.assertFalse(found.record.is_whole)
        self.assertRegex(found.not_counted[0], "compared .* without noise")
        self.assertFalse(found.may_know_held_out)
        self.assertIn("2 sentences of 2 clients of public.csv", found.public_data)
        self.assertIn("neither an id nor 12 known words", found.public_data)

    def test_a_model_that_began_with_one_without_a_record(self):
        self.record({"a": [_SENTENCE]}).after(None).write(self.model, "w")
        found = self.examine(self.text("private", {"c": [_SENTENCE[::-1]]}))
        self.assertIn("1 sentences of 1 clients of public.csv, and", found.public_data)
        self.assertRegex(found.not_counted[0], "may have learned .* is not known")
        self.assertIn("is not known", found.public_data)
        self.assertNotIn("neither", found.public_data)

    def test_clients_and_sentences_that_are_shared(self):
        self.record({"a": [_SENTENCE]})
        private = self.text(
            "private", {"a": [[4, 5]], "b": [_SENTENCE, _SENTENCE], "c": [[6]]}
        )
        shared = (
            "1 of 3 clients' ids .* and 2 sentences with .* 12 .*which 1 clients wrote"
        )
        with self.assertRaisesRegex(
            ValueError, f"--initial_model={self.model}: .*{shared}.*--allow_shared_text"
        ):
            self.examine(private)
        named = r"--drop_users='a\|b'\)"
        with self.assertRaisesRegex(ValueError, named):
            self.examine(private)
        counted = r"--drop_users; there are 2 of them\)"
        with (
            mock.patch.object(shared_text, "_NAMED", 1),
            self.assertRaisesRegex(ValueError, counted),
        ):
            self.examine(private)
        with self.assertLogs(level="WARNING") as logs:
            found = self.examine(private, is_allowed=True)
        self.assertRegex(logs.output[0], shared)
        # Hashes of these clients' text do not go on with a private model.
        self.assertIsNone(found.record)
        counts = found.facts["initial_text"]["shared"]
        self.assertEqual(
            (counts["ids"], counts["sentences"], counts["writers"]), (1, 2, 1)
        )
        self.assertRegex(found.not_counted[0], "learned from text.*do not hold")
        self.assertRegex(found.not_counted[1], "without noise")
        # What is released is the same whoever shares how much, and what.
        more = self.text("more", {"x": [_SENTENCE] * 5, "y": [_SENTENCE]})
        other = self.examine(more, is_allowed=True)
        self.assertEqual(other.public_data, found.public_data)
        self.assertEqual(other.not_counted, found.not_counted)
        self.assertNotEqual(other.facts, found.facts)

    def test_what_a_resumed_run_has_to_find(self):
        private = self.text("private", {"c": [_SENTENCE[::-1]]})
        none = self.examine(private).facts
        first = self.record({"a": [_SENTENCE]})
        facts = self.examine(private).facts
        first.after(None).write(self.model, "w")
        self.assertLen({str(none), str(facts), str(self.examine(private).facts)}, 3)
        first.write(self.model, "w")
        self.assertEqual(self.examine(private).facts, facts)

    def test_sentences_that_cannot_be_compared(self):
        for number, (public, other) in enumerate(
            (([4, 5], _SENTENCE), (_SENTENCE, [4, 5]), ([4], [4]))
        ):
            text = self.text(f"public {number}", {"a": [public]})
            record = text_record.TextRecord.of(text, np.arange(1), 9, "public.csv")
            record.write(self.model, "w")
            found = self.examine(self.text(f"private {number}", {"b": [other]}))
            self.assertIn("No sentence could be compared", found.public_data)
            self.assertNotIn("neither", found.public_data)
            self.assertTrue(found.may_know_held_out)

    def test_few_sentences_that_can_be_compared(self):
        # One of eleven has twelve words, and the others are as they are elsewhere.
        short = [[4, 5, 6]] * 10
        long, other = _SENTENCE, _SENTENCE[::-1]
        for public, private in (
            ({"a": [long]}, {"b": [*short, other]}),
            ({"a": [long, *short]}, {"b": [other]}),
        ):
            self.model = self.scratch / f"model {len(public['a'])}"
            self.model.mkdir()
            text = self.text(f"public {len(public['a'])}", public)
            record = text_record.TextRecord.of(text, np.arange(1), 99, "public.csv")
            record.write(self.model, "w")
            found = self.examine(self.text(f"private {len(public['a'])}", private))
            self.assertIn("But few of the sentences have so many", found.public_data)
            self.assertNotIn("neither", found.public_data)
            self.assertRegex(found.not_counted[0], "is not known")
            self.assertTrue(found.may_know_held_out)
            self.assertFalse(found.facts[keyboard_runs.OF_OTHERS])

    def test_a_model_that_began_with_one_that_may_have_read_judges(self):
        private = self.text("private", {"a": [_SENTENCE]})
        path = self.scratch / "run"

        def notes(**facts):
            shutil.rmtree(path, ignore_errors=True)
            run_directory.RunDirectory.create(
                path,
                program="training.run_training",
                flags=tuple(f"--{name}=1" for name in keyboard_runs._OF_TRAINING),
                facts={"population": private.fingerprint, **facts},
                noise_key=noise_keys.NoiseKey.of_seed(1),
            ).close()
            return shared_text.of_held_out({"it": str(path)}, private)

        self.assertEqual(notes(), [])
        self.record({"a": [_SENTENCE]})
        found = self.examine(private, is_allowed=True)
        [told] = notes(initial_model="w", **found.facts)
        self.assertRegex(told, "^it began with a model that has text of .* too kindly")
        # Older runs do not say what was found.
        self.assertLen(notes(initial_model="w"), 1)
        self.record({"b": [_SENTENCE[::-1]]}, "other")
        found = self.examine(private)
        self.assertEqual(notes(initial_model="w", **found.facts), [])

    def test_what_models_share_with_who_judges_them(self):
        model = mock.Mock(fingerprint="w")
        self.enter_context(mock.patch.object(initial_model, "read", return_value=model))
        rows = {"a": [_SENTENCE], "b": [[4]]}
        record = self.record(rows)
        models = {"it": str(self.model), "other": str(self.scratch / "no record")}

        def notes(name, rows):
            (found,) = shared_text.of_held_out(models, self.text(name, rows))
            return found

        found = notes("same", rows)
        self.assertRegex(found, "^The text that it was .* same population. Their")
        found = notes("more", {"b": [[7]], "c": [[5]], "d": [_SENTENCE, _SENTENCE]})
        self.assertRegex(found, "shares .* 1 of 3 clients' ids .* and 2 sentences")
        self.assertIn("which 1 clients wrote. Their", found)
        found = notes("none", {"c": [_SENTENCE[::-1]]})
        self.assertEndsWith(found, "neither an id nor 12 known words in a row.")
        record.after(None).write(self.model, "w")
        self.assertIn(
            "on, but for what its record does not have, shares",
            notes("e", {"c": [[4]]}),
        )

    def test_the_same_text(self):
        rows = {"a": [_SENTENCE], "b": [[4]]}
        self.record(rows)
        with self.assertRaisesRegex(ValueError, "the same population of 2 clients"):
            self.examine(self.text("private", rows))

    def test_the_population_of_the_models_own_run(self):
        # No record of text: of federated training, or of a run that is not finished.
        private = self.text("private", {"a": [_SENTENCE]})

        def run(name, **facts):
            path = self.scratch / name
            run_directory.RunDirectory.create(
                path,
                program="any:Algorithm",
                flags=(),
                facts=facts,
                noise_key=noise_keys.NoiseKey.of_seed(1),
            ).close()
            (path / "model").mkdir()
            return path

        same = run("same", population=private.fingerprint)
        for self.model in (same, same / "model"):
            with self.assertRaisesRegex(
                ValueError,
                f"--initial_model={self.model}: By the record of its run .* the same "
                "population of 1 clients.*--allow_shared_text",
            ):
                self.examine(private)
            found = self.examine(private, is_allowed=True)
            self.assertRegex(found.not_counted[0], "the same population.*do not hold")
        for self.model in (run("other", population="x"), run("no", seed=1)):
            self.assertIn("is not known", self.examine(private).public_data)
        # Passed on without what only the simulator knows.
        (same / run_record.FACTS_FILE).unlink()
        self.model = same
        self.assertIn("is not known", self.examine(private).public_data)

    def test_what_is_nobodys_is_said_and_not_refused(self):
        everything = {"a": [_SENTENCE], "b": [[4]]}
        private = self.text("private", everything)
        for name, rows, may_know_held_out in (
            ("all", everything, True),
            ("ids", {"a": [[5]], "c": [_SENTENCE[::-1]]}, True),
            ("sentences", {"c": [_SENTENCE]}, True),
            ("nothing", {"c": [_SENTENCE[::-1]]}, False),
        ):
            record = self.record(rows, name)
            self.assertEqual(bool(record.shared_with(private)), may_know_held_out)
            found = self.examine(private, is_synthetic=True)
            self.assertEqual(found.may_know_held_out, may_know_held_out)
            # As of text of somebody, where that is allowed.
            self.assertEqual(found, self.examine(private, is_allowed=True))

    def test_what_is_not_known(self):
        private = self.text("private", {"a": [_SENTENCE]})
        for is_synthetic in (False, True):
            found = self.examine(private, is_synthetic=is_synthetic)
            self.assertIn("is not known", found.public_data)
            self.assertLen(found.not_counted, not is_synthetic)
            self.assertTrue(found.may_know_held_out)
            found = shared_text.examine(
                None, private, weights="w", is_synthetic=is_synthetic, is_allowed=False
            )
            self.assertEqual(found, shared_text.Finding())


if __name__ == "__main__":
    absltest.main()
