"""Refuses text without blanks between words, where nothing would find its words."""

from collections.abc import Iterable

import numpy as np
from absl import logging

from federated_hh.files import verified_files
from federated_hh.populations.languages import words

_MOST, _WORTH_A_LINE = 0.5, 0.01


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
        """Warns of text in scripts without blanks, and refuses it if it prevails.

        Raises:
            PopulationError: If more than half of the characters are in such scripts.
        """
        share = self._unspaced / max(1, self._characters)
        told = (
            f"{share:.1%} of the text is in scripts without blanks between words "
            "(Chinese, Japanese, Thai, Lao, Khmer, Burmese), so whole sentences would "
            "be words. Find the words with --segmenter=icu."
        )
        if share > _MOST:
            raise verified_files.PopulationError(told)
        if share >= _WORTH_A_LINE:
            logging.warning("%s", told)
