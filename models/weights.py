"""From named tensors in a file to the parameters of a model, and back."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from specdec_jax._typing import Array, PyTree
from specdec_jax.sharding import put

from .errors import LoadError
from .int8 import Int8Weight, rounded
from .leaves import Leaf, Spec

HEAD = "lm_head.weight"
"""Every family's name for a head of its own."""

_MOST_LISTED = 8
_ALIGNMENT = 64

_BLOCK_BYTES = 1 << 22


class Tensors(NamedTuple):
    """The tensors of a file or directory, under the names that Hugging Face gives them."""

    path: str
    shapes: Mapping[str, tuple[int, ...]]
    blocks: Callable[[str], Iterable[np.ndarray]]
    """A tensor in a float dtype, some rows at a time from the first to the last; nothing is kept."""


def row_blocks(shape: tuple[int, ...], multiple: int = 1) -> Iterator[slice]:
    """Rows of a tensor in order, so many at a time that they take little memory in float32, and whole multiples."""
    rows = max(1, _BLOCK_BYTES // (4 * math.prod(shape[1:]) * multiple)) * multiple
    for start in range(0, shape[0], rows):
        yield slice(start, min(start + rows, shape[0]))


def renamed(tensors: Tensors, rename: Callable[[str], str | None]) -> Tensors:
    """The same tensors under other names; those whose new name is None are left out."""
    source: dict[str, str] = {}
    for name in tensors.shapes:
        new = rename(name)
        if new is not None:
            source[new] = name
    shapes = {new: tensors.shapes[name] for new, name in source.items()}
    return tensors._replace(
        shapes=shapes,
        blocks=lambda name: tensors.blocks(source[name]),
    )


def check_tensors(
    path: object,
    shapes: Mapping[str, tuple[int, ...]],
    expected: Mapping[str, tuple[int, ...]],
    ignored: Iterable[str] = (),
) -> None:
    """Raise one LoadError that counts the missing, mis-shaped and unexpected tensors, and names the first of each."""
    missing = [name for name in expected if name not in shapes]
    wrong = [
        f"{name} is {list(shapes[name])} instead of {list(shape)}"
        for name, shape in expected.items()
        if name in shapes and tuple(shapes[name]) != tuple(shape)
    ]
    ignored = set(ignored)
    unexpected = [name for name in shapes if name not in expected and name not in ignored]
    problems = [
        f"{len(items)} {what}: {_listed(items)}"
        for what, items in (("missing", missing), ("of another shape", wrong), ("unexpected", unexpected))
        if items
    ]
    if problems:
        raise LoadError(
            f"the tensors of {path} do not fit its configuration: {'; '.join(problems)}. Expected "
            f"{len(expected)} tensors; check that the configuration and the weights belong to the same model"
        )


def _listed(items: list[str]) -> str:
    more = len(items) - _MOST_LISTED
    return ", ".join(items[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def has_own_head(spec: Spec, tensors: Tensors) -> bool:
    """Whether there is a head beside the embedding that is no copy of it, whatever the configuration says.

    Such a head counts, as in transformers: it would be lost without a word. Nothing is read of an embedding of another
    shape than the model's, which `assemble` refuses.
    """
    ((embedding, shape),) = next(leaf.parts for leaf in spec.top if leaf.path == ("embedding", "weight")).items()
    if HEAD not in tensors.shapes or tensors.shapes.get(embedding) != shape:
        return False
    if tensors.shapes[embedding] != tensors.shapes[HEAD]:
        return True
    blocks = zip(tensors.blocks(embedding), tensors.blocks(HEAD), strict=True)
    return not all(np.array_equal(ours, theirs) for ours, theirs in blocks)


def assemble(
    spec: Spec, tensors: Tensors, *, stacked: bool, dtype: jnp.dtype, shardings: PyTree = None
) -> dict[Any, Any]:
    """The parameters that a spec describes, after a check of all names and shapes.

    Tensors are read one at a time and parameters made one at a time, the largest first: the host never holds more than
    what is done, the parameter in the making, and some rows of a tensor. With ``shardings``, a tree like the
    parameters, each device is given its part alone, and what has the places of an `Int8Weight` is rounded to one.
    """
    expected = spec.shapes()
    # Old checkpoints store RoPE's frequencies, and some a second copy of a tied head (see `has_own_head`).
    ignored = [name for name in tensors.shapes if name.endswith("rotary_emb.inv_freq") or name == HEAD]
    check_tensors(tensors.path, tensors.shapes, expected, ignored)

    def fill(buffer: np.ndarray, leaf: Leaf, names: list[str]) -> np.ndarray:
        for name, places in zip(names, leaf.places(buffer), strict=True):
            _fill(places, tensors.blocks(name))
        return buffer

    def made(leaf: Leaf, names: list[str]) -> np.ndarray:
        """In a buffer of its own: what is read may be a view of the file."""
        return fill(aligned(leaf.shape, dtype), leaf, names)

    def of_all_layers(leaf: Leaf) -> np.ndarray:
        buffer = aligned((spec.num_layers, *leaf.shape), dtype)
        for index in range(spec.num_layers):
            fill(buffer[index], leaf, of_layer(leaf, index))
        return buffer

    def of_layer(leaf: Leaf, index: int) -> list[str]:
        return [spec.name(part, index) for part in leaf.parts]

    jobs: list[tuple[int, tuple[Any, ...], Callable[[], np.ndarray]]] = [
        (math.prod(leaf.shape), leaf.path, lambda leaf=leaf: made(leaf, list(leaf.parts))) for leaf in spec.top
    ]
    for leaf in spec.layer:
        if stacked:
            size = spec.num_layers * math.prod(leaf.shape)
            jobs.append((size, ("layers", *leaf.path), lambda leaf=leaf: of_all_layers(leaf)))
        else:
            jobs += [
                (
                    math.prod(leaf.shape),
                    ("layers", index, *leaf.path),
                    lambda leaf=leaf, index=index: made(leaf, of_layer(leaf, index)),
                )
                for index in range(spec.num_layers)
            ]
    params: dict[Any, Any] = {}
    for _, path, make in sorted(jobs, key=lambda job: -job[0]):
        # On the CPU the buffer, which nobody else has, becomes the array; jnp.asarray would hold three of them.
        _put(params, path, _placed(make(), shardings and _get(shardings, path)))
    return params


def _placed(array: np.ndarray, where: Sharding | Int8Weight | None) -> Array | Int8Weight:
    return Int8Weight(*map(put, int8_rows(array), where)) if isinstance(where, Int8Weight) else put(array, where)


def int8_rows(weight: np.ndarray) -> Int8Weight:
    """A matrix rounded on the host, some rows at a time."""
    rows = weight.reshape(-1, weight.shape[-1])
    values, scale = aligned(rows.shape, jnp.dtype(jnp.int8)), aligned(rows.shape[:1], jnp.dtype(jnp.float32))
    for part in row_blocks(rows.shape):
        values[part], scale[part] = rounded(rows[part], np)
    return Int8Weight(values.reshape(weight.shape), scale.reshape(weight.shape[:-1]))


def aligned(shape: tuple[int, ...], dtype: jnp.dtype) -> np.ndarray:
    """An empty buffer that starts where XLA:CPU wants arrays to start, or it would copy it."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def _fill(places: Sequence[np.ndarray], blocks: Iterable[np.ndarray]) -> None:
    """Copy a tensor, some rows at a time, to where its rows belong."""
    left = list(places)
    for block in blocks:
        while len(block):
            place = left.pop(0)
            count = min(len(block), len(place))
            place[:count] = block[:count].reshape(place[:count].shape)
            block = block[count:]
            if count < len(place):
                left.insert(0, place[count:])
    assert not left, "blocks are all of a tensor"


def _put(tree: dict[Any, Any], path: tuple[Any, ...], value: Array | Int8Weight) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def tensors_of(spec: Spec, params: PyTree) -> Iterator[tuple[str, np.ndarray]]:
    """The inverse: every tensor of a model by its name in Hugging Face's files, layer by layer."""

    def parts(leaf: Leaf, array: jax.Array) -> Iterator[tuple[str, np.ndarray]]:
        for (name, shape), places in zip(leaf.parts.items(), leaf.places(np.asarray(array)), strict=True):
            rows = [place.reshape(-1, *shape[1:]) for place in places]
            yield name, rows[0] if len(rows) == 1 else np.concatenate(rows)

    for leaf in spec.top:
        yield from parts(leaf, _get(params, leaf.path))
    layers = params["layers"]
    for index in range(spec.num_layers):
        for leaf in spec.layer:
            array = _get(layers, leaf.path)[index] if is_stacked(params) else _get(layers[index], leaf.path)
            for part, value in parts(leaf, array):
                yield spec.name(part, index), value


def is_stacked(params: PyTree) -> bool:
    """Whether all layers lie in one array a parameter; otherwise layers are kept by their index."""
    return 0 not in params["layers"]


def _get(tree: PyTree, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree
