"""The finders of the comparison: each made for a population and an epsilon.

Finders are grouped by whom a client has to trust, as numbers of two groups cannot be
compared: a client that trusts an aggregator is protected from others only.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pandas as pd

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import contributions, selection
from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh import parameters as ldp_triehh_parameters
from federated_hh.heavy_hitters.opt_prefix_tree import algorithm as opt_prefix_tree
from federated_hh.heavy_hitters.opt_prefix_tree import options as tree_options
from federated_hh.heavy_hitters.set_union import algorithm as set_union
from federated_hh.heavy_hitters.set_union import options as set_union_options
from federated_hh.heavy_hitters.sfp import algorithm as sfp
from federated_hh.heavy_hitters.sfp import options as sfp_options
from federated_hh.heavy_hitters.triehh import algorithm as triehh
from federated_hh.populations.columns import client_words
from federated_hh.privacy import guarantee as guarantee_lib
from federated_hh.privacy.local import plan as local_reports_plan
from federated_hh.privacy.sets import plan as sets_plan
from federated_hh.privacy.shuffle import amplification
from federated_hh.privacy.triehh import solver
from federated_hh.rounds import algorithm as algorithm_lib
from federated_hh.rounds import client_bytes, samplers

AGGREGATOR = "a trusted aggregator"
SERVER = "a server that keeps its cohorts and clients' votes secret"
SUMS = "secure sums of reports"
NOBODY = "nobody"
# By the guarantee that a row states.
CENTRAL, LOCAL = (1.0, 4.0), (4.0, 10.0)
EPSILONS = {AGGREGATOR: CENTRAL, SERVER: CENTRAL, SUMS: CENTRAL, NOBODY: LOCAL}

_DEPTH = 10
_WORDS_SENT = 100


@dataclasses.dataclass(frozen=True)
class Task:
    """A population, and the settings that its size allows.

    Attributes:
        clients: The clients; those without a word are among them.
        alphabet: The alphabet of their words.
        delta: Delta of all central guarantees.
        contribution_bound: Most words that a client reports on in LDP TrieHH.
        max_prefixes: Prefixes that a level of LDP TrieHH keeps.
        max_candidates: Candidates of a round of OptPrefixTree; among more, the few
            reports of a small population find nothing.
    """

    clients: client_words.ClientWords
    alphabet: alphabet_lib.Alphabet
    delta: float
    contribution_bound: int
    max_prefixes: int
    max_candidates: int

    def local_epsilon(self, epsilon: float, num_reports: int) -> float:
        """Returns the local epsilon of reports whose sum has a central one."""
        return amplification.largest_local_epsilon(
            amplification.Randomizer.ARBITRARY,
            epsilon=epsilon,
            delta=self.delta,
            num_reports=num_reports,
        )


Algorithm = algorithm_lib.Algorithm[Any, Any]


@dataclasses.dataclass(frozen=True)
class Finder:
    """An algorithm that finds words.

    Attributes:
        name: Name in tables and plots.
        trust: Whom a client has to trust; a key of `EPSILONS`.
        make: Given a task and epsilon, returns the algorithm. Raises `ValueError` where
            it could find nothing.
    """

    name: str
    trust: str
    make: Callable[[Task, float], Algorithm]

    def stated(self, made: Algorithm, delta: float) -> guarantee_lib.Guarantee:
        """Returns the guarantee of one run that a row states.

        Args:
            made: The algorithm.
            delta: Delta of the central guarantees.
        """
        guarantees = made.plan.statement(None, delta).guarantees
        if self.trust == NOBODY:
            return next(
                guarantee
                for guarantee in guarantees
                if guarantee.unit is guarantee_lib.Unit.ITEM
                and guarantee_lib.EACH_REPORT in guarantee.assumptions
            )
        return guarantees[0]

    def upload_bytes(self, made: Algorithm, metrics: pd.DataFrame) -> int:
        """Returns the bytes that a client sends in the largest round.

        Args:
            made: The algorithm.
            metrics: Its metrics.
        """
        if self.trust == NOBODY and local_reports_plan.CANDIDATES in metrics:
            # No party adds up the reports before the server.
            return max(
                client_bytes.of_single_reports(made.plan.contribution, int(candidates))
                for candidates in metrics[local_reports_plan.CANDIDATES]
            )
        return int(metrics["upload_bytes"].max())


def _set_union(**options: Any) -> Callable[[Task, float], Algorithm]:
    def make(task: Task, epsilon: float) -> Algorithm:
        number = task.clients.num_clients
        given = set_union_options.SetUnionOptions(
            epsilon=epsilon,
            delta=repr(task.delta),
            contribution_bound=_WORDS_SENT,
            **options,
        )
        plan = sets_plan.plan_of(samplers.Everybody(number), given.passes_for(number))
        return set_union.SetUnion(task.clients, plan)

    return make


def _triehh(task: Task, epsilon: float) -> Algorithm:
    parameters = solver.solve_parameters(
        population_size=task.clients.num_clients,
        max_length=_DEPTH + 1,
        epsilon=epsilon,
        delta=task.delta,
    )
    plan = triehh.plan_of(parameters, selection.WordSelection.BY_FREQUENCY)
    return triehh.TrieHH(task.clients, plan, task.alphabet)


def _ldp_triehh(
    sampler: contributions.ItemSampler, num_passes: int, *, is_central: bool = False
) -> Callable[[Task, float], Algorithm]:
    def make(task: Task, epsilon: float) -> Algorithm:
        cohort = task.clients.num_clients // (_DEPTH * num_passes)
        parameters = ldp_triehh_parameters.LdpTrieHHParameters(
            cohort_size=cohort,
            max_depth=_DEPTH,
            max_prefixes=task.max_prefixes,
            # One report makes an item's privacy the client's.
            contribution_bound=1 if is_central else task.contribution_bound,
            epsilon=task.local_epsilon(epsilon, cohort) if is_central else epsilon,
            sampler=sampler,
            num_passes=num_passes,
        )
        return ldp_triehh.LdpTrieHH(task.clients, parameters, task.alphabet)

    return make


def _tree(*, is_central: bool) -> Callable[[Task, float], Algorithm]:
    def make(task: Task, epsilon: float) -> Algorithm:
        given = tree_options.OptPrefixTreeOptions(
            max_depth=_DEPTH, max_candidates=task.max_candidates
        )
        if is_central:
            cohort = task.clients.num_clients // given.num_rounds
            epsilon = task.local_epsilon(epsilon, cohort)
        return opt_prefix_tree.OptPrefixTree(
            task.clients,
            dataclasses.replace(given, epsilon=epsilon),
            task.alphabet,
            population_has_empty_users=True,
        )

    return make


def _sfp(*, is_central: bool) -> Callable[[Task, float], Algorithm]:
    def make(task: Task, epsilon: float) -> Algorithm:
        if is_central:
            epsilon = task.local_epsilon(epsilon, task.clients.num_clients)
        # T and the size of a decode as in the study of Zhu et al. 2020.
        options = sfp_options.SfpOptions(
            epsilon=epsilon, max_length=_DEPTH, threshold=80, max_words=10_000_000
        )
        return sfp.SequenceFragmentPuzzle(task.clients, options, task.alphabet)

    return make


_GREEDY, _RANDOM = contributions.ItemSampler.GREEDY, contributions.ItemSampler.RANDOM
FINDERS = (
    Finder("set union", AGGREGATOR, _set_union()),
    Finder("set union, two passes", AGGREGATOR, _set_union(num_passes=2)),
    Finder(
        "set union, two adaptive passes",
        AGGREGATOR,
        _set_union(num_passes=2, weights="adaptive"),
    ),
    Finder("TrieHH", SERVER, _triehh),
    Finder("LDP TrieHH, greedy", SUMS, _ldp_triehh(_GREEDY, 1, is_central=True)),
    Finder("LDP TrieHH, random", SUMS, _ldp_triehh(_RANDOM, 1, is_central=True)),
    Finder("OptPrefixTree", SUMS, _tree(is_central=True)),
    Finder("SFP", SUMS, _sfp(is_central=True)),
    *(
        Finder(
            f"LDP TrieHH, {sampler.value}{', two passes' * (passes - 1)}",
            NOBODY,
            _ldp_triehh(sampler, passes),
        )
        for passes in (1, 2)
        for sampler in (_GREEDY, _RANDOM)
    ),
    Finder("OptPrefixTree", NOBODY, _tree(is_central=False)),
    Finder("SFP", NOBODY, _sfp(is_central=False)),
)


def holders_for(found: Any, holders: Any, rate: float = 0.9, window: int = 50) -> float:
    """Estimates how many clients have to hold a word that is found so surely.

    Args:
        found: bool [words]: whether a run found each word.
        holders: int64 [words]: clients that hold it.
        rate: Wanted share of found words, in (0, 1].
        window: Words with about as many holders of which the share is taken.

    Returns:
        Going from the most frequent words to rarer ones, the median of the last window
        before the first of which less than `rate` was found; nan where that is the
        first, or there are fewer words.
    """
    import numpy as np

    order = np.argsort(-np.asarray(holders), kind="stable")
    hits = np.concatenate([[0], np.cumsum(np.asarray(found)[order])])
    shares = (hits[window:] - hits[:-window]) / window
    if not len(shares) or shares[0] < rate:
        return math.nan
    fails = np.flatnonzero(shares < rate)
    last = (fails[0] if len(fails) else len(shares)) - 1
    return float(np.median(np.asarray(holders)[order][last : last + window]))
