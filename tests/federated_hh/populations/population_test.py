"""Tests of preparing populations: what is kept, found again, and regenerated."""

import dataclasses
import os
import pathlib
import resource
import signal
import subprocess
import sys
import textwrap

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.populations import client_sentences, population, vocabulary
from federated_hh.populations.columns import generated_words
from federated_hh.populations.languages import sentence_tokenizers, tokenizers
from federated_hh.populations.options import population_options
from tests import ROOT

_PREPARE = """
    import sys
    from absl import logging
    from federated_hh.populations import population
    logging.set_verbosity(logging.INFO)
    options = population.PopulationOptions(source=sys.argv[1])
    try:
        print(population.prepare(options, sys.argv[2]).fingerprint)
    except population.PopulationError as error:
        sys.exit(f"error: {error}")
"""


def _start(source, *arguments, **options):
    """Starts a program of this repository in an interpreter of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source), *map(str, arguments)],
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


class OptionsTest(parameterized.TestCase):
    @parameterized.parameters(
        ("format", "xml", "has to be one of auto, csv"),
        ("csv_header", "yes", "has to be one of auto, present, absent"),
        ("out_of_alphabet", "leave", "has to be one of drop, refuse, keep"),
        ("empty_clients", "maybe", "has to be one of drop, keep"),
        ("max_bad_rows", -1, "=-1: has to be a"),
        ("num_clients", 0, r"=0: has to be an integer in \[1, 2147483647\]"),
        ("mean_words_per_client", 0.5, "=0.5: has to be a"),
        ("mean_words_per_client", float("nan"), "=nan: has to be a"),
        ("mean_words_per_client", 1.0, "has to be above 1"),
        ("words_per_client_sigma", 3.5, r"has to be a number in \[0, 3\]"),
        ("trending_share", 1.0, r"has to be a number in \[0, 1\)"),
        ("trending_words", 0, "=0: has to be a"),
        ("trending_exponent", -1.0, "=-1.0: has to be a"),
        ("seed", -1, "=-1: has to be a"),
        ("source", "", "source=: has to be"),
        ("alphabet", "", "alphabet=: has to have"),
        ("count_column", "n", "count_column=n: needs word_column"),
        ("csv_columns", ("a", "a"), "has a duplicate name"),
    )
    def test_out_of_range(self, name, value, regex):
        with self.assertRaisesRegex(ValueError, regex):
            population.PopulationOptions(**{name: value})

    def test_without_spread_the_mean_is_whole(self):
        with self.assertRaisesRegex(ValueError, "has to be a whole number"):
            population.PopulationOptions(
                mean_words_per_client=1.5, words_per_client_sigma=0
            )

    def test_error_is_both_kinds(self):
        self.assertTrue(issubclass(population.PopulationError, ValueError))
        self.assertTrue(issubclass(population.PopulationError, OSError))
        self.assertEqual(str(population.PopulationError("what to do")), "what to do")


class PrepareTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.cache = self.directory / "cache"
        self.source = self.directory / "a.csv"
        self.source.write_text("user,text\nann,sun moon\nbob,star star\n")

    def _prepare(self, own=None, **options):
        """Returns the population and the log of preparing it."""
        options = {"source": str(self.source)} | options
        with self.assertLogs(level="INFO") as logs:
            prepared = population.prepare(
                population.PopulationOptions(**options), self.cache, own
            )
        return prepared, "\n".join(logs.output)

    def test_prepared_once_and_found_again(self):
        first, log = self._prepare()
        self.assertRegex(log, r"Preparing the population in \S+\.$")
        self.assertEqual(first.metadata["alphabet"], tokenizers.WORDS_ALPHABET)
        self.assertEqual(first.metadata["identity"]["source"]["path"], str(self.source))
        again, log = self._prepare()
        self.assertIn("Using the population", log)
        self.assertEqual(again.directory, first.directory)
        self.assertEqual(os.listdir(self.cache), [os.path.basename(first.directory)])

    def test_a_changed_source_is_noticed(self):
        first, _ = self._prepare()
        with self.source.open("a") as file:
            file.write("cy,planet\n")
        second, log = self._prepare()
        self.assertRegex(log, r"; since 20.*: source changed \(37 -> 47 bytes\)\.")
        self.assertNotEqual(first.directory, second.directory)
        self.assertEqual((first.num_clients, second.num_clients), (2, 3))
        # The earlier one is not touched: it can be open elsewhere.
        self.assertEqual(first.client(0), [("sun", 1), ("moon", 1)])

    def test_a_change_of_time_alone_is_noticed(self):
        first, _ = self._prepare()
        os.utime(self.source, ns=(1, 1))
        second, log = self._prepare()
        self.assertIn("source changed", log)
        self.assertNotEqual(first.directory, second.directory)
        self.assertEqual(first.fingerprint, second.fingerprint)

    @parameterized.parameters(
        ("tokenizer", "whitespace"),
        ("alphabet", "abcdefghijklmnopqrstuvwxy"),
        ("out_of_alphabet", "refuse"),
        ("empty_clients", "keep"),
        ("max_bad_rows", 7),
        ("encoding", "ascii"),
        ("csv_header", "present"),
        ("text_column", "1"),
        ("user_column", "0"),
    )
    def test_changed_options_are_noticed(self, name, value):
        first, _ = self._prepare()
        second, log = self._prepare(**{name: value})
        self.assertIn(f"option {name} changed", log)
        self.assertNotEqual(first.directory, second.directory)

    def test_options_of_other_sources_do_not_matter(self):
        first, _ = self._prepare()
        second, _ = self._prepare(num_clients=5, seed=3)
        self.assertEqual(first.directory, second.directory)

    def test_a_changed_dictionary_is_noticed(self):
        known = self.directory / "known.txt"
        known.write_text("sun\n")
        first, _ = self._prepare(known_words=str(known))
        known.write_text("sun\nmoon\n")
        second, log = self._prepare(known_words=str(known))
        self.assertIn("option known_words changed", log)
        self.assertEqual((first.num_words, second.num_words), (2, 1))

    def test_a_users_tokenizer_is_part_of_the_name(self):
        def vowels(text):
            return [c for c in text if c in "aeiou"]

        def consonants(text):
            return [c for c in text if c.isalpha() and c not in "aeiou"]

        results = [
            self._prepare(
                tokenizers.Tokenizer("letters", split, "abcdefghijklmnopqrstu")
            )
            for split in (vowels, vowels, consonants)
        ]
        self.assertIn("Using the population", results[1][1])
        self.assertIn("option tokenizer changed", results[2][1])
        self.assertEqual(results[0][0].client(0), [("o", 2), ("u", 1)])

    def test_synthetic(self):
        options = {"source": "synthetic", "num_clients": 1000}
        first, _ = self._prepare(**options)
        again, log = self._prepare(**options)
        self.assertIn("Using the population", log)
        other, log = self._prepare(**options, seed=1)
        self.assertIn("option seed changed (0 -> 1)", log)
        self.assertEqual(first.fingerprint, again.fingerprint)
        self.assertNotEqual(first.fingerprint, other.fingerprint)
        with self.assertRaisesRegex(
            population.PopulationError, "none of the 1 clients"
        ):
            self._prepare(
                **options | {"num_clients": 1, "alphabet": "z"}, max_bad_rows=0
            )

    def test_a_source_that_changes_while_it_is_read(self):
        def split(text):
            with self.source.open("a") as file:
                file.write("x")
            return text.split()

        tokenizer = tokenizers.Tokenizer(
            "meddling", split, "abcdefghijklmnopqrstuvwxyz"
        )
        with self.assertRaisesRegex(population.PopulationError, "changed while"):
            self._prepare(tokenizer)
        self.assertEmpty(os.listdir(self.cache))

    def test_an_error_of_a_users_tokenizer_is_shown_as_it_is(self):
        tokenizer = tokenizers.Tokenizer("bad", lambda text: [1 // 0], "a")
        with self.assertRaises(ZeroDivisionError):
            self._prepare(tokenizer)
        empty = tokenizers.Tokenizer("empty", lambda text: text.split("n"), "sun mo")
        with self.assertRaisesRegex(ValueError, "tokenizer returned ''"):
            self._prepare(empty)
        self.assertEmpty(os.listdir(self.cache))

    def test_a_damaged_population_is_not_used(self):
        first, _ = self._prepare()
        os.truncate(first.column_path("entries"), 4)
        with self.assertRaisesRegex(population.PopulationError, "remove its directory"):
            self._prepare()

    def test_a_cache_that_cannot_be_made(self):
        self.cache.write_text("a file")
        with self.assertRaisesRegex(
            population.PopulationError, "could not be written.*--population_cache"
        ):
            self._prepare()


class ProcessesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.cache = self.directory / "cache"
        self.source = self.directory / "a.jsonl"
        with self.source.open("w") as file:
            for i in range(60_000):
                file.write(
                    f'{{"user": "u{i % 1000}", "text": "word{"x" * (i % 7)}"}}\n'
                )

    def test_two_at_once_both_end_well(self):
        processes = [_start(_PREPARE, self.source, self.cache) for _ in range(3)]
        results = [process.communicate() for process in processes]
        self.assertEqual([process.returncode for process in processes], [0, 0, 0])
        self.assertLen({output for output, _ in results}, 1)
        self.assertLen(os.listdir(self.cache), 1)

    def test_kill_in_the_middle_then_again(self):
        source = """
            import sys, time
            from federated_hh.populations import population
            from federated_hh.populations.languages import tokenizers
            rows = 0
            def split(text):
                global rows
                rows += 1
                if rows == 1000:
                    print("reading", flush=True)
                    time.sleep(600)
                return text.split()
            own = tokenizers.Tokenizer("slow", split, "wordx")
            options = population.PopulationOptions(source=sys.argv[1])
            population.prepare(options, sys.argv[2], own)
        """
        process = _start(source, self.source, self.cache)
        self.assertEqual(process.stdout.readline(), "reading\n")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        left = list(self.cache.iterdir())
        self.assertNotEmpty(left)
        for path in left:
            self.assertStartsWith(path.name, ".")

        # Another population's preparation clears up after it.
        other = self.directory / "b.csv"
        other.write_text("user,text\nann,sun\n")
        population.prepare(
            population_options.PopulationOptions(source=str(other)), self.cache
        )
        self.assertLen(list(self.cache.iterdir()), 1)
        process = _start(_PREPARE, self.source, self.cache)
        _, errors = process.communicate()
        self.assertEqual(process.returncode, 0, errors)
        self.assertLen(list(self.cache.iterdir()), 2)

    def test_a_full_disk_is_a_clear_error(self):
        process = _start(
            _PREPARE,
            self.source,
            self.cache,
            # A limit on file sizes fails the write as a full disk does.
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        )
        output, errors = process.communicate()
        self.assertEqual((process.returncode, output), (1, ""))
        self.assertRegex(errors, "error: the population could not be written.*no space")
        self.assertEmpty(os.listdir(self.cache))

    def test_little_memory_is_an_error_before_the_kernel_kills(self):
        source = """
            import sys
            from federated_hh.files import memory
            memory.RESERVE_BYTES = 1 << 60  # as if all memory were taken
        """
        with self.source.open("a") as file:
            file.write('{"user": "u", "text": "word"}\n' * 10_000)
        process = _start(
            textwrap.dedent(source) + textwrap.dedent(_PREPARE), self.source, self.cache
        )
        output, errors = process.communicate()
        self.assertEqual((process.returncode, output), (1, ""), errors)
        self.assertRegex(
            errors, r"error: .*only [\d.,]+ [GM]iB of memory are available, with 7 "
        )
        self.assertEmpty(os.listdir(self.cache))


class GeneratedTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.cache = self.create_tempdir().full_path
        self.options = population.PopulationOptions(
            source="generated", num_clients=20_000, empty_clients="keep", seed=3
        )

    @parameterized.parameters(
        ({"client_law": "pitman_yor"}, "client_law=pitman_yor: generated .* no habits"),
        ({"empty_clients": "drop"}, "empty_clients=drop: .*give empty_clients=keep"),
        (
            {"frequency_power": 0.5, "common_law": "pitman_yor"},
            "frequency_power=0.5: has to be 1 with common_law=pitman_yor",
        ),
        ({"frequency_power": -1.0}, "frequency_power=-1.0: has to be a number in"),
    )
    def test_options_that_do_not_apply_are_refused(self, changes, message):
        with self.assertRaisesRegex(population_options.OptionError, message):
            population.prepare_words(
                dataclasses.replace(self.options, **changes), self.cache
            )
        self.assertEmpty(os.listdir(self.cache))

    def test_where_columns_or_sentences_are_needed_it_is_refused(self):
        words = vocabulary.Vocabulary(["the"])
        tokenizer = sentence_tokenizers.get_sentence_tokenizer("keyboard")
        for prepare in (
            lambda: population.prepare(self.options, self.cache),
            lambda: client_sentences.prepare(
                self.options, words, tokenizer, self.cache
            ),
        ):
            with self.assertRaisesRegex(
                population_options.OptionError, "source=generated: .*source=synthetic"
            ):
                prepare()
        self.assertEmpty(os.listdir(self.cache))

    @parameterized.parameters(
        {},
        {"frequency_power": 0.5, "tokenizer": "triehh"},
        {"trending_share": 0.3, "trending_words": 5, "language": "de"},
        {"words_per_client": "numbers.txt", "known_words": "wordfreq:100"},
        {"common_words": "list.txt", "words_per_client_sigma": 0.0},
    )
    def test_law_is_that_of_synthetic_clients(self, **changes):
        # The sum of 20,000 clients' counts of each word: its variance is at most that
        # of a Poisson law, but for the numbers of words typed. Chi-square over words.
        folder = pathlib.Path(self.cache)
        (folder / "numbers.txt").write_text("3\n50\n50\n")
        (folder / "list.txt").write_text("a-b\t3\nsun moon\t5\nsun\t1\n#\t4\n")
        for name in ("words_per_client", "common_words"):
            if name in changes:
                changes[name] = str(folder / changes[name])
        options = dataclasses.replace(self.options, **changes)
        law = population.prepare_words(options, self.cache)
        assert isinstance(law, generated_words.GeneratedWords)
        drawn = population.prepare(
            dataclasses.replace(options, source="synthetic"), self.cache
        )
        self.assertEqual(law.words, drawn.words)
        self.assertEqual(law.num_clients, 20_000)
        counts, expected = drawn.occurrences(), law.occurrences()
        typed, mean = drawn.counts[:].sum(), law.occurrences().sum()
        self.assertBetween(typed / mean, 0.97, 1.03)
        kept = expected >= 30
        counts = np.append(counts[kept], counts[~kept].sum())
        chances = np.append(law.chances[kept], law.chances[~kept].sum())
        chances = chances[counts + chances > 0]
        test = stats.chisquare(
            counts[: len(chances)], counts.sum() * chances / chances.sum()
        )
        self.assertGreater(test.pvalue, 1e-6)
        for reason, number in drawn.metadata["dropped_words"].items():
            close = law.metadata["dropped_words"][reason]
            self.assertLess(abs(number - close), 6 * close**0.5 + 0.03 * close + 9)

    def test_power_of_frequencies(self):
        path = pathlib.Path(self.cache) / "list.txt"
        path.write_text("moon\t2\nsea\t1\nsun\t4\n#\t3\n")
        law = population.prepare_words(
            dataclasses.replace(
                self.options, common_words=str(path), frequency_power=2.0
            ),
            self.cache,
        )
        assert isinstance(law, generated_words.GeneratedWords)
        self.assertEqual(law.words.to_pylist(), ["moon", "sea", "sun"])
        # A word typed is kept as often as the list has it.
        np.testing.assert_allclose(law.chances, 0.7 * np.array([4, 1, 16]) / 21)

    def test_only_the_law_is_on_disk(self):
        law = population.prepare_words(self.options, self.cache)
        many = dataclasses.replace(self.options, num_clients=10**8)
        of_many = population.prepare_words(many, self.cache)
        self.assertNotEqual(law.fingerprint, of_many.fingerprint)
        sizes = [
            sum(file.stat().st_size for file in pathlib.Path(each.directory).iterdir())
            for each in (law, of_many)
        ]
        self.assertLess(abs(sizes[0] - sizes[1]), 1_000)
        self.assertLess(max(sizes), 20_000_000)
        again = population.prepare_words(self.options, self.cache)
        self.assertEqual(again.directory, law.directory)


if __name__ == "__main__":
    absltest.main()
