"""Tests that no contents of `population.json` give more than an error that names it."""

import copy
import json
import pathlib
from unittest import mock

from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from federated_hh.files import verified_files
from federated_hh.populations import population
from federated_hh.populations.columns import client_text, client_words, raw_columns
from federated_hh.populations.options import population_options

_ROWS = [("ann", [("sun", 2), ("moon", 1)]), ("bob", []), ("cid", [("sea", 7)])]
_TEXT = [("ann", [[0, 1], [2]]), ("bob", [[5]])]
_JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([2**63 - 1, 2**64, 10**400, -1]),
        st.floats(),
        st.text(max_size=5),
        st.sampled_from(["../../etc/passwd", "entries.bin", "\ud800", "0" * 64]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner)
    ),
    max_leaves=5,
)
_FIELDS = ("num_clients", "num_words", "num_entries", "files", "fingerprint", "source")


def _places(value, path=()):
    """Yields the way to each value within a JSON value."""
    yield path
    if isinstance(value, dict):
        for name in value:
            yield from _places(value[name], (*path, name))


class HostileMetadataTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        parent = pathlib.Path(self.create_tempdir().full_path)
        self.directory = parent / "words"
        client_words.ClientWords.from_rows(self.directory, _ROWS)
        client_text.ClientText.from_rows(parent / "text", _TEXT)
        self.file = self.directory / "population.json"
        self.written = json.loads(self.file.read_text())
        self.text = parent / "text"
        self.text_written = json.loads((self.text / "population.json").read_text())

    @parameterized.parameters(
        "[]",
        "null",
        "7",
        '"text"',
        "NaN",
        "1e999",
        "",
        "{",
        "[" * 100_000,
        '{"a":' * 100_000,
        "9" * 10_000,
        b"\xff\xfe",
        b"\0" * 100,
        '{"schema_version": 2}',
        '{"schema_version": 2, "files": 7}',
        '{"schema_version": [2]}',
        '{"schema_version": NaN}',
        '{"schema_version": 2.5}',
    )
    def test_what_is_no_metadata(self, contents):
        self.file.write_bytes(
            contents if isinstance(contents, bytes) else contents.encode()
        )
        self._check_refused()

    def test_a_directory_and_a_giant_in_its_place(self):
        with mock.patch.object(raw_columns, "_MAX_BYTES", 10):
            self._check_refused()
        self.file.unlink()
        self.file.mkdir()
        self._check_refused()

    @settings(max_examples=300, deadline=None)
    @given(data=st.data())
    def test_a_changed_value(self, data):
        metadata = copy.deepcopy(self.written)
        *way, name = data.draw(
            st.sampled_from([path for path in _places(metadata) if path])
        )
        holder = metadata
        for step in way:
            holder = holder[step]
        if data.draw(st.booleans()):
            del holder[name]
        else:
            holder[name] = data.draw(_JSON)
        if json.dumps(metadata) == json.dumps(self.written):
            return
        self.file.write_text(json.dumps(metadata))
        self._check_refused()

    @settings(max_examples=300, deadline=None)
    @given(name=st.sampled_from(_FIELDS[:-1]), value=_JSON)
    def test_a_value_with_the_right_digest(self, name, value):
        for directory, written, opener in (
            (self.directory, self.written, client_words.ClientWords.open),
            (self.text, self.text_written, client_text.ClientText.open),
        ):
            if name not in written or value == written[name]:
                continue
            metadata = dict(written, **{name: value})
            metadata["digest"] = raw_columns._digest(metadata)
            file = directory / "population.json"
            file.write_text(json.dumps(metadata))
            with self.assertRaisesRegex(ValueError, str(directory)):
                opener(directory)

    def test_names_of_files_stay_inside(self):
        outside = self.directory.parent / "outside.bin"
        outside.write_bytes(b"")
        metadata = copy.deepcopy(self.written)
        metadata["files"]["../outside.bin"] = metadata["files"]["entries.bin"]
        metadata["digest"] = raw_columns._digest(metadata)
        self.file.write_text(json.dumps(metadata))
        with self.assertRaisesRegex(ValueError, "is not the name of a column's file"):
            client_words.ClientWords.open(self.directory)

    def _check_refused(self):
        for opener in (client_words.ClientWords.open, client_text.ClientText.open):
            with self.assertRaises(ValueError) as raised:
                opener(self.directory)
            self.assertIn(str(self.file), str(raised.exception))
            self.assertLess(len(str(raised.exception)), 1000)


class PreparedTest(parameterized.TestCase):
    """A cache with hostile metadata, of what is asked for and of others."""

    def setUp(self):
        super().setUp()
        parent = pathlib.Path(self.create_tempdir().full_path)
        self.source = parent / "a.csv"
        self.source.write_text("user,text\nann,the sun\n")
        self.cache = parent / "cache"
        self.options = population_options.PopulationOptions(source=str(self.source))

    @parameterized.parameters(
        "[]",
        "[" * 100_000,
        '{"identity": [], "prepared_at": 7}',
        '{"identity": {"source": [], "options": {}}, "prepared_at": ""}',
        '{"identity": {"source": {}, "options": {}, "format_version": []}, '
        '"prepared_at": ""}',
    )
    def test_of_another_population(self, contents):
        other = self.cache / "other"
        other.mkdir(parents=True)
        (other / "population.json").write_text(contents)
        prepared = population.prepare(self.options, self.cache)
        self.assertEqual(prepared.num_clients, 1)

    @parameterized.parameters("[]", "{}", "null", "[" * 100_000)
    def test_of_this_population(self, contents):
        prepared = population.prepare(self.options, self.cache)
        file = pathlib.Path(prepared.directory) / "population.json"
        file.write_text(contents)
        with self.assertRaisesRegex(
            verified_files.PopulationError, f"{file}.*prepare it again"
        ):
            population.prepare(self.options, self.cache)

    def test_without_metadata(self):
        prepared = population.prepare(self.options, self.cache)
        (pathlib.Path(prepared.directory) / "population.json").unlink()
        with self.assertRaisesRegex(
            verified_files.PopulationError, f"{prepared.directory} .*prepare"
        ):
            population.prepare(self.options, self.cache)

    def test_of_another_identity(self):
        prepared = population.prepare(self.options, self.cache)
        directory = pathlib.Path(prepared.directory)
        other = population.prepare(
            population_options.PopulationOptions(
                source=str(self.source), empty_clients="keep"
            ),
            self.cache,
        )
        directory.rename(self.cache / "aside")
        pathlib.Path(other.directory).rename(directory)
        with self.assertRaisesRegex(
            verified_files.PopulationError,
            f"{directory} holds another population than its name implies",
        ):
            population.prepare(self.options, self.cache)


if __name__ == "__main__":
    absltest.main()
