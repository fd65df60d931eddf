"""From named tensors in a file to the parameters of a model."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax._typing import PyTree

from .errors import LoadError

_MOST_LISTED = 8

Read = Callable[[str], np.ndarray]


class Tensors(NamedTuple):
    """The tensors of a file or directory, under the names that Hugging Face gives them."""

    path: str
    shapes: Mapping[str, tuple[int, ...]]
    read: Read
    """One tensor, in a float dtype; nothing is kept."""


def check_tensors(tensors: Tensors, expected: Mapping[str, tuple[int, ...]], ignored: Iterable[str] = ()) -> None:
    """Raise one LoadError that names every missing, mis-shaped and unexpected tensor."""
    missing = [name for name in expected if name not in tensors.shapes]
    wrong = [
        f"{name} is {list(tensors.shapes[name])} instead of {list(shape)}"
        for name, shape in expected.items()
        if name in tensors.shapes and tuple(tensors.shapes[name]) != tuple(shape)
    ]
    unexpected = [name for name in tensors.shapes if name not in expected and name not in set(ignored)]
    problems = [
        f"{len(items)} {what}: {_listed(items)}"
        for what, items in (("missing", missing), ("of another shape", wrong), ("unexpected", unexpected))
        if items
    ]
    if problems:
        raise LoadError(
            f"the tensors of {tensors.path} do not fit its configuration: {'; '.join(problems)}. Expected "
            f"{len(expected)} tensors; check that the configuration and the weights belong to the same model"
        )


def _listed(items: list[str]) -> str:
    more = len(items) - _MOST_LISTED
    return ", ".join(items[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def assemble(
    top: PyTree, layer: Callable[[int], PyTree], count: int, *, stacked: bool, dtype: jnp.dtype
) -> dict[str, PyTree]:
    """Device arrays of a whole model from NumPy trees: ``top`` and, one at a time, ``layer(0 .. count - 1)``."""

    def put(array: np.ndarray) -> jax.Array:
        return jnp.asarray(array.astype(dtype))

    if not stacked:
        return {**jax.tree.map(put, top), "layers": {i: jax.tree.map(put, layer(i)) for i in range(count)}}
    buffers: PyTree = None
    for i in range(count):
        tree = layer(i)
        if buffers is None:
            buffers = jax.tree.map(lambda leaf: np.empty((count, *leaf.shape), dtype), tree)
        for buffer, leaf in zip(jax.tree.leaves(buffers), jax.tree.leaves(tree), strict=True):
            buffer[i] = leaf
    return {**jax.tree.map(put, top), "layers": jax.tree.map(put, buffers)}
