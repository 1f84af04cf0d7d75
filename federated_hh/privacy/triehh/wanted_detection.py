"""Before a run: how frequent a word has to be for it to be found, and how surely.

A `Detection` knows the law by which an algorithm finds a word: that of TrieHH is in
`federated_hh.privacy.triehh.detection`, that of LDP TrieHH in
`federated_hh.privacy.local.ldp_triehh_detection`. Here is what both can be asked, and
what a user is told of it.
"""

import abc
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy.triehh import guarantees as triehh

# Of most words that people look for, and of the tables here.
USUAL_CHARACTERS = 6
PROBABILITIES = (0.5, 0.9)

AS_GIVEN = "as given"
# Changes that gain less are not worth a word.
_BETTER = 0.9
# Of the words that are too long, a length that completes so many of them is advised:
# the longest one may be no word at all.
_COMPLETED = 0.95
_NUM_NAMED = 3


class Detection(abc.ABC):
    """The law by which an algorithm finds words."""

    @property
    @abc.abstractmethod
    def population_size(self) -> int:
        """Users of the population."""

    @property
    @abc.abstractmethod
    def max_characters(self) -> int:
        """Characters of the longest word that can be found, at least 0."""

    @property
    @abc.abstractmethod
    def assumptions(self) -> tuple[str, ...]:
        """The law's assumptions, a clause each."""

    @abc.abstractmethod
    def rate(self, holders: int, characters: int) -> float:
        """Computes the discovery rate of a word.

        Args:
            holders: Users who hold it, 0 to population_size.
            characters: The characters of the word, 1 to max_characters.

        Returns:
            The probability; it does not fall with the number of holders.
        """

    def holders_needed(self, probability: float, characters: int) -> int | None:
        """Finds the number of holders that a word needs.

        Args:
            probability: The probability of the word to be found, in (0, 1).
            characters: The characters of the word, at least 1.

        Returns:
            The smallest number; None if not even a word that all hold is found so
            surely, or if words are not so long.
        """
        checks.probability(probability=probability)
        checks.integer(characters=characters, least=1)
        size = self.population_size
        if (
            characters > self.max_characters
            or self.rate(size, characters) < probability
        ):
            return None
        if self.rate(0, characters) >= probability:
            return 0
        return 1 + triehh.last_true(
            lambda holders: self.rate(holders, characters) < probability, 0, size
        )


@dataclasses.dataclass(frozen=True)
class Alternative:
    """A setting to compare with.

    Attributes:
        name: Difference, such as "10 times the users".
        detection: Its law; None where it finds nothing.
    """

    name: str
    detection: Detection | None


@dataclasses.dataclass(frozen=True)
class HeldWords:
    """The words that clients hold, as the simulator knows them, and longer settings.

    Attributes:
        words: The words, those that most clients hold first.
        shares: float64, shape [words]: the share of clients that holds each.
        found: bool, shape [words]: whether it was found.
        longest: Characters of the longest word that the run can find.
        at: Returns the setting that finds words of up to so many characters.
        spelled: Returns a word's characters as they are found: with jamo for Hangul.
    """

    words: Sequence[str]
    shares: np.ndarray
    found: np.ndarray
    longest: int
    at: Callable[[int], Alternative]
    spelled: Callable[[str], str] = str

    @property
    def lengths(self) -> np.ndarray:
        """The characters of each word: int64 [words]."""
        return np.array([len(self.spelled(word)) for word in self.words], np.int64)

    def better(self, share: float, probability: float) -> tuple[int, str]:
        """Returns how many more words a longer setting finds, and a sentence on it.

        Args:
            share: Share of clients that has to hold a word for the run to find it.
            probability: The probability with which it is found then.

        Returns:
            (0, "") where no longer setting finds more.
        """
        lengths = self.lengths
        is_long = lengths > self.longest
        wanted = lengths[is_long & (self.shares >= share)]
        if not len(wanted):
            return 0, ""
        characters = int(np.quantile(wanted, _COMPLETED, method="higher"))
        other = self.at(characters)
        law = other.detection
        needed = law.holders_needed(probability, characters) if law else None
        if law is None or needed is None:
            return 0, ""
        enough = self.shares >= needed / law.population_size
        gained = np.flatnonzero(is_long & (lengths <= characters) & enough)
        lost = np.count_nonzero(self.found & ~enough & (self.shares >= share))
        named = ", ".join(self.words[i] for i in gained[:_NUM_NAMED])
        return len(gained) - lost, (
            f"Most helpful change: {other.name}. Words of more than {self.longest} "
            f"characters are not found now; {len(gained):,} of them would be, with "
            f"probability {probability:g} or more each, such as {named}."
        )


def lengths(detection: Detection, characters: int | None = None) -> list[int]:
    """Returns the lengths of words that tables have.

    Args:
        detection: The detection of the run.
        characters: The one that is asked for; None for a usual one and the longest.
    """
    if characters is not None:
        return [characters]
    longest = detection.max_characters
    return sorted({min(USUAL_CHARACTERS, longest), longest}) if longest else []


def rows(
    alternatives: Sequence[Alternative],
    probabilities: Sequence[float] = PROBABILITIES,
    characters: int | None = None,
) -> list[dict[str, Any]]:
    """Returns a table of the words that can be found.

    Args:
        alternatives: The setting itself, and what to compare it with.
        probabilities: With which a word is to be found.
        characters: See `lengths`.

    Returns:
        A row for each setting, length and probability: setting, population,
        characters, probability, holders and share: how many users have to hold such a
        word, and which share of the users that is; None where none is found so surely.
    """
    found = []
    for alternative in alternatives:
        detection = alternative.detection
        for length in lengths(detection or _first(alternatives), characters):
            for probability in probabilities:
                size, holders, share = None, None, None
                if detection is not None:
                    size = detection.population_size
                    holders = detection.holders_needed(probability, length)
                    share = None if holders is None else holders / size
                found.append(
                    {
                        "setting": alternative.name,
                        "population": size,
                        "characters": length,
                        "probability": probability,
                        "holders": holders,
                        "share": share,
                    }
                )
    return found


def _first(alternatives: Sequence[Alternative]) -> Detection:
    return next(a.detection for a in alternatives if a.detection is not None)


def sentences(table: Sequence[dict[str, Any]], holding: str = "hold it") -> str:
    """Returns a table's main facts, in two or three sentences.

    Args:
        table: Table, from `rows`; its first setting is the user's own.
        holding: Verb phrase for holders, such as "vote with it".
    """
    if not table:
        return "Words of one symbol, their end, are none: nothing is found."
    own = [row for row in table if row["setting"] == table[0]["setting"]]
    length = own[0]["characters"]
    likely = max(row["probability"] for row in own)
    shown = [row for row in own if row["characters"] == length]
    possible = [row for row in shown if row["holders"] is not None]
    what = f"A word of {length} characters"
    if possible:
        text = f"{what} is found with probability " + ", and with ".join(
            f"{row['probability']:g} if {row['holders']:,} clients {holding} "
            f"({_percent(row['share'])})"
            for row in possible
        )
    else:
        text = (
            f"{what} is not found with probability {shown[0]['probability']:g}, even "
            f"if all clients {holding}"
        )
    others = [
        row
        for row in table
        if row["setting"] != table[0]["setting"]
        and (row["characters"], row["probability"]) == (length, likely)
    ]
    if not others:
        return f"{text}."
    helps = "; ".join(
        f"{_percent(row['share'])} with {row['setting']}" for row in others
    )
    return f"{text}. Rarer words, with probability {likely:g}: {helps}."


def advice(
    table: Sequence[dict[str, Any]],
    *,
    is_all: bool,
    held: HeldWords | None = None,
    holding: str = "hold it",
) -> str:
    """Returns the change of settings that would find the most words, with its effect.

    Args:
        table: Table, from `rows`.
        is_all: Whether every word that can be completed was found.
        held: The clients' words; None where they are not known.
        holding: Verb phrase for holders.
    """
    compared = [row for row in table if row["probability"] == max(PROBABILITIES)]
    compared = [row for row in compared if row["characters"] == table[0]["characters"]]
    own = compared[0] if compared else {"share": None}
    longer, text = 0, ""
    if held is not None and own["share"] is not None:
        longer, text = held.better(own["share"], max(PROBABILITIES))
    if is_all:
        every = "Every word of the clients that is short enough was found."
        return f"{every} {text}" if longer > 0 else every
    better = [
        row
        for row in compared[1:]
        if (row["share"] or math.inf) < _BETTER * (own["share"] or math.inf)
    ]
    better.sort(key=lambda row: row["share"])
    if longer > 0 and held is not None:
        is_short = held.lengths <= held.longest
        missed = held.shares[is_short & ~held.found]
        if longer > max((sum(missed >= row["share"]) for row in better), default=0):
            return text
    if not better:
        return ""
    best, now = better[0], own["share"]
    text = (
        f"Most helpful change: {best['setting']}. A word of {best['characters']} "
        f"characters is then found with probability {best['probability']:g} if "
        f"{_percent(best['share'])} of the clients {holding}; now "
        + (f"it takes {_percent(now)}" if now else f"not even if all {holding}")
    )
    same = [row for row in better if row["population"] == own["population"]]
    if same and best not in same:
        here = "; ".join(f"{row['setting']}, {_percent(row['share'])}" for row in same)
        text += f". With these clients: {here}"
    return f"{text}."


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.3g}%"
