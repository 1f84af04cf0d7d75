"""Tests of files that cannot be read, in part or as a whole."""

import bz2
import os

import pyarrow as pa
import pyarrow.parquet as pq
from absl.testing import absltest, parameterized

from federated_hh.populations import population
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import opening
from tests.federated_hh.populations.readers import files_test_case


class BadRowsTest(files_test_case.FilesTestCase):
    def test_csv(self):
        lines = [
            b"user,text",
            b"ann,sun",
            b"ann",  # 3
            b"ann,sun,moon",  # 4
            b"ann,caf\xe9",  # 5
            b",sun",  # 6
            b'bob,"two',
            b'lines"',
            b'bob,"not closed',  # 9
            b"bob,moon",
            b'bob,"moon"',
            b'bob,"star',  # 12: to the end of the file
        ]
        path = self.write("a.csv", b"\n".join(lines) + b"\n")
        self.assertEqual([line for line, _ in self.bad_rows(path)], [3, 4, 5, 6, 9, 12])
        reasons = dict(self.bad_rows(path))
        self.assertEqual(reasons[3], "1 fields instead of 2")
        self.assertEqual(reasons[4], "3 fields instead of 2")
        self.assertIn("--encoding", reasons[5])
        self.assertEqual(reasons[6], "the user is empty")
        self.assertIn("quote is not closed", reasons[9])
        self.assertEqual(
            self.words_of(path),
            {"ann": [("sun", 1)], "bob": [("moon", 2), ("lines", 1), ("two", 1)]},
        )

    def test_an_unclosed_quote_does_not_swallow_the_file(self):
        good = "".join(f"u{i},word\n" for i in range(15_000))
        path = self.write("a.csv", 'user,text\nu,"open\n' + good)
        prepared = self.read(path)
        self.assertEqual(prepared.num_clients, 15_000)
        self.assertEqual([row[0] for row in self.bad_rows(path)], [2])

    def test_json_lines(self):
        lines = [
            b'{"user": "ann", "text": "sun"}',
            b'{"user": "ann", "text": ',  # 2
            b'["ann", "sun"]',  # 3
            b'{"user": "ann", "txt": "sun"}',  # 4
            b'{"user": "ann", "text": null}',  # 5
            b'{"user": true, "text": "sun"}',  # 6
            b'{"user": "", "text": "sun"}',  # 7
            b'{"user": "ann", "text": "caf\xe9"}',  # 8
            b'{"user": "\\ud800", "text": "sun"}',  # 9
            b"[" * 100_000,  # 10
            b'{"user": "ann", "text": "moon \\ud800x"}',
        ]
        path = self.write("a.jsonl", b"\n".join(lines))
        bad = dict(self.bad_rows(path))
        self.assertEqual(list(bad), list(range(2, 11)))
        for line, reason in (
            (2, "not JSON"),
            (3, "a JSON object was expected, not list"),
            (4, "no field 'text'; the fields are: user, txt"),
            (5, "'text' is None; it has to be a string"),
            (6, "'user' is True; it has to be a string or an integer"),
            (7, "the user is empty"),
            (8, "--encoding"),
            (9, "not valid Unicode"),
            (10, "nested too deeply"),
        ):
            self.assertIn(reason, bad[line])
        self.assertEqual(self.words_of(path), {"ann": [("sun", 1), ("moon", 1)]})

    def test_counts(self):
        values = ["0", "-1", "1.5", "", "x", "2147483648", "9" * 5000, "²", "1e3"]
        contents = "".join(f"ann\tsun\t{value}\n" for value in ["7", *values])
        path = self.write("a.tsv", contents + "ann\t\t1\nann\tsun\n")
        bad = self.bad_rows(path, format="word_counts")
        self.assertEqual([line for line, _ in bad], list(range(2, 13)))
        for _, reason in bad[: len(values)]:
            self.assertIn("to be a whole number in 1..2147483647", reason)
        self.assertIn("the word is empty", bad[-2][1])
        words = self.words_of(path, format="word_counts")
        self.assertEqual(words, {"ann": [("sun", 7)]})

    def test_count_with_leading_zeros(self):
        path = self.write("a.tsv", f"ann\tsun\t{'0' * 25}12\n")
        words = self.words_of(path, format="word_counts")
        self.assertEqual(words, {"ann": [("sun", 12)]})

    def test_reasons_are_short(self):
        path = self.write("a.tsv", f"ann\tsun\t{'x' * 100_000}\n\tmoon\t1\nb\tc\t1\n")
        for _, reason in self.bad_rows(path, format="word_counts"):
            self.assertLess(len(reason), 210)

    def test_parquet(self):
        not_utf8 = pa.array([b"sun", b"caf\xe9", b"x", b"y"]).view(pa.string())
        path = self.directory / "a.parquet"
        users = ["ann", "ann", None, ""]
        pq.write_table(pa.table({"user": users, "text": not_utf8}), path)
        self.assertEqual(
            self.bad_rows(path),
            [
                (2, "bytes that are not UTF-8"),
                (3, "no value for --user_column"),
                (4, "the user is empty"),
            ],
        )

    def test_limit(self):
        rows = [("user", "text"), ("ann", "sun"), ("a",), ("b",), ("c",)]
        path = self.write("a.csv", files_test_case.csv_text(rows))
        self.assertLen(self.bad_rows(path, max_bad_rows=3), 3)
        other = self.write("b.csv", files_test_case.csv_text(rows))
        cache = self.directory / "cache"
        before = set(cache.iterdir())
        with self.assertRaisesRegex(
            population.PopulationError,
            r"b.csv has more than 2 bad rows \(--max_bad_rows=2\): line 3: 1 fields "
            "instead of 2; line 4: .*; line 5: ",
        ):
            self.read(other, max_bad_rows=2)
        self.assertEqual(set(cache.iterdir()), before)

    def test_like_mistakes_are_counted(self):
        lines = ["user,text", "ann,sun", *["ann"] * 40, ",sun"]
        path = self.write("a.csv", "\n".join(lines) + "\n")
        with self.assertLogs(level="WARNING") as logs:
            self.assertLen(self.bad_rows(path), 41)
        told = [line for line in logs.output if "eft out" in line]
        self.assertLen(told, 5)
        same = "line 3, line 4, line 5 and 37 more: 1 fields instead of 2; line 43: the"
        self.assertIn(same, told[-1])
        alike = "".join(f"ann\tsun\tx{i}\n" for i in range(9))
        path = self.write("b.tsv", alike)
        with self.assertRaisesRegex(
            population.PopulationError, "line 3: count is 'x2'; .* and 2 more of this "
        ):
            self.read(path, format="word_counts", max_bad_rows=4)

    def test_an_encoding_is_suggested(self):
        for encoding, text, advice in (
            ("iso-8859-1", "ann,müde\n", "--encoding=cp1252, .* 0xFC in 'müde'"),
            ("cp1252", "ann,“müde”\n", "--encoding=cp1252, .* 0x93 in '“'"),
            ("utf-8", "ann,müde\n", "--encoding=utf-8, .* 0xC3 in 'müde'"),
        ):
            for suffix in ("", ".gz"):
                data = ("user,text\n" + text * 120).encode(encoding)
                data = files_test_case.COMPRESS[suffix](data) if suffix else data
                path = self.write(f"{encoding}.csv{suffix}", data)
                tried = "ascii" if encoding == "utf-8" else "utf-8"
                self.assert_refused(
                    path, f"line 4 and 98 more: .*{advice}", encoding=tried
                )

    @parameterized.parameters("utf-16", "utf-16-le", "utf-16-be", "utf-32")
    def test_utf_16_is_recognised(self, encoding):
        rows = '{"user": "ann", "text": "sun"}\n' * 9
        path = self.write("a.jsonl", rows.encode(encoding))
        self.assert_refused(path, f"try --encoding={encoding}")
        text = "user;text\n" + "ann;müde\n" * 9
        path = self.write("a.csv", text.encode(encoding))
        advice = f"try --encoding={encoding}. .* 'user;text'"
        self.assert_refused(path, advice)
        words = self.words_of(path, encoding=encoding, delimiter=";", alphabet="demü")
        self.assertEqual(words, {"ann": [("müde", 9)]})


class RefusedFilesTest(files_test_case.FilesTestCase):
    @parameterized.parameters("csv", "jsonl", "parquet")
    def test_missing_directory_and_unreadable(self, suffix):
        missing = self.directory / f"none.{suffix}"
        self.assert_refused(missing, "there is no file .*none")
        pipe = self.directory / f"pipe.{suffix}"
        os.mkfifo(pipe)
        self.assert_refused(pipe, "is not a file but a device or pipe")
        folder = self.directory / f"folder.{suffix}"
        folder.mkdir()
        self.assert_refused(folder, "directory .*folder.* has no file of a known")

    def test_wrong_columns(self):
        csv_path = self.write("a.csv", "user,text,text\nann,sun,moon\n")
        parquet = self.directory / "a.parquet"
        pq.write_table(pa.table({"user": ["ann"], "body": ["sun"]}), parquet)
        for path, options, regex in (
            (csv_path, {"user_column": "usr"}, "no column 'usr' .*user, text, text"),
            (csv_path, {}, "2 columns 'text'"),
            (csv_path, {"text_column": "7"}, "no column '7' .*from 0 to 2"),
            (csv_path, {"user_column": "0", "text_column": "3"}, "without names"),
            (parquet, {}, r"no column 'text' \(--text_column\).* user, body"),
        ):
            self.assert_refused(path, regex, **options)
        json_path = self.write("a.jsonl", '{"user": "ann", "body": "sun"}\n' * 200)
        self.assert_refused(json_path, "no field 'text'; the fields are: user, body")

    def test_all_that_is_wrong_is_told_at_once(self):
        rows = "ann;müde\n" * 120
        path = self.write("a.csv", f"Nutzer;Beitrag\n{rows}".encode("cp1252"))
        self.assert_refused(
            path,
            r"no column 'user' \(--user_column\) and no column 'text' .*try "
            "--delimiter=';', which cuts them into 'Nutzer', 'Beitrag', and give "
            "--user_column and --text_column.* try --encoding=cp1252,",
        )
        path = self.write("b.csv", f"Größe;Beitrag\n{rows}".encode("cp1252"))
        self.assert_refused(path, "names have .*try --encoding=.* 'Größe;Beitrag'")

    def test_a_line_that_names_the_delimiter(self):
        for mark, text in ((";", "sep=;\r\n"), ("\t", '\ufeff"sep=\t"\n')):
            rows = text + f"user{mark}text\nann{mark}sun\nbob\n"
            path = self.write(f"{ord(mark)}.csv", rows.encode())
            self.assertEqual(self.words_of(path), {"ann": [("sun", 1)]})
            self.assertEqual(self.bad_rows(path), [(4, "1 fields instead of 2")])

    def test_a_header_alone_is_checked(self):
        good = self.write("good.csv", "user,text\nann,sun moon\n")
        bad = self.write("bad.csv", "name,words\n")
        both = f"{good},{bad}"
        self.assert_refused(both, "bad.csv has no column 'user'.* are name, words")
        empty = self.write("empty.csv", "user,text\n")
        self.assertEqual(self.read(f"{good},{empty}").num_clients, 1)

    def test_a_source_of_blanks_is_none(self):
        with self.assertRaisesRegex(ValueError, "source"):
            population_options.PopulationOptions(source="  ")

    def test_wrong_column_types(self):
        path = self.directory / "a.parquet"
        pq.write_table(pa.table({"user": [0.5], "text": [1], "count": ["1"]}), path)
        self.assert_refused(path, "'user' .* type double, must hold text or integers")
        self.assert_refused(
            path, "'text' .* type int64, must hold text", user_column="text"
        )
        self.assert_refused(
            path,
            "'count' .* type string, must hold integers",
            user_column="text",
            word_column="count",
            count_column="count",
        )

    def test_empty_populations(self):
        for name, contents, regex in (
            ("a.csv", "", "empty: 0 rows of 0 clients"),
            ("b.csv", "user,text\n", "empty: 0 rows"),
            ("c.csv", "user,text\nann,a b\n", "empty: 1 rows of 1 clients"),
            (
                "d.csv",
                "user,text\nann,ééé\n",
                "1 out_of_alphabet.*They have é; --alphabet=",
            ),
            ("e.csv", "user,text\nann\n", "Bad rows: line 2: 1 fields instead of 2"),
        ):
            self.assert_refused(self.write(name, contents), regex)

    def test_unknown_formats_and_encodings(self):
        path = self.write("a.dat", "user,text\nann,sun\n")
        self.assert_refused(path, "does not show the format")
        self.assert_refused(
            path, "encoding is 'klingon'", format="csv", encoding="klingon"
        )
        self.assert_refused(path, "encoding is 'hex'", format="csv", encoding="hex")
        self.assertEqual(self.words_of(path, format="csv"), {"ann": [("sun", 1)]})

    def test_damaged_files(self):
        data = files_test_case.csv_text(
            [("user", "text")] + [(f"u{i}", "word") for i in range(50_000)]
        )
        for suffix in (".gz", ".xz", ".zst"):
            whole = files_test_case.COMPRESS[suffix](data.encode())
            cut = self.write("cut.csv" + suffix, whole[: len(whole) // 2])
            self.assert_refused(cut, "reading stopped after line")
            wrong = self.write("wrong.csv" + suffix, bz2.compress(b"x"))
            self.assert_refused(wrong, "reading stopped after line 0")
        self.assert_refused(self.write("a.parquet", "not"), "cannot be read as Parquet")
        self.assert_refused(self.write("a.parquet.gz", "x"), "decompress it first")

    def test_refused_words_name_the_first_offenders(self):
        text = "".join(f"ann,word{i}\n" for i in range(9))
        path = self.write("a.csv", "user,text\nann,fine\n" + text)
        self.assert_refused(
            path,
            r"'word0' \(.*a\.csv:3\), .*'word4' \(.*a\.csv:7\)\. Widen --alphabet",
            out_of_alphabet="refuse",
        )
        one = self.write("b.csv", "user,text\nann,fine caf3\n")
        self.assert_refused(one, r"'caf3' \(.*b\.csv:2\)", out_of_alphabet="refuse")
        self.assertEqual(
            self.words_of(one, out_of_alphabet="refuse", alphabet="abcdefin3"),
            {"ann": [("fine", 1), ("caf3", 1)]},
        )

    def test_a_sum_of_counts_that_leaves_its_range(self):
        path = self.write("a.tsv", "u\tx\t1\nann\tsun\t2147483647\nann\tsun\t1\n")
        self.assert_refused(
            path, "'ann' has the word 'sun' 2147483648 times", format="word_counts"
        )

    def test_a_line_without_end(self):
        path = self.write("a.jsonl", b" " * (opening.MAX_LINE_CHARACTERS + 1))
        self.assert_refused(path, "longer than .* one record per line")


if __name__ == "__main__":
    absltest.main()
