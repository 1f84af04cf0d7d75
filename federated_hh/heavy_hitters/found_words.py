"""The words that a level of LDP TrieHH completes, against its noise."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from federated_hh.privacy.local import vote_law

# An estimate below so many of its standard errors is called noise. Of 1,000 candidates
# that nobody holds one or two are above.
NOISE_STANDARD_ERRORS = 3.0


@dataclasses.dataclass(frozen=True)
class FoundWord:
    """A found word.

    Attributes:
        text: The word.
        pass_number: The pass that found it, from 1.
        level: The level that completed it, from 1: its number of characters.
        votes: The level's reports that contain it.
        estimate: The debiased count: of how many clients of that level's cohort it
            was one of the items reported on.
        standard_error: The standard error of the estimate.
    """

    text: str
    pass_number: int
    level: int
    votes: int
    estimate: float
    standard_error: float

    def stands_out(self, standard_errors: float) -> bool:
        """Returns whether the estimate is at least so many standard errors.

        Args:
            standard_errors: Nonnegative; 0 for any estimate.
        """
        is_cut = standard_errors > 0
        return not is_cut or self.estimate >= standard_errors * self.standard_error


def of_earlier(found: Sequence[FoundWord], pass_number: int) -> list[str]:
    """Returns the words that earlier passes found, and clients leave out.

    Args:
        found: The words found so far.
        pass_number: The pass in progress.
    """
    return [word.text for word in found if word.pass_number < pass_number]


def places_of_earlier(
    found: Sequence[FoundWord], pass_number: int, place_of_word: Mapping[str, int]
) -> list[int]:
    """Returns the places of what earlier passes found, and clients leave out.

    Args:
        found: The words found so far.
        pass_number: The pass in progress.
        place_of_word: Places of the population's words; noise can find others.
    """
    earlier = of_earlier(found, pass_number)
    return [place_of_word[word] for word in earlier if word in place_of_word]


def counted(words: int) -> str:
    """Returns a number of words, as in "1 word" and "1,200 words"."""
    return f"{words:,} word" + "s" * (words != 1)


def false_words(expected: float) -> str:
    """Returns a bound on expected false words, one that rounds to 0.0 in words.

    Args:
        expected: The bound, at least 0.
    """
    return "fewer than 0.1" if expected < 0.05 else f"at most {expected:,.1f}"


def against_noise(
    law: vote_law.VoteLaw,
    found: Sequence[FoundWord],
    kept_votes: np.ndarray,
    *,
    least_votes: int,
    new_words: int,
    min_standard_errors: float,
) -> dict[str, float | int]:
    """Compares the votes of kept candidates with a level's noise.

    Args:
        law: The law of a candidate's votes.
        found: The words of the level.
        kept_votes: The votes of what it keeps: int, shape [kept].
        least_votes: Least votes of a kept candidate, at least 1.
        new_words: Candidates that are words not found before.
        min_standard_errors: See `LdpTrieHHParameters`.

    Returns:
        Metrics: see `LdpTrieHH.update`.
    """
    # Whatever the trie, votes for candidates without a holder in this cohort are noise.
    # Where the places bind, the threshold is of the same votes: the mean may then be
    # above this by one part in the number of such candidates.
    tail = law.noise_tail(max(least_votes, law.least_votes(min_standard_errors)))
    in_noise = kept_votes < law.least_votes(NOISE_STANDARD_ERRORS)
    return {
        "prefixes_in_noise": int(np.count_nonzero(in_noise)),
        "words_released": sum(word.stands_out(min_standard_errors) for word in found),
        "expected_false_words": new_words * tail,
        "noise_standard_deviation": float(law.standard_error(np.zeros([]))),
        "least_estimate_kept": float(law.estimate(np.array(least_votes))),
    }
