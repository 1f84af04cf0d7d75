"""Runs TrieHH a number of times on a population, so that it can be interrupted."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import logging

from federated_hh import trie as trie_lib
from federated_hh import triehh
from privacy import realised
from simulation import run_directory
from simulation.round_metrics import RoundMetrics


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What the repeats of a run gave.

    Attributes:
        repeats: The completed words of each repeat.
        rounds: Which rounds were run, and whom they asked.
    """

    repeats: list[list[trie_lib.Word]]
    rounds: realised.RealisedRounds


def run_repeats(
    process: triehh.TrieHHProcess,
    directory: run_directory.RunDirectory,
    *,
    num_repeats: int,
) -> Outcome:
    """Runs TrieHH, each repeat with cohorts and random words of its own.

    After each round the state goes into the run directory's checkpoint. A directory
    that has one is continued where it stands, with the same result as without the
    interruption.

    Args:
        process: What to run.
        directory: Takes the checkpoints, and a row of metrics a round.
        num_repeats: How often, at least 1.
    """
    done, state, rounds = _restore(process, directory.load_checkpoint())
    while len(done) < num_repeats:
        repeat = len(done)
        if state is None:
            state = process.initialize(stream=repeat)
        cohorts = process.cohorts(stream=repeat)
        while not state.finished:
            cohort = cohorts.cohort(state.round_number)
            output = process.next(state, cohort)
            state = output.state
            rounds.append(realised.Round.of(repeat, state.round_number, cohort))
            metrics = RoundMetrics(
                {"repeat": repeat, **output.metrics.released}, output.metrics.simulator
            )
            directory.add_metrics(
                repeat * process.parameters.max_length + state.round_number, metrics
            )
            logging.info(_progress(num_repeats, metrics))
            if not state.finished:
                directory.save_checkpoint(_checkpoint(done, state, rounds))
        done.append(state.trie.words())
        state = None
        directory.save_checkpoint(_checkpoint(done, None, rounds))
    return Outcome(done, realised.RealisedRounds(tuple(rounds)))


def _checkpoint(
    done: Sequence[Sequence[trie_lib.Word]],
    state: triehh.TrieHHState | None,
    rounds: Sequence[realised.Round],
) -> dict[str, Any]:
    return {
        "done": [[[w.text, w.level, w.votes] for w in words] for words in done],
        "state": None if state is None else state.to_json(),
        "rounds": realised.RealisedRounds(tuple(rounds)).to_json(),
    }


def _restore(
    process: triehh.TrieHHProcess, checkpoint: Any | None
) -> tuple[list[list[trie_lib.Word]], triehh.TrieHHState | None, list[realised.Round]]:
    if checkpoint is None:
        return [], None, []
    if "rounds" not in checkpoint:
        raise ValueError(
            "the run was begun by an older release, which kept no record of its rounds "
            "and drew other cohorts; begin a new run"
        )
    done = [[trie_lib.Word(*word) for word in words] for words in checkpoint["done"]]
    rounds = list(realised.RealisedRounds.from_json(checkpoint["rounds"]).rounds)
    if checkpoint["state"] is None:
        return done, None, rounds
    state = triehh.TrieHHState.from_json(process.alphabet, checkpoint["state"])
    logging.info(
        "Continuing repeat %d after round %d.", len(done) + 1, state.round_number
    )
    return done, state, rounds


def _progress(num_repeats: int, metrics: RoundMetrics) -> str:
    row = metrics.combined()
    return (
        f"repeat {row['repeat'] + 1} of {num_repeats}, round {row['round']}: "
        f"{row['votes_received']:,} votes for {row['candidates_with_votes']:,} of "
        f"{row['candidates']:,} candidates, {row['prefixes_kept']:,} prefixes kept, "
        f"{row['words_completed']:,} words complete ({row['seconds']:.2f} s)"
    )
