"""Runs LDP TrieHH a number of times on a population, so that it can be interrupted."""

import dataclasses
import json
import math
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from absl import logging

from federated_hh import ldp_triehh, ldp_triehh_state
from privacy import realised
from randomness import noise_keys, seeds
from simulation import run_directory, software, tables
from simulation.round_metrics import RoundMetrics

_PARTICIPATION_FILE = "participation.csv"

FoundWords = tuple[ldp_triehh_state.FoundWord, ...]


def seed_of_repeat(seed: int, repeat: int) -> int:
    """Returns the seed of one repeat: other cohorts in each."""
    words = seeds.derive(seed, "repeat", repeat).generate_state(1, np.uint64)
    return int(words[0])


def key_of_repeat(noise_key: int, repeat: int) -> int:
    """Returns the key of one repeat: other samplers and reports in each; 128 bits."""
    return noise_keys.derived(noise_key, "repeat", repeat)


@dataclasses.dataclass(frozen=True)
class ParticipationRecord:
    """Who took part in a level, as a digest.

    Attributes:
        repeat: The repeat of the experiment, from 0. No client takes part twice in
            one repeat.
        pass_number: From 1.
        level: From 1.
        clients: How many.
        digest: SHA-256 of their indices (int64, little-endian, ascending).
        software: Hash of the versions of code and packages that asked them.
    """

    repeat: int
    pass_number: int
    level: int
    clients: int
    digest: str
    software: str

    @classmethod
    def of(
        cls, repeat: int, state: ldp_triehh_state.LdpTrieHHState, cohort: np.ndarray
    ) -> "ParticipationRecord":
        """Returns the record of the level that comes next."""
        return cls(
            repeat,
            state.pass_number,
            state.level,
            len(cohort),
            realised.cohort_digest(cohort),
            software.digest(),
        )


def rounds_of(records: Sequence[ParticipationRecord]) -> realised.RealisedRounds:
    """Returns the levels that were run as a privacy statement takes them.

    Args:
        records: Of all levels of all repeats, in order.
    """
    return realised.RealisedRounds.in_order(
        (record.repeat, record.clients, record.digest) for record in records
    )


class ParticipationError(run_directory.RunDirectoryError):
    """The clients that took part are not those that this run would ask."""


@dataclasses.dataclass
class LdpTrieHHExperiment:
    """An experiment of several repeats in a run directory.

    Attributes:
        make_process: Returns the process of a repeat, numbered from 0.
        directory: Takes the checkpoints, a row of metrics a level, and who took part.
        num_repeats: How often, at least 1.
    """

    make_process: Callable[[int], ldp_triehh.LdpTrieHHProcess]
    directory: run_directory.RunDirectory
    num_repeats: int

    def __post_init__(self):
        self._done: list[FoundWords] = []
        self._records: list[ParticipationRecord] = []
        # Of a level that was begun and not finished.
        self._cut_off: ParticipationRecord | None = None

    @property
    def records(self) -> tuple[ParticipationRecord, ...]:
        """Who took part in the levels that were run."""
        return tuple(self._records)

    def run(self) -> list[FoundWords]:
        """Runs all repeats, or what is left of them.

        A level's cohort is written down before its clients are asked, and the state
        after each level is kept. A directory that has a checkpoint is continued where
        it stands, with the same result as without the interruption: a level that was
        cut off is asked of the same clients again, who draw the same reports.

        Returns:
            The words that each repeat found.

        Raises:
            ParticipationError: If the run directory says that other clients took part
                than this run's seed and population give.
        """
        checkpoint = self.directory.load_checkpoint()
        saved_state = self._restore(checkpoint)
        while len(self._done) < self.num_repeats:
            process = self.make_process(len(self._done))
            state = process.initialize()
            if saved_state is not None:
                state = self._restored_state(process, saved_state)
                saved_state = None
            while not state.finished:
                state = self._run_level(process, state)
                if not state.finished:
                    self._save(state)
            self._done.append(state.found)
            self._save(None)
        return self._done

    def _run_level(
        self,
        process: ldp_triehh.LdpTrieHHProcess,
        state: ldp_triehh_state.LdpTrieHHState,
    ) -> ldp_triehh_state.LdpTrieHHState:
        start = time.perf_counter()
        repeat = len(self._done)
        cohort = process.cohorts.cohort(state.levels_done)
        drawn = time.perf_counter()
        self._record(ParticipationRecord.of(repeat, state, cohort))
        output = process.next(state, cohort)
        metrics = RoundMetrics(
            {
                "repeat": repeat,
                **output.metrics.released,
                **noise_of_level(process.parameters, output.metrics.released),
            },
            {"seconds_cohort": drawn - start, **output.metrics.simulator},
        )
        levels = process.parameters.max_depth * process.parameters.num_passes
        self.directory.add_metrics(repeat * levels + output.state.levels_done, metrics)
        logging.info(_progress(self.num_repeats, metrics, process.parameters))
        return output.state

    def _record(self, record: ParticipationRecord) -> None:
        if self._cut_off not in (None, record):
            raise self._other_clients(self._cut_off, record)
        self._cut_off = None
        self._records.append(record)
        table = pd.DataFrame([dataclasses.asdict(r) for r in self._records])
        self.directory.simulator.write_table(_PARTICIPATION_FILE, table)

    def _save(self, state: ldp_triehh_state.LdpTrieHHState | None) -> None:
        self.directory.save_checkpoint(
            {
                "done": [
                    [dataclasses.astuple(word) for word in found]
                    for found in self._done
                ],
                "participation": [dataclasses.astuple(r) for r in self._records],
                # As one text: a number a line would take a second a level to write.
                "state": state and json.dumps(state.to_json()),
            }
        )

    def _restore(self, checkpoint: Mapping[str, Any] | None) -> str | None:
        """Takes over what a checkpoint has; returns the state of the repeat begun."""
        path = self.directory.simulator.path / _PARTICIPATION_FILE
        written = _read_records(path) if path.exists() else []
        saved = checkpoint["participation"] if checkpoint else []
        self._records = [ParticipationRecord(*values) for values in saved]
        extra = written[len(saved) :]
        if written[: len(saved)] != self._records or len(extra) > 1:
            raise ParticipationError(
                f"{path} is not what the checkpoint says of the {len(saved)} levels "
                "done, so who took part is not certain; begin a new run"
            )
        if extra:
            _check_software(path, extra[0])
            self._cut_off = extra[0]
        if checkpoint is None:
            return None
        self._done = [
            tuple(ldp_triehh_state.FoundWord(*word) for word in found)
            for found in checkpoint["done"]
        ]
        return checkpoint["state"]

    def _restored_state(
        self, process: ldp_triehh.LdpTrieHHProcess, saved: str
    ) -> ldp_triehh_state.LdpTrieHHState:
        values = json.loads(saved)
        self._check_records(process, values["levels_done"])
        state = ldp_triehh_state.LdpTrieHHState.from_json(
            process.alphabet,
            values,
            ldp_triehh.participated_after(process.cohorts, values["levels_done"]),
        )
        logging.info(
            "Continuing repeat %d in pass %d, level %d.",
            len(self._done) + 1,
            state.pass_number,
            state.level,
        )
        return state

    def _check_records(
        self, process: ldp_triehh.LdpTrieHHProcess, levels_done: int
    ) -> None:
        """Compares who took part in this repeat with whom the process asked."""
        repeat = len(self._done)
        records = [record for record in self._records if record.repeat == repeat]
        for number, record in zip(range(levels_done), records, strict=True):
            cohort = process.cohorts.cohort(number)
            asked = dataclasses.replace(
                record, clients=len(cohort), digest=realised.cohort_digest(cohort)
            )
            if asked != record:
                raise self._other_clients(record, asked)

    def _other_clients(
        self, recorded: ParticipationRecord, asked: ParticipationRecord
    ) -> ParticipationError:
        return ParticipationError(
            f"{self.directory.simulator.path / _PARTICIPATION_FILE} has {recorded}, "
            f"but this run would ask {asked}: some clients could take part twice. "
            "Begin a new run"
        )


def _check_software(path: pathlib.Path, cut_off: ParticipationRecord) -> None:
    """Makes sure that the clients of a level cut off send what they sent."""
    now = software.digest()
    if cut_off.software != now:
        raise ParticipationError(
            f"{path}: the last level was cut off, and its clients, asked again, have "
            "to send the reports that they sent; but they were asked by other versions "
            f"of this code or its packages (hash {cut_off.software}, now {now}). "
            "Continue with those, or begin a new run with other clients"
        )


def noise_of_level(
    parameters: ldp_triehh.LdpTrieHHParameters, metrics: Mapping[str, int | float]
) -> dict[str, float]:
    """Returns how a level's votes compare with its noise.

    Args:
        parameters: Of the run.
        metrics: Of the level, from `LdpTrieHHProcess.next`.

    Returns:
        noise_standard_deviation: of the estimated count of a prefix that nobody has.
        least_estimate_kept: the estimated count of the weakest prefix kept.
    """
    least = int(metrics["least_votes_kept"])
    randomizer = parameters.randomizer(int(metrics["candidates"]))
    if randomizer is None:
        return {"noise_standard_deviation": 0.0, "least_estimate_kept": float(least)}
    reports = parameters.reports_per_level
    variance = randomizer.variance(np.zeros(1), reports)[0]
    estimate = randomizer.estimate(np.array([least]), reports)[0]
    return {
        "noise_standard_deviation": math.sqrt(variance),
        "least_estimate_kept": float(estimate),
    }


def _read_records(path: pathlib.Path) -> list[ParticipationRecord]:
    names = [field.name for field in dataclasses.fields(ParticipationRecord)]
    try:
        table = tables.read(path)
        if list(table.columns) != names:
            raise ValueError(f"its columns are {list(table.columns)}, not {names}")
        return [ParticipationRecord(*row) for row in table.itertuples(False, None)]
    except ValueError as error:
        raise ParticipationError(
            f"{path} is damaged, so who took part is not certain: {error}. Restore it, "
            "or begin a new run"
        ) from error


def _progress(
    num_repeats: int,
    metrics: RoundMetrics,
    parameters: ldp_triehh.LdpTrieHHParameters,
) -> str:
    row, seconds = metrics.released, sum(metrics.simulator.values())
    repeat = f"repeat {row['repeat'] + 1} of {num_repeats}, " if num_repeats > 1 else ""
    return (
        f"{repeat}pass {row['pass_number']} of {parameters.num_passes}, level "
        f"{row['level']} of {parameters.max_depth}: {row['prefixes_kept']:,} of "
        f"{row['candidates']:,} candidates kept, {row['words_found']:,} words found "
        f"({seconds:.2f} s)"
    )
