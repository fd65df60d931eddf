"""What processes have to agree on when they run one program together: a step that not all take, all wait for."""

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jax.experimental import multihost_utils

from .errors import JobError, PassingError

_FINE, _PASSES, _STAYS = range(3)
"""What a process says of itself: all is well; it met an error that starting again may mend; or one that it will not."""


class Peers(NamedTuple):
    """The processes that take every step together, this one among them."""

    gather: Callable[[np.ndarray], np.ndarray]
    """From an array of each process, all of one shape, to that of all: [processes, ...]. Every process calls it."""
    lasting: tuple[type[BaseException], ...] = (JobError,)
    """Errors that the same command would meet again. Of them `PassingError` does not count, which may pass."""

    @contextlib.contextmanager
    def together(self, *asked: Callable[[], bool]) -> Iterator[list[bool]]:
        """What fails in one process fails in all, at the end, where they meet: nobody waits there for one that left.

        The list then has, of each question, whether any process says yes to it. Inside of this no process may run a
        program that all run, for one that fails would miss it.

        Raises:
            JobError: another process failed; PassingError where starting again may mend it.
        """
        heard: list[bool] = []
        failure, said = None, np.zeros(1 + len(asked), np.int8)
        try:
            yield heard
            said[1:] = [question() for question in asked]
        except BaseException as error:  # whatever it is, the others must not wait for what comes next
            failure = error
            said[0] = _STAYS if isinstance(error, self.lasting) and not isinstance(error, PassingError) else _PASSES
        told = self.gather(said)
        if failure is not None:
            raise failure
        worst = told[:, 0].max()
        if worst != _FINE:
            kind = JobError if worst == _STAYS else PassingError
            raise kind("another process of this job cannot go on; see what it says")
        heard += [bool(column.any()) for column in told[:, 1:].T]

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

    def union(self, found: set[int], total: int) -> set[int]:
        """What any of them has found, of numbers from 0 to below ``total``. They need not see each other's files."""
        bits = np.packbits(np.isin(np.arange(total), list(found)))
        every = np.bitwise_or.reduce(self.gather(bits))
        return set(np.flatnonzero(np.unpackbits(every, count=total)).tolist())


ALONE = Peers(lambda value: value[None])
"""A process that decodes by itself."""
POD = Peers(multihost_utils.process_allgather)
"""All processes of JAX's multi-controller runtime."""
