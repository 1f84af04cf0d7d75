"""A user's list of words for synthetic clients to type."""

import os

from federated_hh.files import verified_files
from federated_hh.populations.readers import opening


def read(path: str, needs_counts: bool) -> dict[str, float]:
    """Reads a list of words.

    Args:
        path: Path of a file with one word per line, or a word, a tab and its count;
            UTF-8, possibly compressed (.gz, .xz, .zst).
        needs_counts: Whether a line without a count is an error. Otherwise the file's
            order gives the frequencies, and counts are ignored.

    Returns:
        Words with counts, above 0, the most frequent first; without counts they fall by
        one per word.

    Raises:
        PopulationError: If the file cannot be read, or a line has another form.
    """
    path = os.path.expanduser(path)
    found: dict[str, float] = {}
    with opening.open_text(path, "utf-8") as lines:
        for number, line in enumerate(lines, 1):
            word, tab, count = line.rstrip("\r\n").partition("\t")
            wrong = None
            if opening.has_undecodable(line):
                wrong = opening.UNDECODABLE
            elif not word.strip():
                wrong = "there is no word"
            elif word in found:
                wrong = f"the word {word!r} comes twice"
            elif needs_counts and not (tab and _is_count(count)):
                wrong = "the word has no count: has to be word<TAB>count, above 0"
            if wrong:
                raise verified_files.PopulationError(f"{path}:{number}: {wrong}.")
            found[word] = float(count) if needs_counts else -number
    if not found:
        raise verified_files.PopulationError(f"{path}: the list has no words.")
    if needs_counts:
        return dict(sorted(found.items(), key=lambda item: -item[1]))
    return {word: float(place + len(found) + 1) for word, place in found.items()}


def _is_count(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf")
    except ValueError:
        return False
