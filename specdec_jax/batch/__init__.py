"""Many prompts: slots that are refilled as rows end, results on the disk, and jobs that go on where they stopped."""

from .generator import BatchGenerator, Finished
from .request import Answer, Counts, Refused, Request

__all__ = ["Answer", "BatchGenerator", "Counts", "Finished", "Refused", "Request"]
