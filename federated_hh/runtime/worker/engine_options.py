"""Options of runtime, engine and secure sum, and the program's choice.

Imports nothing heavy, so that programs can have flags of it.
"""

import dataclasses
import enum
import os

from federated_hh.options.fields import OptionError, check, option


class Runtime(enum.Enum):
    """A runtime: executes computations."""

    WORKER = "worker"
    IN_PROCESS = "in_process"


class Engine(enum.Enum):
    """An engine: hands computations to machines."""

    EMBEDDED = "embedded"
    RAY = "ray"


@dataclasses.dataclass(frozen=True)
class RuntimeOptions:
    """Options of the runtime; the last bits of float sums depend on them."""

    runtime: Runtime = option(
        Runtime.WORKER,
        "Runtime of client work: TFF's worker, a separate process on CPUs, or "
        "in_process, this program's TensorFlow, on any device that it reaches. Counts "
        "are the same on both; sums of floats differ in their last bits.",
    )
    device: str | None = option(
        None,
        "With --runtime=in_process, the device that computes, such as /GPU:0. By "
        "default TensorFlow chooses.",
    )
    xla: bool = option(
        False,
        "With --runtime=in_process, compile client work with XLA, for a GPU, a TPU or "
        "this processor. Counts are the same.",
    )

    def __post_init__(self):
        check(self)
        if self.device is not None and self.runtime is not Runtime.IN_PROCESS:
            raise ValueError(
                f"--device is {self.device!r}; leave it out with --runtime=worker, "
                "which computes on the processor"
            )
        if self.xla and self.runtime is not Runtime.IN_PROCESS:
            raise ValueError(
                "--xla is for --runtime=in_process, as TFF's worker cannot compile; "
                "add that, or leave --xla out"
            )


# More only wait for each other.
_MOST_WORKERS_A_CORE = 4


@dataclasses.dataclass(frozen=True)
class EngineOptions:
    """Choice of machines for client work; no result depends on it."""

    engine: Engine = option(
        Engine.EMBEDDED,
        "Engine that distributes client work: embedded, one worker on this machine, "
        "or ray, a Ray cluster. Results have the same bits.",
    )
    ray_address: str | None = option(
        None,
        "With --engine=ray, the cluster to use, as host:port, or auto for the one of "
        "this machine. By default Ray is started on this machine, for this run alone.",
    )
    num_workers: int | None = option(
        None,
        "With --engine=ray, how many workers, each of which takes a core. By default "
        "as many as the cluster has cores.",
        least=1,
        most=100_000,
    )
    slice_timeout: float = option(
        1800.0,
        "With --engine=ray, how long a worker may take for one of the at most 32 "
        "slices of a round before it is ended and the slice given to another.",
        above=0,
        most=1e6,
        unit="seconds",
    )

    def __post_init__(self):
        check(self)
        for name in ("ray_address", "num_workers"):
            value = getattr(self, name)
            if value is not None and self.engine is not Engine.RAY:
                raise ValueError(
                    f"--{name} is {value!r}; leave it out, or give --engine=ray"
                )
        most = _MOST_WORKERS_A_CORE * len(os.sched_getaffinity(0))
        if self.ray_address is None and (self.num_workers or 0) > most:
            raise ValueError(
                f"--num_workers is {self.num_workers}; it has to be at most {most} on "
                "this machine, because each worker needs its own memory. "
                "--ray_address names a cluster of more machines"
            )


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A program's choice.

    Attributes:
        runtime: Options of the runtime.
        engine: Options of the machines.
    """

    runtime: RuntimeOptions = RuntimeOptions()
    engine: EngineOptions = EngineOptions()


_chosen = Chosen()


def choose(
    runtime: RuntimeOptions = RuntimeOptions(), engine: EngineOptions = EngineOptions()
) -> None:
    """Sets the engine and runtime of later runs."""
    global _chosen
    _chosen = Chosen(runtime, engine)


def chosen() -> Chosen:
    """Returns the chosen engine and runtime; by default one worker on this machine."""
    return _chosen


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecureSumOptions:
    """The sum of clients' contributions.

    Raises:
        OptionError: If an option is not allowed, or options do not go together.
    """

    secure_sum: str = option(
        "ideal",
        "ideal: the simulation computes the sum that a secure sum would give. masked: "
        "by the messages of a masking protocol between each client and the server, "
        "which docs/masked_sum.md describes.",
        choices=("ideal", "masked"),
    )
    dropout_rate: float = option(
        0.0,
        "With --secure_sum=masked: the probability that a client of the cohort is gone "
        "in the middle of a round's sum.",
        least=0,
        below=1,
    )
    tolerated_dropout: float | None = option(
        None,
        "With --secure_sum=masked: the share of a cohort that may be gone in a round; "
        "with more its sum fails. Unset: 0.05, or what --dropout_rate exceeds once in "
        "2^correctness_bits rounds, if that is more.",
        least=0,
        below=1,
    )
    corrupt_share: float = option(
        0.05,
        "With --secure_sum=masked: the share of a cohort that may collude with the "
        "server.",
        least=0,
        below=1,
    )
    security_bits: int = option(
        40,
        "With --secure_sum=masked: one of the others' vectors may come to light with a "
        "probability of 2^-security_bits a round. Few clients are all each other's "
        "neighbours, and then it cannot.",
        least=1,
        most=128,
        why="keys have 128 bits",
    )
    correctness_bits: int = option(
        20,
        "With --secure_sum=masked: with the tolerated drop-out, a sum fails with a "
        "probability of 2^-correctness_bits at most.",
        least=1,
        most=128,
    )
    most_minutes: float = option(
        30.0,
        "With --secure_sum=masked: a run is refused whose masks are estimated to take "
        "longer a round.",
        above=0,
        most=7 * 24 * 60,
        unit="minutes",
    )

    def __post_init__(self):
        check(self)
        if self.secure_sum == "masked":
            return
        for field in dataclasses.fields(SecureSumOptions):
            value = getattr(self, field.name)
            if field.name != "secure_sum" and value != field.default:
                named = f"{{{field.name}=}}"
                raise OptionError(
                    self, f"{named} is for {{secure_sum}}=masked; leave it out"
                )

    @property
    def is_masked(self) -> bool:
        """Whether sums are masked."""
        return self.secure_sum == "masked"
