"""Where arrays lie on a mesh of devices.

A mesh has up to three axes. Over ``data`` lie the rows of a batch: each device has rows of its own and decodes them
without a word to the others. Over ``tensor`` lie a model's own axes: heads, feed-forward layers and the vocabulary.
Over ``fsdp`` lies, in training, what is left of every array.

A model says what the axes of its parameters are by names, as a PartitionSpec of `RULES`' keys; everything else follows
from these names, the shapes and the mesh.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, Sharding
from jax.sharding import PartitionSpec as P

from ._typing import Array, PyTree
from .cache import KVCache

__all__ = [
    "DATA",
    "FSDP",
    "GROUPS",
    "INNER",
    "RULES",
    "TENSOR",
    "VOCAB",
    "array_spec",
    "by_rows",
    "check_rows",
    "leaf_sharding",
    "make_mesh",
    "on_mesh",
    "put",
    "row_specs",
    "shardings",
    "state_shardings",
]

AnyMesh = Mesh | AbstractMesh

DATA, TENSOR, FSDP = "data", "tensor", "fsdp"
"""Axes of a mesh: rows, a model's own axes, and what parameters are spread over while they are trained."""
VOCAB, GROUPS, INNER = "vocab", "groups", "inner"
"""Axes of a model that can be cut."""
RULES: Mapping[str, str] = {VOCAB: TENSOR, GROUPS: TENSOR, INNER: TENSOR}
"""The mesh axis of each axis of a model that can be cut: the vocabulary, the kv heads with the queries of their group,
and the inside of a feed-forward layer."""


def make_mesh(*, data: int = 1, tensor: int = 1, fsdp: int = 1, devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh to decode on, ``data`` groups of ``tensor`` devices, each group with rows of its own.

    Or one to train on: there, a group's rows and its parameters are divided over ``fsdp`` devices as well.

    Raises:
        ValueError: there are not that many devices; by default, all of JAX's default backend.
    """
    count = len(jax.devices() if devices is None else devices)
    if min(data, tensor, fsdp) < 1 or data * tensor * fsdp != count:
        raise ValueError(
            f"data is {data}, tensor {tensor} and fsdp {fsdp}, for {data * tensor * fsdp} devices, but there are "
            f"{count}; expected numbers whose product that is"
        )
    # Programs that decode know of no third axis.
    sizes = {DATA: data, TENSOR: tensor} | ({FSDP: fsdp} if fsdp > 1 else {})
    places = mesh_utils.create_device_mesh(tuple(sizes.values()), devices, allow_split_physical_axes=True)
    # Between the arguments and the results, the compiler finds out what lies where.
    return Mesh(places, tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))


def array_spec(shape: Sequence[int], mesh: AnyMesh, axes: Iterable[str | None] = (), whole: Container[str] = ()) -> P:
    """Of one array: over ``tensor`` by the names of its axes, over ``fsdp`` along the longest axis that is left.

    Only axes that the devices divide are cut; names in ``whole`` never are.
    """
    spec: list[str | None] = [None] * len(shape)
    for place, name in enumerate(axes):
        if name is not None and name not in whole and _divides(mesh, RULES[name], shape[place]):
            spec[place] = RULES[name]
    left = [place for place, size in enumerate(shape) if spec[place] is None and _divides(mesh, FSDP, size)]
    if left:
        spec[max(left, key=lambda place: shape[place])] = FSDP
    return P(*spec)


def shardings(shapes: PyTree, mesh: AnyMesh, axes: PyTree = None) -> PyTree:
    """Of all arrays of a tree, such as a model's parameters; ``axes`` has the names of each one's axes.

    A name is cut everywhere or nowhere: a projection whose inputs are heads is cut only where heads are.
    """
    leaves, structure = jax.tree.flatten(shapes)
    names = [P()] * len(leaves) if axes is None else structure.flatten_up_to(axes)
    whole = frozenset(
        name
        for leaf, spec in zip(leaves, names, strict=True)
        for name, size in zip(spec, leaf.shape, strict=False)
        if name in RULES and not _divides(mesh, RULES[name], size)
    )
    specs = [array_spec(leaf.shape, mesh, spec, whole) for leaf, spec in zip(leaves, names, strict=True)]
    return structure.unflatten(NamedSharding(mesh, spec) for spec in specs)


def _divides(mesh: AnyMesh, axis: str, size: int) -> bool:
    parts = mesh.shape.get(axis, 1)
    return parts > 1 and size % parts == 0 and size > 0


def by_rows(
    function: Callable[..., PyTree], mesh: AnyMesh, in_specs: PyTree, out_specs: PyTree
) -> Callable[..., PyTree]:
    """``function`` of each device's own rows; `row_specs` and P(DATA) say which axes are rows, P() that there are none.

    Rows know nothing of each other, so nothing has to be said between the ``data`` groups, and none of them waits for
    another's last row. Within a group the compiler divides the work over ``tensor`` as the parameters lie.
    """
    return jax.shard_map(
        function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names={DATA}, check_vma=False
    )


def check_rows(rows: int, mesh: AnyMesh) -> None:
    """Raise a ValueError unless every device group gets as many rows as the others."""
    groups = mesh.shape.get(DATA, 1)
    if rows % groups:
        raise ValueError(
            f"there are {rows} rows for {groups} groups of devices along {DATA!r}; expected a multiple of {groups}"
        )


def row_specs(of: Callable[[int], PyTree]) -> PyTree:
    """Which axis of each array is rows, P() where none is: ``of(rows)`` is evaluated for its shapes alone.

    Found by comparing one row with two, so that it holds for caches of models that nobody here knows.
    """

    def spec(one: jax.ShapeDtypeStruct, two: jax.ShapeDtypeStruct) -> P:
        grown = [DATA if a != b else None for a, b in zip(one.shape, two.shape, strict=True)]
        return P(*grown) if DATA in grown else P()

    return jax.tree.map(spec, *(jax.eval_shape(lambda rows=rows: of(rows)) for rows in (1, 2)))


def state_shardings(shapes: PyTree, specs: PyTree, mesh: AnyMesh) -> PyTree:
    """Of a state between two programs: rows as `row_specs` says, and the heads of caches over ``tensor``."""

    def of(node: jax.ShapeDtypeStruct | KVCache, specs: P | KVCache) -> NamedSharding | KVCache:
        in_cache = isinstance(node, KVCache)
        return jax.tree.map(lambda leaf, rows: leaf_sharding(leaf.shape, rows, mesh, in_cache=in_cache), node, specs)

    return jax.tree.map(of, shapes, specs, is_leaf=lambda node: isinstance(node, KVCache))


def leaf_sharding(shape: Sequence[int], rows: P, mesh: AnyMesh, *, in_cache: bool) -> NamedSharding:
    """Of one array of a state, whose third axis is heads if it lies in a cache."""
    if not in_cache:
        return NamedSharding(mesh, rows)
    return NamedSharding(mesh, P(rows[0], rows[1], TENSOR if _divides(mesh, TENSOR, shape[2]) else None))


def on_mesh(tree: PyTree, mesh: AnyMesh) -> PyTree:
    """Arrays that lie elsewhere, such as a small drafter's, are copied whole to every device; others stay."""
    everywhere = NamedSharding(mesh, P())

    def placed(leaf: Any) -> Array:
        if isinstance(leaf, jax.Array) and leaf.sharding.device_set == everywhere.device_set:
            return leaf
        return put(np.asarray(leaf), everywhere)

    return jax.tree.map(placed, tree)


def put(array: np.ndarray, where: Sharding | None) -> Array:
    """An array of the host on devices. On the CPU the buffer itself may become the array.

    Where some of the devices are other processes', each process puts its own part there: ``device_put`` would gather
    the array of every process to compare them.
    """
    if where is None or where.is_fully_addressable:
        return jax.device_put(array, where, may_alias=True)
    return jax.make_array_from_callback(array.shape, where, lambda part: array[part])
