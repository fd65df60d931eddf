"""What stops a job."""

import contextlib
import errno
import os
from collections.abc import Iterator


class JobError(Exception):
    """A job cannot start here: another's output, a damaged file, or a second process. The message says what to do."""


class PassingError(JobError):
    """What stopped it may pass: the same command, started again, goes on."""


class WriteError(PassingError):
    """Results could not be written. What was written before stands, and the same job goes on from there."""


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""What may pass when room is made, or the disk is mended."""


def cannot_write(path: os.PathLike[str], error: Exception) -> JobError:
    """A WriteError, but a JobError where the same command would fail again: it is not allowed to write there."""
    said = error.strerror if isinstance(error, OSError) else None
    why = f"cannot write {path}: {said or error}"
    if isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno == errno.EROFS):
        return JobError(f"{why}; expected an output that can be written, so allow it or name another")
    return WriteError(f"{why}; what was written before is whole, so make room and start the same command again")


@contextlib.contextmanager
def reaching(path: os.PathLike[str]) -> Iterator[None]:
    """What goes wrong while this is looked at is a PassingError, but a JobError where it would again."""
    try:
        yield
    except JobError:
        raise
    except (PermissionError, IsADirectoryError, NotADirectoryError) as error:
        raise JobError(f"cannot read {path}: {error}; expected one that can be read, so see to it") from error
    except Exception as error:  # stores raise what their libraries do
        raise PassingError(
            f"cannot read {path}: {error}; what was written before is whole, so start the same command again"
        ) from error
