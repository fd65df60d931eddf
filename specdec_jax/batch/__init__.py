"""Many prompts: slots that are refilled as rows end, results on the disk, and jobs that go on where they stopped."""

from .errors import JobError, PassingError, WriteError
from .files import Place, place
from .fingerprint import fingerprint, outline, sampled
from .generator import BatchGenerator, Finished, Run
from .hosts import Host, joined
from .job import Progress, resume, run_job
from .manifest import claim
from .pod import ALONE, POD, Peers
from .request import Answer, Counts, Refused, Request
from .results import open_results, read_results

__all__ = [
    "ALONE",
    "POD",
    "Answer",
    "BatchGenerator",
    "Counts",
    "Finished",
    "Host",
    "JobError",
    "PassingError",
    "Peers",
    "Place",
    "Progress",
    "Refused",
    "Request",
    "Run",
    "WriteError",
    "claim",
    "fingerprint",
    "joined",
    "open_results",
    "outline",
    "place",
    "read_results",
    "resume",
    "run_job",
    "sampled",
]
