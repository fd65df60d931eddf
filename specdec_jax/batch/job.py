"""A job: requests in, lines on the disk out, and nothing twice however often it is started again."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from .files import Place
from .generator import BatchGenerator, Finished
from .request import Answer, Refused, Request
from .results import read_results

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


@runtime_checkable
class Keeper(Protocol):
    """Whoever keeps records: `pod.Shared`."""

    def append(self, records: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Those that are kept by now and were not before."""
        ...

    def write(self) -> Sequence[Mapping[str, Any]]:
        """The same, with nothing left to wait."""
        ...


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
    results: Keeper,
    progress: Progress,
    *,
    accepting: Callable[[], bool] = lambda: True,
    over: Callable[[], bool] = lambda: False,
) -> Iterator[Finished]:
    """Answer the requests; what ``results`` has kept is counted, and at the end that is all of them.

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
        for each in results.append(records) if records else ():
            progress.count(each)
        yield finished
        if over():
            break
    for each in results.write():
        progress.count(each)


def _index(found: Answer | Refused) -> int:
    return found.index if isinstance(found, Refused) else found.request.index
