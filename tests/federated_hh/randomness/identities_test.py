"""Tests of identities: what canonical text says, and what changes nothing in it."""

import dataclasses
import enum
import functools

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.randomness import identities


class Mood(enum.Enum):
    GOOD = "good"


@identities.identity("Point", "x y", without="color")
@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: float = 2.0
    color: str = "red"
    label: str | None = None


class Custom(Point):
    pass


class CanonicalTest(parameterized.TestCase):
    @parameterized.parameters(
        (None, "None"),
        (True, "True"),
        (3, "3"),
        (0.1, "0.1"),
        (float("inf"), "inf"),
        (np.float64(0.1), "0.1"),
        ("it's", r"'it\'s'"),
        ('"', "'\"'"),
        ("é", r"'\u00e9'"),
        ((1,), "(1,)"),
        ((1, 2), "(1, 2)"),
        ([1, "a"], "[1, 'a']"),
        ({"b": 1, "a": None}, "{'b': 1, 'a': None}"),
        (int, "<class 'builtins:int'>"),
        (Point, "<class 'Point'>"),
        (Point(1), "Point(x=1, y=2.0)"),
        (Mood.GOOD, f"<{__name__}:Mood.GOOD: 'good'>"),
        (Custom(1, y=3.0), f"{__name__}:Custom(x=1, y=3.0)"),
        (Custom(1), f"{__name__}:Custom(x=1)"),
    )
    def test_says(self, value, text):
        self.assertEqual(identities.canonical(value), text)

    def test_a_new_field_at_its_default_changes_nothing(self):
        self.assertEqual(
            identities.canonical(Point(1, label=None)), "Point(x=1, y=2.0)"
        )
        said = identities.canonical(Point(1, label="a"))
        self.assertEqual(said, "Point(x=1, y=2.0, label='a')")
        self.assertEqual(identities.settings(Point(1)), {"x": 1, "y": 2.0})

    def test_a_field_that_no_sum_depends_on(self):
        for kind in (Point, Custom):
            self.assertEqual(
                identities.canonical(kind(1, color="blue")),
                identities.canonical(kind(1)),
            )

    def test_values_that_are_equal_but_of_another_type(self):
        @dataclasses.dataclass(frozen=True)
        class Holds:
            value: float = 1.0

        texts = {identities.canonical(Holds(value)) for value in (1.0, 1, True)}
        self.assertLen(texts, 3)

    def test_refuses_what_has_no_text(self):
        for value in (np.zeros(3), print, functools.partial(print), object(), {1, 2}):
            with self.subTest(str(value)), self.assertRaisesRegex(ValueError, "text"):
                identities.canonical((value,))

    def test_a_field_that_is_not_there(self):
        with self.assertRaisesRegex(TypeError, "'Point' names z"):
            identities.identity("Point", "x z")(Point)


class NameTest(absltest.TestCase):
    def test_names(self):
        self.assertEqual(identities.name_of(Point), "Point")
        self.assertEqual(identities.name_of(Custom), f"{__name__}:Custom")
        self.assertEqual(identities.label_of(Custom), "Custom")
        self.assertTrue(identities.has_identity(Point))
        self.assertFalse(identities.has_identity(Custom))

    def test_a_class_that_was_renamed_keeps_its_text(self):
        @identities.identity("Point", "x y")
        @dataclasses.dataclass(frozen=True)
        class Place:
            x: int
            y: float

        self.assertEqual(identities.canonical(Place(1, 2.0)), "Point(x=1, y=2.0)")


if __name__ == "__main__":
    absltest.main()
