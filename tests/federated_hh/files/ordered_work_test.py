"""Tests of work that threads share."""

import threading
import time

from absl.testing import absltest, parameterized

from federated_hh.files import ordered_work


class InOrderTest(parameterized.TestCase):
    @parameterized.parameters((0, 2), (1, 2), (50, 1), (50, 3), (50, None))
    def test_results_come_in_order(self, count, threads):
        def square(index):
            time.sleep(0.001 * (index % 3))  # later ones are done first
            return index * index

        results = ordered_work.in_order(square, count, threads)
        self.assertEqual(list(results), [i * i for i in range(count)])

    def test_threads_work_at_once(self):
        # Neither call returns before the other has begun.
        both = threading.Barrier(2, timeout=30)
        self.assertLen(list(ordered_work.in_order(lambda _: both.wait(), 2, 2)), 2)

    def test_runs_ahead_only_a_little(self):
        begun = []
        results = ordered_work.in_order(begun.append, 1000, 2)
        next(results)
        results.close()
        self.assertLess(len(begun), 10)

    def test_error_reaches_the_caller(self):
        def fail(index):
            if index == 3:
                raise ValueError("piece 3")
            return index

        results = ordered_work.in_order(fail, 5, 2)
        self.assertEqual([next(results) for _ in range(3)], [0, 1, 2])
        with self.assertRaisesRegex(ValueError, "piece 3"):
            next(results)


if __name__ == "__main__":
    absltest.main()
