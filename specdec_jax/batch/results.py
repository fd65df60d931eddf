"""The results of one process on the disk: a line of JSON each, on disk before it counts as done."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from etils import epath

from .errors import FULL, JobError, cannot_write, reaching
from .files import Place, cut_torn_line, is_remote, lines, sync_folder
from .lease import leased

_PART, _SECONDS = 1000, 60.0
"""Results of a part, and how long a result may wait for others to fill one."""


@runtime_checkable
class Results(Protocol):
    """Where a job's records go."""

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """To be written."""
        ...

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        ...

    def write(self) -> None:
        """All that was appended is kept when it returns; a WriteError where that fails, and nothing is forgotten."""
        ...


class Appended:
    """A local file."""

    def __init__(self, path: epath.Path, fd: int):
        self._path, self._fd = path, fd
        self._waiting: list[Mapping[str, Any]] = []

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """To be written."""
        self._waiting.extend(records)

    @property
    def due(self) -> bool:
        """Always: every result as soon as it is there."""
        return True

    def write(self) -> None:
        """On disk when it returns; a WriteError, and the file as it was before, where that fails."""
        if not self._waiting:
            return
        before = os.fstat(self._fd).st_size
        rest = memoryview(_encode(self._waiting))
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            os.fsync(self._fd)
        except OSError as error:
            with contextlib.suppress(OSError):  # the next run would cut it just so
                os.ftruncate(self._fd, before)
            raise cannot_write(self._path, error) from error
        self._waiting.clear()


class Parts:
    """Numbered objects of some ``size`` results, each written at once; after so many ``seconds`` a smaller one."""

    def __init__(
        self,
        place: Place,
        size: int = _PART,
        seconds: float = _SECONDS,
        clock: Callable[[], float] = time.monotonic,
        held: Callable[[], bool] = lambda: True,
    ):
        self._place, self._size, self._seconds, self._clock = place, size, seconds, clock
        self._held = held
        self._waiting: list[Mapping[str, Any]] = []
        self._since = clock()
        self._number = 1 + max(place.part_numbers(), default=-1)
        self._path = place.part(self._number)

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """In the part that is being filled."""
        if not self._waiting:
            self._since = self._clock()
        self._waiting.extend(records)

    @property
    def due(self) -> bool:
        """Whether the part is full, or has been waited for long enough."""
        late = self._clock() - self._since >= self._seconds
        return len(self._waiting) >= self._size or (bool(self._waiting) and late)

    def write(self) -> None:
        """Write the part that is being filled; a WriteError where that fails."""
        if not self._waiting:
            return
        # Under one name until it is known to be written: what seemed to fail may be there.
        path = self._path
        try:
            held = self._held()
            if held:
                path.write_bytes(_encode(self._waiting))
        except Exception as error:  # stores raise what their libraries do
            raise cannot_write(path, error) from error
        if not held:
            raise JobError(
                f"{path} is not written, for another process took this output over while this one gave no sign; "
                "expected one for each output, so leave it to the other"
            )
        self._number += 1
        self._path = self._place.part(self._number)
        self._waiting.clear()


@contextlib.contextmanager
def open_results(place: Place) -> Iterator[Results]:
    """The results of this process, to go on with; they belong to one process at a time.

    Raises:
        JobError: the folder cannot be written, or another process works on this job.
    """
    if is_remote(place.folder):
        with leased(place) as held:
            with reaching(place.folder):
                results = Parts(place, held=held)
            try:
                yield results
            finally:
                results.write()
        return
    with _locked(place.results, fcntl.LOCK_EX) as fd:
        try:
            _mend(place, fd)
        except OSError as error:
            raise cannot_write(place.results, error) from error
        yield Appended(place.results, fd)


def _mend(place: Place, fd: int) -> None:
    """Cut off what a kill left half written."""
    sync_folder(place.folder)  # else a new file's name may be lost with the machine
    for other in place.all_results():
        if other != place.results and not _of_the_same_run(place, other):
            # A process of a run with another number of processes may still be at it. If not, nobody will be again, so
            # what it left is mended here. Shared: the hosts of one run may look at the same time.
            with _locked(other, fcntl.LOCK_SH) as left:
                cut_torn_line(left)
    cut_torn_line(fd)


def _of_the_same_run(place: Place, path: epath.Path) -> bool:
    return any(path == place._replace(process=other).results for other in range(place.processes))


@contextlib.contextmanager
def _locked(path: epath.Path, how: int) -> Iterator[int]:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError as error:
        if error.errno in FULL:
            raise cannot_write(path, error) from error
        raise JobError(f"cannot write {path}: {error.strerror}; expected a file that can be written") from error
    try:
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JobError(
                f"another process writes {path}; expected one for each output, so wait for it or name another output"
            ) from error
        except OSError as error:
            raise JobError(
                f"cannot lock {path}: {error.strerror}; expected an output on a file system that has locks"
            ) from error
        yield fd
    finally:
        os.close(fd)


def _encode(records: Sequence[Mapping[str, Any]]) -> bytes:
    text = "".join(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in records)
    return text.encode(errors="backslashreplace")  # a name of a file may hold what is no text: JSON escapes it just so


def read_results(place: Place) -> Iterator[dict[str, Any]]:
    """The records of all processes, this run's and those of earlier ones, however many they were.

    Raises:
        JobError: a line is no record of a job; a PassingError where a file cannot be read.
    """
    with reaching(place.folder):
        found = place.all_results()
    for path in found:
        with reaching(path):
            for number, line in enumerate(lines(path), 1):
                yield _record(path, number, line)


def _record(path: epath.Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
        if not isinstance(record["index"], int):
            raise TypeError("its index is no number")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise JobError(
            f"line {number} of {path} is no result of a job ({type(error).__name__}: {error}); delete the line to have "
            "its prompt answered again, or name another output"
        ) from error
    return record
