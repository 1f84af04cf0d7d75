"""A server as a process: python -m ... INDEX CONNECTION LINK, the latter open files.

It takes steps as they come over the connection, talks with the other server over the
link, and ends with the connection.
"""

import multiprocessing.connection
import signal
import sys

from federated_hh.options import checks
from federated_hh.statistics.two_servers import server

_STEPS = frozenset(["open", "shares", "proofs", "close"])


def serve(index: int, connection, link) -> None:
    """Serves steps until one of the connections ends.

    Args:
        index: The index of the server, 0 or 1.
        connection: Connection that the steps come from.
        link: Connection to the other server.
    """
    one = server.Server(index)
    while True:
        name, arguments = connection.recv()
        checks.one_of(sorted(_STEPS), name=name)
        found = getattr(one, name)(*arguments)
        if not isinstance(found, server.Answer):
            found = _converse(found, index, link)
        connection.send(found)


def _converse(talk: server.Talk, index: int, link) -> server.Answer:
    heard = None
    while True:
        try:
            said = talk.send(heard)  # type: ignore[arg-type]
        except StopIteration as end:
            return end.value
        # Were both to write first, long messages would fill both pipes for ever.
        if index == 0:
            link.send_bytes(said)
        heard = link.recv_bytes()
        if index == 1:
            link.send_bytes(said)


def main(arguments: list[str]) -> None:
    """Serves until the program that started it ends."""
    # Ctrl-C reaches every process of a terminal; this one ends with its connection.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    index, connection, link = map(int, arguments)
    try:
        serve(
            index,
            multiprocessing.connection.Connection(connection),
            multiprocessing.connection.Connection(link),
        )
    except (EOFError, ConnectionError):
        return


if __name__ == "__main__":
    main(sys.argv[1:])
