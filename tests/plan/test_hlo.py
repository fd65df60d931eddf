"""Reading a program's text, on one small enough to know by heart and on one that XLA wrote."""

import re

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from programs import quick
from texts import PROGRAM, looping

from specdec_jax.plan.hlo import collectives, instructions, loops_of_rounds, parsed


def test_collectives_with_their_bytes_and_loops():
    layer, rare = collectives(PROGRAM)
    assert (layer.kind, layer.shapes, layer.bytes) == ("all-reduce", ((4, 8),), 64)
    assert layer.groups == "[2,8]<=[16]"
    assert [loop.trips for loop in layer.loops] == [None, 32]
    assert (rare.shapes, rare.bytes) == (((2,), (2, 3)), 4 * (2 + 6))
    assert rare.groups == "{{0,1},{2,3}}"
    assert [loop.trips for loop in rare.loops] == [None]


@pytest.mark.parametrize(
    ("line", "kind", "shapes"),
    [
        ("%s = bf16[4,8]{1,0} all-reduce-start(%x), replica_groups={{0,1}}", "all-reduce", ((4, 8),)),
        ("%s = (bf16[4]{0}, bf16[8]{0}) all-gather-start(%x), replica_groups={{0,1}}", "all-gather", ((8,),)),
        (
            "%s = ((f32[4]{0}, f32[2]{0}), (f32[8]{0}, f32[4]{0})) all-gather-start(%x, %y), replica_groups={{0,1}}",
            "all-gather",
            ((8,), (4,)),
        ),
        (
            "%s = (f32[4]{0}, f32[4]{0}, u32[], u32[]) collective-permute-start(%x), source_target_pairs={{0,1},{1,0}}",
            "collective-permute",
            ((4,),),
        ),
        ("%s = f32[6]{0} ragged-all-to-all(%x, %y, %z), replica_groups={{0,1}}", "ragged-all-to-all", ((6,),)),
    ],
)
def test_what_begins_counts_for_what_it_brings_alone(line, kind, shapes):
    (found,) = collectives(looping(f"  {line}"))
    assert (found.kind, found.shapes) == (kind, shapes)


def test_loops_of_a_round_are_those_of_unknown_length():
    assert loops_of_rounds(PROGRAM) == []
    inner = PROGRAM.replace("condition=%layers_left", "condition=%running")
    (loop,) = loops_of_rounds(inner)
    assert loop.name == "w.5"


def test_what_xla_writes_can_be_read():
    def f(x):
        def body(_, x):
            return lax.fori_loop(0, 7, lambda _, x: jnp.sin(x @ x), x)

        return lax.fori_loop(0, x[0, 0].astype(jnp.int32), body, x)

    text = quick(f).lower(jax.ShapeDtypeStruct((40, 40), jnp.float32)).compile().as_text() or ""
    trips = {tuple(loop.trips for loop in found.loops) for found in instructions(parsed(text))}
    assert {(), (None,), (None, 7)} <= trips
    assert collectives(text) == []


def test_other_text_is_refused():
    with pytest.raises(ValueError, match=re.escape("no ENTRY computation; expected a compiled program")):
        collectives("module @jit_f {}")
