"""The comparison of finders: words found, trust, and a client's costs.

Each finder runs once on each population and at each epsilon. Finders are those of this
project; numbers of two trust models are never in one table.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from federated_hh.files import tables
from federated_hh.options.fields import OptionError, option
from federated_hh.populations.options import population_options
from studies import study, study_options

if TYPE_CHECKING:  # TensorFlow comes with these: it takes seconds to import
    from federated_hh.run_directory import directory as run_directory
    from studies.finders import finders

TITLE = "Finders of words, side by side"
SYNTHETIC = "synthetic"
# Data sets of `real_text`, with words that the large dictionary does not know.
POPULATIONS = (SYNTHETIC, "blogs", "chat", "tweets")
# Of a million clients, and of some thousand.
_DELTA, _DELTA_OF_FEW = 1e-10, 1e-8


@dataclasses.dataclass(frozen=True)
class Options(study_options.StudyOptions):
    """Options of the study; each field is a flag."""

    data_dir: str | None = option(
        None,
        "The directory that holds the data sets blog-authorship, ubuntu-irc, "
        "sentiment140-partial and word-lists. Without it, the synthetic clients alone.",
    )
    num_clients: int = option(
        1_000_000, "Synthetic clients.", least=1000, most=2**31 - 1
    )
    populations: tuple[str, ...] = option(
        (),
        f"Populations, of {', '.join(POPULATIONS)}. By default all that there are data "
        "for.",
    )

    def __post_init__(self):
        super().__post_init__()
        if unknown := {*self.populations} - {*POPULATIONS}:
            raise OptionError(
                self,
                "{populations=}: {first!r} is none of {all}",
                first=min(unknown),
                all=", ".join(POPULATIONS),
            )
        if {*self.populations} - {SYNTHETIC} and self.data_dir is None:
            raise OptionError(self, "{populations=}: real text needs {data_dir}")

    @property
    def chosen(self) -> tuple[str, ...]:
        """The populations, in the order of the tables."""
        given = POPULATIONS if self.data_dir is not None else (SYNTHETIC,)
        return tuple(p for p in given if p in (self.populations or given))


@dataclasses.dataclass(frozen=True)
class Setting:
    """A finder on a population at an epsilon.

    Attributes:
        population: Name of the population.
        finder: The finder.
        epsilon: Epsilon of the guarantee that the finder's group states.
    """

    population: str
    finder: "finders.Finder"
    epsilon: float

    @property
    def name(self) -> str:
        """The name in tables, and of its part of the run directory."""
        finder = self.finder
        return f"{self.population}, {finder.name}, {finder.trust}, {self.epsilon:g}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinderStudy:
    """The study; a `study.Study`.

    Attributes:
        tasks: Populations by name.
        settings: Its settings.
        seed: Seed of cohorts, draws and noise.
        data: Fingerprints of the populations.
    """

    tasks: "Mapping[str, finders.Task]"
    settings: tuple[Setting, ...]
    seed: int
    data: Mapping[str, str]
    title: str = TITLE
    num_repeats: int = 1

    def run_part(
        self, setting: Setting, repeat: int, part: "run_directory.RunDirectory"
    ) -> dict[str, list[dict[str, Any]]]:
        """Runs a finder, or what is left of it; see `study.Study`.

        Returns:
            finders: one row. Where a finder can find nothing, `note` has the reason.
        """
        del repeat
        from federated_hh.heavy_hitters import coverage
        from federated_hh.rounds import run as engine
        from studies.finders import finders

        task, finder = self.tasks[setting.population], setting.finder
        row = {
            "population": setting.population,
            "clients": task.clients.num_clients,
            "trust": finder.trust,
            "finder": finder.name,
            "epsilon": setting.epsilon,
            "words": 0,
            "words_real": 0,
            "coverage": 0.0,
        }
        try:
            made = finder.make(task, setting.epsilon)
        except ValueError as error:
            return {"finders": [row | {"note": str(error)}]}
        stated = finder.stated(made, task.delta)
        outcome = engine.run(made, part, seed=self.seed, delta=task.delta)
        words = list(made.results(outcome.states[0])["heavy_hitters"]["word"])
        totals = coverage.WordTotals.of(task.clients)
        places = totals.places(words)
        found = [False] * len(totals.holders)
        for place in places[places >= 0]:
            found[place] = True
        metrics = part.metrics()
        row |= {
            "words": len(words),
            "words_real": sum(found),
            "coverage": totals.coverage(words),
            "holders": finders.holders_for(found, totals.holders),
            "rounds": len(metrics),
            "download_bytes": int(metrics["download_bytes"].max()),
            "upload_bytes": finder.upload_bytes(made, metrics),
            "unit": stated.unit.value,
            "adjacency": stated.adjacency.value,
            "direction": "one" if stated.one_sided else "both",
            "stated_epsilon": stated.epsilon,
            "stated_delta": stated.delta,
            "note": "",
        }
        return {"finders": [row]}

    def files(
        self, tables_: study.Tables, directory: pathlib.Path
    ) -> Mapping[str, bytes]:
        """Returns the files of results by name; see `study.Study`."""
        del directory
        from studies.finders import report

        found = tables_["finders"].drop(columns=["setting", "repeat"])
        return {
            "finders.csv": tables.write(found, significant_digits=6).encode(),
            **report.files(self.title, found),
        }


def prepare(
    name: str, options: Options, *, seed: int, cache: str | os.PathLike[str]
) -> FinderStudy:
    """Returns the study; see `studies`.

    Raises:
        ValueError: If a data set cannot be read.
    """
    del name
    from studies.finders import finders

    tasks = {
        population: _task(population, options, cache) for population in options.chosen
    }
    return FinderStudy(
        tasks=tasks,
        settings=tuple(
            Setting(population, finder, epsilon)
            for population in tasks
            for finder in finders.FINDERS
            for epsilon in finders.EPSILONS[finder.trust]
        ),
        seed=seed,
        data={name: task.clients.fingerprint for name, task in tasks.items()},
    )


def _task(name: str, options: Options, cache: str | os.PathLike[str]) -> "finders.Task":
    """Returns a population of the comparison."""
    from federated_hh.heavy_hitters import alphabet as alphabet_lib
    from federated_hh.populations import population
    from studies.finders import finders
    from studies.sun_2024 import real_text

    if name == SYNTHETIC:
        # As in configs/set_union_demo.flagfile, with the clients that have no word.
        given = population_options.PopulationOptions(
            tokenizer="triehh", num_clients=options.num_clients, empty_clients="keep"
        )
        return finders.Task(
            population.prepare(given, cache),
            alphabet_lib.Alphabet(given.characters),
            _DELTA,
            contribution_bound=40,
            max_prefixes=2000,
            max_candidates=1_000_000,
        )
    assert options.data_dir is not None
    (data_set,) = (found for found in real_text.DATA_SETS if found.name == name)
    alphabet = alphabet_lib.Alphabet(real_text.CHARACTERS)
    return finders.Task(
        real_text.population_of(data_set, data_set.files, options.data_dir, cache),
        alphabet,
        _DELTA_OF_FEW,
        data_set.contribution_bound,
        data_set.max_prefixes,
        # As many as LDP TrieHH has.
        data_set.max_prefixes * alphabet.num_symbols,
    )
