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
        """The tree, as nested elements that a browser opens by itself.

        The style of the page draws them as nodes with lines between them.
        """
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
    nodes = []
    for prefix, below in branches.items():
        if len(below) == 1:
            # Nothing branches off any more.
            nodes.append(f"<li>{_node(below[0], is_word=True)}</li>")
            continue
        longer = [word for word in below if word != prefix]
        nodes.append(
            f"<li><details><summary>{_node(prefix, len(longer) < len(below))} "
            f"<small>{len(below):,} words</small></summary>"
            f"{_level(longer, depth + 1)}</details></li>"
        )
    return f"<ul>{''.join(nodes)}</ul>"


def _node(prefix: str, is_word: bool) -> str:
    kind = "node word" if is_word else "node"
    return f'<span class="{kind}">{markupsafe.escape(prefix)}</span>'
