"""Kernels that the compiler cannot divide run on each device's own kv heads."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from specdec_jax._typing import Array, Float, Int
from specdec_jax.cache import KVCache
from specdec_jax.sharding import TENSOR

from .attention import Visible


def on_own_heads(
    call: Callable[..., Array],
    q: Float[Array, "B T G R H"],
    new: tuple[Float[Array, "B T G H"], Float[Array, "B T G H"]],
    cache: KVCache,
    layer: Int[Array, ""] | int,
    seen: Visible,
) -> Float[Array, "B T G R H"]:
    """``call(q, new, cache, layer, seen)``, on the mesh that surrounds it if it has ``tensor`` devices to divide by.

    A kernel is one instruction to the compiler, which would gather the heads of all devices for it, or refuse. Heads
    know nothing of each other, so nothing has to be said between the devices.
    """
    mesh = jax.sharding.get_abstract_mesh()
    layer = jnp.asarray(layer, jnp.int32)
    parts = mesh.shape.get(TENSOR, 1)
    if parts == 1 or mesh.axis_types[mesh.axis_names.index(TENSOR)] == AxisType.Manual:
        return call(q, new, cache, layer, seen)
    heads = TENSOR if q.shape[2] % parts == 0 else None
    by_token = P(None, None, heads)
    specs = (by_token, by_token, P(None, None, heads), P(), P())
    return jax.shard_map(call, in_specs=specs, out_specs=by_token, axis_names={TENSOR}, check_vma=False)(
        q, new, cache, layer, seen
    )
