"""What a program does before it imports TensorFlow: quiet it, shut the network out.

Imports nothing heavy, so that binaries can call it between flag parsing and their
real imports.
"""

import ctypes
import fcntl
import logging
import os
import socket
import struct
import warnings

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1


def silence_tensorflow() -> None:
    """Turns off TensorFlow's start-up messages, here and in the worker.

    Has to run before the first import of TensorFlow. What the user set in the
    environment stays.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated")


def isolate_network() -> bool:
    """Moves this process into a network of its own that has only a loopback.

    TFF's worker listens on all interfaces and asks nobody who they are. Inside a
    network namespace of our own, "all interfaces" is a loopback that only this
    program and the processes it starts can reach. The program loses its own access
    to the network, which a simulation does not need.

    Has to run while the process has a single thread, so before NumPy is imported.

    Returns:
        Whether it worked. It needs a single thread, and unprivileged user namespaces
        or CAP_SYS_ADMIN.
    """
    if len(os.listdir("/proc/self/task")) > 1:
        return False  # a namespace is a thread's: the others would stay outside
    # Some systems allow a part of it and refuse the rest, and there is no way back
    # from a part. So a child tries it first.
    child = os.fork()
    if child == 0:
        try:
            _enter_own_network()
        except BaseException:
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        return False
    _enter_own_network()
    return True


def _enter_own_network() -> None:
    """Moves this process into a network namespace with a loopback that is up."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    # Root keeps its user namespace: in a new one it would lose its rights over the
    # files of other users.
    flags = _CLONE_NEWNET if user == 0 else _CLONE_NEWUSER | _CLONE_NEWNET
    if libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    if user != 0:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        request = fcntl.ioctl(control, _SIOCGIFFLAGS, request)
        (interface_flags,) = struct.unpack_from("h", request, 16)
        request = struct.pack("16sh14x", b"lo", interface_flags | _IFF_UP)
        fcntl.ioctl(control, _SIOCSIFFLAGS, request)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
