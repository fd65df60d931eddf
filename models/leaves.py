"""Where each parameter stands in Hugging Face's files, said once for reading and for writing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

Shape = tuple[int, ...]


class Leaf(NamedTuple):
    """One parameter of a model, or of each of its layers."""

    path: tuple[str, ...]
    """In the tree of parameters."""
    parts: Mapping[str, Shape]
    """The tensors it is made of, by their names in a file (below the layer's prefix), with their shapes there."""
    join: Callable[[list[np.ndarray]], np.ndarray]
    """From these tensors, in this order, to the parameter."""
    split: Callable[[np.ndarray], list[np.ndarray]]
    """And back."""
    layout: Literal["as stored", "stacked", "joined"] = "joined"
    """``as stored``: it is its one tensor. ``stacked``: its tensors one after the other along a new first axis. Both
    can be read some rows at a time."""

    def shape(self) -> Shape | None:
        """Of the parameter, None for one that has to be joined."""
        first = next(iter(self.parts.values()))
        return {"as stored": first, "stacked": (len(self.parts), *first), "joined": None}[self.layout]


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
    return Leaf(tuple(path.split(".")), {name: shape}, lambda arrays: arrays[0], lambda array: [array], "as stored")


def transposed(path: str, name: str, shape: Shape) -> Leaf:
    """A weight stored [in, out] in ``shape``."""
    return Leaf(tuple(path.split(".")), {name: shape}, lambda arrays: arrays[0].T, lambda array: [array.T])


def stacked(path: str, names: Sequence[str], shape: Shape) -> Leaf:
    """Tensors of one shape side by side, such as gate and up."""
    return Leaf(tuple(path.split(".")), dict.fromkeys(names, shape), np.stack, list, "stacked")


class Heads(NamedTuple):
    """How queries, keys and values are grouped: a group's R queries, then its key, then its value."""

    queries: int
    groups: int
    size: int

    def join(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """From q [N * H, ...], k and v [G * H, ...] to [G, R + 2, H, ...]."""
        return np.concatenate([a.reshape(self.groups, -1, self.size, *a.shape[1:]) for a in arrays], axis=1)

    def split(self, array: np.ndarray) -> list[np.ndarray]:
        """And back."""
        parts = array[:, :-2], array[:, -2], array[:, -1]
        return [part.reshape(-1, *array.shape[3:]) for part in parts]

    def rows(self) -> tuple[int, int, int]:
        """Rows of q, k and v."""
        return self.queries * self.size, self.groups * self.size, self.groups * self.size

    def separate(self, path: str, names: Sequence[str], rest: Shape) -> Leaf:
        """q, k and v as tensors of their own, each [rows, *rest]."""
        parts = {name: (rows, *rest) for name, rows in zip(names, self.rows(), strict=True)}
        return Leaf(tuple(path.split(".")), parts, self.join, self.split)

    def fused(self, path: str, name: str, rest: Shape) -> Leaf:
        """q, k and v below each other in one tensor [rows, *rest]."""
        q, k, v = self.rows()
        return Leaf(
            tuple(path.split(".")),
            {name: (q + k + v, *rest)},
            lambda arrays: self.join(np.split(arrays[0], (q, q + k))),
            lambda array: [np.concatenate(self.split(array))],
        )


def transpose_stored(leaf: Leaf) -> Leaf:
    """The same leaf of tensors that are stored the other way round."""
    return leaf._replace(
        layout="joined",
        parts={name: shape[::-1] for name, shape in leaf.parts.items()},
        join=lambda arrays: leaf.join([array.T for array in arrays]),
        split=lambda array: [part.T for part in leaf.split(array)],
    )


def gated_layer(heads: Heads, width: int, inner: int, *, qkv_bias: bool, out_bias: bool, mlp_bias: bool) -> list[Leaf]:
    """Attention and a gated feed-forward layer, each product in a tensor of its own, as most families name them."""
    attention, mlp, out = [], [], []
    for kind, rest, wanted in (("weight", (width,), True), ("bias", (), qkv_bias)):
        names = [f"self_attn.{part}_proj.{kind}" for part in "qkv"]
        attention += [heads.separate(f"attention.qkv.{kind}", names, rest)] * wanted
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
