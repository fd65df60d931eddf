"""Where a job keeps its files, and the few ways in which they are written.

Paths are local or remote (``gs://``); `etils.epath` opens both. A local file is appended to and locked. A remote object
cannot be appended to, so results go there in numbered parts, each of which appears whole or not at all.
"""

import errno
import os
import re
import uuid
from collections.abc import Iterator
from typing import NamedTuple

from etils import epath

from .errors import FULL, JobError, cannot_write

_SUFFIX = ".jsonl"
_PART = re.compile(rf"\.\d{{6}}-[0-9a-f]{{8}}{re.escape(_SUFFIX)}")
_BLOCK = 1 << 16
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)
"""How file systems without hard links refuse one."""


class Place(NamedTuple):
    """Where one process of a job writes."""

    folder: epath.Path
    name: str
    """Of the job's files, before what tells them apart."""
    process: int = 0
    processes: int = 1

    @property
    def manifest(self) -> epath.Path:
        """What the job is."""
        return self.folder / f"{self.name}.manifest.json"

    @property
    def shard(self) -> str:
        """The name of this process's results, as in ``answers-00002-of-00004``; one alone has no number."""
        return self.name if self.processes == 1 else f"{self.name}-{self.process + 1:05d}-of-{self.processes:05d}"

    @property
    def results(self) -> epath.Path:
        """This process's results."""
        return self.folder / f"{self.shard}{_SUFFIX}"

    def part(self, number: int) -> epath.Path:
        """A new part of them, where they cannot be appended to; it never takes another's place."""
        return self.folder / f"{self.shard}.{number:06d}-{uuid.uuid4().hex[:8]}{_SUFFIX}"

    def part_numbers(self) -> list[int]:
        """Of the parts of this process's results that are there."""
        names = (path.name.removeprefix(self.shard) for path in self.all_results() if path.name.startswith(self.shard))
        return [int(name[1:7]) for name in names if _PART.fullmatch(name)]

    def all_results(self) -> list[epath.Path]:
        """The results of all processes, however many they were when they were written."""
        own = rf"{re.escape(self.name)}(-\d{{5}}-of-\d{{5}})?"
        pattern = re.compile(rf"{own}({_PART.pattern}|{re.escape(_SUFFIX)})")
        if not self.folder.exists():
            return []
        return sorted((path for path in self.folder.iterdir() if pattern.fullmatch(path.name)), key=str)


def place(output: str, process: int = 0, processes: int = 1) -> Place:
    """Of an output that is a directory, or a file whose name ends in .jsonl."""
    path = epath.Path(output)
    if path.name.endswith(_SUFFIX):
        return Place(path.parent, path.name.removesuffix(_SUFFIX), process, processes)
    return Place(path, "answers", process, processes)


def is_remote(path: os.PathLike[str]) -> bool:
    """Whether it is an object in a store, which cannot be appended to."""
    return "://" in os.fspath(path)


def make_folder(folder: epath.Path) -> None:
    """Raises a JobError where it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in FULL or isinstance(error, ConnectionError | TimeoutError):
            raise cannot_write(folder, error) from error
        why = error.strerror or error
        raise JobError(f"cannot make the folder {folder}: {why}; expected one that can be written") from error
    except ImportError as error:
        raise JobError(f"cannot reach {folder}: {error}; expected pip install 'specdec-jax[gcs]' for gs://") from error
    except Exception as error:  # stores raise what their libraries do
        raise cannot_write(folder, error) from error


def create_whole(path: epath.Path, text: str) -> None:
    """A small file, whole or not there, even if the machine stops meanwhile; one that is there already is kept.

    Raises:
        JobError: it cannot be written; a WriteError where that may pass.
    """
    try:
        if is_remote(path):
            _write_object(path, text)
            return
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
        try:
            with part.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            _name_unless_there(part, path)
        finally:
            part.unlink(missing_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error


def _write_object(path: epath.Path, text: str) -> None:
    try:
        path.write_text(text)
    except Exception as error:  # stores raise what their libraries do
        raise cannot_write(path, error) from error


def _name_unless_there(part: epath.Path, path: epath.Path) -> None:
    try:
        os.link(part, path)  # unlike a rename, it replaces nothing
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        part.replace(path)


def sync_folder(folder: epath.Path) -> None:
    """Have the names of its files on the disk: syncing a file keeps what is in it."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def lines(path: epath.Path) -> Iterator[bytes]:
    """The whole lines of a file. One that was cut off is no line: it was being written when its process was killed.

    Nor is what may follow it, the rest of a line that another process writes at this very moment.
    """
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield line


def cut_torn_line(fd: int) -> None:
    """Shorten a file to its last whole line."""
    size = end = os.fstat(fd).st_size
    while end:
        start = max(0, end - _BLOCK)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(fd, end)
