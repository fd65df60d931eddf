"""TPU slices that are not here: their chips, and their devices to compile for."""

import importlib.util
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax


class Chip(NamedTuple):
    """What its makers say of a chip."""

    flops: float
    """Of bfloat16 products, a second."""
    memory: float
    """Bytes of HBM,"""
    memory_bandwidth: float
    """bytes a second to and from it,"""
    link_bandwidth: float
    """and bytes a second to other chips, all links and both directions together."""
    largest: tuple[int, ...]
    """The shape of the largest slice; others have as many axes."""


CHIPS = {
    "v5e": Chip(197e12, 16e9, 819e9, 1600e9 / 8, (16, 16)),  # cloud.google.com/tpu/docs/v5e
    "v5p": Chip(459e12, 95e9, 2765e9, 4800e9 / 8, (16, 20, 28)),  # cloud.google.com/tpu/docs/v5p
    "v6e": Chip(918e12, 32e9, 1640e9, 3584e9 / 8, (16, 16)),  # cloud.google.com/tpu/docs/v6e
}
"""By the first part of a topology's name."""

_ALONE = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
"""What libtpu would otherwise ask a cloud machine for, and that nobody else's chips are touched."""


def chip_of(name: str) -> Chip:
    """The chip of a topology such as v5e:4x4.

    Raises:
        ValueError: nobody makes such a chip, or such a slice of it. libtpu would end the process for some of them.
    """
    kind, _, shape = name.partition(":")
    sizes = shape.split("x")
    if kind not in CHIPS or not all(re.fullmatch("[1-9][0-9]{0,4}", size) for size in sizes):
        raise ValueError(
            f"topology is {name!r}; expected one of {', '.join(CHIPS)}, then ':' and the shape of a slice, such as "
            "v5e:4x4 or v5p:4x4x4"
        )
    largest = CHIPS[kind].largest
    if len(sizes) != len(largest) or any(int(size) > most for size, most in zip(sizes, largest, strict=True)):
        raise ValueError(
            f"topology is {name!r}; expected {len(largest)} sizes, up to {kind}:{'x'.join(map(str, largest))}"
        )
    return CHIPS[kind]


def devices_of(name: str) -> Sequence[Any]:
    """The devices of a topology, for which can be compiled and on which nothing can run.

    libtpu reads the environment once, when it is first used in a process, so this belongs in a process of its own.

    Raises:
        ValueError: libtpu knows no such topology.
        ImportError: libtpu is not installed.
    """
    chip_of(name)
    if importlib.util.find_spec("libtpu") is None:
        raise ImportError("libtpu is not installed; expected it to compile for TPUs with: pip install 'jax[tpu]'")
    os.environ.update(_ALONE)
    from jax.experimental.topologies import get_topology_desc

    try:
        return get_topology_desc(platform="tpu", topology_name=name).devices
    except jax.errors.JaxRuntimeError as error:
        raise ValueError(f"libtpu knows no topology {name!r} ({error}); check the shape of the slice") from error
