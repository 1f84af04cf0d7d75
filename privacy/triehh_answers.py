"""The answers of the command line about TrieHH."""

import functools
from typing import Any

from privacy import (
    accounting_options,
    detectable_answers,
    neighbours,
    triehh_solver,
    triehh_statement,
    triehh_theorem1,
)
from privacy import triehh as triehh_lib
from privacy.answer_rows import Rows, row


def triehh(
    *,
    population: int,
    max_length: int,
    epsilon: float | None = None,
    delta: float | None = None,
    threshold: int | None = None,
    cohort_size: int | None = None,
    parameters: str | None = None,
    discovery_rate: float | None = None,
    redraws_each_round: bool = False,
    detectable: bool = False,
    word_length: int | None = None,
    plot: str | None = None,
) -> Rows:
    """Answers for a TrieHH run: parameters for a guarantee, or the other way round.

    Args:
        population: n.
        max_length: L, end symbol included.
        epsilon: Wanted epsilon; with delta.
        delta: Wanted delta; with epsilon, to find threshold and cohort size for.
        threshold: theta; with cohort_size, and either epsilon or delta, to find the
            other.
        cohort_size: m; with threshold.
        parameters: How they are found for epsilon: "tight" or "corollary1".
        discovery_rate: What "tight" finds the rarest words at; 0.9 if not set.
        redraws_each_round: Whether users draw a new word in every round.
        detectable: Whether to answer which words can be found, in place of the
            guarantee.
        word_length: Characters of the words; with detectable.
        plot: File for a plot over n; with detectable.

    Returns:
        theta, m, gamma, the holders that a word needs, and the guarantee by each
        bound; or see `detectable_answers.of_triehh`.

    Raises:
        ValueError: An argument is missing or outside its range.
    """
    if not detectable and (word_length is not None or plot is not None):
        raise ValueError("--word_length and --plot are for --detectable")
    wanted = (epsilon is not None, delta is not None)
    request: dict[str, Any] = {}
    solve = None
    if threshold is not None and cohort_size is not None and sum(wanted) == 1:
        if parameters is not None:
            raise ValueError("parameters needs epsilon and delta, to find them for")
        chosen = triehh_lib.TrieHHParameters(
            population, cohort_size, threshold, max_length
        )
    elif all(wanted) and threshold is None and cohort_size is None:
        request = {
            "population_size": population,
            "max_length": max_length,
            "epsilon": epsilon,
            "delta": delta,
            "redraws_each_round": redraws_each_round,
        }
        solve = functools.partial(_solve_triehh, parameters or "tight", discovery_rate)
        chosen = solve(**request)
    else:
        raise ValueError(
            "triehh needs either epsilon and delta, or threshold and cohort_size and "
            "one of the two"
        )
    if detectable:
        return detectable_answers.of_triehh(
            chosen,
            solve,
            request,
            redraws_each_round=redraws_each_round,
            word_length=word_length,
            discovery_rate=discovery_rate,
            plot=plot,
        )
    rate = 0.9 if discovery_rate is None else discovery_rate
    needed = triehh_lib.holders_needed(chosen, rate)
    return [
        row("threshold (theta)", chosen.threshold, ""),
        row("cohort size (m)", chosen.cohort_size, ""),
        row("gamma", chosen.gamma, "m / sqrt(n)"),
        row(
            f"holders for a discovery rate of {rate:g}",
            "not possible" if needed is None else needed,
            "Zhu et al. 2020, Proposition 1",
        ),
        *_triehh_guarantees(chosen, epsilon, delta, redraws_each_round),
    ]


def _solve_triehh(parameters: str, discovery_rate: float | None, **request):
    if parameters == "tight":
        if discovery_rate is not None:
            request["discovery_rate"] = discovery_rate
        return triehh_solver.solve_parameters(**request)
    if parameters != "corollary1":
        raise ValueError(
            f"parameters is {parameters!r}; it has to be one of "
            f"{accounting_options.TRIEHH_PARAMETERS}"
        )
    del request["redraws_each_round"]  # Corollary 2: the same delta
    return triehh_theorem1.solve_parameters(**request)


def _triehh_guarantees(
    parameters, epsilon: float | None, delta: float | None, redraws: bool
) -> Rows:
    who = f"{neighbours.Adjacency.EMPTIED.value}, one-sided (from D to D' only)"
    found = parameters.guarantee(
        delta=delta,
        epsilon=epsilon if delta is None else None,
        redraws_each_round=redraws,
    )
    pairs = [(triehh_statement.bound_name(found), found[:2])]
    violated = triehh_theorem1.violated_condition(parameters)
    theorem_1 = "Zhu et al. 2020, " + ("Corollary 2" if redraws else "Theorem 1")
    if violated is None:
        pairs.append((theorem_1, triehh_theorem1.guarantee(parameters)))
    rows = []
    for name, (epsilon, reached) in pairs:
        rows.append(row("epsilon", epsilon, f"{name}; {who}"))
        rows.append(row("delta", reached, f"{name}; {who}"))
    if violated is not None:
        rows.append(row("epsilon", "-", f"{theorem_1} does not apply: {violated}"))
    return rows
