"""How fast a slice could be at best: every pass takes as long as its products, its bytes or its messages need."""

import math
from typing import NamedTuple

import jax

from .. import theory
from ..models.config import DecoderConfig
from ..sharding import TENSOR
from .programs import Plan, Side
from .topology import Chip


class Pass(NamedTuple):
    """Seconds of one forward pass; products and memory overlap, messages wait for both."""

    products: float
    memory: float
    messages: float

    @property
    def seconds(self) -> float:
        return max(self.products, self.memory) + self.messages


class Estimate(NamedTuple):
    """Of rounds at one length of the rows."""

    tokens_per_second: float
    """With the drafter, over all chips."""
    plain_tokens_per_second: float
    """Without."""
    round_seconds: float
    step_seconds: float
    """Of plain decoding."""
    tokens_per_round: float
    """Of a row, at the acceptance that was given."""


def estimate(plan: Plan, chip: Chip, *, alpha: float, length: int) -> Estimate:
    """An upper bound: sampling, latencies, and whatever does not overlap come on top.

    Args:
        plan: models, mesh and rows.
        chip: what a chip can do.
        alpha: the probability that a guess is kept, the same for all of them.
        length: tokens of a row, which attention reads.
    """
    step = forward(plan.target, plan, chip, tokens=1, length=length).seconds
    plain = plan.rows / step
    if plan.draft is None:
        return Estimate(plain, plain, step, step, 1.0)
    K = plan.config.draft_length
    verify = forward(plan.target, plan, chip, tokens=K + 1, length=length).seconds
    first = forward(plan.draft, plan, chip, tokens=2, length=length).seconds
    later = forward(plan.draft, plan, chip, tokens=1, length=length).seconds
    whole = verify + first + (K - 1) * later
    tokens = theory.expected_tokens(alpha, K)
    return Estimate(plan.rows * tokens / whole, plain, whole, step, tokens)


def forward(side: Side, plan: Plan, chip: Chip, *, tokens: int, length: int) -> Pass:
    """A pass over so many tokens of each row."""
    config = side.config
    rows = plan.group_rows
    held = _held(side)
    shared = config.num_kv_heads % plan.mesh.shape[TENSOR] == 0
    kv_heads = config.num_kv_heads // (plan.mesh.shape[TENSOR] if shared else 1)
    kv = 2 * rows * _slots(config, length) * kv_heads * config.head_size  # numbers, keys and values
    # Each query head multiplies with a key and a value.
    per_group = getattr(config, "num_heads", config.num_kv_heads) // config.num_kv_heads
    products = 2 * held.multiplied * rows * tokens + 2 * kv * per_group * tokens
    return Pass(
        products=products / chip.flops,
        memory=(held.read + 2 * kv) / chip.memory_bandwidth,
        messages=_ring(plan) * message_bytes(side, plan, tokens=tokens) / chip.link_bandwidth,
    )


def _slots(config: DecoderConfig, length: int) -> int:
    """That attention reads of a row, in all layers together: those with a window read no more than that."""
    window = getattr(config, "sliding_window", None) or length
    windowed = getattr(config, "windowed", ()) or (True,) * config.num_layers
    return sum(min(length, window) if has else length for has in windowed)


def message_bytes(side: Side, plan: Plan, *, tokens: int) -> int:
    """What a pass over so many tokens must all-reduce on a chip: two results [rows, tokens, D] a layer.

    One where attention is whole on every chip, because its kv heads do not divide.
    """
    if _held(side).whole:
        return 0
    rows = plan.group_rows
    reduced = 2 if side.config.num_kv_heads % plan.mesh.shape[TENSOR] == 0 else 1
    return reduced * side.config.num_layers * rows * tokens * side.config.width * 2


def _ring(plan: Plan) -> float:
    """Bytes in and out of a chip for a byte that is all-reduced."""
    return 4 * (plan.mesh.shape[TENSOR] - 1) / plan.mesh.shape[TENSOR]


class _Held(NamedTuple):
    multiplied: int
    """Numbers on a chip that every token is multiplied with,"""
    read: int
    """and their bytes."""
    whole: bool
    """No parameter is divided."""


def _held(side: Side) -> _Held:
    multiplied = [
        (math.prod(leaf.sharding.shard_shape(leaf.shape)), leaf.dtype.itemsize)
        for path, leaf in jax.tree_util.tree_leaves_with_path(side.params)
        # An embedding is looked up, unless it is the head as well.
        if "head" not in side.params or not jax.tree_util.keystr(path).startswith("['embedding']")
    ]
    whole = all(leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(side.params))
    return _Held(sum(count for count, _ in multiplied), sum(count * size for count, size in multiplied), whole)
