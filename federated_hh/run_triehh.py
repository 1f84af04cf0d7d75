"""Finds heavy hitters with TrieHH: flags, population, process, run directory.

scripts/run federated_hh.run_triehh --flagfile=configs/triehh_demo.flagfile
"""

import math

from absl import app, flags, logging

from simulation import experiment_flags, population_flags

_PROGRAM = "federated_hh.run_triehh"

_EPSILON = flags.DEFINE_float(
    "epsilon",
    None,
    "Epsilon of a run; with --delta it gives the threshold and the cohort size, as "
    "--parameters says. Or give --threshold and --cohort_size.",
    lower_bound=0.0,
    # 1,000 levels of ln(2^31): no run can spend more.
    upper_bound=22_000.0,
)
_DELTA = flags.DEFINE_string(
    "delta",
    "1/n^2",
    "Delta of a run: a number, or 1/n^2 or 1/(300n) for n clients.",
)
_PARAMETERS = flags.DEFINE_enum(
    "parameters",
    "tight",
    ["tight", "corollary1"],
    "How --epsilon and --delta give threshold and cohort size. tight: those that find "
    "the rarest words, by the bound that docs/triehh_privacy.md proves. corollary1: "
    "those of Zhu et al. 2020, for the paper's numbers.",
)
_DISCOVERY_RATE = flags.DEFINE_float(
    "discovery_rate",
    0.9,
    "The probability with which --parameters=tight finds words of as few clients as "
    "possible; above 0 and at most 0.999999.",
)
_MOST_DISCOVERY_RATE = 0.999999
# No population has more clients.
_MOST_CLIENTS = 2**31 - 1
_THRESHOLD = flags.DEFINE_integer(
    "threshold",
    None,
    "Votes that a prefix needs (theta); a population has at most 2^31 - 1 clients.",
    lower_bound=1,
    upper_bound=_MOST_CLIENTS,
)
_COHORT_SIZE = flags.DEFINE_integer(
    "cohort_size",
    None,
    "Clients that vote in a round (m); a population has at most 2^31 - 1.",
    lower_bound=1,
    upper_bound=_MOST_CLIENTS,
)
_MAX_LENGTH = flags.DEFINE_integer(
    "max_length",
    10,
    "The most symbols of a word, its end symbol included, and the most rounds (L). "
    "Longer words vote with their first symbols and are never completed.",
    lower_bound=1,
    upper_bound=1000,
)
_WORD_SELECTION = flags.DEFINE_enum(
    "word_selection",
    "most_frequent",
    ["most_frequent", "by_frequency"],
    "The word that a client votes with: its most frequent one (the single-word "
    "setting), or one drawn by local frequency anew each round (Algorithm 3).",
)
_REQUIRE_GUARANTEE = flags.DEFINE_bool(
    "require_guarantee",
    True,
    "Refuse --threshold and --cohort_size that guarantee nothing at --delta.",
)
_NUM_REPEATS = flags.DEFINE_integer(
    "num_repeats",
    1,
    "How often TrieHH is run, each time with cohorts of its own. The privacy "
    "statement is about one of them and about all. At most 10,000: each round saves "
    "the words of all repeats before it.",
    lower_bound=1,
    upper_bound=10_000,
)
_MAX_K = flags.DEFINE_integer(
    "max_k",
    300,
    "Scores are computed for the top 1 to the top K words; at most 100,000, as each is "
    "a row of scores.csv.",
    lower_bound=1,
    upper_bound=100_000,
)
flags.adopt_module_key_flags(population_flags)
flags.adopt_module_key_flags(experiment_flags)


def _parse_delta(text: str, population_size: int) -> float:
    compact = text.replace(" ", "").lower()
    if compact == "1/n^2":
        return 1.0 / population_size**2
    if compact == "1/(300n)":
        return 1.0 / (300 * population_size)
    try:
        delta = float(compact)
    except ValueError:
        delta = 0.0
    if not 0 < delta < 1:
        raise ValueError(
            f"--delta={text}: give a number above 0 and below 1, 1/n^2 or 1/(300n)"
        )
    return delta


def _check_flags() -> None:
    given = _THRESHOLD.value is not None, _COHORT_SIZE.value is not None
    if given == (False, False) and _EPSILON.value is None:
        raise ValueError("give --epsilon, or --threshold and --cohort_size")
    if any(given) and not all(given):
        raise ValueError("give both --threshold and --cohort_size, or neither")
    if any(given) and _EPSILON.value is not None:
        raise ValueError(
            "give either --epsilon or --threshold and --cohort_size: each follows from "
            "the other"
        )
    if _EPSILON.value is not None and not 0 < _EPSILON.value < math.inf:
        raise ValueError(f"--epsilon={_EPSILON.value}: it has to be above 0 and finite")
    _parse_delta(_DELTA.value, 10**6)
    if not 0 < _DISCOVERY_RATE.value <= _MOST_DISCOVERY_RATE:
        raise ValueError(
            f"--discovery_rate={_DISCOVERY_RATE.value}: it has to be above 0 and at "
            f"most {_MOST_DISCOVERY_RATE} (1 word in a million is missed at it, and "
            "the search for parameters would take long beyond)"
        )
    # Compared with the defaults, which a run directory records as if they were given.
    if any(given) and _PARAMETERS.value != "tight":
        raise ValueError(
            f"--parameters={_PARAMETERS.value} is for --epsilon; leave it out with "
            "--threshold and --cohort_size"
        )
    if (any(given) or _PARAMETERS.value != "tight") and _DISCOVERY_RATE.value != 0.9:
        raise ValueError(
            f"--discovery_rate={_DISCOVERY_RATE.value} is for --epsilon with "
            "--parameters=tight; leave it out"
        )


def _parameters(population_size: int, delta: float, redraws_each_round: bool):
    from privacy import triehh as triehh_privacy
    from privacy import triehh_solver, triehh_theorem1

    if _THRESHOLD.value is None:
        request = {
            "population_size": population_size,
            "max_length": _MAX_LENGTH.value,
            "epsilon": _EPSILON.value,
            "delta": delta,
        }
        if _PARAMETERS.value == "corollary1":
            return triehh_theorem1.solve_parameters(**request)
        return triehh_solver.solve_parameters(
            **request,
            discovery_rate=_DISCOVERY_RATE.value,
            redraws_each_round=redraws_each_round,
        )
    parameters = triehh_privacy.TrieHHParameters(
        population_size=population_size,
        cohort_size=_COHORT_SIZE.value,
        threshold=_THRESHOLD.value,
        max_length=_MAX_LENGTH.value,
    )
    if _REQUIRE_GUARANTEE.value:
        try:
            parameters.guarantee(delta=delta, redraws_each_round=redraws_each_round)
        except ValueError as error:
            raise ValueError(f"{error}; or give --norequire_guarantee") from error
    if parameters.threshold > parameters.cohort_size:
        logging.warning(
            "--threshold=%d is above --cohort_size=%d: no prefix can get so many "
            "votes, and nothing will be found.",
            parameters.threshold,
            parameters.cohort_size,
        )
    return parameters


def run(arguments: experiment_flags.Arguments) -> None:
    """Runs the experiment that the flags describe."""
    population = population_flags.prepare_from_flags()
    redraws = _WORD_SELECTION.value == "by_frequency"
    delta = _parse_delta(_DELTA.value, population.num_clients)
    parameters = _parameters(population.num_clients, delta, redraws)
    logging.info(_summary(parameters, delta, redraws))

    # TensorFlow comes last: it takes seconds to import.
    from federated_hh import alphabet as alphabet_lib
    from federated_hh import selection, triehh, triehh_report
    from rounds import run as engine
    from rounds import steps
    from simulation import run_directory

    algorithm = triehh.TrieHH(
        population,
        triehh.plan_of(
            parameters,
            selection.WordSelection(_WORD_SELECTION.value),
            population_has_empty_users=flags.FLAGS["empty_clients"].value == "keep",
        ),
        alphabet_lib.Alphabet(population_flags.alphabet_from_flags()),
    )
    facts = steps.facts_of(algorithm)
    with run_directory.open_for(arguments, program=_PROGRAM, facts=facts) as directory:
        outcome = engine.run(
            algorithm,
            directory,
            seed=arguments.seed,
            repeats=_NUM_REPEATS.value,
            observers=[triehh.vote_metrics],
        )
        statement = algorithm.plan.statement(outcome.record, delta)
        repeats = [state.trie.words() for state in outcome.states]
        results = triehh_report.evaluate(algorithm, repeats, _MAX_K.value)
        triehh_report.write(directory, algorithm, results, statement)
        directory.complete()
        best = [word.text for word in sorted(repeats[0], key=lambda w: -w.votes)[:10]]
        names = f", first of all {', '.join(best)}" if best else ""
        print(f"{len(repeats[0])} words found{names}.")
        print(f"Report: {directory.path / 'report.html'}")


def _summary(parameters, delta: float, redraws_each_round: bool) -> str:
    from privacy import statement
    from privacy import triehh as triehh_privacy

    try:
        found = parameters.guarantee(delta=delta, redraws_each_round=redraws_each_round)
        guarantee = (
            f"epsilon {statement.rounded_up(found.epsilon)}, delta "
            f"{statement.rounded_up(found.delta)}, one-sided"
        )
    except ValueError:
        guarantee = "no guarantee"
    needed = triehh_privacy.holders_needed(parameters, _DISCOVERY_RATE.value)
    found_if = (
        "No word can be found"
        if needed is None
        else f"A word that {needed:,} clients hold is found with probability "
        f"{_DISCOVERY_RATE.value:g}"
    )
    return (
        f"{parameters.population_size:,} clients, cohorts of "
        f"{parameters.cohort_size:,}, threshold {parameters.threshold}, maximum "
        f"length {parameters.max_length}: {guarantee}. {found_if}."
    )


def main(argv: list[str]) -> None:
    """Checks the flags and runs."""
    experiment_flags.run_program(
        argv, _PROGRAM, _check_flags, run, is_synthetic=population_flags.is_synthetic
    )


if __name__ == "__main__":
    # The guarantee compares users with and without words in a population of one size.
    flags.FLAGS.set_default("empty_clients", "keep")
    app.run(main, flags_parser=experiment_flags.parse_flags)
