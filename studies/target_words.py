"""The target words of the case study: the rare end of English.

Sun et al. 2024, Section 4: the target list holds known words only, those "in the bottom
5% percent of user daily contributions", to be as long-tailed as real out-of-vocabulary
words. Here they are the words of the wordfreq package's large English list that make up
the lowest 5% of its frequency mass. A population leaves out the others as known words.
"""

import os
import pathlib

from simulation import atomic_files


def words_by_frequency() -> list[tuple[str, float]]:
    """Returns English words with frequencies, the most frequent first."""
    import wordfreq  # here: it takes a while to import

    frequencies = wordfreq.get_frequency_dict("en", wordlist="large")
    return sorted(frequencies.items(), key=lambda item: -item[1])


def known_words(target_share: float, vocabulary_size: int | None = None) -> list[str]:
    """Returns the English words that are not target words.

    Args:
        target_share: Share of the frequency mass that the target words make up, in
            (0, 1): the rarest words that fit, and the one on the edge.
        vocabulary_size: How many of the most frequent words there are at all; the
            mass is theirs, and all words beyond are left out of the targets too. None
            for the whole list.

    Raises:
        ValueError: If an argument is out of its range.
    """
    if not 0 < target_share < 1:
        raise ValueError(f"target_share is {target_share}; it has to be in (0, 1)")
    words = words_by_frequency()
    if vocabulary_size is None:
        vocabulary_size = len(words)
    if not 1 <= vocabulary_size <= len(words):
        raise ValueError(
            f"vocabulary_size is {vocabulary_size}; it has to be from 1 to the list's "
            f"{len(words):,} words"
        )
    vocabulary = words[:vocabulary_size]
    total = sum(frequency for _, frequency in vocabulary)
    mass, head = 0.0, 0
    for _, frequency in vocabulary:
        mass += frequency
        if mass > (1 - target_share) * total:
            break
        head += 1
    return [word for word, _ in (*words[:head], *words[vocabulary_size:])]


def known_words_file(
    directory: str | os.PathLike[str],
    target_share: float,
    vocabulary_size: int | None = None,
) -> str:
    """Returns the path of the known words, one a line, made on first use.

    Args:
        directory: Where it is kept.
        target_share: See `known_words`.
        vocabulary_size: See `known_words`.
    """
    size = "all" if vocabulary_size is None else str(vocabulary_size)
    path = pathlib.Path(directory) / f"english_but_{target_share:g}_of_{size}.txt"
    if not path.exists():
        words = known_words(target_share, vocabulary_size)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_files.locked(path, "writing the known words"):
            if not path.exists():
                atomic_files.write_file(path, "".join(f"{w}\n" for w in words).encode())
    return str(path)
