"""SIGTERM as machines that are taken back send it: finish what runs within a given time, and stop."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator


class Drain:
    """Whether a stop was asked for, and whether the time for it is over."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._deadline: float | None = None

    def ask(self) -> None:
        """Stop: the time begins to run."""
        self._deadline = time.monotonic() + self._seconds

    @property
    def asked(self) -> bool:
        """Whether a stop was asked for."""
        return self._deadline is not None

    @property
    def over(self) -> bool:
        """Whether it was asked for so long ago that it has to be now."""
        return self._deadline is not None and time.monotonic() >= self._deadline


@contextlib.contextmanager
def draining(seconds: float) -> Iterator[Drain]:
    """The first SIGTERM asks for a stop; a second one ends the command at once, as it would without this."""
    drain = Drain(seconds)
    if threading.current_thread() is not threading.main_thread():  # only there can it be asked for
        yield drain
        return

    def first(*_) -> None:
        drain.ask()
        signal.signal(signal.SIGTERM, before)

    before = signal.signal(signal.SIGTERM, first)
    try:
        yield drain
    finally:
        signal.signal(signal.SIGTERM, before)
