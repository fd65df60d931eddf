"""The two ways to hold a model's layers, behind one loop."""

from collections.abc import Callable
from typing import Literal, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

Layout = Literal["auto", "stacked", "unrolled"]
"""How layers are held and run.

``stacked``: every parameter of all layers in one array ``[L, ...]``, and a scan over it. The program stays small
whatever the depth, and one sharding serves all layers. ``unrolled``: one array a layer, and a program as long as the
model is deep, which takes several times longer to compile. ``auto``: unrolled where JAX's default backend is the CPU,
for XLA:CPU copies the weights out of the stack on every step (one token through SmolLM2-135M on two cores: 42 to 48 ms,
against 22); stacked elsewhere.
"""

Carry = TypeVar("Carry")


def resolve(layout: str) -> Literal["stacked", "unrolled"]:
    """The layout that ``auto`` stands for here; a ValueError for a name that is none."""
    if layout == "auto":
        return "unrolled" if jax.default_backend() == "cpu" else "stacked"
    if layout == "stacked" or layout == "unrolled":
        return layout
    raise ValueError(f"layers is {layout!r}; expected 'auto', 'stacked' or 'unrolled'")


def make_layers(make: Callable[[tuple[int, ...]], nnx.Module], count: int, layout: Layout) -> nnx.Module:
    """``count`` layers; ``make(stack)`` makes one whose parameters have the leading sizes ``stack``."""
    if resolve(layout) == "stacked":
        return make((count,))
    return nnx.List([make(()) for _ in range(count)])


def for_each_layer(layers: nnx.Module, count: int, step: Callable[..., Carry], carry: Carry) -> Carry:
    """``carry = step(layer, index, carry)`` for the first ``count`` layers, in order; a scan traces the index.

    A cache belongs in the carry, where it is written in place: as xs and ys of a scan it would be copied every step.
    """
    if isinstance(layers, nnx.List):
        for index in range(count):
            carry = step(layers[index], index, carry)
        return carry
    graphdef, stacked = nnx.split(layers)
    indices = jnp.arange(count, dtype=jnp.int32)

    def body(carry, item):
        index, params = item
        return step(nnx.merge(graphdef, params), index, carry), None

    def picking(carry, index):
        # A part of the stack as xs would be a copy of it.
        return body(carry, (index, jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, index, 0, False), stacked)))

    if count < jax.tree.leaves(stacked)[0].shape[0]:
        return lax.scan(picking, carry, indices)[0]
    return lax.scan(body, carry, (indices, stacked))[0]
