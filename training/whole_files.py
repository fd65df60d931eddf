"""Files that appear whole, or not at all where the disk is full."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: Path, what: str) -> Iterator[Path]:
    """Another path to write to, which becomes ``path`` at the end; until then what was there stays.

    Raises:
        OSError: it cannot be written: with the path, ``what`` there has to be room for, and what to do.
    """
    part = path.with_suffix(".part")
    try:
        part.unlink(missing_ok=True)
        yield part
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise OSError(
            error.errno,
            f"{error.strerror}; expected a directory that can be written, with room for {what}, so make room and start "
            "the same command again",
            str(path),
        ) from error
