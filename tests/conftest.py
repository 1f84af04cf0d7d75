"""Prepares a pytest run as `absltest.main()` and the binaries prepare theirs."""

from absl import flags

from simulation import startup

startup.silence_tensorflow()

# Temporary directories of absl's tests are flags.
if not flags.FLAGS.is_parsed():
    flags.FLAGS(["pytest"])
