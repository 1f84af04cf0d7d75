"""Words that a large English dictionary does not know, in what people really wrote.

Sun et al. 2024, Section 4.1, found the words that Gboard's users type and its
vocabulary lacks. Here bloggers, Twitter users and the visitors of a chat channel take
their place: far fewer clients, so fewer of them a level, and fewer prefixes kept.
"""

import dataclasses
import glob
import os
import pathlib
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from federated_hh.files import tables
from federated_hh.options.fields import REQUIRED, option
from federated_hh.populations.options import population_options
from federated_hh.privacy import guarantee as guarantee_lib
from federated_hh.privacy import rounding
from studies import study, study_options
from studies.sun_2024 import case_study as sun_2024

if TYPE_CHECKING:  # TensorFlow comes with these: it takes seconds to import
    from federated_hh.heavy_hitters.ldp_triehh import (
        parameters as ldp_triehh_parameters,
    )
    from federated_hh.populations.columns import client_words
    from federated_hh.privacy import statement
    from studies.sun_2024 import coverage_study

# Without digits, few names of accounts are words.
CHARACTERS = string.ascii_lowercase + "'"
_DICTIONARY = "word-lists/american-english-huge.txt.xz"
# With and without privacy.
_PRIVATE, _OPEN = 10.0, float("inf")
# Of the clients, those that count the coverage.
_COUNTING_SHARE = 0.1
# Of the central guarantees of some ten thousand clients.
_DELTA = 1e-6
_WORDS_SHOWN = 60


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A data set, and the parameters that its size allows.

    Attributes:
        name: Name in tables.
        files: Patterns of its files in the data directory; JSON lines or CSV.
        contribution_bound: B: few of its clients have more unknown words.
        max_prefixes: Prefixes that a level keeps (eta_max).
        drop_pattern: Pattern of mark-up and other users' names, which are no text.
        drop_users: Users who are none, if any.
        held_out: Patterns of files of other users, for evaluation alone.
    """

    name: str
    files: tuple[str, ...]
    contribution_bound: int
    max_prefixes: int
    drop_pattern: str
    drop_users: str | None = None
    held_out: tuple[str, ...] = ()

    def setting(self, epsilon: float) -> str:
        """Returns the name of its setting with a local epsilon."""
        return f"{self.name}, epsilon {epsilon:g}"


# The corpus's marks for links and characters.
_BLOG_MARKS = "urlLink|&[a-z]+;?|nbsp"

DATA_SETS = (
    DataSet(
        "blogs",
        ("blog-authorship/posts-*.jsonl.xz",),
        60,
        300,
        drop_pattern=_BLOG_MARKS,
    ),
    # Words of some bloggers, judged on others: does what is found say more than who
    # was asked? The corpus has a blogger's posts in one file.
    DataSet(
        "blogs-held-out",
        ("blog-authorship/posts-0[0-8]-of-*.jsonl.xz",),
        60,
        300,
        drop_pattern=_BLOG_MARKS,
        held_out=(
            "blog-authorship/posts-09-of-*.jsonl.xz",
            "blog-authorship/posts-1?-of-*.jsonl.xz",
        ),
    ),
    DataSet(
        "chat",
        ("ubuntu-irc/messages.csv.xz",),
        10,
        120,
        # Whom a message is for; the channel's bots.
        drop_pattern=r"^\S+[:,](\s|$)|@\w+",
        drop_users="ubott?u|ubot3",
    ),
    DataSet(
        "tweets",
        ("sentiment140-partial/tweets.csv.xz",),
        3,
        60,
        drop_pattern=r"@\w+|&[a-z]+;",
    ),
)


@dataclasses.dataclass(frozen=True)
class Options(study_options.StudyOptions):
    """Options of the study; each field is a flag."""

    data_dir: str = option(
        REQUIRED,
        "The directory that holds the data sets blog-authorship, sentiment140-partial, "
        "ubuntu-irc and word-lists.",
    )
    num_repeats: int = option(
        3,
        "Runs of each data set and epsilon, for the intervals.",
        least=1,
        most=1000,
    )
    max_depth: int = option(15, "Levels (D).", least=1, most=100)


def population_of(
    data_set: DataSet,
    files: Sequence[str],
    data_dir: str,
    cache: str | os.PathLike[str],
) -> "client_words.ClientWords":
    """Returns the population of a data set: words that the dictionary does not have.

    Clients without such words are in it: a server that samples cannot know them.

    Args:
        data_set: The data set.
        files: Patterns of the files to take.
        data_dir: The directory that has them.
        cache: Directory of prepared populations.
    """
    from federated_hh.populations import population

    paths = (os.path.join(glob.escape(data_dir), pattern) for pattern in files)
    options = population_options.PopulationOptions(
        source=",".join(paths),
        tokenizer="words",
        alphabet=CHARACTERS,
        known_words=str(pathlib.Path(data_dir) / _DICTIONARY),
        drop_pattern=data_set.drop_pattern,
        drop_users=data_set.drop_users,
        empty_clients="keep",
    )
    return population.prepare(options, cache)


def _parameters(
    data_set: DataSet, num_clients: int, epsilon: float, max_depth: int
) -> "ldp_triehh_parameters.LdpTrieHHParameters":
    """Returns the parameters of a run: all clients but those that count take part."""
    from federated_hh.heavy_hitters import contributions
    from federated_hh.heavy_hitters.ldp_triehh import (
        parameters as ldp_triehh_parameters,
    )

    return ldp_triehh_parameters.LdpTrieHHParameters(
        cohort_size=int(num_clients * (1 - _COUNTING_SHARE)) // max_depth,
        max_depth=max_depth,
        max_prefixes=data_set.max_prefixes,
        contribution_bound=data_set.contribution_bound,
        epsilon=epsilon,
        sampler=contributions.ItemSampler.RANDOM,
    )


def prepare(
    name: str, options: Options, *, seed: int, cache: str | os.PathLike[str]
) -> "coverage_study.CoverageStudy":
    """Returns the study; see `studies`.

    Raises:
        ValueError: If a data set cannot be read, or is too small.
    """
    del name
    from federated_hh.heavy_hitters import alphabet as alphabet_lib
    from studies.sun_2024 import coverage_study

    settings = {}
    for data_set in DATA_SETS:
        data_dir = options.data_dir
        clients = population_of(data_set, data_set.files, data_dir, cache)
        others = None
        if data_set.held_out:
            others = population_of(data_set, data_set.held_out, data_dir, cache)
        for epsilon in (_PRIVATE, _OPEN):
            parameters = _parameters(
                data_set, clients.num_clients, epsilon, options.max_depth
            )
            setting = data_set.setting(epsilon)
            settings[setting] = coverage_study.Setting(
                setting, clients, parameters, held_out=others
            )

    def more_files(found, directory) -> dict[str, bytes]:
        return _more_files(settings, found["levels"], directory)

    return coverage_study.CoverageStudy(
        title="Words that a large dictionary does not know, in real text",
        settings=tuple(settings.values()),
        num_repeats=options.num_repeats,
        data={
            data_set.name: settings[data_set.setting(_PRIVATE)].population.fingerprint
            for data_set in DATA_SETS
        },
        alphabet=alphabet_lib.Alphabet(CHARACTERS),
        seed=seed,
        notes=(sun_2024.INTERVALS,),
        more_files=more_files,
    )


def _more_files(
    settings: "dict[str, coverage_study.Setting]",
    levels: pd.DataFrame,
    directory: pathlib.Path,
) -> dict[str, bytes]:
    """Returns the words found, each data set's guarantee, and the end of the page."""
    from studies.sun_2024 import coverage_study

    files, notes, found = {}, [], []
    for data_set in DATA_SETS:
        setting = settings[data_set.setting(_PRIVATE)]
        done = levels[levels["setting"] == setting.name]
        guaranteed = coverage_study.realised_statement(setting.parameters, done, _DELTA)
        files[f"privacy_{data_set.name}.md"] = guaranteed.to_markdown().encode()
        notes.append(f"* {_note(data_set, setting.population, guaranteed)}")
        for epsilon in (_PRIVATE, _OPEN):
            words = coverage_study.words_of(data_set.setting(epsilon), directory)
            words.insert(0, "data_set", data_set.name)
            words.insert(1, "epsilon", epsilon)
            found.append(words)
    words = pd.concat(found, ignore_index=True)
    page = "\n".join([*notes, _words_to_markdown(words)])
    return files | {
        coverage_study.WORDS_FILE: tables.write(words).encode(),
        study.PAGE: page.encode(),
    }


def _note(
    data_set: DataSet,
    held: "client_words.ClientWords",
    guaranteed: "statement.PrivacyStatement",
) -> str:
    """Returns a line on a data set: its clients, parameters and guarantee."""
    central = [
        guarantee
        for guarantee in guaranteed.guarantees
        if guarantee.unit is guarantee_lib.Unit.ITEM
        and guarantee.is_upper_bound
        and guarantee.delta
    ]
    amplified = "no central guarantee beyond the local one"
    if central:
        # The first is of all repeats together, the smallest of one of them.
        together, alone = (
            rounding.rounded_up_to(epsilon, 2)
            for epsilon in (central[0].epsilon, min(g.epsilon for g in central))
        )
        amplified = (
            f"epsilon {together} at delta {central[0].delta:g} for an item after "
            "the secure sums of all repeats"
            + (f" ({alone} for those of one)" if alone != together else "")
        )
    return (
        f"{data_set.name}: {held.num_clients:,} clients with {held.num_words:,} "
        f"distinct unknown words; B = {data_set.contribution_bound}, eta_max = "
        f"{data_set.max_prefixes}, random sampler, one pass; with local epsilon "
        f"{_PRIVATE:g}, {amplified}."
    )


def _words_to_markdown(words: pd.DataFrame) -> str:
    """Returns the private words with the largest estimates of each data set."""
    lines = [
        "",
        f"| data set | words found with epsilon {_PRIVATE:g}, by estimated count |",
        "|---|---|",
    ]
    private = words[words["epsilon"] == _PRIVATE]
    for name, group in private.groupby("data_set", sort=False):
        best = group.sort_values("estimate", ascending=False).head(_WORDS_SHOWN)
        shown = [
            f"*{row.word}*" if row.real else f"~~{row.word}~~"
            for row in best.itertuples()
        ]
        lines.append(f"| {name} | {', '.join(shown)} |")
    lines += ["", "Struck out: noise, which is no client's word."]
    return "\n".join(lines) + "\n"
