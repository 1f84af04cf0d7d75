"""The options of an LDP TrieHH run; `run_ldp_triehh` has the flags."""

import dataclasses
import functools
import math
import os
import string
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from federated_hh.options.fields import OptionError, check, option
from federated_hh.populations.languages import languages
from federated_hh.populations.options.population_options import PopulationOptions
from federated_hh.privacy.local import ldp_triehh_settings

if TYPE_CHECKING:  # imports TensorFlow
    from federated_hh.heavy_hitters.ldp_triehh import (
        parameters as ldp_triehh_parameters,
    )
    from federated_hh.privacy.local import ldp_triehh_detection

# As `randomizers.argument_checks` has it, which would import TensorFlow here.
_MAX_EPSILON = 40.0
# The votes of 2^31 clients are nothing but noise long before, and the probabilities of
# a true and a false vote differ by less than float64 can tell soon after.
_MIN_EPSILON = 1e-9
_DEFAULT_EPSILON = 10.0
# A prefix that everybody holds has to stand out by so many standard deviations.
_VISIBLE_DEVIATIONS = 3

# Of a level, where the sum of its reports is drawn: 190 at epsilon 10 and 320 at 2, by
# measurement, and as much again for what the trie and the results hold.
_BYTES_A_CANDIDATE = 600
# Candidates of a repeat that take a small machine a minute, and how many times as many
# as are of use are worth a warning.
_MANY_CANDIDATES, _TOO_LARGE = 3_000_000, 10
# Options of a topic in --help.
_privacy_option = functools.partial(option, group="Privacy")
_kept_option = functools.partial(option, group="Evaluation")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LdpTrieHHOptions(ldp_triehh_settings.LdpTrieHHSettings):
    """The options of an LDP TrieHH run.

    Raises:
        OptionError: If an option is not allowed, or options do not go together.
    """

    epsilon: float | None = _privacy_option(
        None,
        "Local epsilon of a report; 'inf' for true votes without local privacy. 10 if "
        "neither this nor --central_epsilon is set.",
        least=_MIN_EPSILON,
        most=_MAX_EPSILON,
        or_infinite=True,
        why="with less, the votes of 2^31 clients are nothing but noise",
    )
    central_epsilon: float | None = _privacy_option(
        None,
        "Instead of --epsilon: the epsilon wanted for an item in the sums of all "
        "repeats together, at --delta. The largest local epsilon is used that has it "
        "whatever the levels' candidates turn out to be.",
        least=_MIN_EPSILON,
        most=_MAX_EPSILON,
        why="with less, the votes of 2^31 clients are nothing but noise, and more than "
        "the largest local one needs a local one",
    )
    delta: float = _privacy_option(
        1e-10,
        "Delta of the central guarantees in the privacy statement.",
        above=0,
        below=1,
    )
    sampler: str = option(
        "greedy",
        "A client's choice if it has more items than it may report on: its most "
        "frequent ones, or a random subset.",
        choices=("greedy", "random"),
    )
    randomizer: str = _privacy_option(
        "subset_selection",
        "The local randomizer: subset_selection, k_ary, asymmetric_one_hot, "
        "symmetric_one_hot, or a class of your own as module:Class.",
    )
    report_sampling: str = _privacy_option(
        "aggregate",
        "Draw the sum of a level's reports at once, or every report as a device would; "
        "the law of the sum is the same.",
        choices=("aggregate", "per_report"),
    )
    aggregation: str = _privacy_option(
        "secure_sum",
        "Protection of votes from the server: a secure sum, or votes that are deleted "
        "once they are added.",
        choices=("secure_sum", "ephemeral"),
    )
    counting_clients: int | None = _kept_option(
        None,
        "Clients of the counting task that estimates coverage; they take part in no "
        "level. By default all that take part in no level; of generated clients at "
        "most a million.",
        least=0,
        most=ldp_triehh_settings.MOST,
        why="clients are numbered with 31 bits",
    )
    anonymity_alpha: float = _privacy_option(
        0.95,
        "Alpha of the approximate k-anonymity to find k for.",
        above=0,
        below=1,
    )
    num_repeats: int = _kept_option(
        1,
        "Number of repeats, each with its own cohorts from the same clients. The "
        "privacy statement covers all repeats together.",
        least=1,
        most=1000,
        why="their losses of privacy are composed one by one",
    )

    def __post_init__(self):
        check(self)
        if self.epsilon is not None and self.central_epsilon is not None:
            raise OptionError(
                self,
                "{epsilon} and {central_epsilon} are both given; leave one of them out",
            )

    @functools.cached_property
    def local_epsilon(self) -> float:
        """The local epsilon that was given, or that has the central one."""
        if self.central_epsilon is None:
            return _DEFAULT_EPSILON if self.epsilon is None else self.epsilon
        from federated_hh.privacy.dp_ftrl import noise_calibration

        return noise_calibration.local_epsilon_for(
            self.central_epsilon,
            self.delta,
            num_reports=self.cohort_size * self.contribution_bound,
            num_repeats=self.num_repeats,
            largest=_MAX_EPSILON,
        )

    def central_forecast(self, num_characters: int) -> str:
        """Returns what `central_epsilon` promises, and what is to be expected of it.

        Args:
            num_characters: Characters of the alphabet, the end of a word not counted.
        """
        wanted = self.central_epsilon or math.inf
        text = (
            f"Local epsilon {self.local_epsilon:.6g}: with it, an item's central "
            f"epsilon over all repeats is at most {self.central_epsilon:g} at delta "
            f"{self.delta:g}, whatever the levels' candidates turn out to be."
        )
        if self.randomizer != "subset_selection" or self.reports_per_level < 2:
            return text
        from federated_hh.privacy.local import report_guarantees

        def expected(local: float) -> float:
            return report_guarantees.of_an_item(
                report_guarantees.ReportRounds(
                    local_epsilon=local,
                    cohort_size=self.cohort_size,
                    contribution_bound=self.contribution_bound,
                    domain_sizes=self.usual_domains(num_characters),
                    num_repeats=self.num_repeats,
                ),
                self.delta,
            )

        text += f" Expect about {expected(self.local_epsilon):.2g} at usual levels"
        # To a tenth, as the forecast is no promise.
        low, high = self.local_epsilon, _MAX_EPSILON
        while high - low > 0.1:
            middle = (low + high) / 2
            fits = expected(middle) <= wanted
            low, high = (middle, high) if fits else (low, middle)
        return text + (
            f" ({min(self.usual_domains(num_characters)):,} items or more); "
            f"--epsilon={math.floor(10 * low) / 10:g} would spend about "
            f"{self.central_epsilon:g} there."
        )

    def noise_warning(self, num_characters: int) -> str:
        """Returns a warning if no word could be told from noise, else an empty text.

        Args:
            num_characters: Characters of the alphabet, the end of a word not counted.
        """
        if math.isinf(self.local_epsilon) or self.randomizer != "subset_selection":
            return ""
        from federated_hh.privacy.local import anonymity

        try:
            level = anonymity.VotingLevel(
                alphabet_size=num_characters + 1,
                kept_prefixes=self.max_prefixes,
                local_epsilon=self.local_epsilon,
                num_reports=self.reports_per_level,
            )
        except ValueError:  # of one report, which the process itself answers
            return ""
        # Of the level with the most candidates.
        other = level.other_probability
        deviation = math.sqrt(self.reports_per_level * other * (1 - other))
        # Rounding may leave no difference between a true and a false vote.
        difference = max(0.0, level.include_probability - other)
        deviation = deviation / difference if difference else math.inf
        if self.cohort_size >= _VISIBLE_DEVIATIONS * deviation:
            return ""
        return (
            f"A prefix that all {self.cohort_size:,} clients of a level hold is "
            f"estimated with a standard deviation of {deviation:,.0f}: what is found "
            "will be noise. More --cohort_size, a larger --epsilon, a smaller "
            "--contribution_bound or fewer --max_prefixes would help."
        )

    def check_memory(self, num_characters: int) -> None:
        """Refuses levels whose candidates do not fit into memory.

        Args:
            num_characters: The number of characters of the alphabet, the end of a word
                not counted.

        Raises:
            OptionError: If they do not.
        """
        prefixes = min(self.max_prefixes, num_characters**self.max_depth)
        candidates = prefixes * (num_characters + 1)
        needed = candidates * _BYTES_A_CANDIDATE
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if candidates > ldp_triehh_settings.MOST or needed > there:
            raise OptionError(
                self,
                "{max_prefixes=}: a level of {candidates:,} candidates ({prefixes:,} "
                "prefixes times the characters and the end of a word) needs about "
                "{needed:,.1f} GiB of memory, and the machine has {there:,.1f}; at "
                "most {possible:,} candidates are possible. Give "
                "{max_prefixes} of {fits:,} or less, or a smaller --alphabet",
                fits=min(there // _BYTES_A_CANDIDATE, ldp_triehh_settings.MOST)
                // (num_characters + 1),
                candidates=candidates,
                prefixes=prefixes,
                needed=needed / 2**30,
                there=there / 2**30,
                possible=ldp_triehh_settings.MOST,
            )

    def check_population(self, num_clients: int) -> None:
        """Refuses a population that is too small for the cohorts and the counting task.

        Args:
            num_clients: The number of clients of the population.

        Raises:
            OptionError: If it is.
        """
        counting = self.counting_clients or 0
        needed = self.clients_needed + counting
        if needed > num_clients:
            task = " and the counting task of {counting_clients=}" if counting else ""
            possible = (num_clients - counting) // self.levels
            fits = f"{{cohort_size={possible}}} would fit" if possible > 0 else ""
            raise OptionError(
                self,
                "{levels:,} levels of {cohort:,} clients, each client at most once,"
                + task
                + " need {needed:,} clients; the population has {population:,}. "
                + (fits or "Lower {max_depth}, {num_passes} or {counting_clients}")
                + ", or use a larger population",
                levels=self.levels,
                cohort=self.cohort_size,
                needed=needed,
                population=num_clients,
            )

    def detection(
        self, num_clients: int, num_characters: int
    ) -> "ldp_triehh_detection.LdpTrieHHDetection":
        """Returns the law by which a run finds words of clients who report on all.

        Args:
            num_clients: The number of clients of the population, enough for all levels.
            num_characters: The number of characters of the alphabet.
        """
        from federated_hh.privacy.local import ldp_triehh_detection

        try:
            probabilities = ldp_triehh_detection.probabilities_of(
                self.randomizer, self.local_epsilon
            )
        except ValueError:  # a custom one, which imports TensorFlow
            probabilities = self.parameters().probabilities
        return ldp_triehh_detection.LdpTrieHHDetection(
            settings=self,
            num_clients=num_clients,
            num_characters=num_characters,
            probabilities=probabilities,
        )

    def sensible(
        self, num_clients: int, num_characters: int, names: Collection[str]
    ) -> dict[str, int]:
        """Returns sizes that make sense for a population, by the options' names.

        A level takes as many clients as there are, but for a tenth that counts the
        coverage, and keeps as many prefixes as stand out from the noise.

        Args:
            num_clients: The number of clients of the population.
            num_characters: The number of characters of the alphabet.
            names: The options to choose, of `cohort_size` and `max_prefixes`.

        Raises:
            OptionError: If the clients are too few for any choice.
        """
        from federated_hh.privacy.local import ldp_triehh_detection

        chosen: dict[str, Any] = {}
        options = self
        if "cohort_size" in names:
            chosen["cohort_size"] = ldp_triehh_detection.sensible_cohort(
                num_clients, self.levels, self.counting_clients
            )
            options = dataclasses.replace(self, **chosen)
        options.check_population(num_clients)
        if "max_prefixes" not in names or math.isinf(options.local_epsilon):
            return chosen
        law = options.detection(num_clients, num_characters)
        places = ldp_triehh_detection.sensible_places(law)
        if places is None:
            needed = ldp_triehh_detection.clients_needed(law)
            enough = (
                f"{int(float(f'{needed:.2g}')):,} clients"
                if needed
                else "a larger {epsilon}"
            )
            raise OptionError(
                options,
                "{num:,} clients are too few for {levels:,} levels: of {cohort:,} "
                "clients, the noise of local epsilon {local:.4g} hides even a prefix "
                "that all clients hold, at any {max_prefixes}. It takes about "
                + enough
                + ", or a larger {epsilon}, or a smaller {max_depth}",
                num=num_clients,
                levels=options.levels,
                cohort=options.cohort_size,
                local=options.local_epsilon,
            )
        return {**chosen, "max_prefixes": places}

    def size_warning(self, num_clients: int, num_characters: int) -> str:
        """Returns a warning if levels are ten times as large as is of use, else "".

        Args:
            num_clients: The number of clients of the population, enough for all levels.
            num_characters: The number of characters of the alphabet.
        """
        from federated_hh.privacy.local import ldp_triehh_detection

        if math.isinf(self.local_epsilon):
            return ""
        law = self.detection(num_clients, num_characters)
        places = ldp_triehh_detection.sensible_places(law)
        if places is None or places >= self.max_prefixes:
            return ""
        size = law.num_candidates
        enough = ldp_triehh_detection.with_places(law, places).num_candidates
        if size < max(_MANY_CANDIDATES, _TOO_LARGE * enough):
            return ""
        return (
            f"--max_prefixes={self.max_prefixes} is for more clients: noise and ties "
            f"will make some {size:,} candidates in all levels of a repeat, "
            f"{size / enough:,.0f} times as many as --max_prefixes={places}, and take "
            "that much longer. Of further places noise takes nearly all."
        )

    def parameters(self) -> "ldp_triehh_parameters.LdpTrieHHParameters":
        """Returns the parameters of each repeat; imports TensorFlow."""
        from federated_hh.heavy_hitters import contributions
        from federated_hh.heavy_hitters.ldp_triehh import (
            parameters as ldp_triehh_parameters,
        )
        from federated_hh.randomizers import by_name

        return ldp_triehh_parameters.LdpTrieHHParameters(
            cohort_size=self.cohort_size,
            max_depth=self.max_depth,
            max_prefixes=self.max_prefixes,
            contribution_bound=self.contribution_bound,
            epsilon=self.local_epsilon,
            num_passes=self.num_passes,
            sampler=contributions.ItemSampler(self.sampler),
            make_randomizer=by_name.randomizer(self.randomizer),
            min_standard_errors=self.min_standard_errors,
        )


def characters_of(population: PopulationOptions) -> str:
    """Returns the characters that prefixes are made of.

    Args:
        population: Whose alphabet is taken, where it says one. Else they are Python's
            `string.printable` in English, where what the tokenizers let through is
            printable ASCII, and those of the population in another language.

    Raises:
        OptionError: If the alphabet has a character twice.
    """
    characters = population.characters
    if population.alphabet is None and population.language == languages.DEFAULT:
        characters = string.printable
    if len(set(characters)) < len(characters):
        raise OptionError(
            population, "{alphabet} repeats a character; its characters have to differ"
        )
    return characters
