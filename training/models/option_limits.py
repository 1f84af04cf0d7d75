"""The bounds of options of training, beyond which a setting means nothing."""

# Of rounds, clients and sentences: what a 32-bit number counts.
LARGEST_COUNT = 2**31 - 1
# Learning rates above this make any model, and any clip norm, infinite.
LARGEST_RATE = 1e6
# Less noise guarantees nothing: at 1e-3, one participation has an epsilon of 500,000.
# Its square, by which accounting divides, is far from where floats end.
LEAST_NOISE = 1e-3
