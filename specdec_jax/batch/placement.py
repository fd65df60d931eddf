"""Where the state of a batch lies: which axis of each array counts rows, and how a mesh divides them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from .._typing import Array, PyTree
from ..cache import KVCache
from ..sharding import DATA, AnyMesh, by_rows, leaf_sharding
from ..state import GenerateState

Axes = tuple[int | None, ...]
"""Of each leaf of a state the axis that counts rows; None for a leaf that all rows share."""


class Placement(NamedTuple):
    """Static: programs are compiled for it. Leaves are those of a `GenerateState`, in their order."""

    axes: Axes
    mesh: AnyMesh | None = None
    """None is one device, and a single group of rows."""
    shardings: tuple[NamedSharding, ...] = ()
    """Of the leaves, on a mesh."""

    @property
    def groups(self) -> int:
        """Device groups with rows of their own."""
        return groups_of(self.mesh)

    @property
    def specs(self) -> list[P]:
        """Of the leaves, for `by_rows`."""
        return [P() if axis is None else P(*[None] * axis, DATA) for axis in self.axes]

    def by_rows(self, function: Callable[..., PyTree], in_specs: PyTree, out_specs: PyTree) -> Callable[..., PyTree]:
        """`sharding.by_rows`; the function itself where there is one device."""
        return function if self.mesh is None else by_rows(function, self.mesh, in_specs, out_specs)

    def kept(self, leaves: Sequence[Array]) -> list[Array]:
        """The leaves where they always lie, or the program that gets them next would be compiled anew."""
        if self.mesh is None:
            return list(leaves)
        return [lax.with_sharding_constraint(leaf, where) for leaf, where in zip(leaves, self.shardings, strict=True)]

    def spread(self, tree: PyTree, spec: P) -> PyTree:
        """All arrays of a tree as the spec says; P() is whole on every device, so that any process can read them."""
        if self.mesh is None:
            return tree
        return lax.with_sharding_constraint(tree, NamedSharding(self.mesh, spec))


def groups_of(mesh: AnyMesh | None) -> int:
    """Device groups with rows of their own."""
    return 1 if mesh is None else mesh.shape.get(DATA, 1)


class LaidOut(NamedTuple):
    """A state of which there are shapes alone."""

    leaves: list[jax.ShapeDtypeStruct]
    """On a mesh with shardings."""
    tree: Any
    """The structure that they are the leaves of."""
    placement: Placement


def laid_out(start: Callable[..., GenerateState], params: PyTree, *, batch: int, mesh: AnyMesh | None) -> LaidOut:
    """The shapes of a state of ``batch`` rows, and where on the mesh they lie.

    Caches may be any pytree, so the axes are found by asking ``start(params, rows)`` for the shapes at two batch sizes.
    """

    def shapes(rows: int) -> list[jax.ShapeDtypeStruct]:
        def leaves(params):
            state = start(params, rows)
            nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, KVCache))
            in_cache[:] = [isinstance(node, KVCache) for node in nodes for _ in jax.tree.leaves(node)]
            found, trees[rows] = jax.tree.flatten(state)
            return found

        return jax.eval_shape(leaves, params)

    trees, in_cache = {}, []
    # Two and three, for a model may treat one row as a case of its own.
    leaves = shapes(2)
    axes = tuple(_row_axis(*pair) for pair in zip(leaves, shapes(3), strict=True))
    whole = tuple(
        (tuple(batch if place == axis else size for place, size in enumerate(leaf.shape)), leaf.dtype)
        for leaf, axis in zip(leaves, axes, strict=True)
    )
    placement = Placement(axes, mesh)
    if mesh is not None:
        shardings = (
            leaf_sharding(shape, spec, mesh, in_cache=cached)
            for (shape, _), spec, cached in zip(whole, placement.specs, in_cache, strict=True)
        )
        placement = placement._replace(shardings=tuple(shardings))
    where = placement.shardings or [None] * len(whole)
    found = [jax.ShapeDtypeStruct(*each, sharding=at) for each, at in zip(whole, where, strict=True)]
    return LaidOut(found, trees[2], placement)


def zeros(state: LaidOut) -> GenerateState:
    """A state of zeros, each device's own made where it lies."""
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in state.leaves)
    return state.tree.unflatten(_zeros(shapes, state.placement))


def _row_axis(two: jax.ShapeDtypeStruct, three: jax.ShapeDtypeStruct) -> int | None:
    differ = [axis for axis, (a, b) in enumerate(zip(two.shape, three.shape, strict=True)) if a != b]
    if len(differ) > 1 or any((two.shape[axis], three.shape[axis]) != (2, 3) for axis in differ):
        raise ValueError(
            f"an array of the state has shape {two.shape} for 2 rows and {three.shape} for 3; expected one axis that "
            "counts rows, or none, so give each array of a cache an axis [rows]"
        )
    return differ[0] if differ else None


@partial(jax.jit, static_argnames=("shapes", "placement"))
def _zeros(shapes: tuple[tuple[tuple[int, ...], Any], ...], placement: Placement) -> list[Array]:
    def blank(shape: tuple[int, ...], dtype: Any) -> Array:
        if jnp.issubdtype(dtype, jax.dtypes.prng_key):
            return jnp.broadcast_to(jax.random.key(0), shape)
        return jnp.zeros(shape, dtype)

    return placement.kept([blank(*each) for each in shapes])
