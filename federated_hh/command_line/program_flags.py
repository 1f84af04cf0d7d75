"""The path that all programs of experiments take, from flags to an exit code.

    PROGRAM = program_flags.Program(
        "federated_hh.run_walk",
        ((WalkOptions, "The walk"), LanguageOptions),
        "sentences",
        first=("population", "num_steps", "output_dir", "resume"),
    )

    def run(arguments: experiment_flags.Arguments) -> None:
        text = PROGRAM.prepare_text(vocabulary)
        ...

    if __name__ == "__main__":
        PROGRAM.main(run)

Imports nothing heavy, so that --help and wrong flags are answered at once.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from absl import app, flags, logging

from federated_hh.command_line import experiment_flags
from federated_hh.options import option_flags
from federated_hh.options.fields import OptionError, check, option
from federated_hh.populations import population
from federated_hh.populations.columns import prepared_data
from federated_hh.populations.languages import languages
from federated_hh.populations.options.population_options import (
    LanguageOptions,
    PopulationOptions,
    ResamplingOptions,
)

if TYPE_CHECKING:
    from federated_hh.populations.columns import client_words, generated_words

# So that the flags belong to the program that asks for them.
flags.disclaim_key_flags()

# Files of words have no sentences.
_NOT_OF_SENTENCES = ("word_column", "count_column")
# Where these are given, as by a flagfile, a file is meant.
_OF_A_FILE = (
    "user_column",
    "text_column",
    "word_column",
    "count_column",
    "csv_columns",
    "delimiter",
    "split",
)
# Texts that --language=auto looks at.
_TEXTS_SEEN = 1000


@dataclasses.dataclass(frozen=True)
class _CacheOptions:
    """Options of the machine, which decide no result: the population cache."""

    population_cache: str = option(
        str(prepared_data.DEFAULT_CACHE),
        "Directory where prepared populations are kept for later runs.",
    )


@dataclasses.dataclass(frozen=True)
class RepeatOptions:
    """Options of any algorithm's run."""

    num_repeats: int = option(
        1,
        "Number of repeats; the statement covers all repeats together.",
        least=1,
        most=10_000,
    )
    delta: float = option(
        1e-10, "Delta of the guarantees.", least=1e-300, most=0.999999
    )

    def __post_init__(self):
        check(self)


class PopulationFlags:
    """The flags of a program's population."""

    def __init__(
        self,
        contents: str,
        defaults: Mapping[str, Any] | None = None,
        replaced_by: str | None = None,
    ):
        """Registers a flag for each option that such a population uses.

        Args:
            contents: "words" or "sentences".
            defaults: Other defaults of this program, by the options' names. Clients
                without words or sentences are kept by default, because a sampling
                server cannot know who they are.
            replaced_by: The program's flag for a file that replaces the population,
                read with the same file options; None for no such flag.
        """
        self._contents = contents
        self._replaced_by = replaced_by
        self._told: str | None = None  # the population whose losses were told
        self._remarked = languages.DEFAULT
        names = PopulationOptions.names(contents)
        if contents == "sentences":
            names = [name for name in names if name not in _NOT_OF_SENTENCES]
        self._options = option_flags.define(
            PopulationOptions,
            only=names,
            defaults={"empty_clients": "keep", **(defaults or {})},
            title="The population",
        )
        self._cache = option_flags.define(_CacheOptions, title=option_flags.RUN)

    def read(self) -> PopulationOptions:
        """Returns the options that the flags give.

        Raises:
            ValueError: If they do not go together.
        """
        options = self._options.read()
        options.check_contents(self._contents)
        content = "word_column" if options.word_column else "text_column"
        if options.source and options.user_column == getattr(options, content):
            raise OptionError(
                options,
                f"{{user_column=}}: {{{content}}} is the same column",
            )
        if options.language == languages.AUTO and not self._is_replaced():
            options = self._with_language(options)
        if self._is_replaced():
            if not options.is_synthetic:
                raise OptionError(
                    options,
                    f"{{source=}} cannot be combined with --{self._replaced_by}, "
                    "whose users are the clients; leave one of them out",
                )
        elif options.is_synthetic:
            for name in _OF_A_FILE:
                if getattr(options, name) != getattr(PopulationOptions, name):
                    raise OptionError(
                        options,
                        f"{{{name}=}}: applies to a file, and no file was given; give "
                        "{source} as a path",
                    )
        return options

    def _with_language(self, options: PopulationOptions) -> PopulationOptions:
        """Returns the options with the language of the text, which the run records."""
        from federated_hh.populations.readers import files

        batches, _, _ = files.read_rows(options)
        texts = itertools.chain.from_iterable(rows.contents for rows in batches)
        try:
            code, share = languages.seen_in(itertools.islice(texts, _TEXTS_SEEN))
        except ValueError as error:
            raise OptionError(options, "{language=}: {why}", why=error) from None
        flags.FLAGS.language = code
        logging.info(
            "The text is %s: --language=%s. Its list has %.0f%% of the first words. No "
            "guarantee covers this choice; name the language where it has to.",
            languages.get(code).name,
            code,
            100 * share,
        )
        return dataclasses.replace(options, language=code)

    @property
    def cache(self) -> str:
        """The directory where prepared populations are kept."""
        return self._cache.read().population_cache

    def is_synthetic(self) -> bool:
        """Returns whether the clients' words are drawn, so belong to nobody."""
        return self.read().is_synthetic and not self._is_replaced()

    def _is_replaced(self) -> bool:
        flag = self._replaced_by
        return flag is not None and flags.FLAGS[flag].value is not None

    def tell_remarks(self) -> None:
        """Warns once of a language with a small or an unusual list of words."""
        language = self.read().language
        if language != self._remarked and (found := languages.get(language).remarks):
            logging.warning("%s", found)
        self._remarked = language

    def prepare_words(self) -> "generated_words.Words":
        """Returns the population that the flags describe, made on first use.

        Raises:
            verified_files.PopulationError: If it cannot be made, or lost many words to
                an alphabet that the flags do not name.
        """
        from federated_hh.populations.columns import left_out

        self.tell_remarks()
        prepared = population.prepare_words(self.read(), self.cache)
        if prepared.directory != self._told:
            self._told = prepared.directory
            if lost := left_out.LeftOut.of(prepared):
                told = ("alphabet", "out_of_alphabet", "resume")
                names = [name for name in told if name in flags.FLAGS]
                if not any(flags.FLAGS[name].present for name in names):
                    lost.check()
                logging.warning("%s", lost)
        return prepared

    def check_columns(self) -> None:
        """Raises an `OptionError` if the population has no columns on disk."""
        self._options.read().check_contents("columns")

    def prepare_columns(self) -> "client_words.ClientWords":
        """Returns the population of `prepare_words`, which has columns on disk."""
        self.prepare_words()
        return population.prepare(self.read(), self.cache)


if TYPE_CHECKING:  # these import NumPy
    from federated_hh.populations.columns.client_text import ClientText
    from federated_hh.populations.vocabulary import Vocabulary

# So that the flags belong to the program that asks for them.
flags.disclaim_key_flags()

_Options = TypeVar("_Options")


class Program:
    """A program of experiments: its name, its flags and their checks.

    Attributes:
        name: The program's module.
        population: The flags of its population.
    """

    def __init__(
        self,
        name: str,
        options: Sequence[type | tuple[type, str]],
        contents: str,
        *,
        first: Sequence[str],
        defaults: Mapping[str, Any] | None = None,
        replaced_by: str | None = None,
    ):
        """Registers the program's flags, for the module that calls.

        Args:
            name: The program's module.
            options: Dataclasses of options, with their headings in --help if they
                differ from the class's docstring.
            contents: The population's contents, "words" or "sentences".
            first: The flags that come first in --help.
            defaults: The program's defaults of population options.
            replaced_by: See `population_flags.PopulationFlags`.
        """
        self.name = name
        self._flags: dict[type, option_flags.OptionFlags] = {}
        for each in options:
            kind, title = each if isinstance(each, tuple) else (each, None)
            self._flags[kind] = option_flags.define(kind, title=title)
        self.population = PopulationFlags(contents, defaults, replaced_by)
        flags.adopt_module_key_flags(experiment_flags)
        option_flags.first(*first)

    def read(self, kind: type[_Options]) -> _Options:
        """Returns the options of a class that the flags give.

        Args:
            kind: One of the program's classes.

        Raises:
            ValueError: If they do not go together, or one is missing.
        """
        return self._flags[kind].read()

    def check(self, *kinds: type) -> None:
        """Checks options; all of them and the population's by default.

        Args:
            kinds: Classes of the options to check.

        Raises:
            ValueError: If flags do not fit, with all errors.
        """
        checks = [self._flags[kind].read for kind in kinds or self._flags]
        option_flags.check_all(*checks, *(() if kinds else (self.population.read,)))
        if not kinds:
            self._resampling()

    def not_given(self, *names: str) -> list[str]:
        """Returns the flags that are left to the program; none of a resumed run.

        Args:
            names: Names of flags.
        """
        values = flags.FLAGS
        return [n for n in names if not (values.resume or values[n].present)]

    def choose(self, chosen: Mapping[str, Any], reason: str) -> None:
        """Sets flags that are not given, and says so; the run records their values.

        Args:
            chosen: Values by the flags' names.
            reason: Basis of the values, such as "5,000 clients".
        """
        for name, value in chosen.items():
            flags.FLAGS[name].value = value
        if chosen:
            given = " ".join(f"--{name}={value}" for name, value in chosen.items())
            logging.info("Chosen for %s: %s.", reason, given)

    def prepare_text(self, vocabulary: "Vocabulary") -> "ClientText":
        """Returns the population's sentences, prepared on first use.

        Args:
            vocabulary: The vocabulary that sentences are encoded with.

        Raises:
            ValueError: If the population cannot be prepared.
        """
        from federated_hh.populations import client_sentences
        from federated_hh.populations.languages import sentence_tokenizers

        population_options = self.population.read()
        self.population.tell_remarks()
        return client_sentences.prepare(
            population_options,
            vocabulary,
            sentence_tokenizers.get_sentence_tokenizer("keyboard", population_options),
            self.population.cache,
            self.read(LanguageOptions),
            self._resampling(),
        )

    def _resampling(self) -> ResamplingOptions | None:
        """Returns the options of simulated clients, if the program has any."""
        if ResamplingOptions not in self._flags:
            return None
        options = self.read(ResamplingOptions)
        if options.resampled_clients is not None and self.population.is_synthetic():
            raise OptionError(
                options,
                "{resampled_clients=}: needs people's text, and no file was given; "
                "give --population as a path, or --num_clients for synthetic clients",
            )
        return options

    def main(
        self,
        run: Callable[[experiment_flags.Arguments], None],
        check: Callable[[], None] | None = None,
    ) -> None:
        """Parses the command line, checks the flags, runs and exits.

        Args:
            run: The program's main part.
            check: A check of the flags to use instead of `check`.
        """

        def main(argv: Sequence[str]) -> None:
            experiment_flags.run_program(
                argv,
                self.name,
                check or self.check,
                run,
                is_synthetic=self.population.is_synthetic,
            )

        app.run(main, flags_parser=option_flags.parse)
