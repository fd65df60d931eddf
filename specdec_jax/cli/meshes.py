"""From ``--tensor`` to a mesh."""

import jax
from jax.sharding import Mesh

from ..sharding import check_rows, make_mesh
from . import UserError


def mesh_of(tensor: int | None, batch: int, *, everywhere: bool) -> Mesh | None:
    """Groups of ``tensor`` devices: of those of this process, or ``everywhere`` of all processes together.

    Raises:
        UserError: the devices cannot be grouped so, or the batch cannot be divided over the groups.
    """
    if tensor is None:
        return None
    devices = jax.devices() if everywhere else jax.local_devices()
    count = len(devices)
    if count % tensor:
        raise UserError(f"tensor is {tensor}, but there are {count} devices; expected a number that divides that")
    mesh = make_mesh(data=count // tensor, tensor=tensor, devices=devices)
    try:
        check_rows(batch, mesh)
    except ValueError as error:
        raise UserError(f"cannot divide --batch: {error}") from error
    return mesh
