"""The privacy statement of a TrieHH run."""

from privacy import argument_checks, statement
from privacy.triehh import TrieHHParameters

_ADJACENCY = (
    "D' is D with all data of one user emptied (the user stays in the population and "
    "votes for nothing). Proved in one direction only: P(output on D in S) <= "
    "e^epsilon P(output on D' in S) + delta; the opposite inequality is not proved "
    "in Zhu et al. 2020 and fails for some small populations."
)

_ASSUMPTIONS = (
    "Every round draws its cohort uniformly without replacement from the whole "
    "population, afresh and independently of the data and of earlier cohorts.",
    "The population size is as stated and known; where only a part of the users is "
    "reachable, the guarantee is that of the reachable part's size.",
    "The server is honest: it uses the votes of a round only to find the prefixes "
    "that reach the threshold, and keeps and shows nothing else of them.",
    "A user's vote depends on that user's own data and on the trie sent, not on "
    "other users' data.",
    "The simulation draws cohorts and votes from the run's seed: sampling protects "
    "nobody from those who know it. Keep it secret, and use another for another run, "
    "where results on real data leave the house.",
)

_POPULATION_IS_PUBLIC = (
    "Users without a word were left out of the population, so its size n, and the "
    "threshold and cohort size that follow from it, depend on who has words: they are "
    "taken to be public, and whether a user has any word at all is not protected."
)

_NOT_COUNTED = (
    "Vote counts: the guarantee is about which prefixes reach the threshold, not "
    "about how many votes they got.",
    "What a simulation adds that a server would not know: true frequencies, "
    "discovery rates, precision and recall in result tables.",
    "Choices made by looking at the data (thresholds, population, alphabet, number "
    "of runs) and other analyses of the same users.",
    "Further runs on the same population: each costs its own epsilon and delta, "
    "which add up (basic composition).",
)


def triehh_statement(
    parameters: TrieHHParameters,
    *,
    redraws_each_round: bool,
    basis: str = "planned",
    num_runs: int = 1,
    population_has_empty_users: bool = True,
) -> statement.PrivacyStatement:
    """Makes the privacy statement of one TrieHH run, or of several.

    Args:
        parameters: The run's parameters.
        redraws_each_round: Whether users who hold several words draw anew in every
            round (Algorithm 3 of Zhu et al. 2020), so that delta is L times
            Theorem 1's; see `TrieHHParameters.guarantee`.
        basis: "planned" or "realised".
        num_runs: How many runs with these parameters read the same population; where
            there are several, what they cost together is stated too.
        population_has_empty_users: Whether users without a word are counted in n, as
            the adjacency has it. Where they were left out, the statement says that n
            is taken to be public.

    Returns:
        The statement; without a guarantee, and with the reason, where Theorem 1 of
        Zhu et al. 2020 does not apply to the parameters.

    Raises:
        ValueError: `basis` is neither word, or `num_runs` is below 1.
    """
    argument_checks.integer("num_runs", num_runs, 1)
    violated = parameters.violated_condition()
    guarantees: list[statement.Guarantee] = []
    if violated is None:
        epsilon, delta = parameters.guarantee(redraws_each_round=redraws_each_round)
        bound = "Zhu et al. 2020, Theorem 1"
        if redraws_each_round:
            bound += " per round, with basic composition over max_length rounds"
        guarantees.append(
            statement.Guarantee(
                epsilon=epsilon,
                delta=delta,
                bound=bound,
                is_upper_bound=True,
                unit="user",
                adjacency="one user's data emptied; from D to D' only",
            )
        )
        if num_runs > 1:
            guarantees.append(
                statement.Guarantee(
                    epsilon=num_runs * epsilon,
                    delta=min(1.0, num_runs * delta),
                    bound=f"{bound}, with basic composition over {num_runs} runs",
                    is_upper_bound=True,
                    unit="user",
                    adjacency="one user's data emptied; from D to D' only",
                    assumptions=(f"For all {num_runs} runs together.",),
                )
            )
    assumptions = _ASSUMPTIONS
    if not population_has_empty_users:
        assumptions += (_POPULATION_IS_PUBLIC,)
    if redraws_each_round:
        accounting = (
            "Each round is (epsilon/L, delta0)-DP whatever word the user draws, with "
            "delta0 = (theta-2)/((theta-3) theta!); the run is (epsilon, L delta0)-DP "
            "by basic composition. Zhu et al. 2020 state delta0 for the whole run "
            "(Corollary 2), but their proof is of users who draw one word once."
        )
    else:
        accounting = (
            "Closed form: epsilon = L ln(1 + m theta / (n - m theta)), delta = "
            "(theta-2)/((theta-3) theta!), for users who hold one sequence or draw "
            "one once and keep it for the run."
        )
    return statement.PrivacyStatement(
        setting=(
            "Central DP without added noise: sampling and thresholding protect the "
            "output, and the server is trusted to apply the threshold."
        ),
        protected="All words of a user, in one run of TrieHH"
        + (f", and in {num_runs} runs together." if num_runs > 1 else "."),
        unit="user",
        adjacency=_ADJACENCY,
        mechanism="TrieHH (Zhu et al. 2020, Algorithms 1 to 3)",
        mechanism_output=(
            "The trie of prefixes that reached the threshold, after every round, and "
            "so the words found; without vote counts."
        ),
        guarantees=tuple(guarantees),
        no_guarantee_reason=None
        if violated is None
        else f"Theorem 1 of Zhu et al. 2020 does not apply: {violated}.",
        parameters={
            "population_size (n)": parameters.population_size,
            "cohort_size (m)": parameters.cohort_size,
            "gamma": parameters.gamma,
            "threshold (theta)": parameters.threshold,
            "max_length (L)": parameters.max_length,
            "redraws_each_round": "yes" if redraws_each_round else "no",
            "users_without_words": "counted"
            if population_has_empty_users
            else "left out",
            "runs": num_runs,
        },
        accounting=accounting,
        assumptions=assumptions,
        not_counted=_NOT_COUNTED,
        basis=basis,
    )
