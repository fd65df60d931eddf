"""Keys and draws: where the randomness of a round comes from.

Noise is fresh in every round: a row's key is folded with the position at which the round starts, then with the stream
(draft, accept, residual), then with the index in the block. Keying a token by its own position instead would hand to
the next round noise that the block rule has already looked at, and bias it. Only the coupled rule is keyed by absolute
position: it shares its noise between draft and target on purpose.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .._typing import Array, Float, Int, Key, UInt32

DRAFT, ACCEPT, RESIDUAL, COUPLED = range(4)
_GROUP = 128
_SHARES = 16


class RoundKeys(NamedTuple):
    """The randomness of one round: each row's own key and the position of the first token that it will commit."""

    row: Key[Array, "B"]
    start: Int[Array, "B"]


def row_keys(key: Key[Array, "*b"] | UInt32[Array, "..."], batch: int) -> Key[Array, "{batch}"]:
    """One key a row [B]: the keys given, or the key folded with the row's index. The key is consumed.

    Keys in the old form, `jax.random.PRNGKey`, are taken as well.
    """
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        shape = key.shape
        try:
            key = jax.random.wrap_key_data(key)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"key has the shape {shape} of the data of no key ({error}); expected a key of JAX's, such as "
                "jax.random.key(0), or one a row"
            ) from error
    if key.ndim > 1:
        raise ValueError(f"key holds keys of shape {key.shape}; expected a single key or one a row, {batch}")
    if key.ndim == 1:
        if key.shape[0] != batch:
            raise ValueError(f"key holds {key.shape[0]} keys; expected a single key or one a row, {batch}")
        return key
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jnp.arange(batch, dtype=jnp.int32))


def stream(keys: RoundKeys, stream: int, index: Int[Array, ""] | int = 0) -> Key[Array, "B"]:
    """A key a row for one draw of the round."""

    def one(row, start):
        return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(row, start), stream), index)

    return jax.vmap(one)(keys.row, keys.start)


def first_argmax(x: Float[Array, "*b V"]) -> Int[Array, "*b"]:
    """The index of the largest value, the lowest on ties. Two plain reductions, which compilers vectorise where a
    reduction over pairs (value, index) often runs element by element."""
    V = x.shape[-1]
    index = jax.lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)
    return jnp.where(x == x.max(-1, keepdims=True), index, V - 1).min(-1)


def gumbel(key: Key[Array, "B"], size: int) -> Float[Array, "B V"]:
    """Standard Gumbel noise. Mode "high" keeps the tail that decides tokens rarer than one in a million.

    The barrier keeps the noise out of the reductions that read it: fused, they would draw it several times over.
    """
    noise = jax.vmap(lambda k: jax.random.gumbel(k, (size,), jnp.float32, mode="high"))(key)
    return jax.lax.optimization_barrier(noise)


def draw(key: Key[Array, "B"], weights: Float[Array, "B V"]) -> Int[Array, "B"]:
    """One token a row with probability proportional to its weight; a token of weight 0 is never drawn.

    A Gumbel race in two heats: the maximum of a group's racers is itself a racer with the group's summed weight, so the
    winning group is drawn first and the token within it second. That takes some V / 128 + 128 noises instead of V.
    No group is divided when up to 16 devices share a vocabulary that is a multiple of 16; of the weights, they then
    exchange one group a row.
    """
    batch, V = weights.shape
    shares = math.gcd(V, _SHARES)
    size = min(V // shares, _GROUP)
    groups = -(-V // shares // size)  # of a share
    weights = weights.reshape(batch, shares, V // shares)
    weights = jnp.pad(weights, ((0, 0), (0, 0), (0, groups * size - V // shares))).reshape(batch, shares * groups, size)
    heats = jax.vmap(jax.random.split)(key)
    group = first_argmax(jnp.log(weights.sum(-1)) + gumbel(heats[:, 0], shares * groups))
    within = jnp.take_along_axis(weights, group[:, None, None], axis=1)[:, 0]
    member = first_argmax(jnp.log(within) + gumbel(heats[:, 1], size))
    return group // groups * (V // shares) + group % groups * size + member


def position_noise(row: Key[Array, "B"], position: Int[Array, "B"], size: int) -> Float[Array, "B V"]:
    """Gumbel noise keyed by (row key, absolute position): the same for every drafter, draft length and batch."""
    one = jax.vmap(lambda k, t: jax.random.fold_in(jax.random.fold_in(k, t), COUPLED))
    return gumbel(one(row, position), size)
