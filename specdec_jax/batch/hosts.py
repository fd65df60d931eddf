"""One job on many hosts: every host runs the same command and takes its share of the prompts."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import jax
from jax.experimental import multihost_utils

from .errors import JobError, PassingError

T = TypeVar("T")

FAREWELL = 60
"""Seconds in which processes that are in step leave, from the first to the last. One that waits longer has left without
the knowledge of the others, who wait for it in a program: then JAX ends all of them."""
_NO_HURRY = 300
"""The same for others, as JAX has it: they do not wait for each other."""


class Host(NamedTuple):
    """This process among those of a job."""

    process: int = 0
    processes: int = 1

    def owns(self, index: int) -> bool:
        """Whether the item in this place is this process's: every item belongs to exactly one."""
        return index % self.processes == self.process

    def share(self, items: Iterable[T]) -> Iterator[tuple[int, T]]:
        """This process's items and their places."""
        return ((index, item) for index, item in enumerate(items) if self.owns(index))


@contextlib.contextmanager
def joined(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    in_step: bool = False,
) -> Iterator[Host]:
    """Take part in JAX's own multi-controller runtime; to be entered before anything touches a device.

    Args:
        coordinator: ``host:port`` of process 0.
        processes: how many there are.
        process: the number of this one. What is not given comes from the environment, as on Cloud TPU, SLURM,
            Kubernetes and Open MPI.
        in_step: whether they run one program together. Then they leave together, and one that dies ends the others.

    Else hosts do not wait for each other: one that has nothing left to do leaves, and one that dies takes no other
    along. Process 0 alone, the coordinator, stays until the others have left or died, and they cannot go on without it.

    Raises:
        JobError: the environment does not say what is not given.
        PassingError: the coordinator does not answer, or not all hosts came.
    """
    jax.config.update("jax_enable_recoverability", not in_step)
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM for itself
    patience = FAREWELL if in_step else _NO_HURRY
    try:
        jax.distributed.initialize(coordinator, processes, process, shutdown_timeout_seconds=patience)
    except RuntimeError as error:
        raise PassingError(
            f"cannot join the other hosts ({error}); expected all of them to start, so start those again that did not"
        ) from error
    except ValueError as error:
        raise JobError(
            f"cannot join the other hosts ({error}); expected an environment that JAX knows (Cloud TPU, SLURM, "
            "Kubernetes, Open MPI), or a coordinator, the number of processes, and the number of this one"
        ) from error
    try:
        host = Host(jax.process_index(), jax.process_count())
        yield host
        if host.process == 0 and not in_step:
            # It waits for all that live to come here, and the others never do: they leave.
            with contextlib.suppress(multihost_utils.ProcessFailureError), multihost_utils.live_devices(jax.devices()):
                pass
    finally:
        jax.distributed.shutdown()
