"""Tests of the record that makes a statement a realised one."""

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy import realised

_COHORT = np.arange(5)


def _rounds(*numbers):
    return [realised.Round.of(repeat, number, _COHORT) for repeat, number in numbers]


class RealisedRoundsTest(parameterized.TestCase):
    def test_rounds_of_all_repeats_count(self):
        record = realised.RealisedRounds(_rounds((0, 1), (0, 2), (1, 1)))
        self.assertEqual(record.num_repeats, 2)
        self.assertEqual(record.summary(), realised.Realised(3, 15))

    def test_the_record_tells_who_was_asked_and_the_summary_does_not(self):
        first = realised.RealisedRounds(_rounds((0, 1)))
        other = realised.RealisedRounds(
            [realised.Round.of(0, 1, np.array([0, 1, 2, 3, 5]))]
        )
        self.assertNotEqual(first, other)
        self.assertEqual(first.summary(), other.summary())

    @parameterized.parameters(
        ((), "rounds is empty"),
        (((0, 2),), "round 2 of repeat 0, round 1 of repeat 0 is expected"),
        (((0, 1), (0, 1)), "round 1 of repeat 0, round 2 of repeat 0"),
        (((0, 1), (0, 3)), "round 3 of repeat 0"),
        (((0, 1), (2, 1)), "round 1 of repeat 2"),
        (((1, 1),), "round 1 of repeat 1"),
        (((0, 1), (1, 2)), "round 2 of repeat 1"),
    )
    def test_a_round_is_missing(self, numbers, message):
        with self.assertRaisesRegex(ValueError, message):
            realised.RealisedRounds(_rounds(*numbers))

    @parameterized.parameters(
        ((-1, 1, 5, "a" * 64), "repeat"),
        ((0, 0, 5, "a" * 64), "number"),
        ((0, 1, 0, "a" * 64), "clients"),
        ((0, 1, 5, "everybody"), "cohort"),
    )
    def test_bad_rounds(self, values, message):
        with self.assertRaisesRegex(ValueError, message):
            realised.Round(*values)

    @parameterized.parameters((0, 5), (3, None), (None, 3), (3, 2), (3, 4.5))
    def test_bad_summaries(self, rounds, clients):
        with self.assertRaises(ValueError):
            realised.Realised(rounds, clients)


if __name__ == "__main__":
    absltest.main()
