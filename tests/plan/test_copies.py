"""Which arrays a loop copies: in lines of a program's text, and in what XLA makes of a program that does."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from programs import quick
from texts import looping

from specdec_jax.plan.copies import CacheCopies, cache_copies, copies

CACHE, LAYER = 4 * 8 * 16, 8 * 16
"""Numbers of the array that goes round in `looping`, of four layers, and of one of these."""


def fused(lines: str, parameters: str = "bf16[4,8,16]{2,1,0}") -> str:
    return f"%fused (a: {parameters}) -> bf16[4,8,16] {{\n  %a = {parameters} parameter(0)\n{lines}\n}}\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%x = bf16[4,8,16]{0,1,2} copy(%c)", ("copy", (4, 8, 16), 2 * CACHE)),
        ("%x = f32[4,8,16]{2,1,0} convert(%c)", ("convert", (4, 8, 16), 4 * CACHE)),
        ("%x = bf16[16,8,4]{2,1,0} transpose(%c), dimensions={2,1,0}", ("transpose", (16, 8, 4), 2 * CACHE)),
        ("%x = bf16[32,16]{1,0} reshape(%c)", ("reshape", (32, 16), 2 * CACHE)),
        ("%x = bf16[4,8,16]{2,1,0} select(%m, %c, %c)", ("select", (4, 8, 16), 2 * CACHE)),
        (
            "%x = bf16[1,8,16]{2,1,0} dynamic-slice(%c, %i, %i, %i), dynamic_slice_sizes={1,8,16}",
            ("dynamic-slice", (1, 8, 16), 2 * LAYER),
        ),
        (
            "%one = bf16[1,8,16]{2,1,0} custom-call(%c)\n"
            "  %x = bf16[4,8,16]{2,1,0} dynamic-update-slice(%c, %one, %i, %i, %i)",
            ("dynamic-update-slice", (1, 8, 16), 2 * LAYER),
        ),
        ("%x = bf16[1,8,16]{2,1,0} slice(%c), slice={[0:1], [0:8], [0:16]}", ("slice", (1, 8, 16), 2 * LAYER)),
    ],
)
def test_instructions_that_copy(line, expected):
    (found,) = copies(looping(f"  {line}"), at_least=LAYER)
    assert (found.operation, found.shape, found.bytes) == expected
    assert not found.near
    assert copies(looping("", before=f"  {line.replace('%c', '%a')}"), at_least=LAYER) == []
    assert copies(looping(f"  {line}"), at_least=CACHE + 1) == []


@pytest.mark.parametrize(
    "line",
    [
        "%x = bf16[512]{0} bitcast(%c)",
        "%x = bf16[4,8,16]{2,1,0} add(%c, %c)",
        "%x = bf16[4,8,16]{2,1,0} broadcast(%i), dimensions={}",
        "%one = bf16[1,8,1]{2,1,0} custom-call(%c)\n"
        "  %x = bf16[4,8,16]{2,1,0} dynamic-update-slice(%c, %one, %i, %i, %i)",
    ],
)
def test_instructions_that_do_not(line):
    assert copies(looping(f"  {line}"), at_least=LAYER) == []


def test_one_that_only_begins_counts_once():
    lines = (
        "  %s = (bf16[4,8,16]{2,1,0:S(1)}, bf16[4,8,16]{2,1,0}, u32[]{:S(2)}) copy-start(%c)\n"
        "  %x = bf16[4,8,16]{2,1,0:T(8,128)(2,1)S(1)} copy-done(%s)"
    )
    (found,) = copies(looping(lines), at_least=LAYER)
    assert (found.operation, found.shape, found.near) == ("copy", (4, 8, 16), True)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("  ROOT %r = bf16[4,8,16]{0,1,2} copy(%a)", ["copy"]),
        (  # on the way to a smaller result, nothing is written
            "  %f = f32[4,8,16]{2,1,0} convert(%a)\n  ROOT %r = f32[4]{0} reduce(%f, %a), dimensions={1,2}",
            [],
        ),
        (  # computed from what is converted
            "  %f = f32[4,8,16]{2,1,0} convert(%a)\n  ROOT %r = f32[4,8,16]{2,1,0} multiply(%f, %f)",
            [],
        ),
        (  # moved after it was computed
            "  %f = bf16[4,8,16]{2,1,0} negate(%a)\n  ROOT %r = bf16[16,8,4]{2,1,0} transpose(%f)",
            [],
        ),
        (
            "  %z = bf16[] constant(0)\n  %o = bf16[4,8,16]{2,1,0} broadcast(%z), dimensions={}\n"
            "  %m = pred[4,8,16]{2,1,0} compare(%a, %o), direction=LT\n"
            "  ROOT %r = bf16[4,8,16]{2,1,0} select(%m, %a, %o)",
            ["select"],
        ),
        (
            "  %c = bf16[4,8,16]{0,1,2} copy(%a)\n  %n = bf16[4,8,16]{2,1,0} negate(%a)\n"
            "  %b = bf16[4,128]{1,0} bitcast(%c)\n"
            "  ROOT %r = (bf16[4,128]{1,0}, bf16[4,8,16]{2,1,0}) tuple(%b, %n)",
            ["copy"],
        ),
        ("  ROOT %r = bf16[512]{0} bitcast(%a)", []),
    ],
)
def test_fusions_count_for_what_they_write(lines, expected):
    call = "  %x = bf16[4,8,16]{2,1,0} fusion(%c), kind=kLoop, calls=%fused"
    found = copies(looping(call, computations=fused(lines)), at_least=LAYER)
    assert [one.operation for one in found] == expected


def test_what_xla_copies_is_found_and_what_it_updates_in_place_is_not():
    def loop(change):
        def f(cache, count):
            return lax.fori_loop(0, count, lambda i, cache: change(cache, i), cache)

        shapes = jax.ShapeDtypeStruct((4, 8, 16), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
        text = quick(f, donate_argnums=0).lower(*shapes).compile().as_text() or ""
        return copies(text, at_least=LAYER)

    def in_place(cache, i):
        return lax.dynamic_update_slice(cache, jnp.ones((1, 8, 1), jnp.float32), (i % 4, 0, i))

    def turned(cache, i):
        return in_place(cache, i)[::-1]

    def a_layer(cache, i):
        return lax.dynamic_update_slice(cache, lax.dynamic_slice_in_dim(cache, i, 1, 0), (3 - i, 0, 0))

    assert loop(in_place) == []
    assert any(one.shape == (4, 8, 16) for one in loop(turned))
    assert {one.shape for one in loop(a_layer)} == {(1, 8, 16)}


OURS, SMALL = (2, 3, 4, 264, 8), (3, 3, 4, 264, 2)
"""Two caches, of which one has a quarter of the other's numbers a layer."""


def copied(shape: str, *, deep: bool = False, layout: str = "") -> CacheCopies:
    """Of a program whose loop makes one copy of this shape, ``deep`` in a loop over blocks."""
    line = f"  %x = bf16[{shape}]{{0{layout}}} copy(%c)"
    if not deep:
        return cache_copies(looping(line), [OURS, SMALL])
    loops = f"""\
%blocks (b: (s32[])) -> (s32[]) {{
  %c = bf16[2,3,4,264,8]{{4,3,2,1,0}} parameter(0)
{line}
}}

%layers (l: (s32[])) -> (s32[]) {{
  %l = (s32[]) parameter(0)
  %w.1 = (s32[]) while(%l), condition=%running, body=%blocks
}}
"""
    return cache_copies(
        looping("  %w.0 = (s32[]) while(%p), condition=%running, body=%layers", "", loops), [OURS, SMALL]
    )


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("2,3,4,264,8", "whole"),
        ("3,3,4,264,2", "whole"),
        ("264,8,24", "whole"),  # turned, and without axes of its own
        ("3,4,264,8", "whole"),  # no layer of the one is less than all of the other
        ("3,4,264,2", "layers"),
        ("1,264,12,2", "layers"),
        ("3,4,33,16", "others"),  # as many numbers, but no slots
        ("4,3,4,264,8", "whole"),  # keys and values at once
        ("8,3,4,264,8", "others"),
        ("265,3,4,8", "others"),
        ("264,30", "others"),
        ("6335,1", ""),
        ("6337,1", "others"),
        ("3,4,264,1", ""),
        ("3,4,128,8", "others"),
    ],
)
def test_how_much_of_a_cache_a_copy_is(shape, expected):
    found = copied(shape)
    assert [name for name, copies in found._asdict().items() if copies] == [expected] * bool(expected)


def test_blocks_that_a_loop_copies_add_up_to_a_layer():
    assert len(copied("3,4,128,2", deep=True).layers) == 1
    assert len(copied("3,4,128,8", deep=True).layers) == 1
    assert copied("3,4,128,2") == copied("3,4,127,2", deep=True) == CacheCopies([], [], [], [])


def test_what_goes_to_fast_memory_alone_is_apart():
    found = copied("2,3,4,264,8", layout=":T(8,128)S(1)")
    assert [len(copies) for copies in found] == [0, 0, 0, 1]
