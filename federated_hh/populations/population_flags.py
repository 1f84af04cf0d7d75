"""The flags that say what the population is made of, and what they make."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from absl import flags, logging

from federated_hh.options import help_text, option_flags
from federated_hh.options.fields import OptionError, option
from federated_hh.populations import population
from federated_hh.populations.columns import prepared_data
from federated_hh.populations.options.population_options import PopulationOptions

if TYPE_CHECKING:
    from federated_hh.populations.columns import client_words

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
    "split",
)


@dataclasses.dataclass(frozen=True)
class _CacheOptions:
    """Options of the machine, which decide no result: the population cache."""

    population_cache: str = option(
        str(prepared_data.DEFAULT_CACHE),
        "Directory where prepared populations are kept for later runs.",
    )


class PopulationFlags:
    """The flags of a program's population."""

    def __init__(self, contents: str, defaults: Mapping[str, Any] | None = None):
        """Registers a flag for each option that such a population uses.

        Args:
            contents: "words" or "sentences".
            defaults: Other defaults of this program, by the options' names. Clients
                without words or sentences are kept by default: a server that samples
                cannot know them.
        """
        names = PopulationOptions.names(contents)
        if contents == "sentences":
            names = [name for name in names if name not in _NOT_OF_SENTENCES]
        self._options = option_flags.define(
            PopulationOptions,
            only=names,
            defaults={"empty_clients": "keep", **(defaults or {})},
            title="The population",
        )
        self._cache = option_flags.define(_CacheOptions, title=help_text.RUN)

    def read(self) -> PopulationOptions:
        """Returns the options that the flags give.

        Raises:
            ValueError: If they do not go together.
        """
        options = self._options.read()
        if options.is_synthetic:
            for name in _OF_A_FILE:
                if getattr(options, name) != getattr(PopulationOptions, name):
                    raise OptionError(
                        options,
                        f"{{{name}=}}: is of a file, and no file was given; give "
                        "{source} as a path",
                    )
        return options

    @property
    def cache(self) -> str:
        """The directory where prepared populations are kept."""
        return self._cache.read().population_cache

    def is_synthetic(self) -> bool:
        """Returns whether the clients' words are drawn, and nobody's."""
        return self.read().is_synthetic

    def prepare_words(self) -> "client_words.ClientWords":
        """Returns the population that the flags describe, made on first use.

        Raises:
            population_error.PopulationError: If it cannot be made.
        """
        prepared = population.prepare(self.read(), self.cache)
        unspelled = prepared.metadata.get("dropped_words", {}).get("out_of_alphabet", 0)
        if unspelled:
            logging.warning(
                "%s words have a character outside the alphabet and are left out; "
                "--alphabet says which it has, --out_of_alphabet=refuse stops and "
                "names the first ones.",
                f"{unspelled:,}",
            )
        return prepared
