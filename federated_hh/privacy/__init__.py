"""Privacy accounting: plans, guarantees, statements, ledgers. Needs no TensorFlow."""
