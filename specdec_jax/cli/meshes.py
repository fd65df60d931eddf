"""From ``--tensor`` to a mesh."""

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import Mesh

from ..models.config import DecoderConfig
from ..sharding import check_rows, make_mesh
from . import UserError


def mesh_of(tensor: int | None, batch: int, *, everywhere: bool) -> Mesh | None:
    """`grouped` devices: those of this process, or ``everywhere`` of all processes together."""
    if tensor is None:
        return None
    return grouped(jax.devices() if everywhere else jax.local_devices(), tensor, batch)


def grouped(devices: Sequence[Any], tensor: int, batch: int) -> Mesh:
    """A mesh of groups of ``tensor`` devices.

    Raises:
        UserError: the devices cannot be grouped so, or the batch cannot be divided over the groups.
    """
    count = len(devices)
    if count % tensor:
        raise UserError(f"tensor is {tensor}, but there are {count} devices; expected a number that divides that")
    mesh = make_mesh(data=count // tensor, tensor=tensor, devices=devices)
    try:
        check_rows(batch, mesh)
    except ValueError as error:
        raise UserError(f"cannot divide --batch: {error}") from error
    return mesh


def held_whole(name: str, config: DecoderConfig, tensor: int) -> str | None:
    """What to tell the user of a model whose attention no such group can divide; None where it can."""
    heads = config.num_kv_heads
    if heads % tensor == 0:
        return None
    divisors = ", ".join(str(size) for size in range(1, heads + 1) if heads % size == 0)
    return (
        f"{name} has {heads} kv heads, which do not divide over {tensor} chips: each of them holds all of the "
        f"attention's weights and caches. With --tensor {divisors} they are divided"
    )
