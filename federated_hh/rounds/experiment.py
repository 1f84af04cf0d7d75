"""A whole experiment by one call, for programs and notebooks alike.

done = experiment.run_experiment(algorithm, "runs/first", seed=1)
print(done.statement.to_markdown(), done.metrics)
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import pandas as pd

from federated_hh.files import freed_memory
from federated_hh.privacy import statement as statement_lib
from federated_hh.randomness import noise_keys
from federated_hh.reports import page
from federated_hh.rounds import run, steps
from federated_hh.rounds.algorithm import Algorithm, returned
from federated_hh.run_directory import directory as run_directory

S = TypeVar("S")


@dataclasses.dataclass(frozen=True)
class Experiment(Generic[S]):
    """The outcome of an experiment.

    Attributes:
        path: The run directory.
        outcome: The last states, and the record of cohorts.
        statement: The privacy statement, from the record.
        metrics: One row per round: the simulator's view.
        summary: The page's summary, for `print`; None for a report without one.
    """

    path: str
    outcome: run.Outcome[S]
    statement: statement_lib.PrivacyStatement
    metrics: pd.DataFrame
    summary: page.Summary | None


Tables = Mapping[str, pd.DataFrame]
Report = Callable[
    [
        run_directory.RunDirectory,
        run.Outcome[Any],
        statement_lib.PrivacyStatement,
    ],
    page.Summary | None,
]


def run_experiment(
    algorithm: Algorithm[S, Any],
    output_dir: str,
    *,
    program: str | None = None,
    flags: Sequence[str] = (),
    facts: Mapping[str, Any] | None = None,
    resume: bool = False,
    seed: int = 1,
    noise_key: noise_keys.NoiseKey | None = None,
    repeats: int = 1,
    delta: float = 1e-10,
    save_every: int = 1,
    keep: int = 1,
    observers: Sequence[run.Observer] = (),
    report: Report | None = None,
) -> Experiment[S]:
    """Runs an algorithm and leaves a complete run directory.

    Args:
        algorithm: The algorithm.
        output_dir: The run directory; new or empty, unless `resume`.
        program: The program's name in `run.json`; by default the algorithm's class.
        flags: The program's flags, as `--name=value`, to be shown and repeated.
        facts: Further facts that a resumed run shares with its start.
        resume: Whether to continue the interrupted run there.
        seed: The public seed.
        noise_key: Key of the noise; None for a new secret one, or, with `resume`, the
            run's own.
        repeats: Number of repeats.
        delta: The delta of the guarantees, in (0, 1).
        save_every: See `federated_hh.rounds.run.run`.
        keep: See `federated_hh.rounds.run.run`.
        observers: See `federated_hh.rounds.run.run`.
        report: Writes results, statement and `report.html` into the directory, and
            returns what `Page.write` does; None for a page of the algorithm's
            `results`, all metrics and the statement.

    Raises:
        RunDirectoryError: If `output_dir` cannot be used, is damaged or of another
            run.
        ValueError: See `federated_hh.rounds.run.run`.
    """
    kind = type(algorithm)
    program = program or f"{kind.__module__}:{kind.__qualname__}"
    freed_memory.forget()
    # A run without a statement is refused before any client is asked.
    algorithm.plan.statement(None, delta, repeats=repeats)
    # Compared on resume, also in a run without flags.
    compared = steps.facts_of(algorithm) | {
        "seed": seed,
        "repeats": repeats,
        "delta": delta,
    }
    compared |= facts or {}
    with run_directory.begin_or_resume(
        output_dir,
        resume=resume,
        program=program,
        flags=flags,
        facts=compared,
        noise_key=noise_key,
    ) as directory:
        outcome = run.run(
            algorithm,
            directory,
            seed=seed,
            repeats=repeats,
            delta=delta,
            save_every=save_every,
            keep=keep,
            observers=observers,
        )
        statement = algorithm.plan.statement(outcome.record, delta)
        write = report or functools.partial(write_default, algorithm)
        summary = write(directory, outcome, statement)
        directory.complete()
        metrics = directory.metrics()
    return Experiment(str(directory.path), outcome, statement, metrics, summary)


def write_default(
    algorithm: Algorithm[S, Any],
    directory: run_directory.RunDirectory,
    outcome: run.Outcome[S],
    statement: statement_lib.PrivacyStatement,
    score: Callable[[Mapping[str, Sequence[pd.DataFrame]]], Tables] | None = None,
    kept: Callable[[Tables], Tables] = dict,
    remark: str = "",
) -> page.Summary:
    """Writes the results and the page of an algorithm that has none of its own.

    Args:
        algorithm: The algorithm.
        directory: The run's directory.
        outcome: The outcome of the run.
        statement: Its privacy statement.
        score: Given the results of each repeat, by name, returns tables by name that
            the guarantee does not cover; None for none.
        kept: Given a repeat's results, returns the part that is released.
        remark: A further line of the summary.
    """
    # Most algorithms have their own page.
    from federated_hh.reports import default_page

    tables: dict[str, list[pd.DataFrame]] = {}
    of_repeats: dict[str, list[pd.DataFrame]] = {}
    for repeat, state in enumerate(outcome.states):
        results = returned(algorithm.results(state), Mapping, algorithm, "results")
        for name, table in results.items():
            returned(table, pd.DataFrame, algorithm, f"results[{name!r}]")
        for name, table in kept(results).items():
            table = default_page.by_estimate(table)
            of_repeats.setdefault(name, []).append(table)
            if len(outcome.states) > 1:
                table = table.copy()
                table.insert(0, "repeat", repeat)
            tables.setdefault(name, []).append(table)
    return default_page.write(
        directory,
        type(algorithm).__name__,
        released={name: pd.concat(parts) for name, parts in tables.items()},
        simulator=score(of_repeats) if score else {},
        released_metrics=directory.released_metrics(),
        simulator_metrics=directory.metrics(),
        statement=statement,
        sampler=algorithm.plan.sampler,
        remark=remark,
    )
