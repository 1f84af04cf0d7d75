"""A run's secure sums by the masking protocol, and their metrics and description.

    masking = MaskedSums(SecureSumOptions(secure_sum="masked", dropout_rate=0.05))
    algorithm = triehh.TrieHH(population, plan, alphabet, masking=masking)
    run.run(algorithm, directory, seed=1, observers=[masking.metrics])

A `BlockRound` with one asks each client for its own vector, and passes these to `add`.
The sum lacks the contributions of clients who drop out; the plan counts the whole
cohort.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from absl import logging

from federated_hh.files import memory
from federated_hh.privacy import statement as statement_lib
from federated_hh.randomness import streams
from federated_hh.reports import page
from federated_hh.rounds import client_bytes, run
from federated_hh.runtime.masking import costs, graph, protocol
from federated_hh.runtime.masking.messages import Step
from federated_hh.runtime.worker import engine_options
from federated_hh.runtime.worker.engine_options import SecureSumOptions

# The least share of a cohort that may drop out by default.
_LEAST_TOLERATED = 0.05


@dataclasses.dataclass(frozen=True)
class _Last:
    """The last sum: its graph, its drop-outs and its outcome."""

    graph: graph.Graph
    gone: Mapping[int, Step]
    outcome: protocol.Outcome


class MaskedSums:
    """The masks of a run's sums."""

    def __init__(self, options: SecureSumOptions):
        """Stores the options.

        Args:
            options: Options that ask for masks.

        Raises:
            ValueError: If they are without.
        """
        if not options.is_masked:
            raise ValueError(
                f"secure_sum is {options.secure_sum!r}; it has to be 'masked'"
            )
        self.options = options
        self._last: _Last | None = None

    @classmethod
    def of(cls, options: SecureSumOptions) -> "MaskedSums | None":
        """Returns the masks of sums, or None for sums in the clear."""
        return cls(options) if options.is_masked else None

    def graph(self, num_clients: int) -> graph.Graph:
        """Returns the graph for a cohort.

        Raises:
            ValueError: If no graph withstands the options' drop-outs and collusion.
        """
        options = self.options
        tolerated = options.tolerated_dropout
        if tolerated is None:
            tolerated = max(
                _LEAST_TOLERATED,
                _rarely_more(
                    num_clients, options.dropout_rate, options.correctness_bits
                )
                / num_clients,
            )
        return graph.choose(
            graph.Needs.of_shares(
                num_clients,
                tolerated,
                options.corrupt_share,
                security_bits=options.security_bits,
                correctness_bits=options.correctness_bits,
            )
        )

    def check(self, num_clients: int, size: int, largest: int) -> None:
        """Checks before a run that its sums can be masked.

        Args:
            num_clients: The number of clients of a cohort.
            size: The most numbers of a client's vector.
            largest: The most that one of them is; none is below 0.

        Raises:
            ValueError: If no graph withstands the options' drop-outs and collusion, a
                round would take longer than they allow or more memory than there is, or
                the engine gives no single client's vector.
        """
        _check_engine()
        found = self.graph(num_clients)
        cost = costs.Cost.of(found, size, modulus_bits(num_clients, largest))
        minutes = cost.seconds / 60
        what = (
            f"secure_sum is 'masked': {num_clients:,} clients with "
            f"{found.neighbours:,} neighbours each and vectors of up to {size:,} "
            "numbers would take "
        )
        mend = "take fewer clients or smaller vectors, or secure_sum 'ideal'"
        if minutes > self.options.most_minutes:
            raise ValueError(
                f"{what}about {minutes:,.0f} minutes per round; most_minutes is "
                f"{self.options.most_minutes:g}: raise it, {mend}"
            )
        available = memory.available_bytes()
        if available is not None and cost.num_bytes > available:
            raise ValueError(
                f"{what}about {memory.readable(cost.num_bytes)} of memory, and "
                f"{memory.readable(available)} are available: {mend}"
            )
        logging.info(
            "Secure sums by masks: %s clients with %s neighbours each, any %s of "
            "which can recover its secrets; at most %s may drop out and %s collude "
            "with the server. About %.2g s a round.",
            f"{num_clients:,}",
            f"{found.neighbours:,}",
            f"{found.threshold:,}",
            f"{found.needs.most_gone:,}",
            f"{found.needs.most_corrupt:,}",
            cost.seconds,
        )

    def add(
        self,
        num_clients: int,
        size: int,
        largest: int,
        vectors: protocol.Vectors,
        stream: streams.Stream,
    ) -> protocol.Outcome:
        """Sums the vectors of a cohort's clients, some of whom drop out.

        Args:
            num_clients: The number of clients of the cohort.
            size: Numbers of a vector.
            largest: The most that one of them is; none is below 0.
            vectors: The vectors of positions in the cohort; see `protocol`.
            stream: The stream of the round.

        Raises:
            MaskedSumError: If too many drop out; nothing is released then.
        """
        found = self.graph(num_clients)
        stream = stream.at("masked sum")
        gone = protocol.drop_outs(num_clients, self.options.dropout_rate, stream)
        outcome = protocol.masked_sum(
            found,
            bits=modulus_bits(num_clients, largest),
            size=size,
            vectors=vectors,
            stream=stream,
            gone=gone,
        )
        self._last = _Last(found, gone, outcome)
        return outcome

    def describe(self) -> dict[str, Any]:
        """Returns the facts that sums depend on: none without drop-outs."""
        if not self.options.dropout_rate:
            return {}
        return {"secure_sum": dataclasses.asdict(self.options)}

    def client_bytes(self, asked: int) -> client_bytes.ClientBytes:
        """Returns the bytes of the last sum's messages: means over the whole cohort.

        Args:
            asked: Bytes of the question, which every client downloads.
        """
        assert self._last is not None  # a round was asked
        outcome, clients = self._last.outcome, self._last.graph.needs.num_clients
        down, up = (round(n / clients) for n in (outcome.bytes_down, outcome.bytes_up))
        return client_bytes.ClientBytes(asked + down, up)

    def metrics(self, observed: run.Observed[Any]) -> dict[str, int | float]:
        """Observes the last round's masks and drop-outs; see `run.Observer`."""
        del observed
        assert self._last is not None  # a round was asked
        last = self._last
        steps = [*last.gone.values()]
        return {
            "mask_neighbours": last.graph.neighbours,
            "mask_threshold": last.graph.threshold,
            "mask_security_bits": -last.graph.log2_insecure,
            "mask_correctness_bits": -last.graph.log2_incorrect,
            "clients_summed": len(last.outcome.summed),
            **{f"gone_before_{step.value}": steps.count(step) for step in Step},
        }

    def stated(
        self, statement: statement_lib.PrivacyStatement, num_clients: int
    ) -> statement_lib.PrivacyStatement:
        """Returns a privacy statement that says how sums were masked.

        Args:
            statement: The statement of the plan.
            num_clients: The number of clients of a cohort.
        """
        found = self.graph(num_clients)
        needs = found.needs
        chance = f"but for a probability of 2^{found.log2_insecure:.1f} a round"
        if math.isinf(found.log2_insecure):
            chance = "without exception, as too few collude and drop out for one"
        sentence = (
            f"Sums are masked (docs/masked_sum.md): each of {num_clients:,} clients "
            f"has {found.neighbours:,} neighbours, any {found.threshold:,} of which "
            "can recover its secrets. This hides single contributions from a server "
            f"that follows the protocol, with up to {needs.most_corrupt:,} clients "
            f"that collude with it and up to {needs.most_gone:,} that drop out, "
            f"{chance}. The guarantee does not rest on it. It counts all asked "
            "clients; dropping out must not depend on a device's data."
        )
        setting = statement.setting.replace(
            statement_lib.SUMMED_IN_THE_CLEAR, "here a masking protocol computes it"
        )
        return dataclasses.replace(
            statement,
            setting=setting,
            assumptions=(*statement.assumptions, sentence),
        )


def facts(masking: MaskedSums | None) -> dict[str, Any]:
    """Returns the facts that a resumed run shares with its start."""
    if masking is None:
        return {}
    return {"secure_sum": dataclasses.asdict(masking.options)}


def observers(masking: MaskedSums | None) -> list[run.Observer]:
    """Returns the observers of the masks' metrics; none without masks."""
    return [] if masking is None else [masking.metrics]


def show(report: page.Page, metrics: pd.DataFrame) -> None:
    """Adds a section on a run's masked sums to its report, where it has some.

    Args:
        report: The report of the run.
        metrics: The simulator's, a row a round.
    """
    if "mask_neighbours" not in metrics:
        return
    gone = [f"gone_before_{step.value}" for step in Step]
    last = metrics.iloc[-1]
    section = report.section("Masked sums", covered=False)
    section.text(
        f"Every client had {last['mask_neighbours']:,.0f} neighbours, of whom any "
        f"{last['mask_threshold']:,.0f} open what it shared. In a round, a single "
        "vector could come to light with a probability of at most "
        f"2^-{last['mask_security_bits']:.1f}, and with no more drop-outs than "
        "tolerated the sum fails with one of at most "
        f"2^-{last['mask_correctness_bits']:.1f}."
    )
    columns = ["clients_summed", *gone]
    table = metrics[columns].agg(["min", "mean", "max"]).round(2)
    table.insert(0, "clients", table.index)
    section.show(table, "In the sum, and gone before their message, a round")


def modulus_bits(num_clients: int, largest: int) -> int:
    """Returns k such that no sum of so many numbers reaches 2^k.

    Args:
        num_clients: Number of clients in a sum.
        largest: The most that one is, at least 1.
    """
    return (num_clients * largest).bit_length()


def _check_engine() -> None:
    """Raises `ValueError` if the engine gives only sums of clients."""
    chosen = engine_options.chosen()
    of_worker = chosen.runtime.runtime is engine_options.Runtime.WORKER
    if chosen.engine.engine is engine_options.Engine.EMBEDDED and of_worker:
        return
    raise ValueError(
        f"engine is {chosen.engine.engine.value!r} and runtime "
        f"{chosen.runtime.runtime.value!r}; with secure_sum 'masked' they have to be "
        "'embedded' and 'worker', because masks need each client's own vector and "
        "the others give only sums"
    )


def _rarely_more(num_clients: int, rate: float, bits: int) -> int:
    """Returns a number of drop-outs that is exceeded with probability 2^-bits."""
    if not rate:
        return 0
    from scipy import stats

    # Of the tail, not of its complement to 1, which float64 does not hold.
    counts = np.arange(num_clients + 1)
    tails = stats.binom.logsf(counts, num_clients, rate)
    return int(counts[tails <= -bits * math.log(2)][0])
