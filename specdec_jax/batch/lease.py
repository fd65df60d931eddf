"""One writer at a time for a share of a job's results in a store of objects, where no file can be locked.

A process that writes there keeps an object beside the results and changes it every few seconds. Whoever finds such an
object of another process watches it. If it changes, somebody writes there; if not, it was left by one that was killed.
Nobody's clock is compared with anybody else's.
"""

import contextlib
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator

from etils import epath

from .errors import JobError, cannot_write, reaching
from .files import Place

_SUFFIX = ".lease"
_BEAT, _SILENCE = 10.0, 45.0
"""Seconds between two changes, and without a change after which a process counts as gone."""
_PATIENCE = 2.0
"""Seconds for a change that is under way at the end."""


@contextlib.contextmanager
def leased(place: Place, *, beat: float = _BEAT, silence: float = _SILENCE) -> Iterator[Callable[[], bool]]:
    """Hold this process's share of a job; gives a function that says whether it still does.

    A process that was stopped for longer than ``silence`` may have lost it to another.

    Raises:
        JobError: another process holds it, or it cannot be written.
    """
    own = place.folder / f"{place.shard}.{uuid.uuid4().hex}{_SUFFIX}"
    lease = _Lease(own, beat)
    try:
        with reaching(place.folder):
            _wait_for(place, own, lease.is_there, beat / 4, silence)
        lease.holding = True
        lease.write()
        yield lease.is_there
    finally:
        lease.end()


class _Lease:
    """The object, changed by a thread of its own until the end."""

    def __init__(self, path: epath.Path, beat: float):
        self._path, self._count = path, 0
        self.holding = False
        self._lock, self._over = threading.Lock(), threading.Event()
        self.write()
        self._thread = threading.Thread(target=self._change, args=(beat,), daemon=True)
        self._thread.start()

    def write(self) -> None:
        with self._lock:
            self._count += 1
            try:
                self._path.write_text(f"{'holds' if self.holding else 'waits'} {self._count}\n")
            except Exception as error:  # stores raise what their libraries do
                raise cannot_write(self._path, error) from error

    def is_there(self) -> bool:
        return self._path.exists()

    def end(self) -> None:
        self._over.set()
        self._thread.join(_PATIENCE)
        with contextlib.suppress(Exception):
            self._path.unlink(missing_ok=True)

    def _change(self, beat: float) -> None:
        while not self._over.wait(beat):
            # What fails now may succeed the next time, and one that another took away is not put back.
            with contextlib.suppress(Exception):
                if self.is_there():
                    self.write()


def _wait_for(place: Place, own: epath.Path, is_there: Callable[[], bool], step: float, silence: float) -> None:
    """Until every other lease has been silent for long enough; those are taken away."""
    seen: dict[epath.Path, tuple[str, float]] = {}
    while True:
        if not is_there():
            raise JobError(f"another process took {own} away; expected one for each output, so wait for it")
        left, now = False, time.monotonic()
        for path in _others(place, own):
            try:
                said = path.read_text()
            except FileNotFoundError:  # it ended meanwhile
                continue
            before, _ = seen.setdefault(path, (said, now))
            if said != before and (said.startswith("holds") or path.name < own.name):
                raise JobError(
                    f"another process writes {place.results}; expected one for each output, so wait for it or name "
                    "another output"
                )
            if said != before:  # it waits too, finds this one, and gives way
                seen[path] = said, now
            if now - seen[path][1] < silence:
                left = True
            else:
                path.unlink(missing_ok=True)
        if not left:
            return
        time.sleep(step)


def _others(place: Place, own: epath.Path) -> list[epath.Path]:
    """Leases of this share, and of runs with another number of processes."""
    shape = re.compile(rf"({re.escape(place.name)}(?:-\d{{5}}-of-\d{{5}})?)\.[0-9a-f]{{32}}{re.escape(_SUFFIX)}")
    same_run = {place._replace(process=other).shard for other in range(place.processes)} - {place.shard}
    found = []
    for path in place.folder.iterdir():
        named = shape.fullmatch(path.name)
        if named and path.name != own.name and named[1] not in same_run:
            found.append(path)
    return sorted(found, key=str)
