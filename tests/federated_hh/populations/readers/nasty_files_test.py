"""Tests that reading many rows at a time is reading row by row, on odd files."""

import csv
import random
from unittest import mock

from absl.testing import absltest, parameterized

from federated_hh.populations.options import population_options
from federated_hh.populations.readers import files, opening
from tests.federated_hh.populations.readers import files_test_case

_PIECES = [
    *(b"ann", b"bob", b"a", b"1", b" ", b"\t", b"caf\xc3\xa9", b"\xe9", b"\x00"),
    *(b",", b",", b",", b'"', b'"', b'""', b'"x,y"', b"\xef\xbb\xbf", b"\xe2\x80\xa8"),
    *(b"\n", b"\n", b"\n", b"\r\n", b"\r", b"\n\n"),
    *(b"u1,moon\n", b'u2,"star, sun"\n', b'u3,"a\nb c"\n', b'u4,"say ""hi"""\r\n'),
]


def by_row(data):
    """Reads a CSV file with columns user and text in the plainest way.

    Returns:
        (line, user, text) of the rows, and the lines of those that are bad.
    """
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    lines = [line + "\n" for line in text.split("\n")]
    if lines[-1] == "\n":
        lines.pop()
    rows, bad, width, number = [], [], None, 0
    while number < len(lines):
        record, taken = None, 0
        try:
            reader = csv.reader(lines[number:])
            record = next(reader)
            taken = reader.line_num
        except csv.Error:
            pass
        whole = lines[number : number + taken]
        if taken > 1:
            try:
                parsed = list(csv.reader(whole, strict=True))
                if len(parsed) != 1 or width not in (None, len(parsed[0])):
                    taken = 0
            except csv.Error:
                taken = 0
        elif record and record[-1].endswith("\n"):
            taken = 0
        number += 1
        if not taken:
            bad.append(number)
            continue
        start, number = number, number + taken - 1
        if any("\ud800" <= c <= "\udfff" for line in whole for c in line):
            bad.append(start)
        elif record:
            if width is None:
                width = len(record)  # the header
            elif len(record) != width or not record[0]:
                bad.append(start)
            else:
                rows.append((start, record[0], record[1]))
    return rows, bad


class NastyFilesTest(files_test_case.FilesTestCase):
    @parameterized.product(seed=tuple(range(8)), block=(1, 40, 1 << 20))
    def test_csv(self, seed, block):
        rng = random.Random(seed)
        for number in range(40):
            body = b"".join(rng.choices(_PIECES, k=rng.randrange(60)))
            data = rng.choice([b"", b"\xef\xbb\xbf"]) + b"user,text\n" + body
            path = self.write(f"{number}.csv", data)
            options = population_options.PopulationOptions(
                source=str(path), max_bad_rows=1000
            )
            with (
                mock.patch.object(opening, "_BLOCK_CHARACTERS", block),
                mock.patch.object(opening, "_CHUNK_BYTES", min(block, 8192)),
            ):
                batches, _, bad = files.read_rows(options)
                rows = [
                    row
                    for batch in batches
                    for row in zip(
                        batch.lines, batch.users, batch.contents, strict=True
                    )
                ]
            found = [row["line"] for row in bad.report()["rows"]]
            self.assertEqual((rows, found), by_row(data), data)

    def test_a_row_of_many_lines_over_many_blocks(self):
        text = "".join(f"word{chr(97 + i % 26)}\n" for i in range(9_000))
        path = self.write("a.csv", f'user,text\nann,"{text}"\nbob,sun\n')
        with mock.patch.object(opening, "_BLOCK_CHARACTERS", 1000):
            words = self.words_of(path)
        self.assertLen(words["ann"], 26)
        self.assertEqual(sum(count for _, count in words["ann"]), 9_000)
        self.assertEqual(words["bob"], [("sun", 1)])

    def test_blocks_decide_nothing(self):
        rng = random.Random(0)
        words = [
            "sun",
            "Moon,",
            "it's",
            '"star"',
            "é",
            "caf\u00e9",
            "--",
            "re-do",
            "\0",
        ]
        spaces = [" ", "  ", "\n", "\x1c", "\u2003", "\u00a0"]
        rows = [("user", "text")]
        for _ in range(2_000):
            text = "".join(
                rng.choice(words) + rng.choice(spaces) for _ in range(rng.randrange(9))
            )
            rows.append((f"u{rng.randrange(50)}", text))
        path = self.write("a.csv", files_test_case.csv_text(rows))
        for tokenizer in ("words", "triehh", "whitespace"):
            fingerprints = set()
            for block in (100, 10_000, 1 << 20):
                with mock.patch.object(opening, "_BLOCK_CHARACTERS", block):
                    target = self.directory / f"{tokenizer}-{block}"
                    target.mkdir()
                    self.directory, before = target, self.directory
                    prepared = self.read(path, tokenizer=tokenizer)
                    self.directory = before
                fingerprints.add(prepared.fingerprint)
            self.assertLen(fingerprints, 1)


if __name__ == "__main__":
    absltest.main()
