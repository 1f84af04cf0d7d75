"""Tests of what a program does before it imports TensorFlow."""

import os
import socket
import subprocess
import sys

from absl.testing import absltest

from simulation import startup

_ISOLATED_SERVER = """
import os, socket, sys
from simulation import startup
if not startup.isolate_network():
    sys.exit(77)
server = socket.create_server(("0.0.0.0", int(sys.argv[1])))
socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=10).close()
open(sys.argv[2], "w").close()
os.remove(sys.argv[2])
print("listening", flush=True)
sys.stdin.read()
"""

_THREADED = """
import threading
from simulation import startup
event = threading.Event()
thread = threading.Thread(target=event.wait)
thread.start()
print(startup.isolate_network())
event.set()
"""

# A system that allows the namespaces and then refuses to set them up.
_REFUSED = """
import os
from simulation import startup
def refuse(path, text): raise PermissionError(path)
enter = startup._enter_own_network
def enter_half(): enter(); refuse("uid_map", "")
startup._enter_own_network = enter_half
before = os.readlink("/proc/self/ns/net")
print(startup.isolate_network(), os.readlink("/proc/self/ns/net") == before)
"""


def _start(program: str, *arguments: str) -> subprocess.Popen:
    root = os.path.dirname(os.path.dirname(startup.__file__))
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": root},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


class IsolateNetworkTest(absltest.TestCase):
    def test_server_inside_is_out_of_reach_from_outside(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        scratch = os.path.join(self.create_tempdir().full_path, "written_inside")
        server = _start(_ISOLATED_SERVER, str(port), scratch)
        with server:
            if server.stdout.readline() != "listening\n":
                if server.wait() == 77:
                    self.skipTest("this machine allows no network namespaces")
                self.fail(f"the server ended with exit code {server.returncode}")
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=10)

    def test_refuses_where_threads_would_stay_outside(self):
        program = _start(_THREADED)
        self.assertEqual(program.communicate()[0].strip(), "False")

    def test_refusal_half_way_leaves_the_process_where_it_was(self):
        program = _start(_REFUSED)
        self.assertEqual(program.communicate()[0].split(), ["False", "True"])


class SilenceTest(absltest.TestCase):
    def test_keeps_what_the_user_set(self):
        before = dict(os.environ)
        try:
            os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
            startup.silence_tensorflow()
            self.assertEqual(os.environ["TF_CPP_MIN_LOG_LEVEL"], "0")
        finally:
            os.environ.clear()
            os.environ.update(before)


if __name__ == "__main__":
    absltest.main()
