"""Tests of what a program does before it imports TensorFlow."""

import os

from absl.testing import absltest

from simulation import startup


class SilenceTest(absltest.TestCase):
    def test_keeps_what_the_user_set(self):
        before = dict(os.environ)
        try:
            os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
            startup.silence_tensorflow()
            self.assertEqual(os.environ["TF_CPP_MIN_LOG_LEVEL"], "0")
        finally:
            os.environ.clear()
            os.environ.update(before)


if __name__ == "__main__":
    absltest.main()
