"""A job: requests in, lines on the disk out, and nothing twice however often it is started again."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .files import Place
from .generator import BatchGenerator, Finished
from .request import Answer, Refused, Request
from .results import Results, read_results

INDEX = "index"
"""The field by which a record is known: its prompt's place in the input."""
ERROR = "error"
"""The field that says why a prompt has no answer, or not a whole one."""


class Progress:
    """What is done, in all runs of a job so far."""

    def __init__(self):
        self.done: set[int] = set()
        """Indices."""
        self.errors: set[int] = set()
        """Of them, those with an error."""

    @property
    def failed(self) -> int:
        """How many have an error."""
        return len(self.errors)

    def count(self, record: Mapping[str, Any]) -> None:
        """A record that is on disk."""
        if record[INDEX] not in self.done:
            self.done.add(record[INDEX])
            if ERROR in record:
                self.errors.add(record[INDEX])


def resume(place: Place) -> Progress:
    """What earlier runs have left of this process's share, however many processes they had."""
    progress = Progress()
    for record in read_results(place):
        if record[INDEX] % place.processes == place.process:
            progress.count(record)
    return progress


def run_job(
    generator: BatchGenerator,
    requests: Iterable[Request | Refused],
    record: Callable[[Answer | Refused], Mapping[str, Any]],
    results: Results,
    progress: Progress,
    *,
    accepting: Callable[[], bool] = lambda: True,
    over: Callable[[], bool] = lambda: False,
) -> Iterator[Finished]:
    """Answer the requests; what it yields has been handed to ``results`` and counted.

    Args:
        generator, requests: who answers what.
        record: the fields of a line, for an answer or a refusal; the index is added.
        results, progress: where lines go and are counted.
        accepting: asked before requests start; once False, it ends with those that run.
        over: asked after every stretch; once True, it ends at once, and what runs is left to the next run.

    Raises:
        WriteError: the disk is full, or the like.
    """
    for finished in generator.stretches(requests, accepting=accepting):
        records = [{INDEX: _index(found), **record(found)} for found in finished.answers]
        if records:
            results.append(records)
        for each in records:
            progress.count(each)
        yield finished
        if over():
            return


def _index(found: Answer | Refused) -> int:
    return found.index if isinstance(found, Refused) else found.request.index
