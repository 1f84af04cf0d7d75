"""The gain of interaction (McMillan et al. 2022, section 1), measured.

Each analysis of `federated_hh.run_statistics` against its static baseline, at the same
total privacy of a device: the same cohort aggregate epsilon and delta of all that it
answers together. The synthetic devices type sentences of one synthetic English
language; the real ones are visitors of a chat channel and bloggers.
"""

import dataclasses
import functools
import glob
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from federated_hh.populations.options import population_options
from studies.mcmillan_2022.analyses_options import (
    DISJOINT,
    GRIDS,
    INTERACTIVE,
    STATIC,
    SYNTHETIC,
    TOP,
    Approach,
    Options,
)
from studies.sun_2024 import real_text as sun_2024_real_text

if TYPE_CHECKING:  # TensorFlow comes with these: it takes seconds to import
    import pathlib

    from federated_hh.populations import vocabulary
    from federated_hh.run_directory import directory as run_directory
    from federated_hh.statistics.devices import ground_truth
    from federated_hh.statistics.recipes import events
    from studies import study

_DELTA = 1e-6
_WORDS = 3
_MAX_PREFIXES = 50
# Of each blogger, the first of some 2,700: so that the study stays quick.
_MOST_EVENTS = 500
_REAL = ("chat", "blogs")


@dataclasses.dataclass(frozen=True)
class Data:
    """Devices.

    Attributes:
        name: Name in tables.
        population: Options of their owners' text.
        num_tokens: Number of known words.
        cache: Directory of prepared populations.
    """

    name: str
    population: population_options.PopulationOptions
    num_tokens: int
    cache: str

    @functools.cached_property
    def vocabulary(self) -> "vocabulary.Vocabulary":
        """The known words."""
        from federated_hh.populations import vocabulary

        return vocabulary.Vocabulary.of_language(self.num_tokens)

    @functools.cached_property
    def stored(self) -> "events.NGramEvents":
        """Options of the devices' data."""
        from federated_hh.statistics.recipes import events

        stored = events.NGramEvents.of(self._text, self.vocabulary, _WORDS, 1)
        return stored.first(_MOST_EVENTS)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the text."""
        return self._text.fingerprint

    @functools.cached_property
    def _text(self):
        from federated_hh.populations import client_sentences
        from federated_hh.populations.languages import sentence_tokenizers

        return client_sentences.prepare(
            self.population,
            self.vocabulary,
            sentence_tokenizers.get_sentence_tokenizer("keyboard"),
            self.cache,
            population_options.LanguageOptions(context_words=100),
        )

    @functools.cached_property
    def seconds(self) -> "ground_truth.Seconds":
        """The true distribution."""
        from federated_hh.statistics.devices import ground_truth

        return ground_truth.Seconds.of(self.stored)

    @functools.cached_property
    def n_grams(self) -> "ground_truth.Holders":
        """The true n-grams."""
        from federated_hh.statistics.devices import ground_truth

        return ground_truth.Holders.of(self.stored, _WORDS)

    @functools.cached_property
    def pairs(self) -> "ground_truth.Holders":
        """The true pairs with an age."""
        from federated_hh.statistics.analyses import joint
        from federated_hh.statistics.devices import ground_truth

        groups, names = joint.ages_of(self.stored)
        return ground_truth.Holders.of(self.stored, _WORDS, groups, names)


@dataclasses.dataclass(frozen=True)
class Setting:
    """An analysis of some devices, in one way.

    Attributes:
        analysis: See `StatisticsOptions`.
        data: The devices.
        approach: The way to ask them.
    """

    analysis: str
    data: Data
    approach: Approach

    @property
    def name(self) -> str:
        """In tables, and of its parts of the run directory."""
        return f"{self.analysis}, {self.data.name}, {self.approach.name}"


@dataclasses.dataclass(frozen=True)
class AnalysesStudy:
    """The study; see `study.Study`."""

    title: str
    settings: tuple[Setting, ...]
    num_repeats: int
    data: Mapping[str, str]
    options: Options
    seed: int

    def run_part(
        self, setting: Setting, repeat: int, part: "run_directory.RunDirectory"
    ) -> dict[str, list[dict[str, Any]]]:
        """Runs a repeat of a setting, or what is left of it; see `study.Study`.

        Returns:
            runs: one row: the setting; clients; queries, cells (of the largest query),
            aggregate_epsilon, delta and local_epsilon of all that a device answers;
            popular_found (of the TOP true n-grams or pairs) and false_found (that
            nobody holds), or the errors of a distribution; and seconds.
        """
        from federated_hh.randomness import noise_keys
        from federated_hh.rounds import run as engine
        from federated_hh.statistics import preparation

        algorithm = preparation.algorithm_of(
            self._statistics(setting), setting.data.stored, setting.data.fingerprint
        )
        seed = noise_keys.derived(self.seed, "repeat", repeat) >> 65  # below 2^63
        outcome = engine.run(algorithm, part, seed=seed)
        stated = algorithm.plan.statement(outcome.record, _DELTA)
        aggregate, local = stated.guarantees[:2]
        metrics = part.metrics()
        row = {
            "analysis": setting.analysis,
            "data": setting.data.name,
            "approach": setting.approach.name,
            "clients": setting.data.stored.num_devices,
            "queries": len(metrics),
            "cells": int(metrics["cells"].max()),
            "aggregate_epsilon": aggregate.epsilon,
            "delta": aggregate.delta,
            "local_epsilon": local.epsilon,
            "seconds": float(metrics["seconds"].sum()),
        }
        state = outcome.states[0]
        return {"runs": [row | _scores(setting, algorithm, state)]}

    def _statistics(self, setting: Setting):
        """Returns the options of a run: of the same total privacy for all ways."""
        from federated_hh.statistics import options as statistics_options

        approach = setting.approach
        options = statistics_options.StatisticsOptions(
            analysis=setting.analysis,
            strategy=approach.strategy,
            cohorts=approach.cohorts,
            devices="vectorised",
            num_tokens=setting.data.num_tokens,
            ngram_words=_WORDS,
            max_prefixes=_MAX_PREFIXES,
            grid_buckets=approach.grid_buckets,
            epsilon=self.options.epsilon,
            delta=_DELTA,
        )
        if approach.cohorts == "everybody":
            options = dataclasses.replace(options, delta=_DELTA / options.num_queries)
        return options

    def files(
        self, tables: "study.Tables", directory: "pathlib.Path"
    ) -> dict[str, bytes]:
        """Returns the files of results by name; see `study.Study`."""
        from studies.mcmillan_2022 import report as mcmillan_2022_report

        del directory
        return mcmillan_2022_report.files(self.title, tables["runs"])


def _scores(setting: Setting, algorithm: Any, state: Any) -> dict[str, float]:
    """Returns the scores of a run's findings."""
    from federated_hh.statistics.analyses import distribution_report, nested_histograms

    results = algorithm.results(state)
    if setting.analysis == "distribution":
        return distribution_report.errors(
            nested_histograms.combine(state.histograms),
            setting.data.seconds,
            algorithm.buckets.largest,
        )
    if setting.analysis == "joint":
        found = results["pairs"][results["pairs"]["found"]]
        keys = list(zip(found["ngram"], found["age"], strict=True))
        ranks = setting.data.pairs.ranks
    else:
        found = results["ngrams"]
        keys = list(found["ngram"][found["words"] == _WORDS])
        ranks = setting.data.n_grams.ranks
    places = [ranks.get(key, 0) for key in keys]
    return {
        "found": len(keys),
        "popular_found": sum(0 < place <= TOP for place in places),
        "false_found": places.count(0),
    }


def prepare(
    name: str, options: Options, *, seed: int, cache: str | os.PathLike[str]
) -> AnalysesStudy:
    """Returns the study; see `studies`.

    Raises:
        ValueError: If a data set cannot be read.
    """
    del name
    synthetic = [
        Data(
            f"{SYNTHETIC}, {int(number):,} devices",
            population_options.PopulationOptions(
                num_clients=int(number), mean_words_per_client=60, seed=seed
            ),
            options.num_tokens,
            os.fspath(cache),
        )
        for number in options.client_numbers
    ]
    real = _real(options, os.fspath(cache)) if options.data_dir else []
    settings = [
        Setting(analysis, data, approach)
        for analysis, devices in (
            ("ngrams", (*synthetic, *real)),
            ("joint", synthetic),
        )
        for data in devices
        for approach in (INTERACTIVE, DISJOINT, STATIC)
    ]
    settings += [
        Setting("distribution", data, approach)
        for data in synthetic
        for approach in (INTERACTIVE, DISJOINT, *GRIDS)
    ]
    return AnalysesStudy(
        title="What interaction gains",
        settings=tuple(settings),
        num_repeats=options.num_repeats,
        data={data.name: data.fingerprint for data in (*synthetic, *real)},
        options=options,
        seed=seed,
    )


def _real(options: Options, cache: str) -> list[Data]:
    """Returns the chat and the blogs."""
    data_sets = {found.name: found for found in sun_2024_real_text.DATA_SETS}
    found = []
    for name in _REAL:
        data_set = data_sets[name]
        directory = glob.escape(options.data_dir or "")
        population = population_options.PopulationOptions(
            source=",".join(os.path.join(directory, file) for file in data_set.files),
            drop_pattern=data_set.drop_pattern,
            drop_users=data_set.drop_users,
        )
        found.append(Data(name, population, options.num_tokens, cache))
    return found
