"""Tests of the events of devices."""

import os
import sqlite3

from absl.testing import absltest, parameterized

from federated_hh.statistics.recipes import store

_STREAM = store.EventStream("Typed", {"age": "INTEGER", "words": "TEXT"}, 100)


class EventStoreTest(parameterized.TestCase):
    def test_devices_have_their_own_rows_for_the_approved_time(self):
        path = os.path.join(self.create_tempdir().full_path, "events.sqlite")
        with store.EventStore([_STREAM], path) as events:
            events.donate("Typed", [(1, 10, 20, "b"), (1, 5, 20, "a"), (2, 7, 30, "c")])
        with store.EventStore([_STREAM], path) as events:  # kept on file
            self.assertEqual(events.rows("Typed", 1, 20), [(20, "a"), (20, "b")])
            self.assertEqual(events.rows("Typed", 2, 20), [(30, "c")])
            self.assertEqual(events.rows("Typed", 3, 20), [])
            # What has expired is not seen, deleted or not.
            self.assertEqual(events.rows("Typed", 1, 105), [(20, "b")])
            self.assertEqual(events.expire(105), 1)
            self.assertEqual(events.expire(105), 0)
            self.assertEqual(events.rows("Typed", 1, 0), [(20, "b")])

    def test_a_bad_donation_leaves_nothing(self):
        with store.EventStore([_STREAM]) as events:
            with self.assertRaises(sqlite3.IntegrityError):
                events.donate("Typed", [(1, 1, 20, "a"), (None, 1, 20, "b")])
            self.assertEqual(events.rows("Typed", 1, 1), [])
            with self.assertRaisesRegex(ValueError, "stream is 'Other'"):
                events.donate("Other", [])

    @parameterized.parameters(
        (20, "a" * 1001, "words"),
        (20, "\N{EURO SIGN}" * 334, "words"),
        ("a" * 1001, "a", "age"),
        (20, b"a" * 1001, "words"),
    )
    def test_too_long_a_text_is_not_taken(self, age, words, field):
        with store.EventStore([_STREAM]) as events:
            events.donate("Typed", [(1, 1, None, "\N{EURO SIGN}" * 333)])
            kept = events.rows("Typed", 1, 1)
            self.assertLen(kept, 1)
            with self.assertRaisesRegex(
                ValueError, f"{field} of an event of Typed has more than 1,000 bytes"
            ):
                events.donate("Typed", [(1, 1, 20, "a"), (1, 1, age, words)])
            self.assertEqual(events.rows("Typed", 1, 1), kept)

    @parameterized.parameters(
        ("a b", {"x": "TEXT"}, 1, "'a b': rename it, as to a_b"),
        ("a", {"x; drop": "TEXT"}, 1, "'x; drop': rename"),
        ("a", {"device": "TEXT"}, 1, "'device': rename it, as to device_"),
        ("a", {"x": "BLOB"}, 1, "of type 'BLOB'"),
        ("a", {}, 1, "fields of a"),
        ("a", {"x": "TEXT"}, 0, "retention is 0"),
    )
    def test_bad_streams(self, name, fields, retention, message):
        with self.assertRaisesRegex(ValueError, message):
            store.EventStream(name, fields, retention)


if __name__ == "__main__":
    absltest.main()
