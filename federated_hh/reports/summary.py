"""What a run comes to: the lines at its end, and the box on top of its page."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """What was found, what it cost in privacy, and where to go from here.

    Attributes:
        found: What was found, or how good it is, in a sentence or two.
        privacy: The line "Privacy: ...", of what is guaranteed or why nothing is;
            empty where privacy is not what the run is about.
        report: The path of the page.
        advice: Why little was found and what would help; empty where enough was.
        next_command: What to type next; empty where nothing follows.
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
