"""Tests that both runtimes give the same counts, and nearly the same trained sums."""

import tempfile

from absl.testing import absltest

from scripts import compare_runtimes, engine_workloads


class CompareRuntimesTest(absltest.TestCase):
    def test_the_runtimes_agree(self):
        with tempfile.TemporaryDirectory() as scratch:
            words = engine_workloads.population(scratch, 10_000)
            train, score = engine_workloads.training(scratch, 3, 4, num_blocks=2)
            workloads = [engine_workloads.votes(words, 1000), train, score]
            table = compare_runtimes.compare(workloads, 2, None)
        found = table.set_index("rounds of")["relative_difference"].to_dict()
        self.assertEqual(found["TrieHH's votes"], 0)
        # Of float32's 6e-8, over all steps of a client's training.
        self.assertLess(found["training, exact sum"], 1e-5)
        self.assertLess(found["evaluation"], 1e-5)


if __name__ == "__main__":
    absltest.main()
