"""Privacy accounting. Imports no TensorFlow and can be used alone."""
