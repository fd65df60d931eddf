"""What stops a job."""

import errno
import os


class JobError(Exception):
    """A job cannot start here: another's output, a damaged file, or a second process. The message says what to do."""


class WriteError(JobError):
    """Results could not be written. What was written before stands, and the same job goes on from there."""


def cannot_write(path: os.PathLike[str], error: OSError) -> JobError:
    """A WriteError, but a JobError where the same command would fail again: it is not allowed to write there."""
    why = f"cannot write {path}: {error.strerror or error}"
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return JobError(f"{why}; expected an output that can be written, so allow it or name another")
    return WriteError(f"{why}; what was written before is whole, so make room and start the same command again")
