"""A training run over several devices: batches divided, parameters too where that saves memory."""

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from specdec_jax._typing import PyTree
from specdec_jax.sharding import DATA, FSDP, shardings


def state_shardings(tree: PyTree, mesh: Mesh) -> PyTree:
    """Every array cut along its longest axis that the ``fsdp`` devices divide; whole on each where there is none."""
    return shardings(tree, _automatic(mesh))


def place_state(tree: PyTree, mesh: Mesh) -> PyTree:
    """Put arrays into `state_shardings`."""
    return jax.device_put(tree, state_shardings(tree, mesh))


def place_batch(tree: PyTree, mesh: Mesh) -> PyTree:
    """Rows divided over all devices.

    Raises:
        ValueError: there are not as many rows as devices, or a multiple.
    """
    axes = tuple(axis for axis in (DATA, FSDP) if axis in mesh.shape)
    devices = int(np.prod([mesh.shape[axis] for axis in axes]))
    rows = {leaf.shape[0] for leaf in jax.tree.leaves(tree)}
    if any(count % devices for count in rows):
        raise ValueError(f"a batch has {min(rows)} rows for {devices} devices; expected a multiple of that")
    return jax.device_put(tree, NamedSharding(_automatic(mesh), P(axes)))


def _automatic(mesh: Mesh) -> Mesh:
    """The same devices, with the compiler to find out how what lies between parameters and loss is divided."""
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
