"""Lets tests that need absl's flags (temporary directories) run under pytest."""

from absl import flags

if not flags.FLAGS.is_parsed():
    flags.FLAGS(["pytest"])
