"""Attention over the cache by the Pallas kernel of paged attention for TPUs that comes with JAX.

A cache of [L, B, G, S, H] is, without moving a number, pages of so many slots by H, and a table of pages says which of
them are a layer's, a row's and a head's. So the kernel reads a layer where it lies, each row's own slots and no others.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from specdec_jax._typing import Array, Float, Int
from specdec_jax.cache import KVCache

from .attention import Visible, attend
from .own_heads import on_own_heads

PAGE = 128
"""Slots."""
_BLOCK = 4
"""Pages that the kernel reads at a time."""
_LANES = 128
_MOST_ROWS = 128
"""Tokens fed times query heads a kv head: as many rows as a TPU multiplies at once. Prompts are read by `attend`."""
_HIDDEN = -0.7 * float(jnp.finfo(jnp.float32).max)


def paged(
    q: Float[Array, "B T G R H"],
    new: tuple[Float[Array, "B T G H"], Float[Array, "B T G H"]],
    cache: KVCache,
    layer: Int[Array, ""] | int,
    seen: Visible,
    *,
    scale: float,
    interpret: bool = False,
) -> Float[Array, "B T G R H"]:
    """`attention.Attend`. What the kernel does not take goes to `attention.attend`: other dtypes than bfloat16,
    windows, prompts, slots that are not whole pages, and heads narrower than a TPU's registers, for which it would have
    the whole cache filled up.

    All tokens fed see the slots before the first of them, which the kernel mixes, and gives out what its softmax was
    divided by; the tokens themselves are added to that. The kernel hides stale slots by adding a large negative number,
    which hides no NaN, so in the rare case that one comes out it is `attend` that says what it should have been.

    ``interpret`` runs the kernel on any platform, slowly.
    """
    T, R, H, S = q.shape[1], *q.shape[3:], cache.k.shape[3]
    sizes_fit = S % PAGE == 0 and H % _LANES == 0 and T * R <= _MOST_ROWS
    if q.dtype != jnp.bfloat16 or cache.k.dtype != jnp.bfloat16 or seen.window is not None or not sizes_fit:
        return attend(q, new, cache, layer, seen, scale=scale)

    def here(q, new, cache, layer, seen):
        mixed = _merge(q, new, *_before(q, cache, layer, seen.first, scale, interpret), scale)
        return lax.cond(
            jnp.isfinite(mixed).all(),
            lambda *_: mixed,
            lambda *given: attend(*given, scale=scale),
            *(q, new, cache, layer, seen),
        )

    return on_own_heads(here, q, new, cache, layer, seen)


def _before(q, cache, layer, first, scale, interpret):
    """Over the slots before each row's ``first``: what the kernel mixes, the highest score, the sum of the weights."""
    B, T, G, R, H = q.shape
    pages = cache.k.shape[3] // PAGE
    rows = jnp.moveaxis(q, 1, 2).reshape(B * G, T * R, H).astype(jnp.float32) * scale
    rows = jnp.pad(rows, ((0, 0), (0, -(T * R) % 8), (0, 0)))
    # The kernel reads whole blocks, so the table runs on past the last page, whose slots are hidden by then.
    page = jnp.minimum(jnp.arange(-(-pages // _BLOCK) * _BLOCK, dtype=jnp.int32), pages - 1)
    table = (layer * (B * G) + jnp.arange(B * G, dtype=jnp.int32))[:, None] * pages + page[None]
    keys, values = (part.reshape(1, -1, PAGE, H) for part in (cache.k, cache.v))
    mixed, top, total = (
        jnp.moveaxis(part[:, : T * R].reshape(B, G, T, R, H), 2, 1)
        for part in _kernel(rows, keys, values, jnp.repeat(first, G), table, interpret)
    )
    return mixed, top[..., :1], total[..., :1]


def _merge(q, new, mixed, top, total, scale):
    """The tokens fed, added to what comes before them."""
    k, v = new
    scores = jnp.einsum("btgrh,bugh->btgru", q, k, preferred_element_type=jnp.float32) * scale
    token = jnp.arange(q.shape[1], dtype=jnp.int32)
    scores = jnp.where((token[:, None] >= token[None])[None, :, None, None], scores, -jnp.inf)
    highest = jnp.maximum(top, scores.max(axis=-1, keepdims=True))
    weights, before = jnp.exp(scores - highest), total * jnp.exp(top - highest)
    added = jnp.einsum("btgru,bugh->btgrh", weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
    return ((mixed * before + added) / (before + weights.sum(axis=-1, keepdims=True))).astype(q.dtype)


def _kernel(
    rows: Float[Array, "N rows H"],
    keys: Float[Array, "1 pages page H"],
    values: Float[Array, "1 pages page H"],
    lengths: Int[Array, "N"],
    table: Int[Array, "N steps"],
    interpret: bool,
) -> Sequence[Float[Array, "N rows H"]]:
    """JAX's kernel, called as its own `paged_attention` calls it, which keeps the sums of the softmax to itself.

    One "query head" of it is a row here: all heads of a group, of all tokens fed.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu
    from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention_kernel

    N, R, H = rows.shape
    block = pl.BlockSpec((None, R, H), lambda core, row, head, *_: (row, 0, 0))
    in_memory = pl.BlockSpec(memory_space=pl.ANY)
    buffer = pltpu.VMEM((2, _BLOCK, keys.shape[2], H), keys.dtype)
    arrived = pltpu.SemaphoreType.DMA((2,))
    call = pl.pallas_call(
        partial(
            paged_attention_kernel.paged_flash_attention_kernel_inline_seq_dim,
            pages_per_sequence=table.shape[1],
            batch_size=N,
            pages_per_compute_block=_BLOCK,
            mask_value=_HIDDEN,
            attn_logits_soft_cap=None,
            megacore_mode=None,
        ),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(1, N, 1),
            in_specs=[block, in_memory, None, in_memory, None],  # None: scales of int8 pages
            out_specs=[block] * 3,
            scratch_shapes=(buffer, None, buffer, None, arrived, arrived),
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary", "arbitrary")),
        out_shape=[jax.ShapeDtypeStruct(rows.shape, jnp.float32)] * 3,
        interpret=interpret,
    )
    number_of_buffer, is_first = jnp.zeros(1, jnp.int32), jnp.ones(1, jnp.int32)
    # The kernel multiplies float32 by bfloat16, and relies on the usual promotion.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return call(lengths, table.reshape(-1), number_of_buffer, is_first, rows, keys, None, values, None)
