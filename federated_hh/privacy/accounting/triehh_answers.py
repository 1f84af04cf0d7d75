"""The answers of the command line about TrieHH."""

import functools
from typing import Any

from federated_hh.privacy import neighbours
from federated_hh.privacy.accounting import detectable_answers
from federated_hh.privacy.accounting import options as accounting_options
from federated_hh.privacy.accounting.answer_rows import Rows, row
from federated_hh.privacy.triehh import guarantees as triehh_lib
from federated_hh.privacy.triehh import solver as triehh_solver
from federated_hh.privacy.triehh import statement as triehh_statement
from federated_hh.privacy.triehh import theorem1 as triehh_theorem1


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
        cohort_size: m; with threshold, or with epsilon and delta, to find the threshold
            for it.
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
        if threshold > cohort_size:
            raise ValueError(
                f"threshold is {threshold}; it has to be at most {cohort_size}, "
                "cohort_size: no word can get more votes"
            )
        chosen = triehh_lib.TrieHHParameters(
            population, cohort_size, threshold, max_length
        )
    elif all(wanted) and threshold is None:
        request = {
            "population_size": population,
            "max_length": max_length,
            "epsilon": epsilon,
            "delta": delta,
        }
        if cohort_size is not None:
            request["cohort_size"] = cohort_size
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
    rows = [
        row("threshold (theta)", chosen.threshold, ""),
        row("cohort size (m)", chosen.cohort_size, ""),
        row("gamma", chosen.gamma, "m / sqrt(n)"),
        _holders(chosen, rate),
    ]
    if solve is not None and cohort_size is not None:
        best = solve(**{**request, "cohort_size": None})
        rows.append(_holders(best, rate, f", with cohorts of {best.cohort_size:,}"))
    return rows + _guarantees(chosen, epsilon, delta, redraws_each_round)


def _holders(chosen, rate: float, where: str = "") -> dict[str, Any]:
    needed = triehh_lib.holders_needed(chosen, rate)
    return row(
        f"holders for a discovery rate of {rate:g}{where}",
        "not possible" if needed is None else needed,
        "Zhu et al. 2020, Proposition 1",
    )


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
    if "cohort_size" in request:
        raise ValueError(
            f"cohort_size is {request['cohort_size']}; --parameters=corollary1 chooses "
            "it: leave it out"
        )
    return triehh_theorem1.solve_parameters(**request)


def _guarantees(
    parameters, epsilon: float | None, delta: float | None, redraws: bool
) -> Rows:
    """Returns the curve's guarantee and the paper's, for the same parameters."""
    emptied = neighbours.Adjacency.EMPTIED.value
    who = f"{emptied}, one-sided (from D to D' only)"
    rounds, curve = parameters.voting_rounds(), triehh_statement.BOUND
    if delta is not None:
        epsilon = rounds.epsilon(delta)
    else:
        delta = rounds.delta(epsilon)
    distance = rounds.delta(0.0)
    right = triehh_statement.chance_of_being_right(distance)
    rows = [
        row("epsilon", epsilon, f"{curve}; {who}"),
        row("delta", delta, f"{curve}; {who}"),
        row(
            "total variation distance",
            distance,
            f"{curve}; {emptied}, both directions: who knows all other data is right "
            f"about one client with probability at most {right}",
        ),
    ]
    violated = triehh_theorem1.violated_condition(parameters)
    name = "Zhu et al. 2020, " + ("Corollary 2" if redraws else "Theorem 1")
    if violated is not None:
        return [*rows, row("epsilon", "-", f"{name} does not apply: {violated}")]
    epsilon, delta = triehh_theorem1.guarantee(parameters)
    rows.append(row("epsilon", epsilon, f"{name}; {who}"))
    return [*rows, row("delta", delta, f"{name}; {who}")]
