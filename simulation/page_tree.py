"""Words as the trie that they make, which opens level by level."""

import dataclasses
from collections.abc import Sequence

import markupsafe

_MOST_WORDS = 2_000


@dataclasses.dataclass(frozen=True)
class Tree:
    """The prefixes of words, each in what opens it.

    Attributes:
        words: Distinct ones; of many, the first are shown.
    """

    words: Sequence[str]
    kind = "tree"

    @property
    def html(self) -> markupsafe.Markup:
        """The tree, as nested elements that a browser opens by itself."""
        shown = sorted(set(self.words[:_MOST_WORDS]))
        return markupsafe.Markup(_level(shown, 0))

    @property
    def note(self) -> str:
        """How many words are left out, or nothing."""
        if len(self.words) <= _MOST_WORDS:
            return ""
        return f"The first {_MOST_WORDS:,} of {len(self.words):,} words."


def _level(words: Sequence[str], depth: int) -> str:
    """Returns the list of what follows the first `depth` characters of words.

    Args:
        words: In order, with these characters in common, and longer.
        depth: At least 0.
    """
    branches: dict[str, list[str]] = {}
    for word in words:
        branches.setdefault(word[: depth + 1], []).append(word)
    parts = []
    for prefix, below in branches.items():
        name = markupsafe.escape(prefix)
        longer = [word for word in below if word != prefix]
        if len(below) == 1:
            # Nothing branches off any more.
            parts.append(f"<li>{markupsafe.escape(below[0])}</li>")
            continue
        count = f"{len(below):,} words"
        if len(longer) < len(below):
            name = markupsafe.Markup(f"<strong>{name}</strong>")
        parts.append(
            f"<li><details><summary>{name} <small>{count}</small></summary>"
            f"{_level(longer, depth + 1)}</details></li>"
        )
    return f"<ul>{''.join(parts)}</ul>"
