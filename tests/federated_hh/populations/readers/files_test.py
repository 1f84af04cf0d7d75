"""Tests of reading every format and of leaving words out."""

import csv
import pathlib
import re
import shlex

import pyarrow as pa
import pyarrow.parquet as pq
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from federated_hh.files import verified_files
from federated_hh.heavy_hitters import evaluation
from federated_hh.populations.columns import left_out
from federated_hh.populations.languages import tokenizers
from tests import ROOT
from tests.federated_hh.populations.readers import files_test_case

_ROWS = [
    ("ann", "The sun, the SUN"),
    ("bob", 'hello, moon\nand left "x"'),
    ("ann", "sun moon"),
    ("cy", "a b"),  # no word of three letters
]
_WORDS = {
    "ann": [("sun", 3), ("the", 2), ("moon", 1)],
    "bob": [("hello", 1), ("and", 1), ("left", 1), ("moon", 1)],
}
_TRIPLES = [
    ("ann", "sun", 2),
    ("bob", "moon", 1),
    ("ann", "star", 3),
    ("ann", "sun", 2),
]
_TRIPLE_WORDS = {"ann": [("sun", 4), ("star", 3)], "bob": [("moon", 1)]}


def _ordered(counts):
    """Lists the favorite, then the most frequent words; ties by spelling."""
    favorite = max(counts, key=counts.__getitem__)  # the first of the most frequent
    return sorted(
        counts.items(), key=lambda item: (-item[1], item[0] != favorite, item)
    )


class FormatsTest(files_test_case.FilesTestCase):
    @parameterized.parameters(*files_test_case.COMPRESS)
    def test_csv(self, suffix):
        contents = files_test_case.csv_text(
            [("user", "id", "text")] + [(u, 1, t) for u, t in _ROWS]
        )
        path = self.write(
            "a.csv" + suffix, files_test_case.COMPRESS[suffix](contents.encode())
        )
        self.assertEqual(self.words_of(path), _WORDS)

    @parameterized.parameters(*files_test_case.COMPRESS)
    def test_json_lines(self, suffix):
        contents = files_test_case.json_lines_text(
            ("text", "user"), [(t, u) for u, t in _ROWS]
        )
        path = self.write(
            "a.jsonl" + suffix, files_test_case.COMPRESS[suffix](contents.encode())
        )
        self.assertEqual(self.words_of(path), _WORDS)

    @parameterized.parameters(*files_test_case.COMPRESS)
    def test_word_counts(self, suffix):
        contents = "".join(f"{u}\t{w}\t{c}\n" for u, w, c in _TRIPLES)
        path = self.write(
            "a.txt" + suffix, files_test_case.COMPRESS[suffix](contents.encode())
        )
        self.assertEqual(self.words_of(path, format="word_counts"), _TRIPLE_WORDS)

    @parameterized.parameters(pa.string(), pa.large_string(), pa.dictionary)
    def test_parquet(self, text_type):
        users, texts = zip(*_ROWS, strict=True)
        if text_type is pa.dictionary:
            column = pa.array(texts).dictionary_encode()
        else:
            column = pa.array(texts, text_type)
        path = self.directory / "a.parquet"
        pq.write_table(pa.table({"n": [1] * 4, "user": users, "text": column}), path)
        self.assertEqual(self.words_of(path), _WORDS)

    @parameterized.parameters((";", "';'"), ("\t", "tab"), ("|", "'|'"))
    def test_another_delimiter_is_guessed(self, mark, named):
        path = self.write(
            "a.csv", f"Post ID{mark}user{mark}text\n1{mark}u{mark}hello\n"
        )
        self.assert_refused(path, f"try --delimiter={re.escape(named)}")
        delimiter = named.strip("'")
        self.assert_refused(
            path, "has no column 'x'", user_column="x", delimiter=delimiter
        )
        words = self.words_of(path, delimiter=delimiter)
        self.assertEqual(words, {"u": [("hello", 1)]})

    def test_tsv_has_no_quotes(self):
        path = self.write("a.tsv", 'user\ttext\nann\t"sun moon\nbob\tstar"x\n')
        options = {"tokenizer": "whitespace"}
        self.assertEqual(
            self.words_of(path, **options),
            {"ann": [('"sun', 1), ("moon", 1)], "bob": [('star"x', 1)]},
        )

    def test_columns_by_number_name_and_given_names(self):
        rows = [(1, user, text) for user, text in _ROWS]
        without = self.write("without.csv", files_test_case.csv_text(rows))
        with_header = self.write(
            "with.csv", files_test_case.csv_text([("id", "user", "text"), *rows])
        )
        for path, options in (
            (without, {"user_column": "1", "text_column": "2"}),
            (without, {"csv_columns": ("id", "user", "text")}),
            (without, {"csv_columns": ("id", "user", "text"), "text_column": "2"}),
            (with_header, {}),
            (with_header, {"text_column": "2"}),
            (
                with_header,
                {"user_column": "1", "text_column": "2", "csv_header": "present"},
            ),
            (
                with_header,
                {"csv_columns": ("a", "user", "text"), "csv_header": "present"},
            ),
        ):
            with self.subTest(path=path.name, **options):
                self.assertEqual(self.words_of(path, **options), _WORDS)

    def test_raw_sentiment140(self):
        # The file as published: no header, ISO-8859-1, everything quoted.
        path = self.write(
            "training.1600000.processed.noemoticon.csv",
            '"0","1467810369","Mon Apr 06 22:19:45 PDT 2009","NO_QUERY",'
            '"_TheSpecialOne_","@switchfoot http://twitpic.com/2y1zl - Awww, caf\xe9"\n'
            '"4","1467810672","Mon Apr 06 22:19:49 PDT 2009","NO_QUERY",'
            '"scotthamilton","&quot;is upset&quot; that he"\r\n'.encode("iso-8859-1"),
        )
        words = self.words_of(
            path,
            encoding="iso-8859-1",
            csv_columns=("polarity", "id", "date", "query", "user", "text"),
        )
        self.assertEqual(
            words,
            {
                "_TheSpecialOne_": [("@switchfoot", 1), ("awww", 1)],
                # "&" is outside the alphabet.
                "scotthamilton": [("that", 1)],
            },
        )

    def test_word_columns_of_every_format(self):
        names = ("who", "what", "times")
        table = dict(zip(names, zip(*_TRIPLES, strict=True), strict=True))
        parquet = self.directory / "a.parquet"
        pq.write_table(pa.table(table), parquet)
        for path in (
            parquet,
            self.write("a.csv", files_test_case.csv_text([names, *_TRIPLES])),
            self.write("a.tsv", files_test_case.csv_text([names, *_TRIPLES], "\t")),
            self.write("a.jsonl", files_test_case.json_lines_text(names, _TRIPLES)),
        ):
            words = self.words_of(
                path, user_column="who", word_column="what", count_column="times"
            )
            self.assertEqual(words, _TRIPLE_WORDS, path)
        # Without counts each row counts one; the word is not cut.
        path = self.write("b.csv", "user,word\nann,sun\nann,moon\nann,moon\nann,a b\n")
        prepared = self.read(path, word_column="word")
        self.assertEqual(prepared.client(0), [("moon", 2), ("sun", 1)])
        self.assertEqual(prepared.metadata["dropped_words"]["out_of_alphabet"], 1)

    def test_numeric_users(self):
        json_path = self.write("a.jsonl", '{"user": 17, "text": "sun"}\n')
        parquet = self.directory / "a.parquet"
        pq.write_table(pa.table({"user": [17], "text": ["sun"]}), parquet)
        for path in (json_path, parquet):
            self.assertEqual(self.words_of(path), {"17": [("sun", 1)]})

    def test_byte_order_mark_blank_lines_and_line_ends(self):
        for name, contents in (
            ("a.csv", "\ufeffuser,text\r\n\r\nann,sun\r\n\r\n"),
            ("a.jsonl", '\ufeff{"user": "ann", "text": "sun"}\r\n\r\n'),
            ("a.tsv", "\ufeffuser\ttext\r\n\r\nann\tsun\r\n"),
        ):
            path = self.write(name, contents)
            self.assertEqual(self.words_of(path, max_bad_rows=0), {"ann": [("sun", 1)]})

    def test_other_encodings(self):
        text = "user,text\nann,naïve café\n"
        for encoding in ("utf-16", "cp1252", "utf-8"):
            path = self.write(f"{encoding}.csv", text.encode(encoding))
            words = self.words_of(
                path, encoding=encoding, tokenizer="whitespace", alphabet="naïvecfé"
            )
            self.assertEqual(words, {"ann": [("naïve", 1), ("café", 1)]})

    def test_a_users_own_tokenizer(self):
        own = tokenizers.Tokenizer("halves", lambda t: t.split("|"), "abc ")
        path = self.write("a.csv", "user,text\nann,a b|c|x\n")
        words = self.words_of(path, own_tokenizer=own)
        self.assertEqual(words, {"ann": [("a b", 1), ("c", 1)]})

    @settings(derandomize=True, deadline=None, max_examples=40)
    @given(
        st.lists(
            st.tuples(
                st.text("uvé\"', \n", min_size=1, max_size=3),
                st.text("ab \n\r\t\"',é|", max_size=12),
            ),
            min_size=1,
            max_size=12,
        )
    )
    def test_formats_agree_on_any_rows(self, rows):
        rows = [*rows, ("u", "word")]
        directory = pathlib.Path(self.create_tempdir().full_path)
        contents = "user,text\n" + "".join(
            ",".join('"' + v.replace('"', '""') + '"' for v in row) + "\n"
            for row in rows
        )
        (directory / "a.csv").write_bytes(contents.encode())
        # Fields with the delimiter are quoted, and others not.
        delimiters = {"s.csv": ";", "p.csv": "|", "t.csv": "tab"}
        for name, delimiter in delimiters.items():
            with (directory / name).open("w", newline="") as file:
                mark = "\t" if delimiter == "tab" else delimiter
                # Python's writer leaves a lone carriage return without quotes.
                how = csv.QUOTE_ALL if "\r" in contents else csv.QUOTE_MINIMAL
                writer = csv.writer(
                    file, delimiter=mark, quoting=how, lineterminator="\n"
                )
                writer.writerows([("user", "text"), *rows])
        (directory / "a.jsonl").write_text(
            files_test_case.json_lines_text(("user", "text"), rows)
        )
        users, texts = zip(*rows, strict=True)
        pq.write_table(
            pa.table({"user": users, "text": texts}), directory / "a.parquet"
        )
        expected = {}
        for user, text in rows:
            for word in text.split():
                if word.isascii():
                    counts = expected.setdefault(user, {})
                    counts[word] = counts.get(word, 0) + 1
        order = {user: None for user, _ in rows}
        expected = {
            user: _ordered(expected[user]) for user in order if user in expected
        }
        for name in ("a.csv", "a.jsonl", "a.parquet", *delimiters):
            words = self.words_of(
                directory / name,
                tokenizer="whitespace",
                max_bad_rows=0,
                delimiter=delimiters.get(name),
            )
            self.assertEqual(list(words.items()), list(expected.items()), name)


class FiltersTest(files_test_case.FilesTestCase):
    @parameterized.parameters(*files_test_case.COMPRESS)
    def test_known_words(self, suffix):
        words = files_test_case.COMPRESS[suffix](b"Sun\r\n\n moon \n")
        known = self.write("known.txt" + suffix, words)
        path = self.write("a.csv", "user,text\nann,sun SUN moonx\nbob,moon\n")
        prepared = self.read(path, known_words=str(known))
        self.assertEqual(prepared.client(0), [("moonx", 1)])
        self.assertEqual(prepared.num_clients, 1)
        self.assertEqual(prepared.metadata["clients_without_words"], 1)
        self.assertEqual(
            prepared.metadata["dropped_words"], {"out_of_alphabet": 0, "known": 3}
        )
        # Words are compared in lower case where the tokenizer keeps capitals.
        prepared = self.read(path, known_words=str(known), tokenizer="whitespace")
        self.assertEqual(prepared.client(0), [("moonx", 1)])

    def test_what_is_no_text_and_nobody(self):
        path = self.write(
            "a.csv", "user,text\nann,a urlLinksun&nbsp;moon\nbot7,sun\nrobot,sun\n"
        )
        prepared = self.read(path, drop_pattern="urlLink|&[a-z]+;", drop_users=r"bot\d")
        self.assertEqual(prepared.client_ids.to_pylist(), ["ann", "robot"])
        self.assertEqual(prepared.client(0), [("sun", 1), ("moon", 1)])
        path = self.write("a.tsv", "ann\turllink\t5\nann\turllinks\t2\n")
        prepared = self.read(path, format="word_counts", drop_pattern="urllink")
        self.assertEqual(prepared.client(0), [("urllinks", 2)])

    def test_only_words(self):
        only = self.write("only.txt", "sun\nmoon\nstar\n")
        known = self.write("known.txt", "moon\n")
        path = self.write("a.tsv", "ann\tSun\t5\nann\tsea\t2\nann\tmoon\t3\n")
        prepared = self.read(
            path,
            format="word_counts",
            alphabet="Ssunmoea",
            only_words=str(only),
            known_words=str(known),
        )
        self.assertEqual(prepared.client(0), [("Sun", 5)])
        self.assertEqual(
            prepared.metadata["dropped_words"],
            {"out_of_alphabet": 0, "known": 3, "not_listed": 2},
        )

    def test_bad_dictionaries(self):
        path = self.write("a.csv", "user,text\nann,sun\n")
        for contents, regex in (
            (b"ok\ncaf\xe9\n", r"known.txt:2: .* not UTF-8"),
            (b"\n\n", "has no words"),
        ):
            known = self.write("known.txt", contents)
            self.assert_refused(path, regex, known_words=str(known))
        missing = r"known_words: there is no file /none\.$"  # the path once
        self.assert_refused(path, missing, known_words="/none")

    def test_empty_clients_can_be_kept(self):
        path = self.write("a.csv", "user,text\nann,a\nbob,sun\ncy,\n")
        prepared = self.read(path, empty_clients="keep")
        self.assertEqual(prepared.client_ids.to_pylist(), ["ann", "bob", "cy"])
        self.assertEqual(prepared.client(0), [])
        self.assertEqual(prepared.client(1), [("sun", 1)])
        self.assertEqual(prepared.metadata["clients_without_words"], 2)

    def test_dropped_words_are_counted_with_their_counts(self):
        path = self.write("a.tsv", "ann\tsün\t5\nann\tsun\t2\nann\tmoon\t3\n")
        known = self.write("known.txt", "moon\n")
        prepared = self.read(path, format="word_counts", known_words=str(known))
        self.assertEqual(
            prepared.metadata["dropped_words"], {"out_of_alphabet": 5, "known": 3}
        )

    def test_the_flag_that_is_told_keeps_the_words(self):
        texts = ["über zwölf Füße", "ein Faß 3.5", "über ein", "ein Grün"]
        path = self.write(
            "a.csv",
            files_test_case.csv_text([("user", "text")] + [("u", t) for t in texts]),
        )
        prepared = self.read(path, tokenizer="words")
        lost = left_out.LeftOut.of(prepared)
        self.assertEqual((lost.count, lost.share), (7, 0.7))
        self.assertEqual(
            str(lost),
            "70% of all typed words (7) have a character outside the alphabet and are "
            "left out. They have ü ß ö; --alphabet="
            '"abcdefghijklmnopqrstuvwxyz0123456789\'-üßö" --out_of_alphabet=drop keeps '
            "most of them.",
        )
        with self.assertRaisesRegex(verified_files.PopulationError, "give --language"):
            lost.check()
        flag, rest = shlex.split(str(lost).partition("; --alphabet=")[2])[:2]
        self.assertEqual(rest, "--out_of_alphabet=drop")
        widened = self.read(path, tokenizer="words", alphabet=flag)
        self.assertEqual(widened.metadata["dropped_words"]["out_of_alphabet"], 1)
        rest = left_out.LeftOut.of(widened)
        rest.check()  # 1 of 10
        self.assertIn("They have .; --alphabet=", str(rest))
        self.assertIn("more letters", evaluation.alphabet_advice(prepared))
        self.assertIn("`--alphabet=", evaluation.truth_text(prepared))

    def test_the_length_that_is_told_reaches_the_words(self):
        rows = [("u", "sun", 60), ("u", "rainbow", 25), ("v", "thunderstorm", 15)]
        text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
        path = self.write("counts.tsv", text)
        prepared = self.read(path, format="word_counts")
        lost = left_out.TooLong.of(prepared, 7, "max_length", added=1)
        self.assertEqual(
            str(lost),
            "15% of the typed words that count have more than 7 characters, as only "
            "the simulator knows, and cannot be found; --max_length=13 reaches all "
            "but 1%.",
        )
        self.assertAlmostEqual(left_out.TooLong.of(prepared, 3, "max_depth").share, 0.4)
        self.assertIsNone(left_out.TooLong.of(prepared, 12, "max_depth"))

    def test_a_length_counts_letters_of_hangul_and_leaves_a_hundredth(self):
        rows = [("u", "한국", 600), ("u", "말", 395), ("v", "thunderstorm", 5)]
        text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
        prepared = self.read(
            self.write("counts.tsv", text),
            format="word_counts",
            alphabet="한국말thunderstorm",
        )
        lost = left_out.TooLong.of(prepared, 3, "max_depth")
        self.assertAlmostEqual(lost.share, 0.605)
        self.assertEqual(lost.enough, 6)

    def test_the_flag_has_a_whole_other_alphabet(self):
        letters = "абвгдежзийклмнопрстуфхцчшщъыьэюя"
        rows = [("user", "text"), ("u", " ".join([f"{c}sun" for c in letters] * 9))]
        path = self.write("a.csv", files_test_case.csv_text([*rows, ("u", "moon")]))
        lost = left_out.LeftOut.of(self.read(path, tokenizer="words"))
        self.assertIn("They have а б в г д е ж з и й; ", lost.remedy)
        self.assertEndsWith(lost.remedy, f'-{letters}" keeps them.')

    def test_what_earlier_populations_lost_is_told_without_letters(self):
        path = self.write("a.csv", "user,text\nann,sun sün\n")
        prepared = self.read(path)
        del prepared.metadata["missing_characters"]
        self.assertEqual(
            str(left_out.LeftOut.of(prepared)),
            "50% of all typed words (1) have a character outside the alphabet and are "
            "left out. --alphabet says which characters words may have.",
        )
        whole = self.read(self.write("b.csv", "user,text\nann,sun\n"))
        self.assertIsNone(left_out.LeftOut.of(whole))
        self.assertEqual(evaluation.alphabet_advice(whole), "")
        self.assertEqual(evaluation.truth_text(whole), "")


class SharedDataTest(files_test_case.FilesTestCase):
    """Real data, where it lies beside the repository."""

    def _shared(self, name):
        path = ROOT.parent / "shared" / "data" / name
        if not path.exists():
            self.skipTest(f"{path} is not there")
        return path

    def test_sentiment140(self):
        path = self._shared("sentiment140-partial/tweets.csv.xz")
        prepared = self.read(path, max_bad_rows=0)
        metadata = prepared.metadata
        # Facts that came with the data: 57,198 rows of 49,652 users.
        self.assertEqual(metadata["num_rows"], 57_198)
        self.assertEqual(
            prepared.num_clients + metadata["clients_without_words"], 49_652
        )

    def test_sentiment140_whitespace_counts(self):
        path = self._shared("sentiment140-partial/tweets.csv.xz")
        prepared = self.read(path, tokenizer="whitespace", max_bad_rows=0)
        dropped = prepared.metadata["dropped_words"]["out_of_alphabet"]
        self.assertEqual(int(prepared.counts[:].sum()) + dropped, 752_310)

    def test_ubuntu_irc(self):
        path = self._shared("ubuntu-irc/messages.csv.xz")
        prepared = self.read(path, tokenizer="whitespace", max_bad_rows=0)
        metadata = prepared.metadata
        self.assertEqual(metadata["num_rows"], 221_481)
        self.assertEqual(
            prepared.num_clients + metadata["clients_without_words"], 17_765
        )
        self.assertEqual(
            int(prepared.counts[:].sum())
            + metadata["dropped_words"]["out_of_alphabet"],
            2_272_766,
        )


if __name__ == "__main__":
    absltest.main()
