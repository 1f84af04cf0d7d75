"""Base of the tests of reading files."""

import gzip
import json
import lzma
import pathlib

import zstandard
from absl.testing import parameterized

from federated_hh.populations import population
from federated_hh.populations.options import population_options

COMPRESS = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def csv_text(rows, delimiter=","):
    def quoted(value):
        value = str(value)
        if any(c in value for c in '",\n'):
            return '"' + value.replace('"', '""') + '"'
        return value

    return "".join(delimiter.join(map(quoted, row)) + "\n" for row in rows)


def json_lines_text(names, rows):
    return "".join(
        json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows
    )


class FilesTestCase(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def write(self, name, contents):
        path = self.directory / name
        data = contents.encode() if isinstance(contents, str) else contents
        path.write_bytes(data)
        return path

    def read(self, path, **options):
        tokenizer = options.pop("own_tokenizer", None)
        options.setdefault("tokenizer", "triehh")
        options = population_options.PopulationOptions(source=str(path), **options)
        return population.prepare(options, self.directory / "cache", tokenizer)

    def words_of(self, path, **options):
        prepared = self.read(path, **options)
        return {
            prepared.client_id(i): prepared.client(i)
            for i in range(prepared.num_clients)
        }

    def bad_rows(self, path, **options):
        report = self.read(path, **options).metadata["bad_rows"]
        self.assertLen(report["rows"], report["count"])
        return [(row["line"], row["reason"]) for row in report["rows"]]

    def assert_refused(self, path, regex, **options):
        """Checks that preparing fails with a message and keeps nothing."""
        with self.assertRaisesRegex(population.PopulationError, regex):
            self.read(path, **options)
        cache = self.directory / "cache"
        kept = list(cache.iterdir()) if cache.exists() else []
        self.assertEmpty(kept)
