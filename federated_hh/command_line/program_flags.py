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

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from absl import app, flags

from federated_hh.command_line import experiment_flags
from federated_hh.options import help_text, option_flags
from federated_hh.populations import population_flags
from federated_hh.populations.options.population_options import LanguageOptions

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
    ):
        """Registers the program's flags, for the module that calls.

        Args:
            name: The program's module.
            options: Dataclasses of options, with their headings in --help where that
                is not the class's docstring.
            contents: The population's contents, "words" or "sentences".
            first: The flags that come first in --help.
            defaults: The program's defaults of population options.
        """
        self.name = name
        self._flags: dict[type, option_flags.OptionFlags] = {}
        for each in options:
            kind, title = each if isinstance(each, tuple) else (each, None)
            self._flags[kind] = option_flags.define(kind, title=title)
        self.population = population_flags.PopulationFlags(contents, defaults)
        flags.adopt_module_key_flags(experiment_flags)
        help_text.first(*first)

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
            ValueError: If flags do not fit, with all that is wrong.
        """
        checks = [self._flags[kind].read for kind in kinds or self._flags]
        option_flags.check_all(*checks, *(() if kinds else (self.population.read,)))

    def prepare_text(self, vocabulary: "Vocabulary") -> "ClientText":
        """Returns the population's sentences, prepared on first use.

        Args:
            vocabulary: The vocabulary that sentences are encoded with.

        Raises:
            ValueError: If the population cannot be prepared.
        """
        from federated_hh.populations import client_sentences
        from federated_hh.populations.languages import sentence_tokenizers

        return client_sentences.prepare(
            self.population.read(),
            vocabulary,
            sentence_tokenizers.get_sentence_tokenizer("keyboard"),
            self.population.cache,
            self.read(LanguageOptions),
        )

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
