"""Signals of batch systems, which end a run after the round in progress.

Slurm, Kubernetes and terminals that close send them some time before they kill.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

from absl import logging

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
# Slurm and Kubernetes kill 30 s after their signal.
GRACE_SECONDS = 20.0
_CONTINUE = "; --resume continues from the last checkpoint"


class _Stop:
    """The signal that has arrived, and the state of the run that it ends.

    Attributes:
        asked: The signal; None before one arrives.
        is_in_rounds: True while a loop of rounds looks at `asked` after each.
        timer: The end of the grace period; None before a signal arrives.
        advice: Returns how the program goes on after its end.
    """

    def __init__(self):
        self.asked: signal.Signals | None = None
        self.is_in_rounds = False
        self.timer: threading.Timer | None = None
        self.advice: Callable[[], str] = lambda: _CONTINUE

    def handle(self, number: int, frame: object) -> None:
        """Asks for the end after this round, or ends at once where there is none."""
        del frame
        is_second, self.asked = self.asked is not None, signal.Signals(number)
        if is_second or not self.is_in_rounds:
            raise KeyboardInterrupt
        logging.info(
            "%s: the run stops after this round, or in %.0f s.",
            self.asked.name,
            GRACE_SECONDS,
        )
        main_thread = threading.get_ident()
        self.timer = threading.Timer(
            GRACE_SECONDS, signal.pthread_kill, (main_thread, signal.SIGINT)
        )
        self.timer.daemon = True
        self.timer.start()


_stop = _Stop()


def catch() -> None:
    """Takes the signals of this process that are not ignored; in the main thread."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop.handle)


def ignore() -> None:
    """Lets no signal spoil the end of a program whose run is complete."""
    for number in (*SIGNALS, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def asked() -> signal.Signals | None:
    """Returns the signal that asks this run to stop; None if there is none."""
    return _stop.asked


def advise(advice: Callable[[], str]) -> None:
    """Sets how this program goes on after an end that it does not see itself.

    Args:
        advice: Returns the end of a line, such as "; resume with: ...".
    """
    _stop.advice = advice


def advice() -> str:
    """Returns how this program goes on after its end."""
    return _stop.advice()


@contextlib.contextmanager
def between_rounds() -> Iterator[None]:
    """Lets a signal wait for `check`, which is called after each round."""
    before, _stop.is_in_rounds = _stop.is_in_rounds, True
    try:
        yield
    finally:
        _stop.is_in_rounds = before
        if _stop.timer is not None:
            _stop.timer.cancel()


def check() -> None:
    """Ends the program between rounds if a signal asks for it.

    Raises:
        KeyboardInterrupt: A signal has arrived.
    """
    if _stop.asked is not None:
        raise KeyboardInterrupt
