"""Weights in int8: whole numbers from -127 to 127, and a scale in float32 for each row of a matrix.

A pass over few tokens takes as long as reading the weights, of which these are half as many bytes as in bfloat16. They
are converted where they are multiplied, and the product is scaled afterwards, so that nothing else is rounded:
activations, norms, biases and caches stay what they are.
"""

from types import ModuleType
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Int8

from specdec_jax._typing import Array, Float, Int, PyTree
from specdec_jax.sharding import TENSOR

Weights = Literal["float", "int8"]
"""How a model's matrices are held: in the dtype that it computes in, or as an `Int8Weight` each."""

_STEPS = 127
"""From zero to a row's largest number."""
_BLOCK_BYTES = 1 << 20
"""Of converted weights, on the CPU."""


class Int8Weight(NamedTuple):
    """``values * scale[..., None]``, of which a row is one number of a product's result, or an embedding's token.

    In trees of shapes and of places, its parts are shapes and places.
    """

    values: Any
    """int8 [*out, I]"""
    scale: Any
    """float32 [*out]"""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the matrix."""
        return self.values.shape


def checked(weights: str) -> Weights:
    """A ValueError for a name that is neither."""
    if weights == "float" or weights == "int8":
        return weights
    raise ValueError(f"weights is {weights!r}; expected 'float' or 'int8'")


def rounded(weight: Any, xp: ModuleType = jnp) -> Int8Weight:
    """A matrix to the nearest, a row's largest number to 127; by NumPy where ``xp`` is that.

    What is not finite makes its row's scale so, and with it all that comes of the row.
    """
    wide = weight.astype(xp.float32)
    scale = abs(wide).max(axis=-1) * (1 / _STEPS)
    scale = xp.where(scale == 0, xp.ones_like(scale), scale)
    return Int8Weight(xp.rint(wide / scale[..., None]).astype(xp.int8), scale)


def matrices(module: nnx.Module) -> PyTree:
    """For each parameter of a module, whether int8 is for it: what products and embeddings take is marked so."""
    return nnx.to_pure_dict(nnx.state(module), lambda leaf: leaf.get_metadata().get("matrix", False))


def in_int8(params: PyTree, which: PyTree) -> PyTree:
    """The parameters with the matrices among them, by `matrices`, rounded."""
    return jax.tree.map(lambda leaf, is_matrix: rounded(leaf) if is_matrix else leaf, params, which)


def places_in_int8(shardings: PyTree, which: PyTree) -> PyTree:
    """From where each parameter lies to where the parts of those lie that are rounded: a scale where its row is."""

    def of(where: NamedSharding, is_matrix: bool) -> NamedSharding | Int8Weight:
        return Int8Weight(where, NamedSharding(where.mesh, P(*where.spec[:-1]))) if is_matrix else where

    return jax.tree.map(of, shardings, which)


def lookup(weight: Float[Array, "V D"] | Int8Weight, tokens: Int[Array, "B T"], dtype: jnp.dtype) -> Array:
    """The rows of an embedding for tokens, [B, T, D]; those of int8 in a ``dtype``."""
    if not isinstance(weight, Int8Weight):
        return weight[tokens]
    wide = weight.values[tokens].astype(jnp.float32) * weight.scale[tokens][..., None]
    return wide.astype(dtype)


def contract(weight: Float[Array, "*out I"], x: Float[Array, "B T I"]) -> Float[Array, "*out B T"]:
    """Each row of a matrix times each token."""
    return lax.dot_general(weight, x, (((weight.ndim - 1,), (2,)), ((), ())))


def product(weight: Int8Weight, x: Float[Array, "B T I"]) -> Float[Array, "*out B T"]:
    """`contract` for weights in int8, in the dtype of ``x``: what a row sums to is scaled afterwards.

    On accelerators the conversion becomes part of the product, which reads int8; on the CPU see `_in_blocks`.
    """
    if jax.sharding.get_abstract_mesh().shape.get(TENSOR, 1) > 1:
        summed = _whole(weight.values, x)  # rows that are cut over devices would be gathered for blocks of them
    else:
        summed = lax.platform_dependent(weight.values, x, cpu=_in_blocks, default=_whole)
    return (summed.astype(jnp.float32) * weight.scale[..., None, None]).astype(x.dtype)


def _whole(values: Int8[Array, "*out I"], x: Float[Array, "B T I"]) -> Float[Array, "*out B T"]:
    return contract(values.astype(x.dtype), x)


def _in_blocks(values: Int8[Array, "*out I"], x: Float[Array, "B T I"]) -> Float[Array, "*out B T"]:
    """A block of rows at a time, which stays in the processor's cache from its conversion to its product.

    XLA:CPU writes converted weights out before it multiplies. Of whole matrices it would do so for all of them at once,
    or, since they do not change in a loop of rounds, once in front of it: five bytes a weight instead of one.
    """
    rows = values.reshape(-1, values.shape[-1])
    count = len(rows)
    # At least two blocks, for a loop of one trip is no loop to the compiler.
    blocks = max(min(2, count), -(-rows.size * x.dtype.itemsize // _BLOCK_BYTES))
    size = -(-count // blocks)

    def block(index, done):
        start = jnp.minimum(index * size, count - size)  # the last one may begin in the one before it
        part = lax.dynamic_slice_in_dim(rows, start, size)
        return lax.dynamic_update_slice_in_dim(done, _whole(part, x), start, 0)

    done = lax.fori_loop(0, blocks, block, jnp.zeros((count, *x.shape[:2]), x.dtype))
    return done.reshape(*values.shape[:-1], *x.shape[:2])


def refuse_int8(params: PyTree, what: str) -> None:
    """Raise a ValueError, that ``what`` needs floats, where any of the parameters are rounded."""
    nodes = jax.tree.leaves(params, is_leaf=lambda node: isinstance(node, Int8Weight))
    if any(isinstance(node, Int8Weight) for node in nodes):
        raise ValueError(
            f"{what} needs a model's own weights, but these were rounded to int8; expected a model that was loaded "
            "with weights='float'"
        )
