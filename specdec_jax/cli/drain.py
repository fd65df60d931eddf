"""SIGTERM as machines that are taken back send it: finish what runs within a given time, and stop."""

import contextlib
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator

STOPPED = 3
"""Exit status of a job that stopped before its end: the same command goes on with it."""
_GRACE = 5.0
"""Seconds, after those that were given, in which a job ends by itself."""
_AT_ONCE = 1.0
"""Seconds in which it does so after a second signal."""


class Drain:
    """Whether a stop was asked for, and whether the time for it is over."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self._deadline: float | None = None

    def ask(self) -> None:
        """Stop: the time begins to run, unless it does already."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self.seconds

    @property
    def asked(self) -> bool:
        """Whether a stop was asked for."""
        return self._deadline is not None

    @property
    def over(self) -> bool:
        """Whether it was asked for so long ago that it has to be now."""
        return self._deadline is not None and time.monotonic() >= self._deadline


@contextlib.contextmanager
def draining(seconds: float, *, grace: float = _GRACE) -> Iterator[Drain]:
    """The first SIGTERM asks for a stop; a second one ends the command at once, as it would without this.

    What does not end within the seconds and a ``grace``, because it compiles or waits for other hosts, is ended from
    outside with the status `STOPPED`: a job may be killed at any moment, for what counts as done is on disk.
    """
    drain = Drain(seconds)
    if threading.current_thread() is not threading.main_thread():  # only there can it be asked for
        yield drain
        return

    def first(*_) -> None:
        drain.ask()
        signal.signal(signal.SIGTERM, before)

    # Python's own handlers wait for the main thread to come back from what it is in, which may be a long compilation:
    # the number of a signal is written to a pipe at once.
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(told, drain, grace, ended), daemon=True)
    before = signal.signal(signal.SIGTERM, first)
    other = signal.set_wakeup_fd(tell)
    watch.start()
    try:
        yield drain
    finally:
        ended.set()
        signal.set_wakeup_fd(other)
        signal.signal(signal.SIGTERM, before)
        os.write(tell, b"\0")
        watch.join()
        os.close(told)
        os.close(tell)


def _watch(told: int, drain: Drain, grace: float, ended: threading.Event) -> None:
    end, status = math.inf, STOPPED
    while select.select([told], [], [], max(0.0, end - time.monotonic()) if end < math.inf else None)[0]:
        times = os.read(told, 64).count(signal.SIGTERM)
        if ended.is_set():
            return
        if times:
            again = end < math.inf or times > 1
            drain.ask()
            status = 128 + signal.SIGTERM if again else STOPPED
            end = time.monotonic() + (_AT_ONCE if again else drain.seconds + grace)
    with contextlib.suppress(OSError):  # whoever read it may have left
        print("specdec: stopped before the end; the same command goes on from here", file=sys.stderr, flush=True)
    os._exit(status)
