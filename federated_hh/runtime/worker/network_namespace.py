"""Moves a process into its own network, which has only a loopback.

For Linux; imports only the standard library, so a process can do this before it has a
second thread.
"""

import ctypes
import fcntl
import os
import pathlib
import socket
import struct

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_SYSCTL = pathlib.Path("/proc/sys")
# Settings that forbid user namespaces, and the value that does so.
_FORBIDDING = (
    ("user/max_user_namespaces", "0"),
    ("user/max_net_namespaces", "0"),
    ("kernel/unprivileged_userns_clone", "0"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1"),
)


def enter() -> str | None:
    """Moves this process, which must have a single thread.

    Returns:
        None on success, or the reason why not; the process is then unchanged.

    Raises:
        OSError: If it succeeded in a trial and then failed.
    """
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:  # a namespace is a thread's: the others would stay outside
        return f"the process has {threads} threads, where one is needed"
    # Some systems allow only some of the steps, which cannot be undone. So a child
    # tries all of them first.
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _enter()
        except BaseException as error:
            os.write(write, str(error).encode()[:1000])
            os._exit(1)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        reason = pipe.read().decode(errors="replace")
    status = os.waitpid(child, 0)[1]
    if status != 0:
        return (reason or f"a trial ended with status {status}") + _hint()
    _enter()
    return None


def _enter() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    # Root keeps its user namespace: in a new one it would lose its rights over the
    # files of other users.
    flags = _CLONE_NEWNET if user == 0 else _CLONE_NEWUSER | _CLONE_NEWNET
    if libc.unshare(flags) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), "unshare")
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


def _hint() -> str:
    """Returns which setting of the system forbids it, where one does."""
    for name, forbidding in _FORBIDDING:
        try:
            if (_SYSCTL / name).read_text().strip() == forbidding:
                return f"; {name.replace('/', '.')} is {forbidding}"
        except OSError:
            continue
    if os.geteuid() == 0:
        return "; root needs the capability CAP_SYS_ADMIN for it"
    return ""
