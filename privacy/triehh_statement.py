"""The privacy statement of a TrieHH run."""

from privacy import (
    argument_checks,
    conversions,
    realised,
    statement,
    triehh_theorem1,
)
from privacy.guarantee import Guarantee
from privacy.neighbours import Adjacency
from privacy.triehh import TrieHHGuarantee, TrieHHParameters

_ASSUMPTIONS = (
    "Every round draws its cohort uniformly without replacement from the whole "
    "population, afresh and independently of the data and of earlier cohorts.",
    "The population size is as stated and known; where only a part of the users is "
    "reachable, the guarantee is that of the reachable part's size.",
    "The server is honest: it uses the votes of a round only to find the prefixes "
    "that reach the threshold, and keeps and shows nothing else of them.",
    "A user's vote depends on that user's own data and on what was released before, "
    "not on other users' data.",
    "The simulation draws cohorts and words from the run's noise key: sampling "
    "protects nobody from those who know it. Keep it secret where results on real "
    "data leave the house. Runs that differ in a parameter or in the population have "
    "cohorts of their own, also with the same key. The generators behind it (PCG64, "
    "Philox) are taken for random by all who do not have the key; they are not "
    "cryptographic.",
)

_ANY_VOTES_ARE = (
    "A user that holds nothing votes for nothing, and what a round asks depends on "
    "which candidates earlier rounds kept, not on how many votes they had."
)
_POPULATION_IS_PUBLIC = (
    "Users without a word were left out of the population, so its size n, and the "
    "threshold and cohort size that follow from it, depend on who has words: they are "
    "taken to be public, and whether a user has any word at all is not protected."
)

_NOT_COUNTED = (
    "Vote counts: the guarantee is about which prefixes reach the threshold, not "
    "about how many votes they got, nor how many votes a round received.",
    statement.SIMULATOR_KNOWLEDGE,
    "Choices made by looking at the data (thresholds, population, alphabet, number "
    "of runs) and other analyses of the same users.",
    "Further runs on the same population: each costs its own epsilon and delta, "
    "which add up (basic composition).",
)

_ACCOUNTING = (
    "epsilon = L ln(K / (K - theta)), where a round's odds change by K / (K - theta) "
    "at most for a prefix of at least K holders, and delta0 = P(Hypergeometric(n, K - "
    "1, m) >= theta) bounds the probability that a prefix of fewer is kept; K is the "
    "largest with the delta that was asked for (docs/triehh_privacy.md has the proof). "
    "A user who holds nothing votes for nothing. The opposite direction is not "
    "claimed: it fails for some small populations. "
)
_KEPT_WORD = (
    "delta = delta0, for users who hold one sequence, or draw one once and keep it "
    "for the run: the first rare prefix of a sequence stops all longer ones."
)
_REDRAWN_WORD = (
    "delta = min(L delta0, delta0 / (1 - delta0)), for users who draw a word in every "
    "round, each time from the same distribution: 1 / (1 - delta0) bounds how many "
    "votes for rare prefixes are to be expected of a user."
)
_ANY_VOTE = (
    "delta = L delta0, as users may vote for other things in every round, so that each "
    "costs its own delta."
)


def triehh_statement(
    parameters: TrieHHParameters,
    *,
    delta: float,
    redraws_each_round: bool,
    extends_prefixes: bool = True,
    rounds: realised.RealisedRounds | None = None,
    num_runs: int = 1,
    population_has_empty_users: bool = True,
) -> statement.PrivacyStatement:
    """Makes the privacy statement of one TrieHH run, or of several.

    Args:
        parameters: The runs' parameters.
        delta: Delta that a run's epsilon is stated for, in (0, 1).
        redraws_each_round: Whether users who hold several words draw anew in every
            round (Algorithm 3 of Zhu et al. 2020); see `TrieHHParameters.guarantee`.
        extends_prefixes: Whether it is TrieHH; see `TrieHHParameters.guarantee`. Else
            it is any algorithm with one vote a user and round, and the statement is of
            that.
        rounds: What was run, which makes the statement a realised one; None for a
            planned one. The numbers are the same: when a run ends depends on the data,
            so that a short one costs no less.
        num_runs: How many runs with these parameters are planned on the population;
            with `rounds` it follows from them. Where there are several, what they
            cost together is stated too.
        population_has_empty_users: Whether users without a word are counted in n, as
            the adjacency has it. Where they were left out, the statement says that n
            is taken to be public.

    Returns:
        The statement; without a guarantee, and with the reason, where no K gives the
        delta. Theorem 1 of Zhu et al. 2020 is named beside it where it applies.

    Raises:
        ValueError: An argument is outside its range, or `rounds` are not of these
            parameters.
    """
    argument_checks.probability("delta", delta)
    argument_checks.integer("num_runs", num_runs, 1)
    if rounds is not None:
        _check_rounds(rounds, parameters)
        num_runs = rounds.num_repeats
    guarantees, reason = _guarantees(
        parameters, delta, redraws_each_round, extends_prefixes, num_runs
    )
    how = _REDRAWN_WORD if redraws_each_round else _KEPT_WORD
    assumptions: tuple[str, ...] = _ASSUMPTIONS
    if not extends_prefixes:
        assumptions += (_ANY_VOTES_ARE,)
    if not population_has_empty_users:
        assumptions += (_POPULATION_IS_PUBLIC,)
    return statement.PrivacyStatement(
        setting=(
            "Central DP without added noise: sampling and thresholding protect the "
            "output, and the server is trusted to apply the threshold."
        ),
        protected=(
            "All words of a user, in one run of TrieHH"
            if extends_prefixes
            else "All that a user holds, in one run"
        )
        + (f", and in {num_runs} runs together." if num_runs > 1 else "."),
        adjacency=Adjacency.EMPTIED,
        mechanism="TrieHH (Zhu et al. 2020, Algorithms 1 to 3)"
        if extends_prefixes
        else "One vote a user, and a threshold (docs/triehh_privacy.md, Theorem D)",
        mechanism_output=(
            "The trie of prefixes that reached the threshold, after every round, and "
            "so the words found; without vote counts."
            if extends_prefixes
            else "Which candidates reached the threshold, in every round; without vote "
            "counts."
        ),
        guarantees=guarantees,
        no_guarantee_reason=reason,
        parameters={
            "population_size (n)": parameters.population_size,
            "cohort_size (m)": parameters.cohort_size,
            "gamma": parameters.gamma,
            "threshold (theta)": parameters.threshold,
            "max_length (L)": parameters.max_length,
            "delta asked for": delta,
            "redraws_each_round": "yes" if redraws_each_round else "no",
            "extends_prefixes": "yes" if extends_prefixes else "no",
            "users_without_words": "counted"
            if population_has_empty_users
            else "left out",
            "runs": num_runs,
        },
        accounting=_ACCOUNTING + (how if extends_prefixes else _ANY_VOTE),
        assumptions=assumptions,
        not_counted=_NOT_COUNTED,
        realised=None if rounds is None else rounds.summary(),
    )


def _check_rounds(rounds: realised.RealisedRounds, parameters: TrieHHParameters):
    for found in rounds.rounds:
        if found.clients != parameters.cohort_size:
            raise ValueError(
                f"rounds has {found.clients} clients in round {found.number} of repeat "
                f"{found.repeat}; cohort_size is {parameters.cohort_size}"
            )
        if found.number > parameters.max_length:
            raise ValueError(
                f"rounds has a round {found.number} in repeat {found.repeat}; "
                f"max_length is {parameters.max_length}"
            )


def _guarantees(
    parameters: TrieHHParameters,
    delta: float,
    redraws: bool,
    extends_prefixes: bool,
    num_runs: int,
) -> tuple[tuple[Guarantee, ...], str | None]:
    """Returns the guarantees, or none and the reason."""
    try:
        found = parameters.guarantee(
            delta=delta, redraws_each_round=redraws, extends_prefixes=extends_prefixes
        )
    except ValueError as error:
        return (), f"{error}."
    bound = bound_name(found)
    guarantees = []
    if num_runs > 1:
        # First, as all of them are released.
        epsilon, larger = conversions.basic_composition(
            [(found.epsilon, found.delta)] * num_runs
        )
        guarantees.append(
            _guarantee(
                epsilon,
                min(1.0, larger),
                f"{bound}, with basic composition over {num_runs} runs",
                f"For all {num_runs} runs together.",
            )
        )
    alone = num_runs > 1
    guarantees.append(
        _guarantee(found.epsilon, found.delta, bound, of_one_repeat=alone)
    )
    if extends_prefixes and triehh_theorem1.violated_condition(parameters) is None:
        epsilon, larger = triehh_theorem1.guarantee(parameters)
        name = "Zhu et al. 2020, " + ("Corollary 2" if redraws else "Theorem 1")
        guarantees.append(_guarantee(epsilon, larger, name, of_one_repeat=alone))
    return tuple(guarantees), None


def bound_name(found: TrieHHGuarantee) -> str:
    """Names the bound of `TrieHHParameters.guarantee`, with its K."""
    if found.holders is None:
        return "the threshold is above the cohort size: nothing is ever kept"
    return f"tight bound with K = {found.holders} (docs/triehh_privacy.md)"


def _guarantee(
    epsilon: float,
    delta: float,
    bound: str,
    *assumptions: str,
    of_one_repeat: bool = False,
) -> Guarantee:
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        bound=bound,
        is_upper_bound=True,
        one_sided=True,
        adjacency=Adjacency.EMPTIED,
        assumptions=assumptions,
        of_one_repeat=of_one_repeat,
    )
