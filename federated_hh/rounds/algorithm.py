"""The interface of an algorithm in rounds, for users to implement.

    class Histogram(Algorithm[State, np.ndarray]):
        plan: who is asked, for what, and what of it is released
        describe: everything that a sum depends on
        initialize: the state before the first round
        next_query: what the next round asks, or None
        update: the next state, from what the plan's mechanism released

`federated_hh.rounds.run` has the rest: streams, records, checkpoints, metrics, repeats,
resuming, statement and report.
"""

import abc
import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd

from federated_hh.privacy import plan as plan_lib
from federated_hh.randomness import streams
from federated_hh.rounds.client_bytes import ClientBytes

S = TypeVar("S")
T = TypeVar("T")
# Metrics that a log's line of a round does without.
_NOT_TOLD = {"repeat", "round", "seconds", "download_bytes", "upload_bytes"}


@dataclasses.dataclass(frozen=True)
class Query(Generic[T]):
    """The query of a round.

    Attributes:
        ask: Returns the sum over a cohort: of the clients (int64, ascending) and the
            round's random stream. Usually a `BlockRound` with its message.
        facts: Facts of the round for the accounting, recorded before
            anybody is asked.
        client_bytes: Returns the bytes of one client, after `ask`; None where they are
            not known.
    """

    ask: Callable[[np.ndarray, streams.Stream], T]
    facts: Mapping[str, float | int | str] = dataclasses.field(default_factory=dict)
    client_bytes: Callable[[], ClientBytes] | None = None


class Algorithm(abc.ABC, Generic[S, T]):
    """An algorithm in rounds; see this module's docstring.

    States are frozen dataclasses of plain values, arrays and further dataclasses; the
    engine saves and loads them.

    Attributes:
        plan: Its plan, on which privacy depends.
        max_rounds: Largest number of rounds per repeat, for the remaining time; None if
            unknown.
    """

    plan: plan_lib.Plan[Any, Any, Any]
    max_rounds: int | None = None

    @abc.abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Returns the facts that a sum depends on, besides the plan, as JSON."""

    @abc.abstractmethod
    def initialize(self, repeat: int) -> S:
        """Returns the state before the first round of a repeat, from 0."""

    @abc.abstractmethod
    def next_query(self, state: S) -> Query[T] | None:
        """Returns the next round's query; None where the repeat is finished."""

    @abc.abstractmethod
    def update(self, state: S, released: Any) -> tuple[S, Mapping[str, float | int]]:
        """Returns the next state, and metrics computed from the release.

        Args:
            state: The state before the round.
            released: The mechanism's output.
        """

    def results(self, state: S) -> Mapping[str, pd.DataFrame]:
        """Returns the released results of a finished repeat, as tables by name.

        Page and summary show a table with a column `estimate` by it, largest first.
        """
        del state
        return {}

    def progress(self, row: Mapping[str, float | int]) -> str:
        """Returns a round's line in the log, from all its metrics."""
        return ", ".join(
            f"{name.replace('_', ' ')} {value:,.6g}"
            for name, value in row.items()
            if name not in _NOT_TOLD
        )

    def worker(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the context for queries: by default the chosen one."""
        from federated_hh.runtime import runtime  # TensorFlow takes seconds to import

        return runtime.computing()


def returned(value: T, kind: type | tuple[type, ...], by: Any, function: str) -> T:
    """Returns what a function of an algorithm returned.

    Args:
        value: The returned value.
        kind: Type or types that it may have.
        by: The algorithm, or its class.
        function: Name of the function, for the error.

    Raises:
        ValueError: If the value has another type.
    """
    if isinstance(value, kind):
        return value
    of = by if isinstance(by, type) else type(by)
    kinds = kind if isinstance(kind, tuple) else (kind,)
    raise ValueError(
        f"{of.__module__}:{of.__qualname__}.{function} returned a "
        f"{type(value).__name__}; it has to return "
        f"{' or '.join('None' if k is type(None) else k.__name__ for k in kinds)}"
    )
