"""Hypergeometric draws, for urns of any size, and for urns of many colours."""

import numpy as np

from federated_hh.randomizers import binomials

# NumPy's sampler takes urns with fewer than this of either colour.
NUMPY_LIMIT = 10**9


def hypergeometric(
    generator: np.random.Generator,
    good: np.ndarray,
    bad: np.ndarray,
    sample: np.ndarray,
    limit: int = NUMPY_LIMIT,
) -> np.ndarray:
    """Draws the number of good ones in a uniform sample without replacement.

    Args:
        generator: The source of random bits.
        good: int64, shape [urns], at least 0.
        bad: int64, shape [urns], at least 0.
        sample: int64, shape [urns], in [0, good + bad].
        limit: Urns with fewer good and fewer bad ones than this go to NumPy.

    Returns:
        int64, shape [urns].
    """
    small = (good < limit) & (bad < limit)
    if small.all():
        return generator.hypergeometric(good, bad, sample)
    chosen = np.empty_like(good)
    chosen[small] = generator.hypergeometric(good[small], bad[small], sample[small])
    large = ~small
    chosen[large] = _thin_and_correct(generator, good[large], bad[large], sample[large])
    return chosen


def _thin_and_correct(
    generator: np.random.Generator,
    good: np.ndarray,
    bad: np.ndarray,
    sample: np.ndarray,
) -> np.ndarray:
    """Draws the same as `hypergeometric` by binomials only.

    Tossing a coin for each member of the urn gives a set that is uniform among those
    of its size, and about as large as wanted. Tossing coins for those outside it (or
    inside) then adds (or removes) about the difference, and leaves the set uniform
    among those of its size; the difference shrinks to about its square root each time.
    """
    chosen_good, chosen_bad = np.zeros_like(good), np.zeros_like(bad)
    missing = sample.copy()
    todo = np.flatnonzero(missing)
    while todo.size:
        sign = np.sign(missing[todo])
        adding = sign > 0
        of_good = np.where(adding, good[todo] - chosen_good[todo], chosen_good[todo])
        of_bad = np.where(adding, bad[todo] - chosen_bad[todo], chosen_bad[todo])
        chance = np.minimum(1.0, np.abs(missing[todo]) / (of_good + of_bad))
        good_moved = binomials.binomial(generator, of_good, chance)
        bad_moved = binomials.binomial(generator, of_bad, chance)
        chosen_good[todo] += sign * good_moved
        chosen_bad[todo] += sign * bad_moved
        missing[todo] -= sign * (good_moved + bad_moved)
        todo = todo[missing[todo] != 0]
    return chosen_good


def choose_from_columns(
    generator: np.random.Generator, counts: np.ndarray, sample: np.ndarray
) -> np.ndarray:
    """Draws the colours of a uniform sample from each of many urns.

    Args:
        generator: The source of random bits.
        counts: int64, shape [urns, colours]: an urn's number of each colour.
        sample: int64, shape [urns]: the size of the sample from each urn, in
            [0, the urn's total].

    Returns:
        int64, shape [urns, colours]: the sample's number of each colour, a
        multivariate hypergeometric draw for each urn.
    """
    total = counts.sum(axis=1)
    # Most samples are all of their urn or none of it; those need no draw.
    chosen = np.where((sample == total)[:, np.newaxis], counts, 0)
    urns = np.flatnonzero((sample > 0) & (sample < total))
    rest, missing = total[urns], sample[urns]
    # The first colour takes what the others leave.
    for colour in np.flatnonzero(counts[urns].any(axis=0))[::-1]:
        good = counts[urns, colour]
        bad = rest - good
        drawn = np.where(bad == 0, missing, 0)
        open_ = np.flatnonzero((good > 0) & (bad > 0) & (missing > 0))
        drawn[open_] = hypergeometric(
            generator, good[open_], bad[open_], missing[open_]
        )
        chosen[urns, colour] = drawn
        rest, missing = bad, missing - drawn
    return chosen
