"""All functions of a small family of affine hashes."""

import itertools

import numpy as np

from federated_hh.randomizers import affine_hashes


def every_function(num_bits, num_cells):
    """Returns all functions of a family, as columns of `AffineHashes`."""
    return np.array(list(itertools.product(range(num_cells), repeat=num_bits + 1)))


def with_columns(columns, num_cells, domain_size):
    hashes = affine_hashes.AffineHashes(len(columns), num_cells, domain_size)
    hashes.__dict__["columns"] = np.asarray(columns, np.int32)
    return hashes
