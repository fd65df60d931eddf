"""What processes have to agree on when they run one program together: a step that not all take, all wait for."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.experimental import multihost_utils

from .errors import JobError, WriteError
from .hosts import Host
from .job import INDEX, Progress
from .results import Results


class Peers(NamedTuple):
    """The processes that take every step together, this one among them."""

    gather: Callable[[np.ndarray], np.ndarray]
    """From an array of each process, all of one shape, to that of all: [processes, ...]. Every process calls it."""

    def any(self, flag: bool) -> bool:
        """Whether it is so for any of them."""
        return bool(self.gather(np.asarray(flag)).any())

    @contextlib.contextmanager
    def together(self, kind: type[JobError] = JobError) -> Iterator[None]:
        """What fails in one process fails in all; ``kind`` is what it is to the others."""
        failure = None
        try:
            yield
        except Exception as error:  # whatever it is, the others must not wait for what comes next
            failure = error
        if self.any(failure is not None):
            raise failure or kind("another process of this job cannot go on; see what it says")

    def require_same(self, digest: str) -> None:
        """Raise a JobError unless all bring the same, a text of one length."""
        if (self.gather(np.frombuffer(digest.encode(), np.uint8)) != np.frombuffer(digest.encode(), np.uint8)).any():
            raise JobError(
                "the processes of this job were not told the same; expected one command, and on every host the same "
                "prompts and models"
            )

    def first(self, text: str) -> str:
        """The first, in the order of the alphabet, of what each brings: texts of one length, in ASCII."""
        return min(bytes(each).decode() for each in self.gather(np.frombuffer(text.encode(), np.uint8)))

    def union(self, progress: Progress, total: int) -> None:
        """Count what any of them has found to be done, of ``total`` prompts. They need not see each other's files."""

        def agreed(found: set[int]) -> set[int]:
            bits = np.packbits(np.isin(np.arange(total), list(found)))
            return set(np.flatnonzero(np.unpackbits(np.bitwise_or.reduce(self.gather(bits)), count=total)).tolist())

        progress.done, progress.errors = agreed(progress.done), agreed(progress.errors)


ALONE = Peers(lambda value: value[None])
"""A process that decodes by itself."""
POD = Peers(multihost_utils.process_allgather)
"""All processes of JAX's multi-controller runtime."""


class Shared:
    """Results of which each process writes its share; none goes on before all have written theirs."""

    def __init__(self, own: Results, host: Host, peers: Peers):
        self._own, self._host, self._peers = own, host, peers
        self._waiting: list[Mapping[str, Any]] = []

    def append(self, records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """What is kept by now that was not before, all processes' own; a WriteError in all where one cannot write."""
        self._waiting.extend(records)
        self._own.append([record for record in records if self._host.owns(record[INDEX])])
        return self.write() if self._peers.any(self._own.due) else []

    def write(self) -> list[Mapping[str, Any]]:
        """The same, with nothing left to wait."""
        with self._peers.together(WriteError):
            self._own.write()
        kept, self._waiting = self._waiting, []
        return kept
