"""Refuses text without blanks between words, where nothing would find its words."""

from collections.abc import Iterable

import numpy as np

from federated_hh.files import verified_files
from federated_hh.populations.languages import words


class UnspacedText:
    """The share of read text whose script has no blanks between words."""

    def __init__(self, is_refused: bool):
        """Starts with no text.

        Args:
            is_refused: Whether `check` refuses text that is mostly so.
        """
        self._is_refused = is_refused
        self._unspaced = self._characters = 0

    def add(self, texts: Iterable[str]) -> None:
        """Counts the characters of texts."""
        if not self._is_refused:
            return
        text = "".join(texts)
        self._characters += len(text) - text.count(" ")
        if text.isascii():
            return
        # The scripts have three or more bytes a character in UTF-8.
        data = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
        if np.count_nonzero(data >= 0xE0) * 20 > len(text):
            self._unspaced += len(words.UNSPACED.findall(text))

    def check(self) -> None:
        """Refuses text that is mostly in scripts without blanks.

        Raises:
            PopulationError: If more than half of the characters are.
        """
        if self._unspaced * 2 > self._characters:
            share = self._unspaced / self._characters
            raise verified_files.PopulationError(
                f"{share:.0%} of the text is in scripts without blanks between words "
                "(Chinese, Japanese, Thai, Lao, Khmer, Burmese), so whole sentences "
                "would be words. Find the words with --segmenter=icu."
            )
