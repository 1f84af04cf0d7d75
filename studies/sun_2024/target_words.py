"""The target words of the case study: the rare end of what is typed.

Sun et al. 2024, Section 4: the target list holds known words only, those "in the bottom
5% percent of user daily contributions", to be as long-tailed as real out-of-vocabulary
words. Of a population that typed real text they are found by that rule, and are the
only words that are kept of it. Of English they are the words of the English
list that make up the lowest 5% of its frequency mass; a synthetic population
leaves out the others as known words.
"""

import hashlib
import os
import pathlib
from collections.abc import Callable, Set
from typing import TYPE_CHECKING

from federated_hh.files import atomic_files
from federated_hh.options import checks

if TYPE_CHECKING:  # imports NumPy
    from federated_hh.populations.columns import client_words

# Frequencies, which have three digits, are counts of so many words.
_TYPED = 10**12


def words_by_frequency() -> list[tuple[str, float]]:
    """Returns English words with frequencies, the most frequent first."""
    from federated_hh.populations.languages import languages

    return sorted(languages.words().items(), key=lambda item: -item[1])


def known_words(target_share: float, vocabulary_size: int | None = None) -> list[str]:
    """Returns the English words that are not target words.

    Args:
        target_share: Share of the frequency mass that the target words make up, in
            (0, 1): the rarest words that fit, and the one on the edge.
        vocabulary_size: Number of the most frequent words in all; the
            mass is theirs, and all words beyond are left out of the targets too. None
            for the whole list.

    Raises:
        ValueError: If an argument is out of its range.
    """
    checks.holds(0 < target_share < 1, "in (0, 1)", target_share=target_share)
    words = words_by_frequency()
    if vocabulary_size is None:
        vocabulary_size = len(words)
    checks.integer(vocabulary_size=vocabulary_size, least=1, most=len(words))
    vocabulary = words[:vocabulary_size]
    total = sum(frequency for _, frequency in vocabulary)
    mass, head = 0.0, 0
    for _, frequency in vocabulary:
        mass += frequency
        if mass > (1 - target_share) * total:
            break
        head += 1
    return [word for word, _ in (*words[:head], *words[vocabulary_size:])]


def seldom_typed(
    population: "client_words.ClientWords", dictionary: Set[str], target_share: float
) -> list[str]:
    """Returns the words of a dictionary that a population types least often.

    Args:
        population: All words that clients typed.
        dictionary: Lower-cased words.
        target_share: Share that the target words have of all that was typed of the
            dictionary, in (0, 1): the rarest words that fit.

    Returns:
        The target words, the most frequent first.

    Raises:
        ValueError: If `target_share` is out of its range, or no word is a target.
    """
    import numpy as np

    checks.holds(0 < target_share < 1, "in (0, 1)", target_share=target_share)
    times = population.occurrences()
    words = population.words.to_pylist()
    in_dictionary = np.array([word.lower() in dictionary for word in words], bool)
    found = np.flatnonzero(in_dictionary & (times > 0))
    found = found[np.argsort(times[found], kind="stable")]
    mass = np.cumsum(times[found])
    found = found[mass <= target_share * mass[-1]] if len(mass) else found
    if not len(found):
        raise ValueError(
            f"target_share is {target_share}: no word of the dictionary is that seldom "
            "among what the population typed"
        )
    return [words[place] for place in found[::-1]]


def seldom_typed_file(
    directory: str | os.PathLike[str],
    population: "client_words.ClientWords",
    dictionary: str | os.PathLike[str],
    target_share: float,
) -> str:
    """Returns the path of `seldom_typed`, a word a line, made on first use.

    Args:
        directory: Directory of the file.
        population: See `seldom_typed`.
        dictionary: Path of a dictionary, one word a line.
        target_share: See `seldom_typed`.
    """
    from federated_hh.populations.readers import word_table

    known = word_table.read_dictionary(os.fspath(dictionary))
    digest = hashlib.sha256("\n".join(sorted(known)).encode()).hexdigest()[:16]
    name = f"seldom_{target_share:g}_of_{population.fingerprint[:16]}_{digest}.txt"
    return _made_once(
        pathlib.Path(directory) / name,
        lambda: seldom_typed(population, known, target_share),
    )


def known_words_file(
    directory: str | os.PathLike[str],
    target_share: float,
    vocabulary_size: int | None = None,
) -> str:
    """Returns the path of the known words, one a line, made on first use.

    Args:
        directory: Directory of the file.
        target_share: See `known_words`.
        vocabulary_size: See `known_words`.
    """
    size = "all" if vocabulary_size is None else str(vocabulary_size)
    name = f"english_words_but_{target_share:g}_of_{size}.txt"
    path = pathlib.Path(directory) / name
    return _made_once(path, lambda: known_words(target_share, vocabulary_size))


def target_words_file(
    directory: str | os.PathLike[str], target_share: float, vocabulary_size: int
) -> str:
    """Returns the path of the target words with their frequencies, made on first use.

    Args:
        directory: Directory of the file.
        target_share: See `known_words`.
        vocabulary_size: See `known_words`.
    """
    name = f"english_targets_{target_share:g}_of_{vocabulary_size}.txt"

    def lines() -> list[str]:
        known = set(known_words(target_share, vocabulary_size))
        words = words_by_frequency()[:vocabulary_size]
        return [
            f"{word}\t{round(frequency * _TYPED)}"
            for word, frequency in words
            if word not in known
        ]

    return _made_once(pathlib.Path(directory) / name, lines)


def _made_once(path: pathlib.Path, words_of: Callable[[], list[str]]) -> str:
    """Returns the path of a list of words, made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_files.locked(path, "writing a list of words"):
        if not path.exists():
            contents = "".join(f"{word}\n" for word in words_of())
            atomic_files.write_file(path, contents.encode())
    return str(path)
