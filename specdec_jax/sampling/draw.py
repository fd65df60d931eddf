"""Keys and draws: where the randomness of a round comes from.

Noise is fresh in every round: a row's key is folded with the position at which the round starts, then with the stream
(draft, accept, residual), then with the index in the block. Keying a token by its own position instead would hand to
the next round noise that the block rule has already looked at, and bias it. Only the coupled rule is keyed by absolute
position: it shares its noise between draft and target on purpose.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .._typing import Array, Float, Int, PRNGKeyArray

DRAFT, ACCEPT, RESIDUAL, COUPLED = range(4)


class RoundKeys(NamedTuple):
    """The randomness of one round: each row's own key and the position of the first token that it will commit."""

    row: PRNGKeyArray  # [B]
    start: Int[Array, "B"]


def row_keys(key: PRNGKeyArray, batch: int) -> PRNGKeyArray:
    """One key a row [B]: the keys given, or the key folded with the row's index. The key is consumed."""
    if key.ndim == 1:
        if key.shape[0] != batch:
            raise ValueError(f"key holds {key.shape[0]} keys; expected a single key or one a row, {batch}")
        return key
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jnp.arange(batch, dtype=jnp.int32))


def stream(keys: RoundKeys, stream: int, index: Int[Array, ""] | int = 0) -> PRNGKeyArray:
    """A key a row for one draw of the round."""

    def one(row, start):
        return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(row, start), stream), index)

    return jax.vmap(one)(keys.row, keys.start)


def gumbel(key: PRNGKeyArray, size: int) -> Float[Array, "B V"]:
    """Standard Gumbel noise. Mode "high" keeps the tail that decides tokens rarer than one in a million."""
    return jax.vmap(lambda k: jax.random.gumbel(k, (size,), jnp.float32, mode="high"))(key)


def draw(key: PRNGKeyArray, weights: Float[Array, "B V"]) -> Int[Array, "B"]:
    """One token a row with probability proportional to its weight; a token of weight 0 is never drawn."""
    return jnp.argmax(jnp.log(weights) + gumbel(key, weights.shape[-1]), axis=-1).astype(jnp.int32)


def position_noise(row: PRNGKeyArray, position: Int[Array, "B"], size: int) -> Float[Array, "B V"]:
    """Gumbel noise keyed by (row key, absolute position): the same for every drafter, draft length and batch."""
    one = jax.vmap(lambda k, t: jax.random.fold_in(jax.random.fold_in(k, t), COUPLED))
    return gumbel(one(row, position), size)
