"""A directory that appears whole or not at all."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_MARK = "written-by-specdec"
"""A file that says that what lies beside it may be cleared away."""


@contextlib.contextmanager
def new_directory(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """A directory to write into, which takes the name of ``directory`` at the end and is removed where writing failed.

    It lies in ``.NAME.partial`` beside it; what a killed process left there is cleared away, and nothing else is.

    Raises:
        FileExistsError: the directory is not empty, or another process is writing it, or ``.NAME.partial`` is something
            that was not made here.
    """
    directory = Path(directory).resolve()  # a link stays one, and what it leads to is filled
    check_new(directory)
    beside = directory.parent / f".{directory.name}.partial"
    directory.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        beside.mkdir()
    with _held(beside):
        _claim(beside)
        try:
            _clear(beside)
            inside = beside / directory.name
            inside.mkdir()
            yield inside
            if directory.exists():
                directory.rmdir()
            inside.rename(directory)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def check_new(directory: Path) -> None:
    """Raise a FileExistsError for what exists and is not an empty directory."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise FileExistsError(f"{directory} exists and is not an empty directory; expected a new one, so name another")


@contextlib.contextmanager
def _held(path: Path) -> Iterator[None]:
    """The lock goes with the process that has it, however that ends."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise _busy(path) from None
    except OSError:  # a file, or a link, wherever it leads
        raise _foreign(path) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _busy(path) from None
        # The one who had it may have finished, and it be gone or another's.
        if not path.exists() or path.lstat().st_ino != os.fstat(handle).st_ino:
            raise _busy(path)
        yield
    finally:
        os.close(handle)


def _busy(path: Path) -> FileExistsError:
    return FileExistsError(f"another process is writing {path}; expected to be the only one, so name another directory")


def _foreign(path: Path) -> FileExistsError:
    return FileExistsError(
        f"{path} is in the way and was not made by specdec; expected no such file, link or directory, so move it away "
        "or name another directory"
    )


def _claim(path: Path) -> None:
    """Mark it, unless it holds something without being marked."""
    mark = path / _MARK
    if any(path.iterdir()) and not (mark.is_file() and not mark.is_symlink()):
        raise _foreign(path)
    mark.touch()


def _clear(path: Path) -> None:
    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != _MARK:
            entry.unlink()
