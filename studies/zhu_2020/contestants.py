"""The algorithms that Zhu et al. 2020 compare, and further lines beside them."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from federated_hh.heavy_hitters import contributions, selection
from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh import parameters as ldp_triehh_parameters
from federated_hh.heavy_hitters.sfp import algorithm as sfp
from federated_hh.heavy_hitters.sfp import options as sfp_options
from federated_hh.heavy_hitters.triehh import algorithm as triehh
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.privacy.shuffle import closed_forms
from federated_hh.privacy.triehh import guarantees as triehh_privacy
from federated_hh.privacy.triehh import solver as triehh_solver
from federated_hh.privacy.triehh import theorem1 as triehh_theorem1
from studies import comparison

# L of the paper: TrieHH's symbols with the end symbol, SFP's characters.
_LENGTH = 10
# Words as long as TrieHH's.
_LDP_DEPTH = _LENGTH - 1
_LDP_PREFIXES = 500
# T of the paper, and the most words of a decode.
THRESHOLDS = (20, 80)
_MOST_WORDS = 10_000_000


def _triehh(task: comparison.Task, parameters) -> triehh.TrieHH:
    plan = triehh.plan_of(
        parameters, task.word_selection, population_has_empty_users=False
    )
    return triehh.TrieHH(task.clients, plan, task.alphabet)


def _paper_triehh(task: comparison.Task) -> triehh.TrieHH:
    return _triehh(
        task,
        triehh_theorem1.solve_parameters(
            population_size=task.clients.num_clients,
            max_length=_LENGTH,
            epsilon=task.epsilon,
            delta=task.delta,
        ),
    )


def _tight_triehh(task: comparison.Task) -> triehh.TrieHH:
    return _triehh(
        task,
        triehh_solver.solve_parameters(
            population_size=task.clients.num_clients,
            max_length=_LENGTH,
            epsilon=task.epsilon,
            delta=task.delta,
        ),
    )


def _worst_case(algorithm: triehh.TrieHH, holders: np.ndarray) -> np.ndarray:
    """Proposition 1; nothing is known where clients draw words again."""
    if algorithm.word_selection is selection.WordSelection.BY_FREQUENCY:
        return np.full(len(holders), np.nan)
    return np.asarray(
        triehh_privacy.worst_case_discovery_rate(holders, algorithm.parameters)
    )


def paper_budget(task: comparison.Task) -> float:
    """Returns the local epsilon of SFP as in the paper: Balle et al., Theorem 5.3."""
    return closed_forms.hoeffding_blanket_local_epsilon(
        task.epsilon, task.delta, task.clients.num_clients
    )


def clones_budget(task: comparison.Task) -> float:
    """Returns the local epsilon that the clones bound allows."""
    return _clones(task, task.clients.num_clients)


def _clones(task: comparison.Task, reports: int) -> float:
    return shuffling.largest_local_epsilon(
        shuffling.Randomizer.ARBITRARY,
        epsilon=task.epsilon,
        delta=task.delta,
        num_reports=reports,
    )


def _sfp(task: comparison.Task, epsilon: float) -> sfp.SequenceFragmentPuzzle:
    options = sfp_options.SfpOptions(
        epsilon=epsilon,
        threshold=max(THRESHOLDS),
        max_length=_LENGTH,
        max_words=_MOST_WORDS,
    )
    return sfp.SequenceFragmentPuzzle(task.clients, options, task.alphabet)


def _sfp_words(
    algorithm: sfp.SequenceFragmentPuzzle, state: sfp.SfpState
) -> Mapping[str, Sequence[str]]:
    """Returns the server's findings with each T: the first fragments are the same."""
    assert state.fragments is not None
    return {f"T = {t}": algorithm.stitch(state.fragments.first(t)) for t in THRESHOLDS}


def _ldp_triehh(task: comparison.Task) -> ldp_triehh.LdpTrieHH:
    """One report a client, so that a word's privacy is the client's."""
    level = task.clients.num_clients // _LDP_DEPTH
    parameters = ldp_triehh_parameters.LdpTrieHHParameters(
        cohort_size=level,
        max_depth=_LDP_DEPTH,
        max_prefixes=_LDP_PREFIXES,
        contribution_bound=1,
        epsilon=_clones(task, level),
        sampler=contributions.ItemSampler.GREEDY
        if task.word_selection is selection.WordSelection.MOST_FREQUENT
        else contributions.ItemSampler.RANDOM,
    )
    return ldp_triehh.LdpTrieHH(task.clients, parameters, task.alphabet)


TRIEHH = comparison.Contestant("TrieHH", _paper_triehh, worst_case=_worst_case)
TIGHT_TRIEHH = dataclasses.replace(
    TRIEHH, name="TrieHH, tighter guarantee", make=_tight_triehh
)
SFP = comparison.Contestant(
    "SFP", lambda task: _sfp(task, paper_budget(task)), words=_sfp_words
)
TIGHT_SFP = dataclasses.replace(
    SFP,
    name="SFP, tighter bound",
    make=lambda task: _sfp(task, clones_budget(task)),
)
LDP_TRIEHH = comparison.Contestant("LDP TrieHH", _ldp_triehh)
ALL = (TRIEHH, TIGHT_TRIEHH, SFP, TIGHT_SFP, LDP_TRIEHH)
