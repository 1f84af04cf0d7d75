"""The settings of LDP TrieHH that its flags, plan and detection share."""

import dataclasses

from federated_hh.options import checks
from federated_hh.options.fields import CHOSEN, option

# Clients are numbered with 31 bits, and so are the candidates of a level.
MOST = 2**31 - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class LdpTrieHHSettings:
    """Sizes of an LDP TrieHH run.

    Each field's help and range is that of its flag; outside a program only the lower
    limits hold.

    Raises:
        ValueError: A value is outside its range.
    """

    cohort_size: int = option(
        20_000,
        "Clients that vote in a level (N). None of them takes part again. The program "
        "chooses it and --max_prefixes by the population where they are not given.",
        least=1,
        most=MOST,
        why="clients are numbered with 31 bits",
        marks=CHOSEN,
    )
    max_depth: int = option(
        15,
        "Levels of a pass (D), and the most characters of a word that can be found. A "
        "Hangul syllable has two or three.",
        least=1,
        most=1000,
    )
    max_prefixes: int = option(
        10_000,
        "The prefixes that a level keeps (eta_max), and ties with the last of them.",
        least=1,
        most=MOST,
        why="candidates are numbered with 31 bits",
        marks=CHOSEN,
    )
    contribution_bound: int = option(
        60,
        "The reports that each client of a level sends (B); a client with fewer items "
        "fills them up with 'no item'.",
        least=1,
        most=10**6,
        why="nobody holds more items",
    )
    num_passes: int = option(
        1,
        "Passes over the whole depth. A later one skips the words that earlier ones "
        "found.",
        least=1,
        most=1000,
        why="every pass takes clients of its own for every level",
    )
    min_standard_errors: float = option(
        3,
        "Found words are released if their estimate is at least so many of its "
        "standard errors; 0 for all that Algorithm 2 finds. This is post-processing: "
        "it costs no privacy and leaves the run as it is. A later pass does not ask "
        "again for a word that was found, released or not.",
        least=0,
        most=1000,
        why="no estimate of 2^31 clients stands out as far from the noise",
        group="Evaluation",
    )

    def __post_init__(self):
        for name in (
            "cohort_size",
            "max_depth",
            "max_prefixes",
            "contribution_bound",
            "num_passes",
        ):
            checks.integer(least=1, **{name: getattr(self, name)})
        checks.not_negative(min_standard_errors=self.min_standard_errors)

    @property
    def levels(self) -> int:
        """The largest number of levels of all passes together."""
        return self.max_depth * self.num_passes

    @property
    def reports_per_level(self) -> int:
        """The reports of a level, N B."""
        return self.cohort_size * self.contribution_bound

    @property
    def clients_needed(self) -> int:
        """The clients of a whole run: no one takes part twice."""
        return self.cohort_size * self.levels

    def usual_domains(self, num_characters: int) -> tuple[int, int]:
        """Returns the domain sizes of the first level and of a later, full one.

        Small domains have the largest central epsilons. A later level is smaller
        still only where nearly all of its prefixes end as words.

        Args:
            num_characters: Characters of the alphabet, the end of a word not counted.
        """
        later = min(num_characters, self.max_prefixes)
        symbols = num_characters + 1
        return num_characters * symbols + 1, later * symbols + 1

    def check_clients(self, num_clients: int) -> None:
        """Raises `ValueError` if a population has too few clients for all levels."""
        if self.clients_needed > num_clients:
            raise ValueError(
                f"cohort_size is {self.cohort_size:,}: {self.max_depth} "
                f"levels in {self.num_passes} passes need {self.clients_needed:,} "
                "clients, as none may take part twice; the population has "
                f"{num_clients:,}"
            )
