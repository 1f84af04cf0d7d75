"""Tests of a process that moves into a network of its own."""

import os
import socket
import subprocess
import sys
import textwrap

from absl.testing import absltest

from tests import ROOT

_SERVER = """
    import os, socket, sys
    from federated_hh.runtime.worker import network_namespace
    reason = network_namespace.enter()
    if reason:
        print("refused:", reason, flush=True)
        sys.exit()
    server = socket.create_server(("0.0.0.0", int(sys.argv[1])))
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=10).close()
    open(sys.argv[2], "w").close()
    os.remove(sys.argv[2])
    print("listening", flush=True)
    sys.stdin.read()
"""
_THREADED = """
    import threading
    from federated_hh.runtime.worker import network_namespace
    event = threading.Event()
    thread = threading.Thread(target=event.wait)
    thread.start()
    print(network_namespace.enter())
    event.set()
"""
# A system that allows the namespaces and then refuses to set them up.
_REFUSED = """
    import os
    from federated_hh.runtime.worker import network_namespace
    enter = network_namespace._enter
    def enter_half():
        enter()
        raise PermissionError(1, "Operation not permitted", "uid_map")
    network_namespace._enter = enter_half
    before = os.readlink("/proc/self/ns/net")
    print(network_namespace.enter())
    print(os.readlink("/proc/self/ns/net") == before)
"""


def _start(program, *arguments, before=()):
    return subprocess.Popen(
        [*before, sys.executable, "-c", textwrap.dedent(program), *arguments],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class NetworkNamespaceTest(absltest.TestCase):
    def _check_out_of_reach(self, directory, before=()):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        path = os.path.join(directory, f"written_inside_{port}")
        with _start(_SERVER, str(port), path, before=before) as server:
            line = server.stdout.readline()
            if line.startswith("refused"):
                self.skipTest(f"this machine allows no network namespaces: {line}")
            self.assertEqual(line, "listening\n")
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=10)

    def test_server_inside_is_out_of_reach_from_outside(self):
        self._check_out_of_reach(self.create_tempdir().full_path)

    def test_user_without_rights(self):
        if os.geteuid() != 0:
            self.skipTest("the other test is of a user without rights already")
        user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        process = _start(
            "import federated_hh.runtime.worker.network_namespace", before=user
        )
        _, errors = process.communicate()
        if errors:
            self.skipTest(f"another user cannot run this Python here: {errors}")
        self._check_out_of_reach("/dev/shm", user)  # open to all users

    def test_refuses_where_threads_would_stay_outside(self):
        output, errors = _start(_THREADED).communicate()
        self.assertEqual(
            output, "the process has 2 threads, where one is needed\n", errors
        )

    def test_refusal_half_way_leaves_the_process_where_it_was(self):
        output, errors = _start(_REFUSED).communicate()
        reason, where = output.splitlines()
        if "unshare" in reason:
            self.skipTest(f"this machine allows no network namespaces: {reason}")
        self.assertIn("[Errno 1] Operation not permitted: 'uid_map'", reason, errors)
        self.assertEqual(where, "True")

    def test_the_setting_that_forbids_it_is_named(self):
        # A user namespace of our own, in which there may be no network namespaces.
        forbid = "echo 0 > /proc/sys/user/max_net_namespaces && exec "
        inside = ("unshare", "--user", "--map-root-user", "sh", "-c", forbid + '"$@"')
        if subprocess.run(
            [*inside, "sh", "true"], stderr=subprocess.DEVNULL
        ).returncode:
            self.skipTest("this machine allows no user namespaces")
        program = """
            from federated_hh.runtime.worker import network_namespace
            print(network_namespace.enter())
        """
        output, errors = _start(program, before=(*inside, "sh")).communicate()
        self.assertIn("'unshare'; user.max_net_namespaces is 0", output, errors)


if __name__ == "__main__":
    absltest.main()
