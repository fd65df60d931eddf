"""Attention over the cache by every kernel, against plain softmax in float64, over caches of several blocks."""

from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu
from marks import at_once
from programs import quick

from specdec_jax.cache import KVCache
from specdec_jax.models import paged_attention
from specdec_jax.models.attention import attend, over_cache, visible, visible_by
from specdec_jax.models.attention_kernels import find
from specdec_jax.models.library_attention import buckets
from specdec_jax.models.paged_attention import paged

B, G, R, L = 3, 2, 3, 2
SLOTS = 1152  # nine blocks and pages, and three buckets; a last block of pages that is not whole
STARTS = [[0, 1, 5], [510, 3, 130], [127, 128, 129], [511, 512, 1148]]


class Case:
    """A kernel, and what it takes. Random numbers are NumPy's, for which nothing is compiled."""

    def __init__(self, attention, H=8, dtype=jnp.float32, tolerance=2e-5):
        self.attention, self.H, self.dtype, self.tolerance = attention, H, dtype, tolerance
        self.step = quick(partial(over_cache, attention, scale=H**-0.5))

    def random(self, *shape, seed, scale=1.0):
        numbers = np.random.default_rng(seed).normal(size=(*shape, self.H))
        return jnp.asarray(scale * numbers, self.dtype)

    def cache(self):
        # Scores differ so much that a slot too many or too few shows.
        return KVCache(*(self.random(L, B, G, SLOTS, seed=seed, scale=4) for seed in (0, 1)))

    def fed(self, T):
        """Queries, keys and values of T tokens a row."""
        q = self.random(B, T, G, R, seed=2, scale=2)
        return q, *(self.random(B, T, G, seed=seed, scale=4) for seed in (3, 4))


def as_cudnn(*args, **options):
    """What is handed to cuDNN, by plain JAX that adds a number wherever a mask or a length hides something."""
    plain = jax.nn.dot_product_attention

    def adding(q, k, v, *, mask, key_value_seq_lengths, implementation, scale):
        assert implementation == "cudnn"
        hidden = (jnp.arange(k.shape[1])[None] >= key_value_seq_lengths[:, None])[:, None, None]
        if mask is not None:
            hidden = hidden | ~mask
        bias = jnp.where(hidden, -2e12, 0.0).astype(q.dtype)
        return plain(q, k, v, bias=jnp.broadcast_to(bias, (B, 1, q.shape[1], k.shape[1])), scale=scale)

    with mock.patch.object(jax.nn, "dot_product_attention", adding):
        return find("cudnn").attend(*args, **options)


CASES = {
    "blocks": Case(attend),
    "blocks-bf16": Case(attend, dtype=jnp.bfloat16, tolerance=0.13),
    "xla": Case(find("xla").attend),
    "cudnn": Case(as_cudnn, dtype=jnp.bfloat16, tolerance=0.13),
    "paged": Case(partial(paged, interpret=True), H=128, dtype=jnp.bfloat16, tolerance=0.13),
}
"""Values are up to 16, of which bfloat16 has steps of 0.0625."""


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def at(starts, T):
    return jnp.array(starts, jnp.int32)[:, None] + jnp.arange(T, dtype=jnp.int32)[None]


def spoil(cache, where, *, keys=None, values=None):
    """The cache with other keys or values at the slots of each row that ``where`` [B, S] says."""

    def put(part, value):
        if value is None:
            return part
        return jnp.where(where[None, :, None, :, None], jnp.asarray(value, part.dtype), part)

    return KVCache(k=put(cache.k, keys), v=put(cache.v, values))


def check(case, starts, T, window, cache, got, q):
    for row, first in enumerate(starts):
        for t in range(T):
            seen = slice(0 if window is None else max(first + t - window + 1, 0), first + t + 1)
            want = softmax_attention(q[row, t], cache.k[1, row, :, seen], cache.v[1, row, :, seen])
            np.testing.assert_allclose(got[row, t].astype(jnp.float32), want, atol=case.tolerance)


def softmax_attention(q, keys, values):
    q, keys, values = (np.asarray(x.astype(jnp.float32), np.float64) for x in (q, keys, values))
    scores = np.einsum("grh,gsh->grs", q, keys) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("grs,gsh->grh", weights / weights.sum(-1, keepdims=True), values)


@pytest.mark.parametrize("stale", at_once([None, jnp.nan, jnp.inf, 1e30], [jnp.nan]))
@pytest.mark.parametrize("window", at_once([None, 1, 5, 130], [None, 5]))
@pytest.mark.parametrize("starts", at_once(STARTS, STARTS[3:]))
@pytest.mark.parametrize("T", [1, 4])
def test_equals_softmax(case, T, starts, window, stale):
    q, k, v = case.fed(T)
    positions = at(starts, T)
    past = jnp.arange(SLOTS)[None] > positions.max(1)[:, None]
    # Keys of stale slots may be anything; their values are finite, see `finite`.
    before = spoil(case.cache(), past, keys=stale)
    got, cache = case.step(q, k, v, before, jnp.int32(1), visible(positions, SLOTS, window))
    assert jnp.array_equal(cache.k[0], before.k[0], equal_nan=True), "another layer was written"
    check(case, starts, T, window, cache, got, q)


@pytest.mark.parametrize("window", [None, 2])
def test_nan_reaches_whom_it_should(case, window):
    """The value of a row's second token fed is NaN in one head: later tokens that see it get NaN in that head."""
    T, starts = 4, [3, 600, 40]
    q, k, v = case.fed(T)
    seen = visible(at(starts, T), SLOTS, window)
    sound, _ = case.step(q, k, v, case.cache(), jnp.int32(1), seen)
    got, cache = case.step(q, k, v.at[1, 1, 0, 0].set(jnp.nan), case.cache(), jnp.int32(1), seen)
    assert jnp.isfinite(cache.v).all()
    lost = np.zeros((B, T, G), bool)
    lost[1, 1 : 4 if window is None else 3, 0] = True
    np.testing.assert_array_equal(np.isnan(got).all((3, 4)), lost)
    np.testing.assert_array_equal(np.isnan(got).any((3, 4)), lost)
    np.testing.assert_allclose(*(x[~lost].astype(jnp.float32) for x in (got, sound)), atol=case.tolerance)


def test_a_nan_seen_before_reaches_whom_it_should(case):
    """The key of a slot that only the first of the tokens fed still sees."""
    T, starts, window = 4, [10, 600, 40], 6
    q, k, v = case.fed(T)
    where = jnp.zeros((B, SLOTS), bool).at[1, starts[1] - window + 1].set(True)
    cache = spoil(case.cache(), where, keys=jnp.nan)
    got, _ = case.step(q, k, v, cache, jnp.int32(1), visible(at(starts, T), SLOTS, window))
    lost = np.zeros((B, T), bool)
    lost[1, 0] = True
    np.testing.assert_array_equal(np.isnan(got).any((2, 3, 4)), lost)


@pytest.mark.parametrize(
    ("name", "starts", "window", "unread"),
    [
        ("blocks", [140, 200, 255], 12, [(0, 128), (256, SLOTS)]),
        ("blocks-bf16", [140, 200, 255], None, [(256, SLOTS)]),
        ("xla", [5, 200, 511], None, [(512, SLOTS)]),
        ("cudnn", [5, 200, 511], 12, [(512, SLOTS)]),
        # Each row's own: four pages at a time.
        ("paged", [5, 512, 1100], None, [(512, SLOTS), (1024, SLOTS), (SLOTS, SLOTS)]),
    ],
)
def test_only_slots_in_use_are_read(name, starts, window, unread):
    """What a program must not touch may be NaN in keys and values alike."""
    case = CASES[name]
    q, k, v = case.fed(1)
    slot = jnp.arange(SLOTS)
    rows = unread if name == "paged" else [unread] * B
    where = jnp.stack(
        [sum(((slot >= a) & (slot < b) for a, b in ([row] if name == "paged" else row)), slot < 0) for row in rows]
    )
    spoilt = spoil(case.cache(), where, keys=jnp.nan, values=jnp.nan)
    got, cache = case.step(q, k, v, spoilt, jnp.int32(1), visible(at(starts, 1), SLOTS, window))
    check(case, starts, 1, window, cache, got, q)


@pytest.mark.parametrize(("T", "starts"), [(1, [0, 600, 1151]), (4, [511, 0, 1148])])
def test_the_paged_kernel_as_a_tpu_runs_it(T, starts, monkeypatch):
    """Copies arrive when they are waited for, what nobody wrote is NaN, and reading past the cache is an error.

    The plain loop does not help out here.
    """
    monkeypatch.setattr(paged_attention, "attend", lambda q, *_, scale: jnp.zeros_like(q))
    case = CASES["paged"]
    q, k, v = case.fed(T)
    with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams(out_of_bounds_reads="raise", uninitialized_memory="nan")):
        step = quick(partial(over_cache, paged, scale=case.H**-0.5))
        got, cache = step(q, k, v, case.cache(), jnp.int32(L - 1), visible(at(starts, T), SLOTS))
    check(case, starts, T, None, cache, got, q)


@pytest.mark.parametrize(
    ("slots", "sizes"),
    [
        (40, [40]),
        (512, [512]),
        (640, [640]),
        (1152, [512, 1152]),
        (2056, [512, 1024, 2056]),
        (2944, [512, 1024, 2048, 2944]),
    ],
)
def test_buckets(slots, sizes):
    assert buckets(slots) == sizes


def test_windows_are_told_apart_from_none_only_where_they_cut():
    assert visible(at([3, 5], 2), 32, 31).window == 31
    wide, none = visible_by([32, None], at([3, 5], 2), 32)
    assert wide.window is None
    assert none.window is None
    narrow, none = visible_by([4, None], at([3, 5], 2), 32)
    assert (narrow.window, none.window) == (4, 32)
    assert jax.tree.structure(narrow) == jax.tree.structure(none)
    np.testing.assert_array_equal(none.mask, wide.mask)
    assert (none.start, none.stop) == (wide.start, wide.stop) == (0, 7)


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        ({}, True),
        ({"dtype": jnp.float32}, False),
        ({"slots": SLOTS + 8}, False),
        ({"window": 9}, False),
        ({"window": SLOTS}, True),
        ({"T": 42}, True),
        ({"T": 43}, False),  # times 3 heads a group: 129 rows
        ({"H": 64}, False),
        ({"H": 256}, True),
    ],
)
def test_what_the_paged_kernel_takes(change, taken):
    usual = {"dtype": jnp.bfloat16, "slots": SLOTS, "window": None, "T": 1, "H": 128}
    dtype, slots, window, T, H = (usual | change).values()
    shapes = (B, T, G, R, H), (B, T, G, H), (L, B, G, slots, H)

    def step(q, new, part):
        return over_cache(paged, q, new, new, KVCache(part, part), 0, visible(at([0] * B, T), slots, window), scale=1.0)

    program = jax.make_jaxpr(step)(*(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes))
    assert ("pallas_call" in str(program)) == taken
