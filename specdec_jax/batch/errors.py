"""What stops a job."""


class JobError(Exception):
    """A job cannot start here: another's output, a damaged file, or a second process. The message says what to do."""


class WriteError(JobError):
    """Results could not be written. What was written before stands, and the same job goes on from there."""
