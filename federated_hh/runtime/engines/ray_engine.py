"""TFF computations on a Ray cluster: slices of the clients go to actors.

Each actor has its own TFF worker or TensorFlow. The program merges the slices' results,
in their order, with its own TensorFlow. The division into slices depends on the
computation and the number of client values, never on the number of actors.
"""

import collections
import contextlib
import dataclasses
import functools
import logging as python_logging
import math
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import tensorflow_federated as tff
from absl import logging

from federated_hh.runtime.engines import in_process, mergeable, ray_worker, slices
from federated_hh.runtime.engines.slices import EngineError
from federated_hh.runtime.worker import (
    engine_options,
    secure_sums,
    stops,
    worker,
    worker_context,
)

MOST_SLICES = 32
_KEPT = 32
_START_SECONDS = 300.0
_END_SECONDS = 5.0
# Bytes, so that Ray's sockets have paths of at most 107, which the kernel takes.
_MAX_PARENT = 18
_GUARD = str(pathlib.Path(__file__).with_name("ray_guard.py"))
_HOUSE = str(pathlib.Path(__file__).resolve().parents[3])
_SETTINGS = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@contextlib.contextmanager
def computing(max_concurrent_calls: int) -> Iterator[slices.Actors]:
    """Runs TFF computations of the enclosed block on Ray.

    Args:
        max_concurrent_calls: Limit, as in `runtime.computing`.

    Yields:
        The actors that compute.

    Raises:
        EngineError: If Ray is not installed, there is no such cluster, it has too few
            cores, or a worker has other code, packages or data; from the block, if
            slices fail repeatedly.
    """
    options = engine_options.chosen().engine
    if threading.current_thread() is not threading.main_thread():
        raise EngineError("start Ray from the program's main thread")
    with cluster(options) as ray, contextlib.ExitStack() as stack:
        count = options.num_workers or _cores(ray)
        _check_cores(ray, count, options)
        device = engine_options.chosen().runtime.device or ""
        kind = ray.remote(ray_worker.SliceWorker).options(
            num_cpus=1,
            num_gpus=1 if "GPU" in device.upper() else 0,
            max_restarts=-1,
            max_task_retries=0,  # another actor may be free before this one is back
            scheduling_strategy="SPREAD",
        )
        terms = ray_worker.Terms.now(
            max_concurrent_calls,
            min(worker.ANSWER_TIMEOUT_SECONDS, options.slice_timeout),
        )
        handles = [kind.remote() for _ in range(count)]
        stack.callback(_end, ray, handles, options.ray_address is not None)
        actors = slices.Actors(handles, terms, options.slice_timeout)
        actors.begin(_START_SECONDS)
        logging.info("Ray: %d workers.", count)
        context = RayContext(ray, actors)
        with tff.framework.get_context_stack().install(context):
            yield actors


def _end(ray: Any, handles: list[Any], cluster_stays: bool) -> None:
    with contextlib.suppress(ray.exceptions.RayError):
        if cluster_stays:  # otherwise their files go with it
            ended = [actor.end.remote() for actor in handles]
            ray.wait(ended, num_returns=len(ended), timeout=_END_SECONDS)
    for actor in handles:
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(actor)


class RayContext(tff.framework.SyncContext):
    """Computes slices by actors, and the rest in this program."""

    def __init__(self, ray: Any, actors: slices.Actors):
        """Stores actors that have begun."""
        self._ray = ray
        self._actors = actors
        self._here = in_process.Context(None, None)
        self._stack = tff.framework.get_context_stack()
        # By the computation's id, which is kept with it.
        self._forms: collections.OrderedDict[int, _Form] = collections.OrderedDict()
        self._numbers = 0
        self._rounds = 0

    def invoke(self, comp, arg):
        """Computes; see base class."""
        form = self._form(comp)
        if form is None:
            return self._here.invoke(comp, arg)
        arguments = mergeable.arguments_of(comp, arg)
        message: dict[int, Any] = {}
        clients: dict[int, Any] = {}
        for number, kind in enumerate(mergeable.parameters_of(comp)):
            (clients if _of_clients(kind) else message)[number] = arguments[number]
        size = len(next(iter(clients.values())))
        if not size:
            return self._here.invoke(comp, arg)
        self._rounds += 1
        parts = [
            {number: values[first:last] for number, values in clients.items()}
            for first, last in cuts(size, form.order_matters)
        ]
        kept = [form.sent, self._ray.put(message)]
        call = ray_worker.Call(form.number, self._rounds)
        with secure_sums.range_errors(), self._stack.install(self._here):
            found = self._actors.map(call, kept, parts)
            total = functools.reduce(form.merge, found)
            return form.after_merge(arg, total)

    def _form(self, computation: Any) -> "_Form | None":
        """Returns a computation's form; None where it takes no clients' values."""
        parameter = computation.type_signature.parameter
        if parameter is None or not any(
            map(_of_clients, mergeable.parameters_of(computation))
        ):
            return None
        key = id(computation)
        if key not in self._forms:
            while len(self._forms) >= _KEPT:
                self._forms.popitem(last=False)
            try:
                form = mergeable.form_of(computation)
            except ValueError as error:
                raise ValueError(
                    f"a computation cannot be cut into slices ({error}): use "
                    "--engine=embedded"
                ) from error
            work = worker_context.native(form.up_to_merge)
            self._numbers += 1
            self._forms[key] = _Form(
                computation,
                self._numbers,
                self._ray.put(mergeable.to_bytes(work)),
                mergeable.order_matters(form),
                form.merge,
                form.after_merge,
            )
        self._forms.move_to_end(key)
        return self._forms[key]


@dataclasses.dataclass(frozen=True)
class _Form:
    """A computation's mergeable form; its client work is in Ray's object store."""

    computation: Any
    number: int
    sent: Any
    order_matters: bool
    merge: Any
    after_merge: Any


def cuts(size: int, order_matters: bool) -> list[tuple[int, int]]:
    """Returns where clients' values are cut: the first of each slice, and its end.

    Sums of floats are added value by value, as one worker does it.

    Args:
        size: Number of values, at least 1.
        order_matters: Whether a sum depends on how it is cut.
    """
    step = 1 if order_matters else math.ceil(size / MOST_SLICES)
    return [(first, min(first + step, size)) for first in range(0, size, step)]


def _of_clients(kind: tff.FederatedType) -> bool:
    return kind.placement is tff.CLIENTS and not kind.all_equal


@contextlib.contextmanager
def cluster(options: engine_options.EngineOptions) -> Iterator[Any]:
    """Connects to a cluster, or starts one for as long as the block runs."""
    ray = import_ray(is_local=options.ray_address is None)
    if ray.is_initialized():  # by who calls, who also ends it
        yield ray
        return
    quiet = {
        "include_dashboard": False,
        "logging_level": python_logging.ERROR,
        "log_to_driver": False,
        "configure_logging": False,
    }
    with contextlib.ExitStack() as stack:
        folder = None
        if options.ray_address is None:
            directory = worker.SocketDirectory(_MAX_PARENT)
            stack.callback(directory.close)
            folder = directory.path
        stack.enter_context(_guard(folder))
        stack.callback(ray.shutdown)
        # Ray's handlers raise unexpected exceptions, and print.
        private = ray._private
        stack.enter_context(_replaced(private.utils, "set_sigterm_handler"))
        stack.enter_context(_replaced(private.worker, "print_to_stdstream"))
        on_terminate = signal.getsignal(signal.SIGTERM)
        if options.ray_address is not None:
            slices.check_address(options.ray_address)
            del quiet["include_dashboard"]
            try:
                with _quiet_start():
                    ray.init(address=options.ray_address, **quiet)
            except (ConnectionError, RuntimeError, ValueError, OSError) as error:
                raise EngineError(
                    f"--ray_address is {options.ray_address!r}, and no usable cluster "
                    f"is there: {' '.join(str(error).split())}"
                ) from error
        else:
            # Actors find this code, and what they leave goes with the cluster.
            path = os.pathsep.join([_HOUSE, os.environ.get("PYTHONPATH", "")])
            environment = {"PYTHONPATH": path, "TMPDIR": str(folder)}
            stack.enter_context(_environment(environment))
            try:
                with _quiet_start():
                    ray.init(
                        num_cpus=options.num_workers or len(os.sched_getaffinity(0)),
                        _node_ip_address="127.0.0.1",
                        _temp_dir=f"{folder}/ray",
                        **quiet,
                    )
            except Exception as error:  # Ray has no class of its own for a slow start
                reason = " ".join(str(error).split())[:500]
                raise EngineError(
                    f"Ray did not start ({reason}){stops.advice()}"
                ) from error
        signal.signal(signal.SIGTERM, on_terminate)  # Ray's core has taken it
        try:
            yield ray
        except ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())[:500]
            raise EngineError(f"Ray failed ({reason}){stops.advice()}") from error


@contextlib.contextmanager
def _guard(folder: pathlib.Path | None) -> Iterator[None]:
    """Runs a process that clears up after this one; see `ray_guard`."""
    line = (
        "error: the program was killed, or ended by Ray, as where Ray's raylet or head "
        f"is lost or memory runs out{stops.advice()}"
    )
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", _GUARD, str(folder or ""), line],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.communicate(b".")


@contextlib.contextmanager
def _replaced(module: types.ModuleType, name: str) -> Iterator[None]:
    """Makes a function of Ray's do nothing."""
    before = getattr(module, name)
    setattr(module, name, lambda *_, **__: None)
    try:
        yield
    finally:
        setattr(module, name, before)


def import_ray(is_local: bool) -> Any:
    """Returns Ray, which reads its settings once, as it is imported.

    A cluster that is started here asks for a secret token, because Ray listens on all
    interfaces and runs any code that it is sent.
    """
    if "ray" not in sys.modules:
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        if is_local:
            # Ray's helpers wait for it where the program was killed.
            os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "5")
        if is_local and "RAY_AUTH_MODE" not in os.environ:
            os.environ["RAY_AUTH_MODE"] = "token"
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    try:
        import ray
    except ImportError:
        raise EngineError(
            "--engine=ray needs the package ray, which is not installed. In a checkout "
            "install it with ./scripts/test --version, elsewhere with "
            "pip install ray==2.52.1"
        ) from None
    return ray


@contextlib.contextmanager
def _quiet_start() -> Iterator[None]:
    """Removes the C++ core's start-up line about its log level from stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _cores(ray: Any) -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 0)))


def _check_cores(ray: Any, count: int, options: engine_options.EngineOptions) -> None:
    there = int(ray.cluster_resources().get("CPU", 0))
    if count > there:
        raise EngineError(
            f"--num_workers is {count}; it has to be at most {there}, the number of "
            f"cores of the cluster {options.ray_address or 'on this machine'}"
        )
