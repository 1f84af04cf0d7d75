"""The Pitman-Yor process of word repetitions and word frequencies.

Pitman and Yor 1997, with discount d in [0, 1) and concentration a > -d. Of a sequence
of draws, the (n + 1)-st is a new draw from a common law with chance

    (a + d k) / (a + n),

where k draws were new so far, and else repeats what the j-th of these gave, with a
chance proportional to n_j - d, where n_j draws gave it. That is the Chinese restaurant:
draws are guests, new ones open a table, the others sit down at one.
"""

import numpy as np

# Below e**-700 floats have no number to take the logarithm of.
_LARGEST_LOGIT = 700.0
_STEPS = 140_001
# Guests seated at a time: few enough for the processor's caches.
_GUESTS_AT_ONCE = 1 << 15


def seat(
    rng: np.random.Generator,
    lengths: np.ndarray,
    discount: float,
    concentration: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Seats the guests of many independent restaurants at tables.

    A guest points at one before them, each equally likely, or with a weight of a at
    none. Who points at none opens a table. Who points at one who opened a table opens
    another with probability d; all others sit down where the one sits whom they point
    at. So each table has the weight n_j - d, and a new one a + d k. Who sits where then
    follows from all pointers at once, in a few passes over all guests.

    Args:
        rng: Source of randomness: one uniform number per guest.
        lengths: Integers [restaurants], at least 0: guests of each.
        discount: d, in [0, 1).
        concentration: a, above -d.

    Returns:
        int64 [tables] each: the guests who opened the tables, as places in the sequence
        of all guests of all restaurants, ascending; and how many guests each has.
    """
    ends = np.cumsum(lengths)
    found = []
    low = first = 0
    while low < len(lengths):
        # As many restaurants as have so many guests, and one at least.
        high = int(np.searchsorted(ends, first + _GUESTS_AT_ONCE, side="right"))
        high = max(high, low + 1)
        openers, guests = _seat(rng, lengths[low:high], discount, concentration)
        openers += first
        found.append((openers, guests))
        low, first = high, int(ends[high - 1])
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    openers, guests = map(np.concatenate, zip(*found, strict=True))
    return openers, guests


def _seat(
    rng: np.random.Generator,
    lengths: np.ndarray,
    discount: float,
    concentration: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Seats the guests of restaurants all at once; see `seat`."""
    size = int(lengths.sum())
    itself = np.arange(size)
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    before = itself - starts
    # Uniform in [-a, before). A number below 0 points at nobody; where a is below 0,
    # that weight is missing from the first guest's for opening another table.
    points = rng.random(size)
    points *= before + concentration
    points -= concentration
    at = points.astype(np.int64)
    fraction = points - at  # of those at somebody
    somebody = (points >= 0) & (before > 0)
    # A number just below `before` may have been rounded up.
    np.minimum(at, before - 1, out=at)
    at += starts
    at = np.where(somebody, at, itself)
    opens_as_that_one = (fraction < discount) & somebody
    opened = ~somebody[_ends(np.where(opens_as_that_one, at, itself))]
    tables = _ends(np.where(opened, itself, at))
    openers = np.flatnonzero(opened)
    return openers, np.bincount(tables, minlength=size)[openers]


def expected_masses(
    discount: float, concentration: float, size: int
) -> tuple[np.ndarray, float]:
    """Returns the word probabilities of a Pitman-Yor law, by rank.

    The law's masses are random. On average those above x are

        N(x) = 1 / B(1 - d, a + d) times
               the integral from x to 1 of y**(-1 - d) (1 - y)**(a + d - 1) dy

    in number, and make up a share of the whole that is the upper tail at x of the Beta
    law with 1 - d and a + d. The k-th mass is the share between N = k - 1 and N = k. So
    they add up to 1, and there are as many above x as on average, but for rounding.

    Args:
        discount: d, in [0, 1).
        concentration: a, above -d.
        size: Number of masses, at least 1.

    Returns:
        float64 [size], decreasing; and the share of the words beyond.
    """
    from scipy import special

    first, second = 1.0 - discount, concentration + discount
    # By trapezoids over logit(y), from the common words' end on; dy = y (1 - y) dlogit.
    logits = np.linspace(_LARGEST_LOGIT, -_LARGEST_LOGIT, _STEPS)
    density = np.exp(
        -discount * special.log_expit(logits)
        + second * special.log_expit(-logits)
        - special.betaln(first, second)
    )
    pieces = (density[1:] + density[:-1]) * (_LARGEST_LOGIT / (_STEPS - 1))
    above = np.concatenate(([0.0], np.cumsum(pieces)))
    edges = np.interp(np.arange(size + 1), above, logits)
    shares = special.betainc(second, first, special.expit(-edges))
    shares[0] = 0.0  # exactly
    # Neighbours may differ by less than the interpolation error.
    return np.sort(np.diff(shares))[::-1], float(1.0 - shares[-1])


def _ends(links: np.ndarray) -> np.ndarray:
    """Returns where each chain of links ends: at an index that links to itself."""
    while True:
        further = links[links]
        if np.array_equal(further, links):
            return links
        links = further
