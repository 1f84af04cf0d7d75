"""The proof of 0 and 1 in Python's integers, one report at a time."""

import itertools

P61 = 2**61 - 1


def at(values, nodes, point, p):
    """Returns the polynomial through values at nodes at a point."""
    total = 0
    for value, node in zip(values, nodes, strict=True):
        above, below = value, 1
        for other in nodes:
            if other != node:
                above = above * (point - other) % p
                below = below * (node - other) % p
        total += above * pow(below, -1, p)
    return total % p


def gate(wires, gammas, point, p):
    """Returns the sum over wires, each its values at 0, 1, ..., of gamma f (f - 1)."""
    total = 0
    for values, gamma in zip(wires, gammas, strict=True):
        value = at(values, range(len(values)), point, p)
        total += gamma * value * (value - 1)
    return total % p


def proof(wires, gammas, p):
    """Returns P at 0 and at g + 1 to 2g, whatever the wires' values are."""
    g = len(wires[0]) - 1
    points = [0, *range(g + 1, 2 * g + 1)]
    return [gate(wires, gammas, point, p) for point in points]


def proof_at(values, point, p):
    """Returns the polynomial of a proof, which is 0 at 1 to g, at a point."""
    g = len(values) - 1
    nodes = range(2 * g + 1)
    return at([values[0], *[0] * g, *values[1:]], nodes, point, p)


def all_of(p, size):
    """Returns all vectors of the field: p^size lists."""
    return itertools.product(range(p), repeat=size)
