"""Runs TrieHH a number of times on a population, so that it can be interrupted."""

import time
from collections.abc import Sequence
from typing import Any

from absl import logging

from federated_hh import trie as trie_lib
from federated_hh import triehh
from simulation import participation, run_directory
from simulation.round_metrics import RoundMetrics

_EXACT = ("votes_received", "candidates_with_votes")


def run_repeats(
    process: triehh.TrieHHProcess,
    directory: run_directory.RunDirectory,
    *,
    num_repeats: int,
    seed: int,
) -> list[list[trie_lib.Word]]:
    """Runs TrieHH, each repeat with cohorts and random words of its own.

    After each round the state goes into the run directory's checkpoint. A directory
    that has one is continued where it stands, with the same result as without the
    interruption.

    Args:
        process: What to run.
        directory: Takes the checkpoints, and a row of metrics a round.
        num_repeats: How often, at least 1.
        seed: The run's seed.

    Returns:
        The completed words of each repeat.
    """
    done, state = _restore(process, directory.load_checkpoint())
    while len(done) < num_repeats:
        repeat = len(done)
        if state is None:
            state = process.initialize(stream=repeat)
        cohorts = participation.UniformCohorts(
            process.population.num_clients,
            process.parameters.cohort_size,
            seed,
            stream=repeat,
        )
        while not state.finished:
            start = time.perf_counter()
            output = process.next(state, cohorts.cohort(state.round_number))
            state = output.state
            seconds = time.perf_counter() - start
            exact = {k: v for k, v in output.metrics.items() if k in _EXACT}
            released = {k: v for k, v in output.metrics.items() if k not in _EXACT}
            metrics = RoundMetrics(
                {"repeat": repeat, **released}, {**exact, "seconds": seconds}
            )
            directory.add_metrics(
                repeat * process.parameters.max_length + state.round_number, metrics
            )
            logging.info(_progress(num_repeats, metrics))
            if not state.finished:
                directory.save_checkpoint(
                    {"done": _to_json(done), "state": state.to_json()}
                )
        done.append(state.trie.words())
        state = None
        directory.save_checkpoint({"done": _to_json(done), "state": None})
    return done


def _restore(
    process: triehh.TrieHHProcess, checkpoint: Any | None
) -> tuple[list[list[trie_lib.Word]], triehh.TrieHHState | None]:
    if checkpoint is None:
        return [], None
    done = [[trie_lib.Word(*word) for word in words] for words in checkpoint["done"]]
    if checkpoint["state"] is None:
        return done, None
    state = triehh.TrieHHState.from_json(process.alphabet, checkpoint["state"])
    logging.info(
        "Continuing repeat %d after round %d.", len(done) + 1, state.round_number
    )
    return done, state


def _to_json(done: Sequence[Sequence[trie_lib.Word]]) -> list[list[list[Any]]]:
    return [[[w.text, w.level, w.votes] for w in words] for words in done]


def _progress(num_repeats: int, metrics: RoundMetrics) -> str:
    row = {**metrics.released, **metrics.simulator}
    return (
        f"repeat {row['repeat'] + 1} of {num_repeats}, round {row['round']}: "
        f"{row['votes_received']:,} votes for {row['candidates_with_votes']:,} of "
        f"{row['candidates']:,} candidates, {row['prefixes_kept']:,} prefixes kept, "
        f"{row['words_completed']:,} words complete ({row['seconds']:.2f} s)"
    )
