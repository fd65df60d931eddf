"""Sums over positions whose logits would not fit into memory together."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from specdec_jax._typing import Array, Bool, Float

PerPosition = Callable[..., tuple[Array, Array]]
"""``(*arrays [n, ...]) -> two numbers a position [n, S]``"""


def sums_in_chunks(
    per_position: PerPosition, mask: Bool[Array, "B T S"], *arrays: Array, chunk: int
) -> tuple[Float[Array, "S"], Float[Array, "S"]]:
    """Sums over the positions of ``mask`` of the S times two numbers that ``per_position`` gives for each.

    Some ``chunk`` positions go through at a time, and the backward pass computes each chunk again, so that logits
    [B, T, V] never exist. Positions that count in no way are moved behind the others within their row, and a chunk of
    nothing else is left out.
    """
    B, T = mask.shape[:2]
    width = max(1, chunk // B)
    order = jnp.argsort(~mask.any(-1), axis=1, stable=True)

    def in_pieces(x: Array) -> Array:
        x = jnp.take_along_axis(x, order.reshape(B, T, *[1] * (x.ndim - 2)), axis=1)
        x = jnp.pad(x, ((0, 0), (0, -T % width), *[(0, 0)] * (x.ndim - 2)))
        # Rows stay in front, so that a batch that is divided over devices stays divided.
        return jnp.moveaxis(x.reshape(B, -1, width, *x.shape[2:]), 1, 0).reshape(-1, B * width, *x.shape[2:])

    def numbers(sums, piece):
        counts, *parts = piece
        # What is masked may be infinite: it is replaced before it is summed.
        found = per_position(*parts)
        return tuple(s + jnp.where(counts, n, 0).sum(0) for s, n in zip(sums, found, strict=True))

    @jax.checkpoint
    def one(sums, piece):
        return jax.lax.cond(piece[0].any(), numbers, lambda sums, piece: sums, sums, piece), None

    nothing = jnp.zeros(mask.shape[2:], jnp.float32)
    return jax.lax.scan(one, (nothing, nothing), tuple(in_pieces(x) for x in (mask, *arrays)))[0]
