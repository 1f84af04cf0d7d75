"""The command line's answers on a training run, planned or given."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from federated_hh.options import checks
from federated_hh.privacy import conversions, guarantee, searches
from federated_hh.privacy.accounting import arguments as of
from federated_hh.privacy.accounting.arguments import Rows, row
from federated_hh.privacy.dp_ftrl import blt as blt_lib
from federated_hh.privacy.dp_ftrl import (
    noise_calibration,
    planning,
    toeplitz,
    tree_aggregation,
    worst_participation,
)

_UNIT = guarantee.Adjacency.ZERO_OUT.value
_REPLACED = guarantee.Adjacency.REPLACE_CLIENT.value
_EMPTIED = guarantee.Adjacency.EMPTIED.value
_QUOTE = f"{_UNIT}: the one to quote, as Xu et al. 2023 do"
# Delta of the guarantees of Xu et al. 2023.
_DELTA = 1e-10
# Of an answer to neither epsilon nor noise multiplier.
_EPSILONS = (1.0, 2.0, 4.0, 8.0, 16.0)
_NAMES = {
    "population": "population (n)",
    "cohort_size": "cohort size (m)",
    "num_rounds": "rounds (T)",
}
_MOST_CLIENTS = 10**12
# The search for a matrix looks at all of them many hundred times.
_MOST_ROUNDS = 100_000
# Restarts beyond these are as many trees.
_MOST_TREES = 10**6
_SHOWN_TREES = 20


def dp_ftrl(
    *,
    num_rounds: of.NumRounds | None = None,
    noise_multiplier: of.NoiseMultiplier | None = None,
    epsilon: of.Epsilon | None = None,
    delta: of.Delta = _DELTA,
    population: of.Population | None = None,
    cohort_size: of.CohortSize | None = None,
    min_separation: of.MinSeparation | None = None,
    max_participation: of.MaxParticipation | None = None,
    restart_first: of.RestartFirst | None = None,
    restart_period: of.RestartPeriod | None = None,
    count_stddev: of.CountStddev | None = None,
    group_size: of.GroupSize = 1,
) -> Rows:
    """Answers for a DP-FTRL run: S2, zCDP, epsilons by all conversions, and z_delta.

    Raises:
        ValueError: An argument is outside its range, or too few or too many are given.
    """
    checks.integer(group_size=group_size, least=1)

    def restarts(rounds: int) -> tuple[int, ...]:
        return _restart_rounds(rounds, restart_first, restart_period)

    question = _Question("dp_ftrl", noise_multiplier, epsilon, delta, restarts)
    limits = (min_separation, max_participation)
    rows, plan, z = question.answer(num_rounds, population, cohort_size, *limits)
    rows += [
        row("rounds of each tree", _abridged(plan.lengths), ""),
        row("squared sensitivity (S2)", plan.square_sensitivity, "exact worst case"),
    ]
    if z is None:
        return rows
    rho = plan.rho(z)
    rows += _all_adjacencies(rho, delta)
    if group_size > 1:
        grouped = conversions.group_zcdp(rho, group_size)
        rows += _best_zcdp(grouped, delta, f"user with {group_size} devices")
    rows += _noise(plan, z, cohort_size)
    if count_stddev is not None:
        split = noise_calibration.delta_noise_multiplier(z, count_stddev)
        rows.append(
            row("noise multiplier of the deltas", split, "Xu et al. 2023, Theorem 1")
        )
    return rows


def blt(
    *,
    num_rounds: of.NumRounds | None = None,
    noise_multiplier: of.NoiseMultiplier | None = None,
    epsilon: of.Epsilon | None = None,
    delta: of.Delta = _DELTA,
    population: of.Population | None = None,
    cohort_size: of.CohortSize | None = None,
    min_separation: of.MinSeparation | None = None,
    max_participation: of.MaxParticipation | None = None,
    restart_first: of.RestartFirst | None = None,
    restart_period: of.RestartPeriod | None = None,
    buffers: of.Buffers | None = None,
    forgotten: of.Forgotten | None = None,
    weights: of.Weights | None = None,
) -> Rows:
    """Answers for a run with buffered linear Toeplitz noise.

    Returns:
        The matrix, the squared sensitivity, zCDP and the epsilons by all conversions,
        and the noise on the worst prefix sum.

    Raises:
        ValueError: An argument is outside its range, or too few or too many are given.
    """

    def restarts(rounds: int) -> tuple[int, ...]:
        return _restart_rounds(rounds, restart_first, restart_period)

    matrix = None
    if forgotten is not None and weights is not None and buffers is None:
        matrix = blt_lib.Blt(
            _numbers("forgotten", forgotten), _numbers("weights", weights)
        )
    elif forgotten is not None or weights is not None:
        raise ValueError(
            "forgotten, weights and buffers cannot be combined like this; give "
            "forgotten and weights, or buffers, or none"
        )
    question = _Question(
        *("blt", noise_multiplier, epsilon, delta, restarts),
        *(matrix, 2 if buffers is None else buffers),
    )
    limits = (min_separation, max_participation)
    rows, plan, z = question.answer(num_rounds, population, cohort_size, *limits)
    assert isinstance(plan.matrix, blt_lib.Blt)
    worst = "exact worst case" if len(plan.lengths) == 1 else "bound over the blocks"
    forgotten = _listed(plan.matrix.forgotten)
    rows += [
        row("rounds of each block", _abridged(plan.lengths), ""),
        row("forgotten a round", forgotten, "1 - q of each buffer"),
        row("weights", _listed(plan.matrix.weights), "w of each buffer"),
        row("squared sensitivity", plan.square_sensitivity, worst),
    ]
    if z is None:
        return rows
    rows += _all_adjacencies(plan.rho(z), delta)
    return rows + _noise(plan, z, cohort_size)


def _without_parameters(mechanism: str, noise: str) -> Callable[..., Rows]:
    """Returns the answers of a mechanism that has no parameters of its own.

    Args:
        mechanism: One of `planning.MECHANISMS`.
        noise: The noise, for the docstring.
    """

    def answer(
        *,
        num_rounds: of.NumRounds | None = None,
        noise_multiplier: of.NoiseMultiplier | None = None,
        epsilon: of.Epsilon | None = None,
        delta: of.Delta = _DELTA,
        population: of.Population | None = None,
        cohort_size: of.CohortSize | None = None,
        min_separation: of.MinSeparation | None = None,
        max_participation: of.MaxParticipation | None = None,
    ) -> Rows:
        question = _Question(mechanism, noise_multiplier, epsilon, delta)
        limits = (min_separation, max_participation)
        rows, plan, z = question.answer(num_rounds, population, cohort_size, *limits)
        square = plan.square_sensitivity
        rows.append(row("squared sensitivity", square, "exact worst case"))
        if z is None:
            return rows
        rows += _all_adjacencies(plan.rho(z), delta)
        return rows + _noise(plan, z, cohort_size)

    answer.__doc__ = f"Answers for a run with {noise}."
    return answer


banded = _without_parameters("banded", "banded noise, of MinS + 1 bands")
dp_fedavg = _without_parameters("dp_fedavg", "independent noise in each round")


@dataclasses.dataclass(frozen=True)
class _Question:
    """A question about a training run, of which one number may be left out.

    Attributes:
        mechanism: One of `planning.MECHANISMS`.
        noise_multiplier: z; None if it is not given.
        epsilon: Wanted epsilon; None if it is not given.
        delta: Delta of the guarantee.
        restarts: Returns the restarts of a run of so many rounds.
        matrix: The noise's matrix; None for the mechanism's best.
        buffers: Most buffers of the best BLT.
    """

    mechanism: str
    noise_multiplier: float | None
    epsilon: float | None
    delta: float
    restarts: Callable[[int], tuple[int, ...]] = lambda rounds: ()
    matrix: toeplitz.Matrix | None = None
    buffers: int = 2

    def answer(
        self,
        num_rounds: int | None,
        population: int | None,
        cohort_size: int | None,
        min_separation: int | None,
        max_participation: int | None,
    ) -> tuple[Rows, planning.TrainingPlan, float | None]:
        """Returns the answer's first rows, the plan, and z where there is one."""
        if population is None and cohort_size is None and min_separation is not None:
            answered = self._of_limits(num_rounds, min_separation, max_participation)
        else:
            sizes = {
                "population": population,
                "cohort_size": cohort_size,
                "num_rounds": num_rounds,
            }
            answered = self._of_sizes(sizes, (min_separation, max_participation))
        rows, plan, z = answered
        most = row("max participation (MaxP)", plan.max_participation, _UNIT)
        return [*rows, most], plan, z

    def _of_sizes(
        self, sizes: dict[str, Any], limits: tuple[int | None, int | None]
    ) -> tuple[Rows, planning.TrainingPlan, float | None]:
        """Answers for a population, a cohort and rounds, of which one may be None."""
        if limits != (None, None):
            raise ValueError(
                "--min_separation and --max_participation follow from --population, "
                "--cohort_size and --num_rounds; give either the former or the latter"
            )
        missing = [name for name, value in sizes.items() if value is None]
        wanted = [self.noise_multiplier, self.epsilon]
        if len(missing) > 1 or (missing and None in wanted):
            given = [name for name, value in sizes.items() if value is not None]
            privacy = zip(("noise_multiplier", "epsilon"), wanted, strict=True)
            given += [name for name, value in privacy if value is not None]
            raise ValueError(
                "give all but one of --population, --cohort_size, --num_rounds, "
                "--epsilon and --noise_multiplier; the one left out is computed. "
                f"Given: {', '.join(f'--{name}' for name in given) or 'none'}. Or give "
                "--num_rounds, --min_separation and --noise_multiplier"
            )
        if not missing and None not in wanted:
            raise ValueError(
                "--population, --cohort_size, --num_rounds, --epsilon and "
                "--noise_multiplier are all given; leave out the one to compute"
            )
        rows = []
        if missing:
            name, found = missing[0], self._solve(missing[0], sizes)
            sizes = {**sizes, name: found}
            which = "most" if name != "population" else "fewest"
            why = f"the {which} for epsilon {self.epsilon:g} at z = {wanted[0]:g}"
            rows.append(row(_NAMES[name], found, why))
        plan = self._plan(sizes)
        z = self.noise_multiplier
        if not missing and self.epsilon is not None:
            z = plan.noise_multiplier(self.epsilon, self.delta)
            rows.append(self._least(z))
        elif not missing and z is not None:
            spent = conversions.zcdp_to_epsilon(plan.rho(z), self.delta)
            rows.append(row(f"epsilon at delta = {self.delta:g}", spent, _QUOTE))
        elif not missing:
            rows += [self._noise_for(plan, epsilon) for epsilon in _EPSILONS]
        why = (
            "the largest that the population allows where all are available; the run "
            "has to enforce it (--min_separation)"
        )
        return [*rows, row("min separation (MinS)", plan.min_separation, why)], plan, z

    def _noise_for(self, plan: planning.TrainingPlan, epsilon: float) -> dict[str, Any]:
        """Returns the row of the least noise for an epsilon."""
        z = plan.noise_multiplier(epsilon, self.delta)
        replaced = conversions.zcdp_to_epsilon(4 * plan.rho(z), self.delta)
        return row(
            f"noise multiplier (z) for epsilon {epsilon:g}",
            z,
            f"{_QUOTE}, at delta = {self.delta:g}; {_EMPTIED}: the same; {_REPLACED}: "
            f"epsilon {replaced:.4g}",
        )

    def _of_limits(
        self, num_rounds: int | None, min_separation: int, max_participation: int | None
    ) -> tuple[Rows, planning.TrainingPlan, float | None]:
        """Answers for given MinS and MaxP."""
        if num_rounds is None or (self.noise_multiplier is None) == (
            self.epsilon is None
        ):
            raise ValueError(
                "with min_separation, num_rounds and one of noise_multiplier and "
                "epsilon are needed"
            )
        plan = self._of(num_rounds, min_separation, max_participation)
        if self.noise_multiplier is not None:
            return [], plan, self.noise_multiplier
        assert self.epsilon is not None
        z = plan.noise_multiplier(self.epsilon, self.delta)
        return [self._least(z)], plan, z

    def _least(self, noise_multiplier: float) -> dict[str, Any]:
        why = f"the least for epsilon {self.epsilon:g} at delta = {self.delta:g}"
        return row("noise multiplier (z)", noise_multiplier, why)

    def _plan(self, sizes: Mapping[str, Any]) -> planning.TrainingPlan:
        limits = planning.limits_of_population(
            sizes["population"], sizes["cohort_size"], sizes["num_rounds"]
        )
        return self._of(
            sizes["num_rounds"], limits.min_separation, limits.max_participation
        )

    def _of(
        self, rounds: int, separation: int, most: int | None
    ) -> planning.TrainingPlan:
        return planning.TrainingPlan(
            mechanism=self.mechanism,
            num_rounds=rounds,
            min_separation=separation,
            max_participation=most,
            restart_rounds=self.restarts(rounds),
            matrix=self.matrix,
            num_buffers=self.buffers,
        )

    def _solve(self, name: str, sizes: Mapping[str, Any]) -> int:
        """Returns the most rounds or clients a round, or the smallest population."""
        z, epsilon = self.noise_multiplier, self.epsilon
        assert z is not None and epsilon is not None

        def is_private(number: int) -> bool:
            try:
                plan = self._plan({**sizes, name: number})
                rho = plan.rho(z)
            except (planning.TooFewClientsError, worst_participation.LongSearchError):
                return False
            return conversions.zcdp_to_epsilon(rho, self.delta) <= epsilon

        if name == "population":
            found = searches.first_true(is_private, sizes["cohort_size"], _MOST_CLIENTS)
        else:
            most = _MOST_ROUNDS if name == "num_rounds" else sizes["population"]
            found = searches.first_true(lambda n: not is_private(n), 1, most)
            found = most if found is None else found - 1
        if not found:
            raise ValueError(
                f"noise_multiplier is {z:g}: no {name} gives epsilon {epsilon:g} at "
                f"delta {self.delta:g}; raise noise_multiplier or epsilon"
            )
        return found


def _all_adjacencies(rho: float, delta: float) -> Rows:
    """Returns the guarantee of each adjacency, and the one to quote."""
    quoted = conversions.zcdp_to_epsilon(rho, delta)
    return [
        *_zcdp(rho, delta, _UNIT),
        *_best_zcdp(rho, delta, f"{_EMPTIED}, with a fixed clip norm"),
        *_best_zcdp(4 * rho, delta, _REPLACED),
        row("epsilon to quote", quoted, _QUOTE),
    ]


def _noise(
    plan: planning.TrainingPlan, noise_multiplier: float, cohort_size: int | None
) -> Rows:
    """Returns the noise on sums and, where the cohort is known, on a round's mean."""
    worst = noise_multiplier * plan.prefix_error
    rows = [row("noise on the worst prefix sum", worst, "in clip norms")]
    if cohort_size is not None:
        mean = noise_multiplier / cohort_size
        why = "per parameter, in clip norms; times the root of their number for all"
        rows.append(row("noise on a round's mean update", mean, why))
    return rows


def _zcdp(rho: float, delta: float, unit: str) -> Rows:
    """Returns rho, and epsilon by each conversion."""
    name = f"epsilon at delta = {delta:g}"
    return [row("zCDP (rho)", rho, unit)] + [
        row(name, conversions.zcdp_to_epsilon(rho, delta, by), f"{unit}; {by.value}")
        for by in conversions.ZcdpConversion
    ]


def _best_zcdp(rho: float, delta: float, unit: str) -> Rows:
    """Returns rho, and the smallest epsilon."""
    epsilon = conversions.zcdp_to_epsilon(rho, delta)
    name = f"epsilon at delta = {delta:g}"
    return [row("zCDP (rho)", rho, unit), row(name, epsilon, unit)]


def _restart_rounds(
    num_rounds: int, first: int | None, period: int | None
) -> tuple[int, ...]:
    """Returns the restarts that flags ask for; none where `first` is None."""
    if first is None:
        if period is not None:
            raise ValueError("restart_period needs restart_first")
        return ()
    period = num_rounds if period is None else period
    if period > 0 and num_rounds / period > _MOST_TREES:
        raise ValueError(
            f"restart_period is {period}; it has to be at least "
            f"{-(-num_rounds // _MOST_TREES)} for num_rounds = {num_rounds}: at most "
            f"{_MOST_TREES} trees"
        )
    return tree_aggregation.restart_schedule(num_rounds, first, period)


def _abridged(lengths: Sequence[int]) -> str:
    """Returns the first of many lengths, as text."""
    shown = ", ".join(map(str, lengths[:_SHOWN_TREES]))
    more = len(lengths) - _SHOWN_TREES
    return f"{shown}, and {more} more" if more > 0 else shown


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"{name} is {text!r}; it has to be numbers with commas between them"
        ) from None


def _listed(values: Sequence[float]) -> str:
    return ",".join(f"{value!r}" for value in values)
