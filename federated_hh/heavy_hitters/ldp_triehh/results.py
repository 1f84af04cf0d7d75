"""The words found by an LDP TrieHH run, with the simulator's ground truth."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from federated_hh.heavy_hitters import coverage, deny_list, evaluation
from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh.parameters import LdpTrieHHParameters
from federated_hh.populations.columns import generated_words
from federated_hh.rounds import steps

# Words of fewer characters are found whatever people type, and are not scored.
LEAST_CHARACTERS = 2

# Generated clients of the counting task, each of which is drawn for it.
MOST_GENERATED = 1_000_000

# Noise has so many in no run: the votes of a level are near a normal law.
_MOST_STANDARD_ERRORS = 20

# For the words found, and for those released, the columns of `Results`.
_FOUND = ("words_found", "words_real", "coverage")
_RELEASED = ("words_released", "released_real", "released_coverage")
# Columns of the found words, as `FoundWord` has them.
_COLUMNS: dict[str, type] = {
    "text": object,
    "pass_number": np.int64,
    "level": np.int64,
    "votes": np.int64,
    "estimate": np.float64,
    "standard_error": np.float64,
}
_ESTIMATES = {
    _FOUND: ("estimated_coverage", "standard_error"),
    _RELEASED: ("released_estimate", "released_standard_error"),
}


@dataclasses.dataclass(frozen=True)
class Results:
    """The tables of a run.

    "Found" is what Algorithm 2 gives, "released" what of it has an estimate of
    `LdpTrieHHParameters.min_standard_errors` or more. Scores, which are all columns of
    counts and coverage, are of words of two characters or more: every character is a
    prefix before anybody is asked, and a level that starts from few prefixes keeps
    most of its candidates, so that "words" of one character are found whatever people
    type.

    Attributes:
        words: A row a found word, those of one character among them: repeat, word,
            round (that completed it, counted over all passes), pass_number, level,
            votes, estimate and standard_error (of the clients of the level's cohort
            that reported on it), released, expected_holders (how many of such a cohort
            hold the word, on average), true_count (how often the whole population
            typed it), real (whether a client has it).
        levels: A row for each repeat, pass and level, with its round: words_found,
            words_real, words_released and released_real, and the true coverage and
            released_coverage of all words until then.
        repeats: A row for each repeat and pass, cumulative: words_found, words_real,
            coverage, estimated_coverage and standard_error (of the estimate) of the
            words found; words_released, released_real, released_coverage,
            released_estimate and released_standard_error of those released; and
            expected_false, how many words that nobody of a cohort reported on are
            released on average, at most.
        coverage: Means of `repeats` by pass with 95% intervals.
        counting_clients: Number of clients behind the estimates.
        least_standard_errors: The `min_standard_errors`, at least that of the run, at
            which fewer than one false word of a repeat is expected.
        first: The words of the first repeat that stand out, denied ones included.
        deny: Words that are not released, nor scored.
    """

    words: pd.DataFrame
    levels: pd.DataFrame
    repeats: pd.DataFrame
    coverage: pd.DataFrame
    counting_clients: int
    least_standard_errors: float
    first: frozenset[str]
    deny: deny_list.DenyList


def counting_group(
    algorithm: ldp_triehh.LdpTrieHH,
    seed: int,
    repeat: int,
    num_clients: int | None,
) -> np.ndarray:
    """Draws the counting task's clients from those who are in no cohort.

    Args:
        algorithm: Algorithm that was run.
        seed: Seed of the run.
        repeat: From 0.
        num_clients: Clients to draw, at least 0; None for all that are in no cohort, of
            generated clients at most `MOST_GENERATED`.

    Returns:
        int64, shape [num_clients], distinct: a uniform sample of the population, as
        the cohorts are.

    Raises:
        ValueError: If there are fewer; the message says how many clients are needed.
    """
    sampler, levels = algorithm.plan.sampler, algorithm.parameters.levels
    stream = steps.public_stream(seed, repeat)
    rest = sampler.rest(levels, stream)
    if num_clients is None:
        is_generated = isinstance(algorithm.population, generated_words.GeneratedWords)
        if not is_generated or len(rest) <= MOST_GENERATED:
            return rest
        num_clients = MOST_GENERATED
    if num_clients > len(rest):
        taken = levels * sampler.cohort_size
        raise ValueError(
            f"counting_clients is {num_clients:,}; with the cohorts' {taken:,} "
            f"clients that needs {taken + num_clients:,} clients, and the population "
            f"has {sampler.num_clients:,}. Lower it"
        )
    random = stream.generator("counting clients")
    return random.choice(rest, num_clients, replace=False, shuffle=False)


def evaluate(
    algorithm: ldp_triehh.LdpTrieHH,
    found: Sequence[tuple[ldp_triehh.FoundWord, ...]],
    metrics: pd.DataFrame,
    seed: int,
    *,
    counting_clients: int | None,
    deny: deny_list.DenyList = deny_list.NOTHING,
) -> Results:
    """Compares the repeats' words with the truth, and counts the coverage.

    Args:
        algorithm: Algorithm that was run.
        found: The words of each repeat.
        metrics: A row a level of each repeat, in order, with repeat, pass_number,
            level and expected_false_words.
        seed: Seed of the run.
        counting_clients: See `counting_group`. With 0, or where nobody is left,
            nothing is estimated.
        deny: Words that are not released, nor scored.

    Raises:
        ValueError: See `counting_group`.
    """
    population, parameters = algorithm.population, algorithm.parameters
    totals = coverage.WordTotals.of(population)
    scored = totals.of_length(LEAST_CHARACTERS)
    words, levels, repeats = [], [], []
    size = 0
    share = parameters.cohort_size / population.num_clients
    cut = parameters.min_standard_errors
    for repeat, found_words in enumerate(map(deny.allowed, found)):
        table = _words(repeat, found_words, totals, share, cut)
        _insert_round(table, parameters)
        words.append(table.sort_values("estimate", ascending=False, kind="stable"))
        levels.append(_levels(table, repeat, parameters, scored))
        group = counting_group(algorithm, seed, repeat, counting_clients)
        size = len(group) if scored.contributions.any() else 0
        task = None
        if size:
            counted = scored.contributions > 0
            task = coverage.CountingTask(population, group, counted)
        passes = _passes(levels[-1], table, parameters, totals, task)
        passes["expected_false"] = _expected_false(metrics, repeat)
        repeats.append(passes)
    by_pass = [table.drop(columns="repeat") for table in repeats]
    return Results(
        pd.concat(words, ignore_index=True),
        pd.concat(levels, ignore_index=True),
        pd.concat(repeats, ignore_index=True),
        evaluation.mean_and_interval(by_pass, "pass_number"),
        size,
        least_standard_errors(parameters, metrics),
        frozenset(word.text for word in found[0] if word.stands_out(cut)),
        deny,
    )


def least_standard_errors(
    parameters: LdpTrieHHParameters, metrics: pd.DataFrame
) -> float:
    """Finds the `min_standard_errors` that leaves fewer than one false word a repeat.

    Args:
        parameters: Parameters of the run.
        metrics: A row a level of each repeat; see `evaluate`.

    Returns:
        A multiple of a tenth, at least that of the run.
    """
    cut = parameters.min_standard_errors
    rows = metrics[metrics["level"] >= LEAST_CHARACTERS]
    expected = rows["expected_false_words"].to_numpy()
    repeats = rows["repeat"].nunique()
    if expected.sum() < repeats:
        return cut
    laws = [
        parameters.vote_law(parameters.randomizer(int(candidates)))
        for candidates in rows["candidates"]
    ]
    kept = rows["least_votes_kept"].to_numpy()

    def tails(standard_errors: float) -> np.ndarray:
        return np.array(
            [
                law.noise_tail(max(int(least), law.least_votes(standard_errors)))
                for law, least in zip(laws, kept, strict=True)
            ]
        )

    at_cut = tails(cut)
    # Where no noise passes the run's cut, none passes a higher one.
    new_words = np.divide(expected, at_cut, out=np.zeros_like(at_cut), where=at_cut > 0)
    tenths = math.floor(10 * cut) + 1
    while tenths < 10 * _MOST_STANDARD_ERRORS:
        if new_words @ tails(tenths / 10) < repeats:
            break
        tenths += 1
    return tenths / 10


def _expected_false(metrics: pd.DataFrame, repeat: int) -> np.ndarray:
    """Returns the expected false words until the end of each pass, of those scored."""
    rows = metrics[metrics["repeat"] == repeat]
    scored = rows["expected_false_words"].where(rows["level"] >= LEAST_CHARACTERS, 0.0)
    return scored.groupby(rows["pass_number"]).sum().cumsum().to_numpy()


def _words(
    repeat: int,
    found: Sequence[ldp_triehh.FoundWord],
    totals: coverage.WordTotals,
    cohort_share: float,
    min_standard_errors: float,
) -> pd.DataFrame:
    places = totals.places(word.text for word in found)
    columns: dict[str, np.ndarray] = {
        name: np.array([getattr(word, name) for word in found], kind)
        for name, kind in _COLUMNS.items()
    }
    released = [word.stands_out(min_standard_errors) for word in found]
    return pd.DataFrame(
        {
            "repeat": np.full(len(found), repeat, np.int64),
            "word": columns.pop("text"),
            **columns,
            "released": np.array(released, bool),
            # The last is for -1, a word that nobody has.
            "expected_holders": np.append(totals.holders, 0)[places] * cohort_share,
            # Of generated clients it is an expectation.
            "true_count": np.rint(np.append(totals.contributions, 0)[places]).astype(
                int
            ),
            "real": places >= 0,
        }
    )


def _levels(
    words: pd.DataFrame,
    repeat: int,
    parameters: LdpTrieHHParameters,
    scored: coverage.WordTotals,
) -> pd.DataFrame:
    steps = pd.MultiIndex.from_product(
        [range(1, parameters.num_passes + 1), range(1, parameters.max_depth + 1)],
        names=["pass_number", "level"],
    )
    every = int(scored.contributions.sum())
    words = words[words["level"] >= LEAST_CHARACTERS]
    columns = {}
    for names, group in ((_FOUND, words), (_RELEASED, words[words["released"]])):
        groups = group.groupby(["pass_number", "level"])
        sums = groups.size(), groups["real"].sum(), groups["true_count"].sum()
        for name, column in zip(names, sums, strict=True):
            columns[name] = column.reindex(steps, fill_value=0).astype(np.int64)
        covered = columns[names[-1]].cumsum()
        columns[names[-1]] = covered / every if every else covered * math.nan
    table = pd.DataFrame(columns).reset_index()
    table.insert(0, "repeat", repeat)
    _insert_round(table, parameters)
    return table


def _insert_round(table: pd.DataFrame, parameters: LdpTrieHHParameters) -> None:
    """Adds the number of the round, from 1 over all passes, before that of the pass."""
    rounds = (table["pass_number"] - 1) * parameters.max_depth + table["level"]
    table.insert(table.columns.get_loc("pass_number"), "round", rounds)


def _passes(
    levels: pd.DataFrame,
    words: pd.DataFrame,
    parameters: LdpTrieHHParameters,
    totals: coverage.WordTotals,
    task: coverage.CountingTask | None,
) -> pd.DataFrame:
    """Returns the state of affairs after each pass of a repeat."""
    groups = levels.groupby("pass_number")
    table = pd.DataFrame(index=groups.size().index)
    words = words[words["real"] & (words["level"] >= LEAST_CHARACTERS)]
    sets: list[np.ndarray] = []
    for names, group in ((_FOUND, words), (_RELEASED, words[words["released"]])):
        *counts, covered = names
        table[counts] = groups[counts].sum().cumsum()
        table[covered] = groups[covered].last()
        estimate, error = _ESTIMATES[names]
        table[estimate], table[error] = math.nan, math.nan
        places = totals.places(group["word"])
        until = group["pass_number"].to_numpy()
        sets += [places[until <= number] for number in table.index]
    if task is not None:
        # All at once, so that they are of the same counts.
        found = np.array(
            [(e.coverage, e.standard_error) for e in task.estimates(sets)]
        ).reshape(2, len(table), 2)
        for names, estimates in zip((_FOUND, _RELEASED), found, strict=True):
            table[list(_ESTIMATES[names])] = estimates
    table = table.reset_index()
    table.insert(0, "repeat", levels["repeat"].iloc[0])
    return table
