"""Words that a large English dictionary does not know, in what people really wrote.

Sun et al. 2024, Section 4.1, found the words that Gboard's users type and its
vocabulary lacks. Here bloggers, Twitter users and the visitors of a chat channel take
their place: far fewer clients, so fewer of them a level, and fewer prefixes kept.
"""

import dataclasses
import math
import os
import pathlib
import string
from collections.abc import Mapping

import pandas as pd

from federated_hh import alphabet as alphabet_lib
from federated_hh import (
    contributions,
    ldp_triehh,
    ldp_triehh_parameters,
    oov_studies,
)
from privacy import statement
from simulation import (
    client_words,
    population,
    population_options,
    prepared_data,
    run_directory,
)

# Without "@", "#", "_" and digits, names of accounts are not words.
_CHARACTERS = string.ascii_lowercase + "'"
_DICTIONARY = "word-lists/american-english-huge.txt.xz"
_EPSILONS = (10.0, math.inf)
# Of the clients, those that count the coverage.
_COUNTING_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A data set, and the parameters that its size allows.

    Attributes:
        name: In tables.
        files: Pattern of its files in the data directory; JSON lines or CSV.
        contribution_bound: B: few of its clients have more unknown words.
        max_prefixes: eta_max.
    """

    name: str
    files: str
    contribution_bound: int
    max_prefixes: int


DATA_SETS = (
    DataSet("blogs", "blog-authorship/posts-*.jsonl.xz", 60, 300),
    DataSet("chat", "ubuntu-irc/messages.csv.xz", 10, 120),
    DataSet("tweets", "sentiment140-partial/tweets.csv.xz", 3, 60),
)


def _setting(data_set: DataSet, epsilon: float) -> str:
    return f"{data_set.name}, epsilon {epsilon:g}"


def prepare(
    data_set: DataSet, data_dir: str, cache: str | os.PathLike[str]
) -> client_words.ClientWords:
    """Returns the population of a data set: words that the dictionary does not have.

    Args:
        data_set: Which.
        data_dir: Where the data sets are.
        cache: Where populations are kept.

    Raises:
        population_options.PopulationError: If a file is missing or cannot be read.
    """
    files = prepared_data.parts_of(data_dir, data_set.files)
    source = files[0]
    if len(files) > 1:
        source = prepared_data.join_parts(files, cache, f"{data_set.name}.jsonl.xz")
    options = population_options.PopulationOptions(
        source=str(source),
        tokenizer="triehh",
        alphabet=_CHARACTERS,
        known_words=str(pathlib.Path(data_dir) / _DICTIONARY),
    )
    return population.prepare(options, cache)


def parameters_for(
    data_set: DataSet, num_clients: int, epsilon: float, max_depth: int
) -> ldp_triehh_parameters.LdpTrieHHParameters:
    """Returns the parameters of a run: all clients but those that count take part.

    Args:
        data_set: Of the run.
        num_clients: Of its population.
        epsilon: Local epsilon.
        max_depth: D.
    """
    return ldp_triehh_parameters.LdpTrieHHParameters(
        clients_per_level=int(num_clients * (1 - _COUNTING_SHARE)) // max_depth,
        max_depth=max_depth,
        max_prefixes=data_set.max_prefixes,
        contribution_bound=data_set.contribution_bound,
        epsilon=epsilon,
        sampler=contributions.ItemSampler.RANDOM,
    )


@dataclasses.dataclass
class RealTextRunner:
    """Runs all data sets, and goes on where it was interrupted.

    Attributes:
        clients: From `populations`.
        directory: Takes a checkpoint after each run, and in a part of it a checkpoint
            after each level.
        num_repeats: Runs of each data set and epsilon.
        seed: Of all runs' cohorts.
        max_depth: D.
    """

    clients: Mapping[str, client_words.ClientWords]
    directory: run_directory.RunDirectory
    num_repeats: int
    seed: int
    max_depth: int

    def run(self) -> tuple[oov_studies.StudyResults, pd.DataFrame]:
        """Runs what is left to run.

        Returns:
            A setting for each data set and epsilon; and the words of the first repeats,
            with data_set and epsilon.
        """
        saved = self.directory.load_checkpoint()
        saved = saved or {"runs": [], "levels": [], "words": []}
        done = {(row["setting"], row["repeat"]) for row in saved["runs"]}
        for data_set in DATA_SETS:
            for epsilon in _EPSILONS:
                for repeat in range(self.num_repeats):
                    setting = _setting(data_set, epsilon)
                    if (setting, repeat) in done:
                        continue
                    row, levels, words = self._run(setting, data_set, epsilon, repeat)
                    saved["runs"].append(row)
                    saved["levels"] += levels
                    if repeat == 0:
                        saved["words"] += words
                    self.directory.save_checkpoint(saved)
        results = oov_studies.StudyResults(
            pd.DataFrame(saved["runs"]), pd.DataFrame(saved["levels"])
        )
        return results, pd.DataFrame(saved["words"])

    def _run(
        self, setting: str, data_set: DataSet, epsilon: float, repeat: int
    ) -> tuple[dict, list[dict], list[dict]]:
        clients = self.clients[data_set.name]
        parameters = parameters_for(
            data_set, clients.num_clients, epsilon, self.max_depth
        )
        results, levels = oov_studies.run_part(
            clients,
            parameters,
            alphabet_lib.Alphabet(_CHARACTERS),
            self.seed,
            self.directory,
            setting,
            repeat,
        )
        words = results.words.drop(columns="repeat")
        words.insert(0, "data_set", data_set.name)
        words.insert(1, "epsilon", epsilon)
        row = {
            "setting": setting,
            "repeat": repeat,
            "epsilon": epsilon,
            "sampler": parameters.sampler.value,
            "num_passes": 1,
            "clients_per_level": parameters.clients_per_level,
            "contribution_bound": parameters.contribution_bound,
            "max_prefixes": parameters.max_prefixes,
            "paper_coverage": None,
            **results.repeats.drop(columns="repeat").iloc[0].to_dict(),
            "seconds": oov_studies.seconds_of(levels),
        }
        return row, levels.to_dict("records"), words.to_dict("records")


def populations(
    data_dir: str, cache: str | os.PathLike[str]
) -> dict[str, client_words.ClientWords]:
    """Returns the populations of all data sets by name; see `prepare`."""
    return {data_set.name: prepare(data_set, data_dir, cache) for data_set in DATA_SETS}


def statements(
    clients: Mapping[str, client_words.ClientWords],
    levels: pd.DataFrame,
    max_depth: int,
    delta: float,
) -> dict[str, statement.PrivacyStatement]:
    """Returns what each private run of each data set guaranteed.

    Args:
        clients: From `populations`.
        levels: Of the results, of all repeats.
        max_depth: D.
        delta: Of the central guarantees.
    """
    found = {}
    for data_set in DATA_SETS:
        num_clients = clients[data_set.name].num_clients
        done = levels[levels["setting"] == _setting(data_set, _EPSILONS[0])]
        parameters = parameters_for(data_set, num_clients, _EPSILONS[0], max_depth)
        plan = ldp_triehh.plan_of(parameters, num_clients)
        found[data_set.name] = plan.statement(oov_studies.record_of(done), delta)
    return found


def notes(
    clients: Mapping[str, client_words.ClientWords],
    guaranteed: Mapping[str, statement.PrivacyStatement],
) -> list[str]:
    """Returns a line on each data set: its clients, parameters and guarantee.

    Args:
        clients: From `populations`.
        guaranteed: From `statements`.
    """
    lines = []
    for data_set in DATA_SETS:
        held = clients[data_set.name]
        of_items = [
            guarantee
            for guarantee in guaranteed[data_set.name].guarantees
            if guarantee.unit == "item" and guarantee.is_upper_bound
        ]
        central = [guarantee for guarantee in of_items if guarantee.delta]
        amplified = "no central guarantee beyond the local one"
        if central:
            # The first is of all repeats together, the smallest of one of them.
            together, alone = (
                f"{math.ceil(epsilon * 100) / 100:g}"
                for epsilon in (central[0].epsilon, min(g.epsilon for g in central))
            )
            amplified = (
                f"epsilon {together} at delta {central[0].delta:g} for an item after "
                "the secure sums of all repeats"
                + (f" ({alone} for those of one)" if alone != together else "")
            )
        lines.append(
            f"{data_set.name}: {held.num_clients:,} clients with {held.num_words:,} "
            f"distinct unknown words (fingerprint {held.fingerprint[:16]}); B = "
            f"{data_set.contribution_bound}, eta_max = {data_set.max_prefixes}, random "
            f"sampler, one pass; with local epsilon {_EPSILONS[0]:g}, {amplified}."
        )
    return lines


def words_to_markdown(words: pd.DataFrame, num_shown: int) -> str:
    """Returns the words found with the largest estimates, as Markdown.

    Args:
        words: From `RealTextRunner.run`.
        num_shown: How many of each data set.
    """
    lines = [
        "",
        "| data set | words found with epsilon 10, by estimated count |",
        "|---|---|",
    ]
    private = words[words["epsilon"] == _EPSILONS[0]]
    for name, group in private.groupby("data_set", sort=False):
        best = group.sort_values("estimate", ascending=False).head(num_shown)
        shown = [
            f"*{row.word}*" if row.real else f"~~{row.word}~~"
            for row in best.itertuples()
        ]
        lines.append(f"| {name} | {', '.join(shown)} |")
    lines += ["", "Struck out: noise, a word that no client has."]
    return "\n".join(lines) + "\n"
