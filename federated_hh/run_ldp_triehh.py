"""Finds words with LDP TrieHH: flags, population, process, run directory.

scripts/run federated_hh.run_ldp_triehh --flagfile=configs/ldp_triehh_demo.flagfile

Text is cut at white space (--tokenizer), and prefixes are made of the 100 characters
of Python's string.printable, unless --alphabet says otherwise: a word with another
character is an error then, unless --out_of_alphabet=drop leaves it out.
"""

import functools
import math
import os
import string

from absl import app, flags, logging

from simulation import experiment_flags, population_flags, population_options

_PROGRAM = "federated_hh.run_ldp_triehh"

_CLIENTS_PER_LEVEL = flags.DEFINE_integer(
    "clients_per_level",
    20_000,
    "Clients that vote in a level (N). None of them takes part again.",
    lower_bound=1,
)
_MAX_DEPTH = flags.DEFINE_integer(
    "max_depth",
    15,
    "Levels of a pass (D), and the most characters of a word that can be found.",
    lower_bound=1,
    upper_bound=1000,
)
_MAX_PREFIXES = flags.DEFINE_integer(
    "max_prefixes",
    10_000,
    "The prefixes that a level keeps (eta_max), and ties with the last of them.",
    lower_bound=1,
)
_CONTRIBUTION_BOUND = flags.DEFINE_integer(
    "contribution_bound",
    60,
    "The reports that each client of a level sends (B); a client with fewer items "
    "fills them up with 'no item'.",
    lower_bound=1,
)
_EPSILON = flags.DEFINE_float(
    "epsilon",
    None,
    "Local epsilon of a report, 1e-9 to 40; 'inf' for true votes without local "
    "privacy. 10 if neither this nor --central_epsilon is set.",
)
_CENTRAL_EPSILON = flags.DEFINE_float(
    "central_epsilon",
    None,
    "Instead of --epsilon: the epsilon wanted for an item in the sums of all repeats "
    "together, at --delta. The largest local epsilon is used that has it whatever the "
    "levels' candidates turn out to be.",
)
_DELTA = flags.DEFINE_float(
    "delta", 1e-10, "Delta of the central guarantees in the privacy statement."
)
_SAMPLER = flags.DEFINE_enum(
    "sampler",
    "greedy",
    ["greedy", "random"],
    "What a client with more items than it may report on picks: those it has most "
    "often, or a uniformly random subset.",
)
_RANDOMIZER = flags.DEFINE_string(
    "randomizer",
    "subset_selection",
    "The local randomizer: subset_selection, k_ary, asymmetric_one_hot, "
    "symmetric_one_hot, or a class of your own as module:Class.",
)
_NUM_PASSES = flags.DEFINE_integer(
    "num_passes",
    1,
    "Passes over the whole depth. A later one skips the words that earlier ones found.",
    lower_bound=1,
)
_REPORT_SAMPLING = flags.DEFINE_enum(
    "report_sampling",
    "aggregate",
    ["aggregate", "per_report"],
    "Draw the sum of a level's reports at once, or every report as a device would; "
    "the law of the sum is the same.",
)
_AGGREGATION = flags.DEFINE_enum(
    "aggregation",
    "secure_sum",
    ["secure_sum", "ephemeral"],
    "How votes are kept from the server: a secure sum, or votes that are forgotten "
    "once they are added up.",
)
_COUNTING_CLIENTS = flags.DEFINE_integer(
    "counting_clients",
    None,
    "Clients of the counting task that estimates coverage; they take part in no "
    "level. By default all that take part in no level.",
    lower_bound=0,
)
_ANONYMITY_ALPHA = flags.DEFINE_float(
    "anonymity_alpha",
    0.95,
    "Alpha of the approximate k-anonymity to find k for, in (0, 1).",
)
_NUM_REPEATS = flags.DEFINE_integer(
    "num_repeats",
    1,
    "How often LDP TrieHH is run, each time with cohorts of its own from the same "
    "clients. The privacy statement is about all of them together.",
    lower_bound=1,
)
flags.adopt_module_key_flags(population_flags)
flags.adopt_module_key_flags(experiment_flags)


# As `randomizers.argument_checks` has it, which would import TensorFlow here.
_MAX_EPSILON = 40.0
# The votes of 2^31 clients are nothing but noise long before, and the probabilities of
# a true and a false vote differ by less than float64 can tell soon after.
_MIN_EPSILON = 1e-9
_DEFAULT_EPSILON = 10.0


# Clients are numbered with 31 bits, and so are the candidates of a level.
_MOST = 2**31 - 1

# Of a level, where the sum of its reports is drawn: 190 at epsilon 10 and 320 at 2, by
# measurement, and as much again for what the trie and the results hold.
_BYTES_A_CANDIDATE = 600

# A prefix that everybody holds has to stand out by so many standard deviations.
_VISIBLE_DEVIATIONS = 3

_LIMITS = (
    (_CLIENTS_PER_LEVEL, _MOST, "clients are numbered with 31 bits"),
    (_MAX_PREFIXES, _MOST, "candidates are numbered with 31 bits"),
    (_CONTRIBUTION_BOUND, 10**6, "nobody holds more items"),
    (_NUM_PASSES, 1_000, "every pass takes clients of its own for every level"),
    (_COUNTING_CLIENTS, _MOST, "clients are numbered with 31 bits"),
    (_NUM_REPEATS, 1_000, "their losses of privacy are composed one by one"),
)


def _check_flags() -> None:
    for flag, most, reason in _LIMITS:
        if flag.value is not None and flag.value > most:
            raise ValueError(
                f"--{flag.name}={flag.value}: has to be at most {most:,} ({reason})"
            )
    _check_memory()
    _check_epsilons()
    if flags.FLAGS.population == population_options.SYNTHETIC:
        _check_population(flags.FLAGS.num_clients)
    for flag in (_DELTA, _ANONYMITY_ALPHA):
        if not 0 < flag.value < 1:
            raise ValueError(
                f"--{flag.name}={flag.value}: has to be between 0 and 1, without both"
            )
    if len(set(_alphabet())) < len(_alphabet()):
        raise ValueError("--alphabet has a character twice")
    if flags.FLAGS["alphabet"].present and not flags.FLAGS["out_of_alphabet"].present:
        # Who says which characters there are is told of words that have others.
        flags.FLAGS.out_of_alphabet = "refuse"


def _check_memory() -> None:
    """Refuses levels whose candidates do not fit into memory."""
    characters = len(_alphabet())
    prefixes = min(_MAX_PREFIXES.value, characters**_MAX_DEPTH.value)
    candidates = prefixes * (characters + 1)
    needed = candidates * _BYTES_A_CANDIDATE
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if candidates > _MOST or needed > there:
        raise ValueError(
            f"--max_prefixes={_MAX_PREFIXES.value}: a level of {candidates:,} "
            f"candidates ({prefixes:,} prefixes times the characters and the end of a "
            f"word) needs some {needed / 2**30:,.1f} GiB of memory, of which there are "
            f"{there / 2**30:,.1f}; {_MOST:,} candidates are possible at most. Lower "
            "--max_prefixes, or give a smaller --alphabet"
        )


def _warn_of_noise() -> None:
    """Says so where no word could be told from noise."""
    if math.isinf(_local_epsilon()) or _RANDOMIZER.value != "subset_selection":
        return
    from privacy import anonymity

    clients, bound = _CLIENTS_PER_LEVEL.value, _CONTRIBUTION_BOUND.value
    try:
        level = anonymity.VotingLevel(
            alphabet_size=len(_alphabet()) + 1,
            kept_prefixes=_MAX_PREFIXES.value,
            local_epsilon=_local_epsilon(),
            num_reports=clients * bound,
        )
    except ValueError:  # of one report, which the process itself answers
        return
    share = level.other_probability
    deviation = math.sqrt(clients * bound * share * (1 - share))
    # Rounding may leave no difference at all.
    difference = max(0.0, level.include_probability - share)
    deviation = deviation / difference if difference else math.inf
    if clients < _VISIBLE_DEVIATIONS * deviation:
        logging.warning(
            "A prefix that all %s clients of a level hold is estimated with a standard "
            "deviation of %s: what is found will be noise. More --clients_per_level, "
            "a larger --epsilon, a smaller --contribution_bound or fewer "
            "--max_prefixes would help.",
            f"{clients:,}",
            f"{deviation:,.0f}",
        )


def _check_epsilons() -> None:
    local, central = _EPSILON.value, _CENTRAL_EPSILON.value
    if local is not None and central is not None:
        raise ValueError("--epsilon and --central_epsilon: only one of them, please")
    if local is not None and not local >= _MIN_EPSILON:  # nan is not, either
        raise ValueError(
            f"--epsilon={local}: has to be at least {_MIN_EPSILON:g}, or inf (with "
            "less, the votes of 2^31 clients are nothing but noise)"
        )
    if local is not None and _MAX_EPSILON < local < math.inf:
        raise ValueError(
            f"--epsilon={local}: has to be at most {_MAX_EPSILON:g}, or inf"
        )
    if central is not None and not _MIN_EPSILON <= central <= _MAX_EPSILON:
        raise ValueError(
            f"--central_epsilon={central}: has to be at least {_MIN_EPSILON:g} (with "
            "less, the votes of 2^31 clients are nothing but noise) and at most "
            f"{_MAX_EPSILON:g}, the largest local one; a larger one needs --epsilon"
        )


@functools.cache
def _local_epsilon() -> float:
    """Returns the local epsilon that was given, or that has the central one."""
    if _CENTRAL_EPSILON.value is None:
        return _DEFAULT_EPSILON if _EPSILON.value is None else _EPSILON.value
    from privacy import noise_calibration

    return noise_calibration.local_epsilon_for(
        _CENTRAL_EPSILON.value,
        _DELTA.value,
        num_reports=_CLIENTS_PER_LEVEL.value * _CONTRIBUTION_BOUND.value,
        num_repeats=_NUM_REPEATS.value,
        largest=_MAX_EPSILON,
    )


def _alphabet() -> str:
    if flags.FLAGS.alphabet is not None:
        return population_flags.alphabet_from_flags()
    # Whatever the tokenizers let through is printable ASCII.
    return string.printable


def _check_population(num_clients: int) -> None:
    """Refuses a population that is too small for the cohorts and the counting task."""
    levels = _MAX_DEPTH.value * _NUM_PASSES.value
    in_cohorts = levels * _CLIENTS_PER_LEVEL.value
    counting = _COUNTING_CLIENTS.value or 0
    if in_cohorts + counting > num_clients:
        raise ValueError(
            f"{levels:,} levels of {_CLIENTS_PER_LEVEL.value:,} clients, none of them "
            f"twice, and {counting:,} clients that count need "
            f"{in_cohorts + counting:,} clients; the population has {num_clients:,}. "
            "Lower --clients_per_level, --max_depth, --num_passes or "
            "--counting_clients, or take a larger population"
        )


def _parameters():
    from federated_hh import contributions, ldp_triehh_parameters
    from federated_hh.randomizers import by_name

    return ldp_triehh_parameters.LdpTrieHHParameters(
        clients_per_level=_CLIENTS_PER_LEVEL.value,
        max_depth=_MAX_DEPTH.value,
        max_prefixes=_MAX_PREFIXES.value,
        contribution_bound=_CONTRIBUTION_BOUND.value,
        epsilon=_local_epsilon(),
        num_passes=_NUM_PASSES.value,
        sampler=contributions.ItemSampler(_SAMPLER.value),
        make_randomizer=by_name.randomizer(_RANDOMIZER.value),
    )


def _make_algorithm(population):
    from federated_hh import alphabet as alphabet_lib
    from federated_hh import ldp_triehh, ldp_triehh_parameters

    algorithm = ldp_triehh.LdpTrieHH(
        population,
        _parameters(),
        alphabet_lib.Alphabet(_alphabet()),
        report_sampling=ldp_triehh_parameters.ReportSampling(_REPORT_SAMPLING.value),
        aggregation=ldp_triehh_parameters.Aggregation(_AGGREGATION.value),
        population_has_empty_users=flags.FLAGS["empty_clients"].value == "keep",
    )
    reports = algorithm.plan.contribution
    if (
        _CENTRAL_EPSILON.value is not None
        and reports.replacement_epsilon > reports.epsilon
    ):
        raise ValueError(
            f"--central_epsilon={_CENTRAL_EPSILON.value} with --randomizer="
            f"{_RANDOMIZER.value}: the exchange of an item costs "
            f"{reports.replacement_epsilon / reports.epsilon:g} times its epsilon; "
            "give --epsilon"
        )
    return algorithm


def run(arguments: experiment_flags.Arguments) -> None:
    """Runs the experiment that the flags describe."""
    if _CENTRAL_EPSILON.value is not None:
        print(
            f"Local epsilon {_local_epsilon():.6g}, for a central epsilon of at most "
            f"{_CENTRAL_EPSILON.value:g} at delta {_DELTA.value:g} for an item in all "
            "repeats together."
        )
    _warn_of_noise()
    population = population_flags.prepare_from_flags()
    _check_population(population.num_clients)

    # TensorFlow comes last: it takes seconds to import.
    from federated_hh import ldp_triehh_privacy, ldp_triehh_report, ldp_triehh_results
    from rounds import run as engine
    from rounds import steps
    from simulation import run_directory

    algorithm = _make_algorithm(population)
    facts = steps.facts_of(algorithm)
    with run_directory.open_for(arguments, program=_PROGRAM, facts=facts) as directory:
        outcome = engine.run(
            algorithm,
            directory,
            seed=arguments.seed,
            repeats=_NUM_REPEATS.value,
            delta=_DELTA.value,
        )
        logging.info("Counting the coverage, and accounting for privacy.")
        results = ldp_triehh_results.evaluate(
            algorithm,
            [state.found for state in outcome.states],
            arguments.seed,
            counting_clients=_COUNTING_CLIENTS.value,
        )
        summary = ldp_triehh_privacy.summarize(
            algorithm,
            directory.metrics(),
            algorithm.plan.statement(outcome.record, _DELTA.value),
            _ANONYMITY_ALPHA.value,
        )
        ldp_triehh_report.write(directory, results, summary)
        directory.complete()
    _print_outcome(results)
    print(f"Report: {directory.path / 'report.html'}")


def _print_outcome(results) -> None:
    last = results.coverage.iloc[-1]
    words = results.words
    real = words[words["real"] & (words["repeat"] == 0)]["word"].head(10)
    names = f" The most frequent: {', '.join(real)}." if len(real) else ""
    estimate = last["estimated_coverage"]
    estimated = "" if math.isnan(estimate) else f" (estimated: {estimate:.1%})"
    print(
        f"{last['words_found']:,.0f} words found, {last['words_real']:,.0f} of them "
        f"real; coverage {last['coverage']:.1%}{estimated}.{names}"
    )


def main(argv: list[str]) -> None:
    """Checks the flags and runs."""
    experiment_flags.run_program(
        argv, _PROGRAM, _check_flags, run, is_synthetic=population_flags.is_synthetic
    )


if __name__ == "__main__":
    # Gboard's words are whatever is typed between spaces.
    flags.FLAGS.set_default("tokenizer", "whitespace")
    app.run(main, flags_parser=experiment_flags.parse_flags)
