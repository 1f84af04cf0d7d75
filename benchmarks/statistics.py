"""Measures a query of interactive statistics, on real devices and in arrays.

    scripts/run benchmarks.statistics
    scripts/run benchmarks.statistics --real_devices=1000000

* Real: each device has its events in SQLite, verifies and budgets the query on its
  own, runs it in a sandbox that holds its rows alone, randomizes, and logs its report;
  the budgets are on disk. Each step apart. More than 100,000 devices come in blocks,
  one after the other, so that their events need not be in memory together.
* Vectorised: the same decisions in arrays, and the sum of the reports drawn at once.

Processor seconds of this process, and of the worker that adds the real reports up.
Memory is the most since the program began.
"""

import contextlib
import dataclasses
import os
import resource
import time
from collections.abc import Iterator
from typing import Any

from absl import app

from benchmarks import harness, resource_usage
from federated_hh.options.fields import option

_SEED = 1
_BLOCK = 100_000
_WORDS = 1000
# (1 + 7) (1 + 3 (2 + 9)) = 272 cells, as in Figure 4 of McMillan et al. 2022.
_TREE = {"root": ["w0", "w1"], "w0": ["w2"], "w1": ["w3", "w4"]}
_AGES = [20, 30, 40, 50, 60, 70, 80]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(harness.Options):
    """Numbers of devices and events."""

    real_devices: tuple[str, ...] = option(
        ("10000", "100000"), "Real devices, at each of which."
    )
    vectorised_devices: int = option(
        1_000_000, "Devices in arrays.", least=1000, most=10**8
    )
    events: int = option(20, "Mean events of a device.", least=1, most=1000)
    results_dir: str = harness.results_dir("benchmark_statistics")


class Clock:
    """Adds up the processor seconds of a query's steps.

    Attributes:
        seconds: Processor seconds by step.
    """

    def __init__(self):
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Times a block of this process."""
        start = time.process_time()
        yield
        self.add(name, time.process_time() - start)

    def add(self, name: str, seconds: float) -> None:
        """Adds processor seconds to a step."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


def make_events(num_devices: int, mean: int, seed: int):
    """Returns n-grams of three words, of which a few are frequent, ages and pauses."""
    import numpy as np

    from federated_hh.statistics.recipes import events

    generator = np.random.default_rng(seed)
    sizes = generator.integers(max(1, mean // 2), mean + mean // 2 + 1, num_devices)
    weights = 1 / np.arange(1, _WORDS + 1)
    grams = generator.choice(
        _WORDS, (int(sizes.sum()), 3), p=weights / weights.sum()
    ).astype(np.int32)
    return events.NGramEvents(
        tuple(f"w{i}" for i in range(_WORDS)),
        grams,
        np.concatenate([[0], np.cumsum(sizes)]),
        generator.integers(10, 90, num_devices),
        generator.lognormal(size=len(grams)).astype(np.float32),
    )


def make_recipe(fields: tuple[str, ...], num_tokens: int):
    """Returns a recipe about n-grams, and about ages where `fields` has them."""
    from federated_hh.statistics.recipes import contents, recipe

    described: dict[str, Any] = {
        "age": {"dataType": "BucketedType", "boundaries": _AGES},
        "ngrams": {
            "dataType": "PrefixTree",
            "tree": _TREE,
            "tokens": [f"w{i}" for i in range(num_tokens)],
        },
    }
    kept = {name: described[name] for name in fields}
    if len(fields) > 1:
        structure = {"dataType": "CombinationType", "structure": [*fields]}
        kept["combinations"] = structure
    return recipe.Recipe(
        identifier="50001",
        version="1",
        analysis="org.example.benchmark",
        query=f"select {', '.join(fields)} from KeyboardNGrams",
        cohorts=(),
        content=contents.Content.of(kept),
        local_units=2_000_000,
        aggregate_units=500_000,
        minimum_cohort=5000,
    )


def make_approval(recipe):
    """Returns the approval of devices that answer a recipe twice."""
    from federated_hh.privacy.local import device_policy
    from federated_hh.privacy.shuffle import amplification as shuffling
    from federated_hh.statistics.devices import device
    from federated_hh.statistics.recipes import events, verification

    limits = device_policy.Limits(aggregate_epsilon=1.0, reports=2, local_epsilon=2.0)
    names = [*recipe.content.types]
    return device.Approval(
        device_policy.Policy(
            analysis=recipe.analysis,
            limits=limits,
            fields=dict.fromkeys(names, limits),
            randomizer=shuffling.Randomizer.ASYMMETRIC_ONE_HOT,
            delta=1e-6,
        ),
        verification.QueryClass(events.STREAM, frozenset(names)),
    )


def measure_real(
    num_devices: int, options: Options, folder: str
) -> list[dict[str, Any]]:
    """Returns each step's cost of a query to real devices."""
    from federated_hh.randomness import streams
    from federated_hh.runtime import runtime
    from federated_hh.statistics.devices import aggregation

    clock = Clock()
    recipe = make_recipe(("age", "ngrams"), 9)
    total = aggregation.SecureSum()
    total.begin(
        recipe.content.num_cells,
        recipe.minimum_cohort,
        streams.Stream(_SEED, ("aggregation",)),
    )
    for first in range(0, num_devices, _BLOCK):
        size = min(_BLOCK, num_devices - first)
        stored = make_events(size, options.events, _SEED + first)
        path = os.path.join(folder, f"spent_{num_devices}_{first}.sqlite")
        _ask_block(stored, recipe, path, total, clock)
    with resource_usage.Usage() as usage, runtime.tff_worker():
        batch = total.close()
    clock.add("sum", usage.cpu_seconds)
    return _rows("real", num_devices, recipe, clock, batch, options)


def _ask_block(stored, recipe, path: str, total, clock: Clock) -> None:
    """Asks the devices of a block, as `fleet.DeviceFleet` does, a step at a time."""
    import numpy as np

    from federated_hh.randomness import streams
    from federated_hh.statistics.devices import budget, device, device_log
    from federated_hh.statistics.recipes import events, store, verification

    approval, now = make_approval(recipe), stored.now
    stream = streams.Stream(_SEED, ("benchmark",))
    numbers = list(range(stored.num_devices))
    with contextlib.ExitStack() as stack:
        with clock.step("donate events"):
            events_store = stack.enter_context(store.EventStore([events.STREAM]))
            events_store.donate(events.STREAM.name, stored.rows())
            events_store.expire(now)
        sandbox = stack.enter_context(verification.Sandbox(approval.query_class))
        accountant = stack.enter_context(budget.Accountant(approval.policy, path))
        log = stack.enter_context(device_log.DeviceLog())
        devices = device.Devices(approval, events_store, sandbox, accountant, log)
        with clock.step("verify and charge"):
            admitted = devices.admitted(numbers, recipe)
        numbers = [
            number for number, answers in zip(numbers, admitted, strict=True) if answers
        ]
        chances = stream.generator("which row").random(len(numbers)).tolist()
        with clock.step("query"):
            cells = [
                devices.true_cell(number, recipe, now, chance)
                for number, chance in zip(numbers, chances, strict=True)
            ]
        randomizer = device.randomizer_of(approval.policy, recipe)
        at_once = 2**14
        for first in range(0, len(numbers), at_once):
            block = slice(first, first + at_once)
            with clock.step("randomize"):
                seed = stream.stateless_seed("reports", first)
                items = np.array(cells[block], np.int32)
                reports = randomizer.randomize(items, seed).numpy()
            with clock.step("log"):
                log.answered(numbers[block], recipe, reports)
            with clock.step("sum"):
                total.add(reports, recipe.minimum_cohort)


def measure_vectorised(num_devices: int, options: Options) -> list[dict[str, Any]]:
    """Returns the cost of a query of 10,000 cells in arrays."""
    import numpy as np

    from federated_hh.randomness import streams
    from federated_hh.statistics.devices import vector_fleet

    clock = Clock()
    # 1 + 3 (2 + 3,331) = 10,000 cells.
    recipe = make_recipe(("ngrams",), 3331)
    stored = make_events(num_devices, options.events, _SEED)
    with clock.step("take the events"):
        devices = vector_fleet.VectorFleet(make_approval(recipe), stored)
    with clock.step("the whole query"):
        batch = devices.ask(
            recipe, np.arange(num_devices), (), streams.Stream(_SEED, ("benchmark",))
        )
    assert batch.counts is not None
    return _rows("vectorised", num_devices, recipe, clock, batch, options)


def _rows(kind: str, number: int, recipe, clock: Clock, batch, options: Options):
    """Returns a row a step, and one of all.

    Raises:
        ValueError: If not all devices answered.
    """
    if batch.reports != number:
        raise ValueError(f"{batch.reports:,} of {number:,} devices answered")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    seconds = {**clock.seconds, "all": sum(clock.seconds.values())}
    return [
        {
            "devices": kind,
            "number": number,
            "cells": recipe.content.num_cells,
            "events_a_device": options.events,
            "step": step,
            "cpu_seconds": value,
            "microseconds_a_device": 1e6 * value / number,
            "peak_gib": peak,
        }
        for step, value in seconds.items()
    ]


def measure(options: Options, run: harness.Run) -> None:
    """Measures real devices, then devices in arrays."""
    import pandas as pd

    start = time.perf_counter()
    rows = []
    for number in map(int, options.real_devices):
        rows += measure_real(number, options, run.scratch)
    rows += measure_vectorised(options.vectorised_devices, options)
    run.about["wall_seconds"] = round(time.perf_counter() - start)
    run.show("cost", pd.DataFrame(rows), digits=4)


CASE = harness.Case(
    Options, measure, "synthetic n-grams of three of 1,000 words, Zipf's law"
)

if __name__ == "__main__":
    app.run(CASE.main, flags_parser=CASE.parse)
