"""The work of a Ray actor: slices of rounds, in its own runtime.

Imports nothing heavy: an actor configures TensorFlow before it imports it.
"""

import dataclasses
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from federated_hh.runtime.worker import engine_options, startup

# The program's settings that an actor's worker inherits.
_SETTINGS = (
    "GRPC_VERBOSITY",
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "TF_CPP_MIN_LOG_LEVEL",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_NUM_INTRAOP_THREADS",
)
_EXIT_CODE = 1


@dataclasses.dataclass(frozen=True)
class Terms:
    """Settings that an actor shares with its program.

    Attributes:
        code: A digest of the code.
        packages: Versions, by name.
        files: The files of each directory of columns, the size and SHA-256 of each
            file.
        settings: Environment settings on which TensorFlow's arithmetic depends.
        processor: Kind of processor, where that arithmetic depends on it; else empty.
        runtime: Runtime that executes slices.
        max_concurrent_calls: Limit, as in `runtime.computing`.
        answer_timeout: Seconds after which a TFF worker that is silent is ended.
        is_isolated: Whether a TFF worker gets its own network.
    """

    code: str
    packages: Mapping[str, str]
    files: Mapping[str, Mapping[str, Mapping[str, Any]]]
    settings: Mapping[str, str]
    processor: str
    runtime: engine_options.RuntimeOptions
    max_concurrent_calls: int
    answer_timeout: float
    is_isolated: bool

    @classmethod
    def now(cls, max_concurrent_calls: int, answer_timeout: float) -> "Terms":
        """Returns the terms of this program, with the columns that it has opened."""
        from federated_hh.files import verified_files

        environment = startup.worker_environment()
        return cls(
            code=_code(),
            packages=_packages(),
            files=verified_files.columns_in_use(),
            settings={k: environment[k] for k in _SETTINGS if k in environment},
            processor=startup.processor() if startup.depends_on_processor() else "",
            runtime=engine_options.chosen().runtime,
            max_concurrent_calls=max_concurrent_calls,
            answer_timeout=answer_timeout,
            is_isolated=startup.workers_are_isolated(),
        )


class SliceWorker:
    """Computes slices of rounds; Ray makes an actor of it.

    A TFF worker that dies takes the actor with it, so that Ray starts both again.
    """

    def __init__(self) -> None:
        """Waits for `begin`."""
        self._context: Any = None
        self._worker: Any = None
        self._computations: dict[int, Any] = {}
        self._round: tuple[int, Any] = (-1, None)

    def begin(self, terms: Terms) -> str:
        """Starts the runtime, unless it runs.

        Args:
            terms: Terms that have to be the same here.

        Returns:
            Why this actor cannot work for the program; empty where it can.
        """
        if self._context is not None:
            return ""
        os.environ.update(terms.settings)
        startup.isolate_workers(terms.is_isolated)
        host = socket.gethostname()
        try:
            _check(terms)
            self._start(terms)
        except (ValueError, RuntimeError, OSError) as error:
            return f"{host}: {' '.join(str(error).split())}"
        return ""

    def end(self) -> None:
        """Ends the runtime and removes its files."""
        if self._worker is not None:
            self._worker.close()

    def process_ids(self) -> tuple[int, int | None]:
        """Returns the ids of the actor's process, and of its TFF worker's if any."""
        return os.getpid(), self._worker and self._worker.process.pid

    def compute(
        self, call: "Call", kept: Sequence[Any], clients: Mapping[int, list[Any]]
    ) -> Any:
        """Returns the sums of a slice.

        Args:
            call: Call to compute.
            kept: References to the computation, and to the round's message.
            clients: The slice's values, by the parameter's number.

        Raises:
            ValueError: If a contribution to a secure sum left its range.
            RuntimeError: If the computation fails.
        """
        import ray

        from federated_hh.runtime.engines import mergeable
        from federated_hh.runtime.worker.secure_sums import SecureSumError
        from federated_hh.runtime.worker.worker import WorkerError

        if call.computation not in self._computations:
            found = mergeable.from_bytes(ray.get(kept[0]))
            self._computations[call.computation] = found
        if self._round[0] != call.round:
            self._round = call.round, ray.get(kept[1])
        computation = self._computations[call.computation]
        argument = mergeable.argument_of(computation, {**self._round[1], **clients})
        try:
            return self._context.invoke(computation, argument)
        except WorkerError:
            os._exit(_EXIT_CODE)  # Ray starts the actor again, and with it a worker
        except SecureSumError:
            raise
        except Exception as error:  # TensorFlow's do not all survive pickling
            text = " ".join(str(error).split())
            raise RuntimeError(f"{socket.gethostname()}: {text}") from None

    def _start(self, terms: Terms) -> None:
        engine_options.choose(terms.runtime)
        if terms.runtime.runtime is engine_options.Runtime.IN_PROCESS:
            from federated_hh.runtime.engines import in_process

            threads = terms.max_concurrent_calls
            self._context = in_process.Context(
                terms.runtime.device,
                None if threads < 0 else threads,
                is_compiled=True,
            )
            return
        from federated_hh.runtime.worker import worker, worker_context

        self._worker = worker.Worker(terms.max_concurrent_calls, terms.answer_timeout)
        self._context = worker_context.WorkerContext(
            self._worker, None, is_compiled=True
        )


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a computation in a round.

    Attributes:
        computation: Its number.
        round: The round of the call; each round has its own message.
    """

    computation: int
    round: int


def _code() -> str:
    from federated_hh.files import software

    return software.sources_digest()


def _packages() -> dict[str, str]:
    import importlib.metadata

    from federated_hh.files import software

    return {
        "Python": platform.python_version(),
        "ray": importlib.metadata.version("ray"),
        **software.package_versions(),
    }


def _check(terms: Terms) -> None:
    """Raises `ValueError` where this machine has other code, packages or data."""
    from federated_hh.files import verified_files

    here = _packages()
    for name, version in terms.packages.items():
        if here.get(name) != version:
            raise ValueError(
                f"{name} is {here.get(name)}; it has to be {version}, as on the "
                "program's machine; install the same environment"
            )
    if _code() != terms.code:
        raise ValueError(
            f"this project's code has the digest {_code()}; it has to be "
            f"{terms.code}, as on the program's machine; install the same version"
        )
    if terms.processor and terms.processor != startup.processor():
        raise ValueError(
            f"the processor is {startup.processor()}; it has to be {terms.processor}, "
            "as on the program's machine, because oneDNN and XLA compute by it; use "
            "machines of one kind, or --noonednn without --xla"
        )
    for directory, files in terms.files.items():
        verified_files.verify(
            directory,
            {
                name: verified_files.WrittenFile.from_json(dict(file))
                for name, file in files.items()
            },
            {},
            "copy the directory from where the program runs",
        )
