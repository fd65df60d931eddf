"""A directory that appears whole or not at all."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Collection, Iterator
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
    with _beside(directory) as beside:
        inside = beside / directory.name
        inside.mkdir()
        yield inside
        if directory.exists():
            directory.rmdir()
        inside.rename(directory)


@contextlib.contextmanager
def replaced_directory(directory: str | os.PathLike[str], without: Collection[str] = ()) -> Iterator[Path]:
    """As `new_directory`, in the place of an older one, which stays until the new one is whole.

    What lies in the older one and was not written anew stays in the new one, but for the names ``without``. Whether the
    older one may be replaced is for the caller to know.

    Raises:
        FileExistsError: another process is writing it, or ``.NAME.partial`` is something that was not made here.
    """
    directory = Path(directory).resolve()
    with _beside(directory) as beside:
        inside = beside / directory.name
        inside.mkdir()
        yield inside
        if directory.exists():
            _keep_the_rest(directory, inside, without)
            directory.rename(_older(beside, directory))
        inside.rename(directory)


def check_replaceable(directory: Path) -> None:
    """Raise a FileExistsError where `replaced_directory` would for what lies in its way, before anything is written."""
    beside = _partial(directory.resolve())
    if beside.is_symlink() or (beside.exists() and not (beside.is_dir() and _ours(beside))):
        raise _foreign(beside)


@contextlib.contextmanager
def _beside(directory: Path) -> Iterator[Path]:
    """Where a directory is made, held and empty but for its mark; gone at the end."""
    beside = _partial(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        beside.mkdir()
    with _held(beside):
        _claim(beside)
        try:
            _put_back(beside, directory)
            _clear(beside)
            yield beside
        finally:
            _put_back(beside, directory)
            shutil.rmtree(beside, ignore_errors=True)


def _partial(directory: Path) -> Path:
    return directory.parent / f".{directory.name}.partial"


def _older(beside: Path, directory: Path) -> Path:
    return beside / f"{directory.name}.old"


def _put_back(beside: Path, directory: Path) -> None:
    """The older one, if that which was to take its place did not."""
    older = _older(beside, directory)
    if older.exists() and not directory.exists():
        older.rename(directory)


def _keep_the_rest(directory: Path, inside: Path, without: Collection[str]) -> None:
    written = {*without, *(entry.name for entry in inside.iterdir())}

    def ignore(folder: str, names: list[str]) -> set[str]:
        return written & {*names} if Path(folder) == directory else set()

    shutil.copytree(directory, inside, symlinks=True, ignore=ignore, copy_function=_second_name, dirs_exist_ok=True)


def _second_name(source: str, destination: str) -> None:
    """Of one file, which takes no room; a copy where the disk knows no such thing."""
    try:
        os.link(source, destination)
    except OSError:
        shutil.copy2(source, destination)


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
    if not _ours(path):
        raise _foreign(path)
    (path / _MARK).touch()


def _ours(path: Path) -> bool:
    mark = path / _MARK
    return not any(path.iterdir()) or (mark.is_file() and not mark.is_symlink())


def _clear(path: Path) -> None:
    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != _MARK:
            entry.unlink()
