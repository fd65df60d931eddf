"""A job: requests in, lines on the disk out, and nothing twice however often it is started again."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .files import Place
from .generator import BatchGenerator, Finished
from .hosts import Host
from .pod import ALONE, Peers
from .request import Answer, Refused, Request
from .results import Results, read_results

INDEX = "index"
"""The field by which a record is known: its prompt's place in the input."""
ERROR = "error"
"""The field that says why a prompt has no answer, or not a whole one."""
_ONLY = Host()


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
    host: Host = _ONLY,
    peers: Peers = ALONE,
    after: Callable[[Finished], None] = lambda finished: None,
    stop: Callable[[], bool] = lambda: False,
    over: Callable[[], bool] = lambda: False,
) -> None:
    """Answer the requests; what is kept is counted, and at the end that is all of them.

    Peers meet once a stretch, while the devices decode it. There they learn whether one of them has failed at anything
    since they met before, is asked to stop, or has something to write; in between each is by itself, and waits for no
    other but in the programs that they all run.

    Args:
        generator, requests: who answers what.
        record: the fields of a line, for an answer or a refusal; the index is added.
        results, progress: where lines go and are counted.
        host, peers: whose lines this process writes, and with whom it decodes.
        after: called after every stretch.
        stop: asked in every stretch; once True, no request starts any more, and it ends with those that run.
        over: the same; once True, it ends at once, and what runs is left to the next run.

    Raises:
        WriteError: the disk is full, or the like.
        JobError: a peer has failed; a PassingError if starting again may mend it.
    """
    run, waiting, write = generator.begin(requests), [], False
    while True:
        with peers.together(stop, over, lambda: results.due) as heard:
            finished = run.collect()
            records = [{INDEX: _index(found), **record(found)} for found in finished.answers]
            waiting += records
            results.append([each for each in records if host.owns(each[INDEX])])
            if write:
                results.write()
            after(finished)
        if write:  # all of them have, for all heard that it was time
            _count(waiting, progress)
        stopping, ending, write = heard
        if ending or not run.advance(accepting=not stopping):
            break
    with peers.together():
        results.write()
    _count(waiting, progress)


def _count(waiting: list[Mapping[str, Any]], progress: Progress) -> None:
    for each in waiting:
        progress.count(each)
    waiting.clear()


def _index(found: Answer | Refused) -> int:
    return int(found.index if isinstance(found, Refused) else found.request.index)  # JSON takes no NumPy integer
