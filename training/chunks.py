"""Sums over positions whose logits would not fit into memory together."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from specdec_jax._typing import Array, Bool, Float

PerPosition = Callable[..., tuple[Array, Array]]
"""``(*arrays [n, ...]) -> two numbers a position [n, *S]``"""


def sums_in_chunks(
    per_position: PerPosition, mask: Bool[Array, "N *S"], *arrays: Array, chunk: int
) -> tuple[Float[Array, "*S"], Float[Array, "*S"]]:
    """Sums over the positions of ``mask`` of the two numbers that ``per_position`` gives for each.

    Positions go through in chunks, and the backward pass computes each chunk again, so that logits [N, V] never exist.
    """
    rest = -mask.shape[0] % chunk
    pieces = [
        jnp.pad(x, ((0, rest), *[(0, 0)] * (x.ndim - 1))).reshape(-1, chunk, *x.shape[1:]) for x in (mask, *arrays)
    ]

    @jax.checkpoint
    def one(sums, piece):
        counts, *parts = piece
        numbers = per_position(*parts)
        # What is masked may be infinite, and so may its gradient: it is replaced before it is summed.
        return tuple(s + jnp.where(counts, n, 0).sum(0) for s, n in zip(sums, numbers, strict=True)), None

    nothing = jnp.zeros(mask.shape[1:], jnp.float32)
    return jax.lax.scan(one, (nothing, nothing), tuple(pieces))[0]
