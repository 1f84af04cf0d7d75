"""Becomes TFF's worker, in its own network, and dies with its parent.

    python -I -S worker_launcher.py PARENT STATUS LISTENER PORT COMMAND...

PARENT is the process that the worker dies with. STATUS is a descriptor for the reason
why the worker is not isolated, or nothing if it is. LISTENER is a listening Unix
socket, or -1 for a worker in the existing network. A child of the worker, which dies
with it, forwards connections to the TCP port PORT in the worker's network.

This is a separate program, because code between fork and exec is not safe in a process
with threads, and such a process cannot enter a namespace.
"""

import contextlib
import ctypes
import importlib
import os
import pathlib
import signal
import socket
import sys
import threading

_PR_SET_PDEATHSIG = 1
_BUFFER_BYTES = 1 << 20


def main() -> None:
    """Runs as the module describes; does not return."""
    parent, status, listener, port = map(int, sys.argv[1:5])
    command = sys.argv[5:]
    reason = ""
    if listener >= 0:
        os.set_inheritable(listener, False)
        # Imported from its own folder, because the packages above need more than the
        # standard library.
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
        reason = importlib.import_module("network_namespace").enter() or ""
    # After entering: a change of credentials takes it back.
    _die_with(parent)
    if listener >= 0 and not reason:
        worker = os.getpid()
        if os.fork() == 0:
            _die_with(worker)
            os.close(status)
            _forward(socket.socket(fileno=listener), port)
    os.write(status, reason.encode())
    os.set_inheritable(status, False)
    os.execv(command[0], command)


def _die_with(parent: int) -> None:
    """Asks the kernel to kill this process with its parent; ends if that has gone."""
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL)) != 0:
        os._exit(1)
    if os.getppid() != parent:
        os._exit(1)


def _forward(listener: socket.socket, port: int) -> None:
    """Joins each connection to one to a port of the loopback, for ever."""
    while True:
        outer, _ = listener.accept()
        try:
            inner = socket.create_connection(("127.0.0.1", port))
        except OSError:  # the worker does not listen yet: who called will try again
            outer.close()
            continue
        inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, target in ((outer, inner), (inner, outer)):
            threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Copies data until either end closes."""
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    with contextlib.suppress(OSError):
        while size := source.recv_into(buffer):
            target.sendall(buffer[:size])
    for end, how in ((target, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with contextlib.suppress(OSError):
            end.shutdown(how)


if __name__ == "__main__":
    main()
