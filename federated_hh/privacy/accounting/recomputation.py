"""Recomputes a statement's guarantees from its own parameters.

A file can be edited. What a statement guarantees follows from its parameters, which
runs record as flags too: both are checked before anything is composed. A family of
theorems is known by a parameter that its statements have. Of training the participation
of clients is not in the statement: its zCDP has to be one that some participation has.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from federated_hh.privacy import drawn_noise, rounding
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.dp_ftrl import update_noise
from federated_hh.privacy.guarantee import Adjacency, Guarantee
from federated_hh.privacy.local import device_reports_statement, sketch_plan
from federated_hh.privacy.local import plan as local_plan
from federated_hh.privacy.sets import plan as sets_plan
from federated_hh.privacy.statement import PrivacyStatement
from federated_hh.privacy.triehh import statement as triehh_statement

_TOLERANCE = 1e-6  # relative: of other versions of packages, and of printed numbers
_SMALLEST = 1e-9  # of an epsilon
# Flags that decide a parameter, where a run has them.
_FLAGS = {
    "aggregate epsilon of the analysis": "epsilon",
    "aggregation": "aggregation",
    "cohort_size (N)": "cohort_size",
    "cohorts": "cohorts",
    "composition": "composition",
    "contribution_bound (B)": "contribution_bound",
    "delta": "delta",
    "delta asked for": "delta",
    "first clip norm": "clip_norm",
    "local epsilon of the analysis": "local_epsilon",
    "max_depth (D)": "max_depth",
    "max_length (L)": "max_length",
    "max_prefixes (eta_max)": "max_prefixes",
    "mechanism": "mechanism",
    "most words of a client": "contribution_bound",
    "noise multiplier z": "noise_multiplier",
    "num_passes": "num_passes",
    "num_repeats": "num_repeats",
    "passes": "num_passes",
    "repeats": "num_repeats",
    "report goal m": "cohort_size",
    "cohort_size (m)": "cohort_size",
    "threshold (theta)": "threshold",
    "runs": "num_repeats",
    "sampler": "sampler",
}
_CLIENTS = "population_size (n)"
# Where all clients of a population count, and are made by flags.
_COUNTED = {"population": "synthetic", "empty_clients": "keep"}


def check(stated: PrivacyStatement, flags: Sequence[str], *, is_whole: bool) -> bool:
    """Checks a statement against its own parameters, and those against a run's flags.

    Args:
        stated: The statement.
        flags: The flags of the run that it is of, as `--name=value`.
        is_whole: True if exactly its parameters' guarantees are required.
            Those of earlier versions may be fewer, and larger.

    Returns:
        Whether it could be checked: a theorem of somebody else's has parameters that
        are not known here.

    Raises:
        ValueError: It says something else than its parameters; the message says what.
    """
    _check_flags(stated.parameters, flags)
    if not stated.guarantees:
        return True
    for name, recomputed in _FAMILIES.items():
        if name not in stated.parameters:
            continue
        try:
            expected = recomputed(stated)
        except KeyError as error:
            if not is_whole:
                return False
            raise ValueError(f"parameter {error} is missing") from None
        except (ArithmeticError, AttributeError, IndexError, TypeError) as error:
            raise ValueError(f"a parameter has another type: {error}") from None
        if expected is not None:
            _compare(stated.guarantees, expected, is_whole)
        return True
    return False


def _check_flags(parameters: Mapping[str, Any], flags: Sequence[str]) -> None:
    pairs = (flag.removeprefix("--").partition("=") for flag in flags)
    given = {name: value for name, _, value in pairs if value}
    if ":" in given.get("mechanism", ""):  # noise of somebody's own
        given = {}
    decided = dict(_FLAGS)
    if _COUNTED.items() <= given.items():
        decided[_CLIENTS] = "num_clients"
    for name, flag in decided.items():
        if name not in parameters or flag not in given:
            continue
        text = given[flag]
        clients = parameters.get(_CLIENTS)
        if flag == "delta" and isinstance(clients, int):
            text = str(rounding.delta_of(text, max(1, clients)))
        try:
            same = math.isclose(float(text), float(parameters[name]))
        except ValueError:
            same = text == parameters[name]
        if not same:
            raise ValueError(
                f"parameter {name!r} is {parameters[name]!r}, but the run had "
                f"--{flag}={given[flag]}"
            )


def _compare(
    stated: Iterable[Guarantee], expected: Iterable[Guarantee], is_whole: bool
) -> None:
    if not is_whole:
        # Only proved guarantees are ever composed.
        for each in (each for each in stated if each.is_upper_bound):
            if not any(_implies(found, each) for found in expected):
                raise ValueError(f"{_told(each)} does not follow from its parameters")
        return
    left = list(expected)
    for each in stated:
        same = [found for found in left if _is_same(found, each)]
        if not same:
            raise ValueError(f"{_told(each)} does not follow from its parameters")
        left.remove(same[0])
    if left:
        raise ValueError(f"{_told(left[0])}, which follows from them, is missing")


def _is_same(one: Guarantee, other: Guarantee) -> bool:
    """Returns whether all is the same but texts, and numbers that are near."""
    alike = dataclasses.replace(
        one,
        epsilon=other.epsilon,
        delta=other.delta,
        bound=other.bound,
        assumptions=other.assumptions,
    )
    return (
        alike == other
        and _is_close(one.epsilon, other.epsilon, _SMALLEST)
        and _is_close(one.delta, other.delta)
    )


def _is_close(one: float, other: float, smallest: float = 0.0) -> bool:
    return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=smallest)


def _implies(known: Guarantee, claimed: Guarantee) -> bool:
    """Returns whether a known guarantee implies the claimed one."""
    return (
        known.is_upper_bound
        and known.adjacency is claimed.adjacency
        and (claimed.of_one_repeat or not known.of_one_repeat)
        and (claimed.one_sided or not known.one_sided)
        and claimed.voting in (None, known.voting)
        and (claimed.rho, claimed.noise_rounds)
        in ((None, None), (known.rho, known.noise_rounds))
        and known.epsilon <= claimed.epsilon * (1 + _TOLERANCE) + _SMALLEST
        and known.delta <= claimed.delta * (1 + _TOLERANCE)
    )


def _told(each: Guarantee) -> str:
    side = "one-sided " if each.one_sided else ""
    scope = ", of one repeat" if each.of_one_repeat else ""
    proved = "" if each.is_upper_bound else ", not proved"
    return (
        f"the {side}guarantee of epsilon {each.epsilon:.6g} at delta {each.delta:.4g} "
        f"for {each.adjacency.value}{scope}{proved}"
    )


def _training(stated: PrivacyStatement) -> None:
    """Checks a training run's zCDP and the guarantees that follow from it.

    Raises:
        ValueError: A guarantee has no rho, or one that no participation has, or another
            epsilon than that of its rho.
    """
    found: dict[str, Any] = dict(stated.parameters)
    rounds, repeats = found["rounds"], found.get("repeats", 1)
    num_rounds = stated.realised.rounds if stated.realised else rounds * repeats
    if not 1 <= rounds <= num_rounds <= rounds * repeats:
        raise ValueError(
            f"parameter 'rounds' is {rounds}; {num_rounds} rounds in {repeats} "
            "repeats ran"
        )
    least, most = _range_of_rho(found, num_rounds, is_planned=stated.realised is None)
    counts = collections.Counter(each.adjacency for each in stated.guarantees)
    if counts[Adjacency.ZERO_OUT] != 1 or max(counts.values()) > 1:
        raise ValueError("the guarantees are not one of each adjacency, zero_out first")
    zero_out = next(
        each.rho or 0.0
        for each in stated.guarantees
        if each.adjacency is Adjacency.ZERO_OUT
    )
    for each in stated.guarantees:
        if each.rho is None or each.noise_rounds != num_rounds or each.of_one_repeat:
            raise ValueError(
                f"{_told(each)} is not that of noise in all {num_rounds} rounds"
            )
        drawn = drawn_noise.zcdp_to_epsilon(each.rho, each.delta, num_rounds)
        if (
            not _is_close(drawn.epsilon, each.epsilon)
            or drawn.is_proved != each.is_upper_bound
        ):
            raise ValueError(
                f"{_told(each)} is not that of its rho, {each.rho:g}, which makes "
                f"epsilon {drawn.epsilon:g}"
            )
        low, high = least, most
        if each.adjacency is not Adjacency.ZERO_OUT:
            low, high = (zero_out * factor for factor in _factors(found, each))
        if not low * (1 - _TOLERANCE) <= each.rho <= high * (1 + _TOLERANCE):
            raise ValueError(
                f"{_told(each)} has a rho of {each.rho:g}; with these parameters it is "
                f"from {low:g} to {high:g}"
            )


def _factors(found: Mapping[str, Any], each: Guarantee) -> tuple[float, float]:
    """Returns the range of a rho over that of zero-out (docs/integer_noise.md)."""
    if each.adjacency is Adjacency.REPLACE_CLIENT:
        return 4.0, 4.0
    stddev = found.get("noise on clipped counts sigma_b", math.inf)
    first = found["noise multiplier z"]
    last = found.get("noise multiplier of the last round", first)
    factor = 1 + 0.75 * (max(first, last) / stddev) ** 2
    # Of multipliers that change, one in between may be the largest.
    return factor, factor if first == last else max(4.0, factor)


def _range_of_rho(
    found: Mapping[str, Any], num_rounds: int, is_planned: bool
) -> tuple[float, float]:
    """Returns the least and the largest zCDP that participations can have.

    In a repeat somebody takes part MaxP times with MinS rounds between, and in each
    other one somebody once. Several participations together cost at least the sum of
    their separate costs, as no entry of C'C is negative.
    """
    rounds, repeats = found["rounds"], found.get("repeats", 1)
    limits = plan_lib.Limits(found["MaxP"], found["MinS (rounds strictly between)"])
    factor = found.get("factor of rho, (C_inflated / C)^2", 1.0)
    noise = _noise(found)
    if noise is not None and num_rounds == rounds * repeats:
        largest = repeats * noise.zcdp(limits, rounds)
        if is_planned:
            return factor * largest, factor * largest
        nobody = np.zeros(1, np.int64)
        costs = [
            noise.observed_zcdp(nobody, np.array([number]), rounds)
            for number in range(rounds)
        ]
    else:
        # A column of C has a norm of at least 1.
        is_known = found["mechanism"] in ("dp_ftrl", "dp_fedavg", "blt", "banded")
        z = max(
            found["noise multiplier z"],
            found.get("noise multiplier of the last round", 0.0),
        )
        costs, largest = [1 / (2 * z**2) if is_known else 0.0] * rounds, math.inf
    least = _smallest_sum(costs, limits) + (repeats - 1) * min(costs)
    return factor * least, factor * largest


def _noise(found: Mapping[str, Any]) -> update_noise.AddedNoise | None:
    """Returns the noise of a statement's parameters, where they say all of it."""
    rounds = found["rounds"]
    common = {
        "num_rounds": rounds,
        "clip_norm": 1.0,
        "noise_multiplier": found["noise multiplier z"],
    }
    if found["mechanism"] == update_noise.TreeNoise.name:
        names = found["restart rounds"].replace("none", "")
        restarts = [int(name) for name in names.split(", ") if name]
        return update_noise.TreeNoise(
            restart_rounds=tuple(r for r in restarts if r < rounds - 1), **common
        )
    is_constant = "noise multiplier of the last round" not in found
    if found["mechanism"] == update_noise.GaussianNoise.name and is_constant:
        return update_noise.GaussianNoise(**common)
    return None


def _smallest_sum(costs: Sequence[float], limits: plan_lib.Limits) -> float:
    """Returns the least cost of MaxP participations that MinS allows."""
    best = [0.0] * (len(costs) + 1)  # Of the rounds before.
    for _ in range(limits.max_participation):
        after = [math.inf]
        for number, cost in enumerate(costs):
            earlier = best[max(0, number - limits.min_separation)]
            after.append(min(after[-1], cost + earlier))
        best = after
    if math.isinf(best[-1]):
        raise ValueError(
            "the run has too few rounds for MaxP participations with MinS between them"
        )
    return best[-1]


# By a parameter that a family's statements have: its guarantees, or None where the
# function has checked them itself.
_FAMILIES: Mapping[str, Callable[[PrivacyStatement], tuple[Guarantee, ...] | None]] = {
    "threshold (theta)": triehh_statement.recomputed,
    "thresholds in 2^-20": sets_plan.recomputed,
    "contribution_bound (B)": local_plan.recomputed,
    "sketch": sketch_plan.recomputed,
    "delta of a query": device_reports_statement.recomputed,
    "report goal m": _training,
}
