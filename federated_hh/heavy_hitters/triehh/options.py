"""The options of a TrieHH run; `federated_hh.run_triehh` has the flags."""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from federated_hh.options.fields import OptionError, check, option
from federated_hh.privacy import rounding

if TYPE_CHECKING:  # imports NumPy
    from federated_hh.privacy.triehh import wanted_detection as detection
    from federated_hh.privacy.triehh.guarantees import TrieHHParameters

# No population has more clients.
_MOST_CLIENTS = 2**31 - 1
# Options of a topic in --help.
_privacy_option = functools.partial(option, group="Privacy")
_kept_option = functools.partial(option, group="Evaluation")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrieHHOptions:
    """The options of a TrieHH run: an epsilon, or a threshold and a cohort size.

    An epsilon gives the threshold, and the cohort size unless it is given.

    Raises:
        OptionError: If an option is not allowed, or options do not go together.
    """

    epsilon: float | None = _privacy_option(
        None,
        "Epsilon of a run; with --delta it gives the threshold and the cohort size, as "
        "--parameters says. Or give --threshold and --cohort_size.",
        above=0,
        most=22_000,
        why="1,000 levels of ln(2^31): no run can spend more",
    )
    delta: str = _privacy_option(
        "1/n^2",
        "Delta of a run: a number, or 1/n^2 or 1/(300n) for n clients.",
        is_valid=lambda text: rounding.delta_of(text, 10**6) is not None,
        form="a number above 0 and below 1, 1/n^2 or 1/(300n)",
    )
    parameters: str = _privacy_option(
        "tight",
        "Way from --epsilon and --delta to threshold and cohort size. tight: the pair "
        "that finds the rarest words, by the curve of docs/triehh_privacy.md. "
        "corollary1: the pair of Zhu et al. 2020, for the paper's numbers.",
        choices=("tight", "corollary1"),
    )
    discovery_rate: float = _privacy_option(
        0.9,
        "The probability with which --parameters=tight finds words of as few clients "
        "as possible.",
        above=0,
        most=0.999999,
        why="1 word in a million is missed at most, and the search for parameters "
        "would take long beyond",
    )
    threshold: int | None = _privacy_option(
        None,
        "Votes that a prefix needs (theta); a population has at most 2^31 - 1 clients.",
        least=1,
        most=_MOST_CLIENTS,
    )
    cohort_size: int | None = _privacy_option(
        None,
        "Clients that vote in a round (m), at most 2^31 - 1. Without it, --epsilon "
        "takes the size that finds the rarest words.",
        least=1,
        most=_MOST_CLIENTS,
    )
    max_length: int = option(
        10,
        "The most symbols of a word, its end symbol included, and the most rounds (L). "
        "Longer words vote with their first symbols and are never completed. A Hangul "
        "syllable has a symbol for each of its two or three letters.",
        least=2,
        most=1000,
        why="a word has a character and its end symbol",
    )
    word_selection: str = option(
        "most_frequent",
        "The word that a client votes with: its most frequent one (the single-word "
        "setting), or one drawn by local frequency again each round (Algorithm 3).",
        choices=("most_frequent", "by_frequency"),
    )
    require_guarantee: bool = _privacy_option(
        True,
        "Refuse --threshold and --cohort_size that guarantee nothing at --delta.",
    )
    num_repeats: int = _kept_option(
        1,
        "Number of repeats, each with its own cohorts. The privacy statement covers "
        "one repeat and all together.",
        least=1,
        most=10_000,
        why="each round saves the words of all repeats before it",
    )
    max_k: int = _kept_option(
        300,
        "Scores are computed for the top 1 to the top K words.",
        least=1,
        most=100_000,
        why="each is a row of scores.csv",
    )

    def __post_init__(self):
        if isinstance(self.delta, float):
            object.__setattr__(self, "delta", repr(self.delta))
        check(self)
        if self.epsilon is None:
            if self.threshold is None or self.cohort_size is None:
                raise OptionError(
                    self,
                    "give {epsilon}, or {threshold} and {cohort_size}. {epsilon=4} "
                    "suits most populations and gives both: a word then needs 69 of "
                    "1,000 clients, 106 of 100,000, or 143 of 10 million",
                )
            if self.threshold > self.cohort_size:
                raise OptionError(
                    self,
                    "{threshold=} is above {cohort_size=}, so no prefix can get "
                    "enough votes; use a smaller threshold or a larger cohort",
                )
        elif self.threshold is not None:
            raise OptionError(
                self,
                "give either {epsilon} or {threshold}, with {cohort_size}: the "
                "threshold follows from epsilon",
            )
        # Compared with the defaults, which a run directory records as if they were
        # given.
        if self.cohort_size is not None and self.parameters != "tight":
            raise OptionError(
                self, "{parameters=} chooses the cohort size; leave out {cohort_size}"
            )
        if self.threshold is not None or self.parameters != "tight":
            self._check_no_discovery_rate()

    def _check_no_discovery_rate(self) -> None:
        if self.discovery_rate != type(self).discovery_rate:
            raise OptionError(
                self,
                "{discovery_rate=} is for {epsilon} with {parameters=tight}; leave it "
                "out",
            )

    @property
    def redraws_each_round(self) -> bool:
        """Whether a client draws the word that it votes with again each round."""
        return self.word_selection == "by_frequency"

    def delta_for(self, num_clients: int) -> float:
        """Returns delta for a number of clients.

        Args:
            num_clients: The number of clients of the population, at least 1.
        """
        delta = rounding.delta_of(self.delta, num_clients)
        assert delta is not None  # as was checked
        return delta

    def parameters_for(self, num_clients: int) -> "TrieHHParameters":
        """Returns the parameters that are given, or that have the guarantee.

        Args:
            num_clients: The number of clients of the population, at least 1.

        Raises:
            OptionError: If those that are given guarantee nothing, but have to.
            ValueError: If the population is too small for them, or no parameters have
                the guarantee.
        """
        if self.threshold is None:
            return self._solve(**self._request(num_clients))
        from federated_hh.privacy.triehh import guarantees as triehh_privacy

        assert self.cohort_size is not None  # both are given, or none
        parameters = triehh_privacy.TrieHHParameters(
            population_size=num_clients,
            cohort_size=self.cohort_size,
            threshold=self.threshold,
            max_length=self.max_length,
        )
        if self.require_guarantee:
            try:
                parameters.voting_rounds().epsilon(self.delta_for(num_clients))
            except ValueError as error:
                raise OptionError(
                    self, "{why}; or give {require_guarantee=False}", why=error
                ) from error
        return parameters

    def what_is_found(
        self, parameters: "TrieHHParameters"
    ) -> "list[detection.Alternative]":
        """Returns the words that a run can find, and settings that find more.

        Args:
            parameters: Parameters, from `parameters_for`.
        """
        from federated_hh.privacy.triehh import detection as triehh_detection

        own = triehh_detection.TrieHHDetection(parameters, self.redraws_each_round)
        is_solved = self.threshold is None
        return triehh_detection.alternatives(
            own,
            self._solve if is_solved else None,
            self._request(parameters.population_size)
            if is_solved
            else {"delta": self.delta_for(parameters.population_size)},
        )

    def for_longer_words(
        self, num_clients: int, characters: int
    ) -> "detection.Alternative":
        """Returns the setting that completes longer words.

        Args:
            num_clients: The number of clients of the population.
            characters: The characters of the longest word.
        """
        from federated_hh.privacy.triehh import detection as triehh_detection
        from federated_hh.privacy.triehh import wanted_detection

        name = f"--max_length={characters + 1}"
        try:
            longer = dataclasses.replace(self, max_length=characters + 1)
            parameters = longer.parameters_for(num_clients)
        except ValueError:
            return wanted_detection.Alternative(name, None)
        cost = "at the same epsilon"
        if self.threshold is not None:
            cost = triehh_detection.spent(parameters, self.delta_for(num_clients))
        law = triehh_detection.TrieHHDetection(parameters, self.redraws_each_round)
        return wanted_detection.Alternative(f"{name}, {cost}", law)

    def _request(self, num_clients: int) -> dict[str, Any]:
        fixed = {} if self.cohort_size is None else {"cohort_size": self.cohort_size}
        return fixed | {
            "population_size": num_clients,
            "max_length": self.max_length,
            "epsilon": self.epsilon,
            "delta": self.delta_for(num_clients),
        }

    def _solve(self, **request: Any) -> "TrieHHParameters":
        from federated_hh.privacy.triehh import solver as triehh_solver
        from federated_hh.privacy.triehh import theorem1 as triehh_theorem1

        if self.parameters == "corollary1":
            return triehh_theorem1.solve_parameters(**request)
        return triehh_solver.solve_parameters(
            **request,
            discovery_rate=self.discovery_rate,
        )
