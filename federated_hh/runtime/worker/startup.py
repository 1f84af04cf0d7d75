"""Start-up before TensorFlow is imported: its log, threads and arithmetic.

Imports nothing heavy, so that binaries can call it between flag parsing and their
real imports.
"""

import functools
import itertools
import linecache
import logging
import os
import pathlib
import platform
import signal
import sys
import threading
import types

from federated_hh.runtime.worker import engine_options

_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
_THREADS = "TF_NUM_INTRAOP_THREADS"
# Of glibc's allocator.
_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 20),
}
_PROCESSORS = pathlib.Path("/proc/cpuinfo")
# Of x86 and, from "CPU implementer" on, of Arm.
_OF_A_PROCESSOR = (
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "stepping",
    "cache size",
    "flags",
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "Features",
)
_NOT_OURS = frozenset(["tensorflow", "tensorflow_federated"])
_workers_are_isolated = True
_SECONDS_TO_NEXT_INTERRUPT = 0.05


def silence_tensorflow() -> None:
    """Settles TensorFlow's arithmetic, and silences it, TFF and gRPC.

    oneDNN's kernels are used where they are faster. All this holds in the worker, too.

    Importing `federated_hh` has already turned off TensorFlow's messages at start. Call
    this before the first import of TensorFlow. The user's own environment settings are
    kept.
    """
    os.environ.setdefault(_ONEDNN, "1" if onednn_is_faster() else "0")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    logging.getLogger("absl").addFilter(_is_ours)


def show_tensorflow() -> None:
    """Turns on the messages that importing `federated_hh` turned off.

    Has to run before the first import of TensorFlow.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "3":
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"


def _is_ours(record: logging.LogRecord) -> bool:
    """Returns whether a message is not of TensorFlow or TFF, as of a SavedModel."""
    installed = pathlib.Path(record.pathname.rpartition("-packages")[2])
    return _NOT_OURS.isdisjoint(installed.parts)


@functools.cache
def load_generated_code() -> None:
    """Lets AutoGraph load the code that it generates from memory, from now on.

    It would write a file for each piece, and remove it as the interpreter ends, which a
    kill or an interrupt skips.
    """
    from tensorflow.python.autograph.pyct import loader

    numbers = itertools.count()

    def load(source: str, delete_on_exit: bool) -> tuple[types.ModuleType, str]:
        del delete_on_exit
        module = types.ModuleType(f"__autograph_generated_file{next(numbers)}")
        path = module.__file__ = f"{module.__name__}.py"
        # For tracebacks and `inspect`.
        linecache.cache[path] = (len(source), None, source.splitlines(True), path)
        sys.modules[module.__name__] = module
        exec(compile(source, path, "exec"), module.__dict__)
        return module, path

    loader.load_source = load


def use_onednn(wanted: bool | None) -> None:
    """Turns oneDNN's kernels on or off, here and in the worker.

    Has to run before the first import of TensorFlow.

    Args:
        wanted: Whether to use them; None for what is settled already.
    """
    if wanted is not None:
        os.environ[_ONEDNN] = str(int(wanted))


def onednn_is_faster() -> bool:
    """Returns whether this processor is of a kind on which oneDNN's kernels are faster.

    Processors that multiply bfloat16: there training took 0.76 of the time (AMX too)
    and 0.77 to 0.93 (docs/training_cost.md); on an older one 1.0 to 1.25.
    """
    return "avx512_bf16" in processor().split()


def onednn_is_used() -> bool:
    """Returns whether TensorFlow uses oneDNN's kernels, as it does by default."""
    return os.environ.get(_ONEDNN, "1").lower() not in ("0", "false")


def worker_environment() -> dict[str, str]:
    """Returns the environment of TFF's worker.

    Blocks of clients run in parallel, each on a core. Threads within an operation would
    only wait for one another, and add up a product's parts in an order that depends on
    the number of cores. All threads share one glibc arena, so memory freed by one is
    reused by the next instead of being kept per thread (equally fast on two cores). At
    its end 1 MiB of free memory is kept; glibc would keep 64 MiB once an array of 32
    MiB was freed. The user's own settings are kept.
    """
    return {_THREADS: "1"} | _MEMORY | os.environ


def calls_at_once() -> int:
    """Returns the number of client computations that TFF's worker runs in parallel.

    One per core, and two on a single core. Each has its own TensorFlow session with a
    block's memory, and more of them would only wait for a core.
    """
    return max(2, len(os.sched_getaffinity(0)))


def prepare_in_process() -> None:
    """Makes this program's own TensorFlow compute as its worker does.

    Call this before TensorFlow computes for the first time.
    """
    os.environ.setdefault(_THREADS, worker_environment()[_THREADS])


def arithmetic() -> dict[str, bool | str]:
    """Returns the settings that decide the last bits of float sums.

    oneDNN and XLA choose by the processor and their own environment variables.
    """
    threads = worker_environment()[_THREADS]
    found: dict[str, bool | str] = {
        "onednn": onednn_is_used(),
        "threads of an operation": threads,
    }
    chosen = engine_options.chosen().runtime
    if depends_on_processor():
        found["processor"] = processor()
        found |= {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(("ONEDNN_", "DNNL_", "XLA_FLAGS", "TF_XLA_FLAGS"))
        }
    if chosen.runtime is not engine_options.Runtime.WORKER:
        found["runtime"] = chosen.runtime.value
        found["device"] = chosen.device or "TensorFlow's choice"
        found["devices"] = _devices()
        if chosen.xla:
            found["xla"] = True
    return found


def depends_on_processor() -> bool:
    """Returns whether the last bits of float sums depend on the kind of processor."""
    return onednn_is_used() or engine_options.chosen().runtime.xla


def _devices() -> str:
    """Returns the kinds of devices that TensorFlow, imported by now, has here."""
    import tensorflow as tf

    found = []
    for device in tf.config.list_physical_devices():
        details = tf.config.experimental.get_device_details(device)
        found.append(f"{device.device_type} {details.get('device_name', '')}".strip())
    return ", ".join(found)


@functools.cache
def processor() -> str:
    """Returns the processor's model and instruction sets."""
    try:
        lines = _PROCESSORS.read_text().partition("\n\n")[0].splitlines()
    except OSError:  # not Linux
        return f"{platform.machine()} {platform.processor()}"
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    told = {name.strip(): value.strip() for name, value in pairs}
    return "; ".join(told[name] for name in _OF_A_PROCESSOR if name in told)


def keep_interrupts() -> None:
    """Makes a Ctrl-C end the program at any moment.

    Python raises KeyboardInterrupt in the code that it is running. If that is a
    callback of the garbage collector (JAX has one) or a destructor, Python reports the
    exception, drops it, and continues. Here the interrupt is repeated until it ends the
    program. Call this in the main thread.
    """
    report = sys.unraisablehook
    main_thread = threading.get_ident()

    def interrupt_again() -> None:
        signal.pthread_kill(main_thread, signal.SIGINT)

    def hook(unraisable) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            report(unraisable)
            return
        later = threading.Timer(_SECONDS_TO_NEXT_INTERRUPT, interrupt_again)
        later.daemon = True
        later.start()

    sys.unraisablehook = hook


def isolate_workers(wanted: bool) -> None:
    """Sets whether TFF workers started later get their own network.

    They do by default, if the system allows it, because TFF's worker listens on all
    interfaces without authentication.
    """
    global _workers_are_isolated
    _workers_are_isolated = wanted


def workers_are_isolated() -> bool:
    """Returns whether TFF workers should get their own network."""
    return _workers_are_isolated
