"""Tests of options: what they take, and how their errors name them."""

import dataclasses
import enum
import math

import numpy as np
from absl import flags
from absl.testing import absltest, flagsaver, parameterized

from federated_hh.options import option_flags
from federated_hh.options.fields import (
    REQUIRED,
    OptionError,
    check,
    fields_of,
    option,
    option_of,
)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WalkOptions:
    """All kinds of options."""

    walk_steps: int = option(REQUIRED, "Steps.", least=1, most=1000, why="it is late")
    stride: float | None = option(
        None, "Of a step.", above=0, most=2, or_infinite=True, unit="m"
    )
    share: float = option(0.5, "Uphill.", least=0, below=1, flag="walk_share")
    walker: str | None = option(None, "Who.")
    gait: str = option("trot", "How.", choices=("trot", "run"))
    colour: Colour = option(Colour.RED, "Of the shoes.")
    walk_stops: tuple[str, ...] = option((), "Where.")
    rests: bool = option(True, "Now and then.")

    def __post_init__(self):
        check(self)
        if self.walker == "snail" and self.gait == "run":
            raise OptionError(
                self,
                "{walker=} with {gait=}: at {share} give {rests=False}, {gait=trot} or "
                "{pace:.1f} {unit}, at {walk_stops=} ({rests=})",
                pace=0.25,
                unit="{m}",
            )


_FLAGS = option_flags.define(
    WalkOptions, defaults={"share": 0.75, "colour": Colour.BLUE}
)


class OptionsTest(parameterized.TestCase):
    @parameterized.parameters(
        ("walk_steps", 0, r"an integer in \[1, 1000\] \(it is late\)"),
        ("walk_steps", 1001, r"an integer in \[1, 1000\]"),
        ("walk_steps", 10**400, r"an integer"),
        ("walk_steps", 2.0, r"an integer"),
        ("walk_steps", True, r"an integer"),
        ("walk_steps", "2", r"an integer"),
        ("walk_steps", None, r"an integer"),
        ("stride", 0, r"a number in \(0, 2\] m, or inf$"),
        ("stride", 2.001, r"a number in"),
        ("stride", -math.inf, r"a number in"),
        ("stride", math.nan, r"a number in"),
        ("stride", "1", r"a number in"),
        ("share", 1, r"a number in \[0, 1\)$"),
        ("share", math.inf, r"a number in \[0, 1\)$"),
        ("share", None, r"a number in \[0, 1\)$"),
        ("walker", 3, "a text"),
        ("gait", "creep", "one of trot, run"),
        ("colour", "green", "one of red, blue"),
        ("walk_stops", "inn", "a list of texts"),
        ("walk_stops", (1,), "a list of texts"),
        ("rests", 1, "True or False"),
    )
    def test_refused(self, name, value, text):
        with self.assertRaisesRegex(OptionError, f"^{name}=.*: has to be {text}"):
            WalkOptions(**{"walk_steps": 1, name: value})

    @parameterized.parameters(
        ("walk_steps", np.int64(1000), 1000, int),
        ("stride", np.float32(2), 2.0, float),
        ("stride", math.inf, math.inf, float),
        ("stride", None, None, type(None)),
        ("share", 0, 0.0, float),
        ("colour", "blue", Colour.BLUE, Colour),
        ("walk_stops", ["inn"], ("inn",), tuple),
    )
    def test_kept_as_plain_values(self, name, value, kept, kind):
        found = getattr(WalkOptions(**{"walk_steps": 1, name: value}), name)
        self.assertEqual(found, kept)
        self.assertIs(type(found), kind)

    def test_errors_name_fields_or_flags(self):
        with self.assertRaises(OptionError) as caught:
            WalkOptions(
                walk_steps=3, walker="snail", gait="run", walk_stops=("{a}", "b")
            )
        self.assertEqual(
            str(caught.exception),
            "walker=snail with gait=run: at share give rests=False, gait=trot or 0.2 "
            "{m}, at walk_stops={a},b (rests=True)",
        )
        self.assertEqual(
            caught.exception.with_flags(),
            "--walker=snail with --gait=run: at --walk_share give --norests, "
            "--gait=trot or 0.2 {m}, at --walk_stops={a},b (--rests)",
        )

    def test_what_is_no_option_is_refused(self):
        for hint, value in (
            (bytes, option(b"", "Bytes.")),
            (int | str, option(1, "Either.")),
            (int, 3),
            (int, option(3, "Unbounded above.", least=0)),
            (float, option(3.0, "Bounded twice.", least=0, above=0, most=9)),
        ):
            made = dataclasses.make_dataclass("Made", [("odd", hint, value)])
            with self.assertRaisesRegex(TypeError, "option"):
                fields_of(made)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TourOptions:
    """Options of which each is another's."""

    walk_steps: int = option_of(WalkOptions, "walk_steps", 5, "Of the tour.", most=9)
    steps_left: int = option_of(WalkOptions, "walk_steps", 1)
    part: float = option_of(WalkOptions, "share", above=0)
    stride: float | None = option_of(WalkOptions, "stride", group="Feet")
    gait: str = option_of(WalkOptions, "gait")


class OptionOfTest(absltest.TestCase):
    def test_what_is_not_changed_is_the_others(self):
        walk, tour = fields_of(WalkOptions), fields_of(TourOptions)
        self.assertEqual(tour["walk_steps"].range, "an integer in [1, 9]")
        self.assertEqual(tour["steps_left"].range, walk["walk_steps"].range)
        self.assertEqual(tour["part"].range, "a number in (0, 1)")
        self.assertEqual(tour["stride"].range, walk["stride"].range)
        self.assertEqual(tour["gait"].choices, ("trot", "run"))
        self.assertEqual(tour["part"].flag, "walk_share")
        self.assertEqual(tour["stride"].group, "Feet")
        self.assertIsNone(tour["gait"].group)
        self.assertEqual(
            [(field.default, field.help) for field in tour.values()],
            [
                (5, "Of the tour."),
                (1, "Steps."),
                (0.5, "Uphill."),
                (None, "Of a step."),
                ("trot", "How."),
            ],
        )
        self.assertEqual(fields_of(WalkOptions), walk)

    def test_an_unknown_option(self):
        with self.assertRaisesRegex(ValueError, "steps"):
            option_of(WalkOptions, "steps")


class OptionFlagsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(flagsaver.flagsaver())

    def parse(self, *arguments):
        flags.FLAGS(["program", *arguments])
        return _FLAGS.read()

    def test_every_kind(self):
        self.assertEqual(
            self.parse(
                "--walk_steps=7",
                "--stride=inf",
                "--walk_share=0.25",
                "--walker=ann",
                "--gait=run",
                "--colour=red",
                "--walk_stops=inn,hut",
                "--norests",
            ),
            WalkOptions(
                walk_steps=7,
                stride=math.inf,
                share=0.25,
                walker="ann",
                gait="run",
                colour=Colour.RED,
                walk_stops=("inn", "hut"),
                rests=False,
            ),
        )

    def test_a_program_has_defaults_of_its_own(self):
        self.assertEqual(
            self.parse("--walk_steps=7"),
            WalkOptions(walk_steps=7, share=0.75, colour=Colour.BLUE),
        )

    def test_what_has_to_be_given(self):
        with self.assertRaisesRegex(ValueError, "^give --walk_steps: Steps.$"):
            self.parse("--rests")

    @parameterized.parameters("--walk_steps=1001", "--stride=nan", "--walk_share=1")
    def test_numbers_are_refused_as_they_are_parsed(self, flag):
        with self.assertRaisesRegex(
            flags.IllegalFlagValueError, f"{flag}: has to be an? .* in"
        ):
            flags.FLAGS(["program", flag])

    def test_flags_belong_to_the_module_that_asks(self):
        names = {flag.name for flag in flags.FLAGS.get_key_flags_for_module(__name__)}
        self.assertContainsSubset(["walk_steps", "walk_share", "rests"], names)
        self.assertIn("in [1, 1000]", flags.FLAGS["walk_steps"].parser.syntactic_help)


if __name__ == "__main__":
    absltest.main()
