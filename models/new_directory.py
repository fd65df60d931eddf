"""A directory that appears whole or not at all."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def new_directory(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """A directory to write into, which takes the name of ``directory`` at the end and is removed where writing failed.

    It lies beside it as ``.NAME.partial``; what a killed process left there is cleared away.

    Raises:
        FileExistsError: the directory is not empty, or another process is writing it.
    """
    directory = Path(directory).resolve()  # a link stays one, and what it leads to is filled
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise FileExistsError(f"{directory} exists and is not an empty directory; expected a new one, so name another")
    beside = directory.parent / f".{directory.name}.partial"
    beside.mkdir(parents=True, exist_ok=True)
    with _held(beside):
        _clear(beside)
        try:
            yield beside
            if directory.exists():
                directory.rmdir()
            beside.rename(directory)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[None]:
    """The lock goes with the process that has it, however that ends."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise _busy(path) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _busy(path) from None
        # The one who had it may have given the directory its name, and be gone.
        if not path.exists() or path.stat().st_ino != os.fstat(handle).st_ino:
            raise _busy(path)
        yield
    finally:
        os.close(handle)


def _busy(path: Path) -> FileExistsError:
    return FileExistsError(f"another process is writing {path}; expected to be the only one, so name another directory")


def _clear(path: Path) -> None:
    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
