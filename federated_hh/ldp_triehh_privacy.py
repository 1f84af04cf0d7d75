"""What a run of LDP TrieHH guarantees, from what happened in it."""

import dataclasses
import math

import pandas as pd

from federated_hh import alphabet as alphabet_lib
from federated_hh import ldp_triehh
from federated_hh.ldp_triehh_parameters import Aggregation, LdpTrieHHParameters
from federated_hh.ldp_triehh_report import RunSummary
from privacy import anonymity, ldp_triehh_statement
from privacy import statement as statement_lib

_ANONYMITY_COLUMNS = [
    field.name for field in dataclasses.fields(anonymity.AnonymityResult)
]


def summarize(
    process: ldp_triehh.LdpTrieHHProcess,
    metrics: pd.DataFrame,
    delta: float,
    alpha: float,
) -> RunSummary:
    """Returns the privacy part of a run's report.

    Args:
        process: Of the first repeat.
        metrics: A row a level, with repeat and candidates; the levels of all repeats
            decide the guarantee.
        delta: Of the central guarantees.
        alpha: Of the approximate k-anonymity.
    """
    statement = realised_statement(
        process.parameters, process.aggregation, metrics, delta
    )
    table, text = anonymity_of(process.parameters, process.alphabet.num_symbols, alpha)
    return RunSummary(process, statement, table, text)


def realised_statement(
    parameters: LdpTrieHHParameters,
    aggregation: Aggregation,
    metrics: pd.DataFrame,
    delta: float,
) -> statement_lib.PrivacyStatement:
    """Returns the statement of a run from its levels.

    Args:
        parameters: Of the run.
        aggregation: Of its votes.
        metrics: A row a level, with candidates.
        delta: Of the central guarantees.
    """
    run = _run_of(parameters, aggregation.value, metrics["candidates"].tolist())
    return ldp_triehh_statement.ldp_triehh_statement(run, delta=delta, basis="realised")


def planned_statement(
    parameters: LdpTrieHHParameters,
    alphabet: alphabet_lib.Alphabet,
    aggregation: Aggregation,
    delta: float,
) -> statement_lib.PrivacyStatement:
    """Returns the statement of a run that keeps the most prefixes at every level.

    Args:
        parameters: Of the run.
        alphabet: Of its words.
        aggregation: Of its votes.
        delta: Of the central guarantees.
    """
    candidates = [alphabet.size * alphabet.num_symbols]
    for _ in range(parameters.max_depth - 1):
        kept = min(candidates[-1], parameters.max_prefixes)
        candidates.append(kept * alphabet.num_symbols)
    run = _run_of(parameters, aggregation.value, candidates * parameters.num_passes)
    return ldp_triehh_statement.ldp_triehh_statement(run, delta=delta)


def _run_of(
    parameters: LdpTrieHHParameters, aggregation: str, candidates: list[int]
) -> ldp_triehh_statement.LdpTrieHHRun:
    return ldp_triehh_statement.LdpTrieHHRun(
        local_epsilon=parameters.epsilon,
        clients_per_level=parameters.clients_per_level,
        contribution_bound=parameters.contribution_bound,
        domain_sizes=[int(number) + 1 for number in candidates],
        max_depth=parameters.max_depth,
        num_passes=parameters.num_passes,
        max_prefixes=parameters.max_prefixes,
        sampler=parameters.sampler.value,
        aggregation=aggregation,
    )


def anonymity_of(
    parameters: LdpTrieHHParameters, num_symbols: int, alpha: float
) -> tuple[pd.DataFrame, str]:
    """Evaluates approximate k-anonymity (Sun et al. 2024, Definition 3 and Lemma 1).

    Args:
        parameters: Of the run.
        num_symbols: What may follow a prefix, |X|: the characters and the end symbol.
        alpha: In (0, 1).

    Returns:
        A row for each evaluation, and what to know about them, as Markdown. No rows
        where there is nothing to evaluate.
    """
    empty = pd.DataFrame(columns=_ANONYMITY_COLUMNS)
    if math.isinf(parameters.epsilon):
        return empty, (
            "Not evaluated: without local privacy a prefix is kept by its true votes."
        )
    try:
        level = anonymity.VotingLevel(
            alphabet_size=num_symbols,
            kept_prefixes=parameters.max_prefixes,
            local_epsilon=parameters.epsilon,
            num_reports=parameters.reports_per_level,
        )
    except ValueError as error:
        return empty, f"Lemma 1 does not apply: {error}."
    results = [level.lemma_1(alpha), level.direct(alpha)]
    text = (
        f"A prefix that fewer than k users of a level hold is kept with probability at "
        f"most {1 - alpha:.4g} (alpha = {alpha:g}), at levels with s = "
        f"{level.domain_size:,} items. `k` is the largest that an evaluation gives, "
        "empty where not even a prefix that nobody holds passes; the two "
        "probabilities are those of a prefix that nobody holds, and that k hold. "
        "Lemma 1 takes two items off every report to be a proof for all data; the "
        "direct evaluation is of the one data set in which all other reports hold 'no "
        "item', and no proof. Ties, which are kept, are counted; earlier levels with "
        "smaller domains are not covered."
    )
    return pd.DataFrame([dataclasses.asdict(result) for result in results]), text
