"""Where each parameter stands in Hugging Face's files, said once for reading and for writing."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

Shape = tuple[int, ...]


class Leaf(NamedTuple):
    """One parameter of a model, or of each of its layers."""

    path: tuple[str, ...]
    """In the tree of parameters."""
    shape: Shape
    """Of the parameter."""
    parts: Mapping[str, Shape]
    """The tensors it is made of, by their names in a file (below the layer's prefix), with their shapes there."""
    places: Callable[[np.ndarray], list[list[np.ndarray]]]
    """Where each tensor lies in the parameter: views of it, whose rows one after the other are the tensor's rows. What
    is one axis of a tensor's row may be several of a view's."""


class Spec(NamedTuple):
    """All parameters of a model."""

    top: Sequence[Leaf]
    layer: Sequence[Leaf]
    """Those that every layer has."""
    prefix: str
    """In front of a layer's names, with ``{}`` for its index."""
    num_layers: int

    def name(self, part: str, index: int) -> str:
        """Of a layer's tensor."""
        return self.prefix.format(index) + part

    def shapes(self) -> dict[str, Shape]:
        """Every tensor of the model by its name in the file."""
        found = {name: shape for leaf in self.top for name, shape in leaf.parts.items()}
        for index in range(self.num_layers):
            found |= {self.name(part, index): shape for leaf in self.layer for part, shape in leaf.parts.items()}
        return found


def same(path: str, name: str, shape: Shape) -> Leaf:
    """A parameter that is stored as it is; ``path`` has dots between its parts."""
    return Leaf(tuple(path.split(".")), shape, {name: shape}, lambda array: [[array]])


def transposed(path: str, name: str, shape: Shape) -> Leaf:
    """A weight stored [in, out] in ``shape``."""
    return Leaf(tuple(path.split(".")), shape[::-1], {name: shape}, lambda array: [[array.T]])


def stacked(path: str, names: Sequence[str], shape: Shape) -> Leaf:
    """Tensors of one shape side by side, such as gate and up."""
    shapes = dict.fromkeys(names, shape)
    return Leaf(tuple(path.split(".")), (len(names), *shape), shapes, lambda array: [[part] for part in array])


def joined(leaf: Leaf, name: str) -> Leaf:
    """The same parameter, of which all tensors are stored below each other in one."""
    rows = sum(shape[0] for shape in leaf.parts.values())
    (rest,) = {shape[1:] for shape in leaf.parts.values()}
    return leaf._replace(
        parts={name: (rows, *rest)}, places=lambda array: [list(chain.from_iterable(leaf.places(array)))]
    )


class Heads(NamedTuple):
    """How queries, keys and values are grouped: a group's R queries, then its key, then its value."""

    queries: int
    groups: int
    size: int

    def leaf(self, path: str, names: Sequence[str], rest: Shape) -> Leaf:
        """q [N * H, ...], k and v [G * H, ...] as tensors of their own, in a parameter [G, R + 2, H, ...]."""
        R = self.queries // self.groups
        rows = (self.queries * self.size, self.groups * self.size, self.groups * self.size)
        parts = {name: (count, *rest) for name, count in zip(names, rows, strict=True)}

        def places(array: np.ndarray) -> list[list[np.ndarray]]:
            heads = [slice(R), slice(R, R + 1), slice(R + 1, R + 2)]
            return [[group[part].reshape(-1, *rest) for group in array] for part in heads]

        return Leaf(tuple(path.split(".")), (self.groups, R + 2, self.size, *rest), parts, places)


def gated_layer(heads: Heads, width: int, inner: int, *, qkv_bias: bool, out_bias: bool, mlp_bias: bool) -> list[Leaf]:
    """Attention and a gated feed-forward layer, each product in a tensor of its own, as most families name them."""
    attention, mlp, out = [], [], []
    for kind, rest, wanted in (("weight", (width,), True), ("bias", (), qkv_bias)):
        names = [f"self_attn.{part}_proj.{kind}" for part in "qkv"]
        attention += [heads.leaf(f"attention.qkv.{kind}", names, rest)] * wanted
    for kind, rest, wanted in (("weight", (heads.queries * heads.size,), True), ("bias", (), out_bias)):
        out += [same(f"attention.out.{kind}", f"self_attn.o_proj.{kind}", (width, *rest))] * wanted
    for kind, wanted in (("weight", True), ("bias", mlp_bias)):
        names = [f"mlp.{part}_proj.{kind}" for part in ("gate", "up")]
        mlp += [stacked(f"mlp.gate_up.{kind}", names, (inner, width)[: 1 + (kind == "weight")])] * wanted
        down = (width, inner)[: 1 + (kind == "weight")]
        mlp += [same(f"mlp.down.{kind}", f"mlp.down_proj.{kind}", down)] * wanted
    return [*attention, *out, *mlp]


def pre_norms(width: int) -> list[Leaf]:
    """The two norms of a layer, by the names that most families give them."""
    return [
        same("attention_norm.weight", "input_layernorm.weight", (width,)),
        same("mlp_norm.weight", "post_attention_layernorm.weight", (width,)),
    ]


def head_norms(size: int) -> list[Leaf]:
    """Norms of each head's query and key."""
    return [same(f"attention.{part}_norm.weight", f"self_attn.{part}_norm.weight", (size,)) for part in "qk"]


def around(vocab_size: int, width: int, *, tied_head: bool) -> list[Leaf]:
    """Embedding, final norm and head, by the names that most families give them."""
    leaves = [
        same("embedding.weight", "model.embed_tokens.weight", (vocab_size, width)),
        same("norm.weight", "model.norm.weight", (width,)),
    ]
    return leaves if tied_head else [*leaves, same("head.weight", "lm_head.weight", (vocab_size, width))]
