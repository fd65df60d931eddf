"""One job on many hosts: every host runs the same command and takes its share of the prompts."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import jax

from .errors import JobError

T = TypeVar("T")

_A_WEEK = 7 * 24 * 3600


class Host(NamedTuple):
    """This process among those of a job."""

    process: int = 0
    processes: int = 1

    def share(self, items: Iterable[T]) -> Iterator[tuple[int, T]]:
        """This process's items and their places: every item belongs to exactly one process."""
        return ((index, item) for index, item in enumerate(items) if index % self.processes == self.process)


def join(coordinator: str | None = None, processes: int | None = None, process: int | None = None) -> Host:
    """Join JAX's own multi-controller runtime, before anything else touches a device.

    Args:
        coordinator: ``host:port`` of process 0; processes: how many there are; process: the number of this one. What is
            not given comes from the environment, as on Cloud TPU, SLURM, Kubernetes and Open MPI.

    The hosts do not wait for each other: one that has nothing left to do ends, and one that dies takes no other along,
    unless it is the coordinator.

    Raises:
        JobError: the environment does not say what is not given, or the coordinator does not answer.
    """
    jax.config.update("jax_enable_recoverability", True)
    try:
        jax.distributed.initialize(coordinator, processes, process, shutdown_timeout_seconds=_A_WEEK)
    except (ValueError, RuntimeError) as error:
        raise JobError(
            f"cannot join the other hosts ({error}); expected an environment that JAX knows (Cloud TPU, SLURM, "
            "Kubernetes, Open MPI), or a coordinator, the number of processes, and the number of this one"
        ) from error
    return Host(jax.process_index(), jax.process_count())
