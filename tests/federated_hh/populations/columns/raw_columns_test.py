import numpy as np
from absl.testing import absltest

from federated_hh.populations.columns import raw_columns


class RangesTest(absltest.TestCase):
    def test_ranges(self):
        found = raw_columns.ranges(np.array([5, 0, 7]), np.array([2, 0, 3]))
        self.assertEqual(found.tolist(), [5, 6, 7, 8, 9])
        empty = np.array([], int)
        self.assertEqual(raw_columns.ranges(empty, empty).tolist(), [])


if __name__ == "__main__":
    absltest.main()
