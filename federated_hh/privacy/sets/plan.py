"""Set union as a plan: everybody sends weighted words, and noisy sums are released.

The theorem is that of docs/set_union_privacy.md, in both directions.
"""

import dataclasses
import math
from typing import Any, TypeAlias

from federated_hh.options import checks
from federated_hh.privacy import drawn_noise, statement
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.guarantee import Adjacency, Guarantee
from federated_hh.privacy.sets import adaptive_gaussian, mechanisms, weighted_gaussian
from federated_hh.randomness import identities, integer_noise

_ASSUMPTIONS = (
    "The aggregator is trusted, such as an attested enclave: it sees every client's "
    "words, adds the noise, and releases the words that reach the threshold with their "
    "noisy weights. It keeps the noisy weights of all words until the last pass, and "
    "nothing else.",
    "A client that sends weights of a larger norm weakens its own guarantee, and that "
    "of nobody else.",
    "All clients take part in every pass. A client's choice among its words depends on "
    "its own data, its own random bits and earlier releases alone.",
    "The noise is integer: a Gaussian rounded at random, up to a factor 1 +- 2^-98 and "
    "a part of probability 2^-141 of each number (docs/integer_noise.md). The numbers "
    "include this difference. Its bits are SHAKE256 of the noise key and of the run's "
    "sums; whoever has the key can remove the noise.",
)
_LEVELS = (
    "With adaptive weights, a client sends words that it draws once. After each pass "
    "the aggregator tells it the levels of these words, which follow from their noisy "
    "totals, and tells nobody the level of a word that they did not send. It ignores a "
    "word that a client did not send in the first pass: else that client would weaken "
    "the guarantee of others that have the word alone."
)
_POPULATION_IS_PUBLIC = (
    "Clients without a word were left out of the population. Its size, and a delta "
    "that follows from it, are therefore assumed to be public."
)
_NOT_COUNTED = (
    statement.SIMULATOR_KNOWLEDGE,
    "Choices made by looking at the data (parameters, population, number of passes or "
    "repeats).",
    "Further runs on the same clients: each costs its own epsilon and delta "
    "(run_accounting --compose).",
)


@identities.identity("WordWeights", "contribution_bound population_has_empty_users")
@dataclasses.dataclass(frozen=True)
class WordWeights(plan_lib.Contribution):
    """A client's words with integer weights of an L2 norm of at most 2^20.

    Attributes:
        contribution_bound: The most words of a client in a pass.
        population_has_empty_users: Whether clients without a word are in the
            population.
    """

    contribution_bound: int
    population_has_empty_users: bool = True


_Plan: TypeAlias = plan_lib.Plan[
    Any, WordWeights, mechanisms.NoisyWeights | mechanisms.NoisyTotals
]


def plan_of(
    sampler: plan_lib.Sampler,
    passes: weighted_gaussian.WeightedGaussian,
    *,
    population_has_empty_users: bool = True,
) -> _Plan:
    """Returns the plan of a set union.

    Args:
        sampler: Sampler of everybody.
        passes: Noise and thresholds.
        population_has_empty_users: See `WordWeights`.
    """
    mechanism: mechanisms.NoisyWeights | mechanisms.NoisyTotals
    if isinstance(passes, adaptive_gaussian.AdaptiveGaussian):
        mechanism = mechanisms.NoisyTotals(
            passes.noise_multipliers, passes.thresholds, passes.factors
        )
    else:
        mechanism = mechanisms.NoisyWeights(passes.noise_multipliers, passes.thresholds)
    return plan_lib.Plan(
        sampler=sampler,
        contribution=WordWeights(passes.contribution_bound, population_has_empty_users),
        mechanism=mechanism,
    )


def passes_of(plan: _Plan) -> weighted_gaussian.WeightedGaussian:
    """Returns the noise and the thresholds of a plan."""
    mechanism = plan.mechanism
    return _passes(
        plan.contribution.contribution_bound,
        mechanism.noise_multipliers,
        mechanism.thresholds,
        mechanism.factors if isinstance(mechanism, mechanisms.NoisyTotals) else None,
    )


def _passes(
    contribution_bound: int,
    noise_multipliers: tuple[float, ...],
    thresholds: tuple[int, ...],
    factors: tuple[int, ...] | None,
) -> weighted_gaussian.WeightedGaussian:
    """Returns the passes, with adaptive weights if there are factors."""
    given = contribution_bound, noise_multipliers, thresholds
    if factors is None:
        return weighted_gaussian.WeightedGaussian(*given)
    return adaptive_gaussian.AdaptiveGaussian(*given, factors)


class _Theorem(plan_lib.Theorem):
    """docs/set_union_privacy.md."""

    def check(self, plan: _Plan) -> None:
        """Raises `ValueError` where a number is out of range, or sums have no room."""
        passes = passes_of(plan)
        largest = plan.sampler.num_clients * weighted_gaussian.NORM
        for number in range(passes.num_passes):
            noise = integer_noise.sampler_of(passes.stddev(number)).largest
            if largest + noise >= 2**53:
                raise ValueError(
                    f"noise_multiplier is {passes.noise_multipliers[number]:g}: sums "
                    f"of {plan.sampler.num_clients:,} clients with this noise could "
                    "exceed 53 bits; raise epsilon or delta"
                )

    def check_round(
        self, plan: plan_lib.Plan, number: int, facts: plan_lib.Facts
    ) -> None:
        """Raises `ValueError` for a pass beyond the last."""
        plan_lib.check_number(number, len(plan.mechanism.thresholds), "num_passes")

    def statement(
        self,
        plan: _Plan,
        record: plan_lib.Record | None,
        delta: float,
        repeats: int,
    ) -> statement.PrivacyStatement:
        """Returns the statement; see `federated_hh.privacy.plan.Plan.statement`."""
        rounds = record.rounds if record else None
        runs = rounds.num_repeats if rounds else repeats
        passes = passes_of(plan)
        has_empty = plan.contribution.population_has_empty_users
        several = passes.num_passes > 1
        is_adaptive = isinstance(plan.mechanism, mechanisms.NoisyTotals)
        return statement.PrivacyStatement(
            setting=(
                "Central DP: a trusted aggregator sees every client's words, "
                "adds noise and applies the threshold. The simulation has no enclave."
            ),
            protected=(
                "All words of a client, in "
                + (f"the {passes.num_passes} passes of " if several else "")
                + ("one run." if runs == 1 else f"each of {runs} runs, and in all.")
            ),
            adjacency=Adjacency.EMPTIED,
            mechanism=(
                "Set union by the weighted Gaussian (Gopi et al. 2020)"
                + (", in passes (Swanberg et al. 2023)" if several else "")
                + (", with adaptive weights (Chen et al. 2025)" if is_adaptive else "")
                + ", with integer weights and noise"
            ),
            mechanism_output=(
                "The words that reached the threshold in each pass, with their noisy "
                + ("totals over the passes so far" if is_adaptive else "weights")
                + ". Every released word is one that some client sent."
            ),
            guarantees=_guarantees(passes, delta, runs),
            parameters=_parameters(plan, passes, delta, runs),
            accounting=(
                "Words that other clients send too: the Gaussian mechanism, whose "
                "passes are one Gaussian of the sum of their zCDP, converted exactly. "
                "Words of the client alone: the probability that one of them reaches "
                "a threshold is a part of delta; it is the exact tail of the integer "
                "noise, rounded upwards. Together they hold in both directions "
                "(docs/set_union_privacy.md has the proof)."
            ),
            assumptions=(
                *_ASSUMPTIONS,
                *((_LEVELS,) if is_adaptive else ()),
                *(() if has_empty else (_POPULATION_IS_PUBLIC,)),
            ),
            not_counted=_NOT_COUNTED,
            realised=None if rounds is None else rounds.summary(),
            num_repeats=runs,
        )


def _parameters(
    plan: _Plan, passes: weighted_gaussian.WeightedGaussian, delta: float, runs: int
) -> dict[str, float | int | str]:
    factors = (
        {"factors of passes": ", ".join(map(str, plan.mechanism.factors))}
        if isinstance(plan.mechanism, mechanisms.NoisyTotals)
        else {}
    )
    return {
        "population_size (n)": plan.sampler.num_clients,
        "most words of a client": passes.contribution_bound,
        "passes": passes.num_passes,
        "noise multipliers": ", ".join(map(repr, passes.noise_multipliers)),
        "thresholds in 2^-20": ", ".join(map(str, passes.thresholds)),
        **factors,
        "delta asked for": delta,
        "runs": runs,
        "users_without_words": "counted"
        if plan.contribution.population_has_empty_users
        else "left out",
    }


def recomputed(stated: statement.PrivacyStatement) -> tuple[Guarantee, ...]:
    """Returns the guarantees that follow from a statement's parameters.

    Args:
        stated: A statement of set union.

    Raises:
        KeyError: A parameter is missing.
        ValueError: A parameter is out of range.
    """
    found: dict[str, Any] = dict(stated.parameters)
    factors = found.get("factors of passes")
    passes = _passes(
        found["most words of a client"],
        tuple(map(float, found["noise multipliers"].split(", "))),
        tuple(map(int, found["thresholds in 2^-20"].split(", "))),
        None if factors is None else tuple(map(int, factors.split(", "))),
    )
    checks.integer(passes=found["passes"], least=1)
    if found["passes"] != passes.num_passes:
        raise ValueError(
            f"parameter 'passes' is {found['passes']}; {passes.num_passes} have noise"
        )
    return _guarantees(
        passes,
        checks.probability(**{"delta asked for": found["delta asked for"]}),
        checks.integer(runs=found["runs"], least=1),
    )


def _guarantees(
    passes: weighted_gaussian.WeightedGaussian, delta: float, runs: int
) -> tuple[Guarantee, ...]:
    """Returns the guarantees of all runs together, then those of one."""
    several = (runs, 1) if runs > 1 else (1,)
    found = []
    for count in several:
        total = min(count * delta, math.nextafter(1.0, 0.0))
        common = {
            "delta": total,
            "one_sided": False,
            "of_one_repeat": count < runs,
        }
        bound = "weighted Gaussian and thresholds (docs/set_union_privacy.md)"
        emptied = passes.epsilon(total, count)
        found.append(_guarantee(emptied, Adjacency.EMPTIED, bound, common))
        exchanged = passes.epsilon(total, count, replaced=True)
        bound += "; two clients' weights differ by at most sqrt(2): twice the zCDP"
        found.append(_guarantee(exchanged, Adjacency.REPLACE_CLIENT, bound, common))
    return tuple(found)


def _guarantee(
    drawn: drawn_noise.DrawnEpsilon,
    adjacency: Adjacency,
    bound: str,
    common: dict[str, Any],
) -> Guarantee:
    if not drawn.is_proved:
        bound += ", for continuous noise: nothing is proved of the drawn noise"
    return Guarantee(
        epsilon=drawn.epsilon,
        is_upper_bound=drawn.is_proved,
        adjacency=adjacency,
        bound=bound,
        **common,
    )


for _mechanism in (mechanisms.NoisyWeights, mechanisms.NoisyTotals):
    plan_lib.register(plan_lib.Sampling.LIMITED, WordWeights, _mechanism, _Theorem())
