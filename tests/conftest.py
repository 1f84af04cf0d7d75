"""Prepares a pytest run as `absltest.main()` and the binaries prepare theirs."""

import pytest
from absl import flags, logging

from simulation import startup

startup.silence_tensorflow()

# Temporary directories of absl's tests are flags.
if not flags.FLAGS.is_parsed():
    flags.FLAGS(["pytest"])


@pytest.fixture(autouse=True)
def log_everything():
    """Lets tests see what is logged, whatever ran before them."""
    logging.set_verbosity(logging.INFO)
