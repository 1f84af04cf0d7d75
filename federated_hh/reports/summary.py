"""The summary of a run: the lines at its end, and the box on top of its page."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """A run's result, its cost in privacy, and the next step.

    Attributes:
        found: The result, or its quality, in a sentence or two.
        privacy: The line "Privacy: ...", of what is guaranteed or why nothing is;
            empty where privacy is not what the run is about.
        report: The path of the page.
        advice: Why little was found and what would help; empty where enough was.
        next_command: The next command; empty where nothing follows.
    """

    found: str
    privacy: str
    report: str
    advice: str = ""
    next_command: str = ""

    def __str__(self) -> str:
        named = {"Report": self.report, "Next": self.next_command}
        lines = [line for line in (self.found, self.advice, self.privacy) if line]
        lines += [f"{name}: {text}" for name, text in named.items() if text]
        return "\n".join(lines)
