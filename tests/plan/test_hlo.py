"""Reading a program's text, on one small enough to know by heart and on one that XLA wrote."""

import re

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from programs import quick

from specdec_jax.plan.hlo import collectives, copies, instructions

PROGRAM = """\
HloModule jit_f

%add (a.0: bf16[], b.0: bf16[]) -> bf16[] {
  %a.0 = bf16[] parameter(0)
  %b.0 = bf16[] parameter(1)
  ROOT %add.0 = bf16[] add(%a.0, %b.0)
}

%layer (p.1: (s32[], bf16[4,8])) -> (s32[], bf16[4,8]) {
  %p.1 = (s32[], bf16[4,8]{1,0:T(8,128)(2,1)}) parameter(0)
  %x.1 = bf16[4,8]{1,0:T(8,128)(2,1)} get-tuple-element(%p.1), index=1
  %sum.1 = bf16[4,8]{1,0:T(8,128)(2,1)} all-reduce(%x.1), replica_groups=[2,8]<=[16], to_apply=%add
  ROOT %t.1 = (s32[], bf16[4,8]{1,0:T(8,128)(2,1)}) tuple(%i.1, %sum.1)
}

%layers_left (p.2: (s32[], bf16[4,8])) -> pred[] {
  %p.2 = (s32[], bf16[4,8]{1,0}) parameter(0)
  %i.2 = s32[] get-tuple-element(%p.2), index=0
  %n.2 = s32[]{:T(128)} constant(32)
  ROOT %lt.2 = pred[]{:T(512)} compare(%i.2, %n.2), direction=LT
}

%rare (p.3: f32[2]) -> f32[2] {
  %p.3 = f32[2]{0} parameter(0)
  ROOT %r.3 = (f32[2]{0}, f32[2,3]{1,0}) all-reduce(%p.3, %p.3), replica_groups={{0,1},{2,3}}, to_apply=%add
}

%usual (p.4: f32[2]) -> f32[2] {
  ROOT %p.4 = f32[2]{0} parameter(0)
}

%round (p.5: (bf16[4,8], f32[2])) -> (bf16[4,8], f32[2]) {
  %p.5 = (bf16[4,8]{1,0}, f32[2]{0}) parameter(0)
  %w.5 = (s32[], bf16[4,8]{1,0}) while(%p.5), condition=%layers_left, body=%layer
  %turned.5 = bf16[4,8]{0,1} copy(%x.5)
  ROOT %c.5 = f32[2]{0} conditional(%b.5, %p.5, %p.5), branch_computations={%usual, %rare}
}

%running (p.6: (bf16[4,8], f32[2])) -> pred[] {
  %n.6 = s32[] get-tuple-element(%p.6), index=1
  ROOT %lt.6 = pred[] compare(%m.6, %n.6), direction=LT
}

ENTRY %main (a: bf16[4,8]) -> bf16[4,8] {
  %a = bf16[4,8]{1,0} parameter(0)
  %before = bf16[4,8]{0,1} copy(%a)
  ROOT %w.7 = (bf16[4,8]{1,0}, f32[2]{0}) while(%a), condition=%running, body=%round
}
"""


def test_collectives_with_their_bytes_and_loops():
    layer, rare = collectives(PROGRAM)
    assert (layer.kind, layer.shapes, layer.bytes) == ("all-reduce", ((4, 8),), 64)
    assert layer.groups == "[2,8]<=[16]"
    assert [loop.trips for loop in layer.loops] == [None, 32]
    assert (rare.shapes, rare.bytes) == (((2,), (2, 3)), 4 * (2 + 6))
    assert rare.groups == "{{0,1},{2,3}}"
    assert [loop.trips for loop in rare.loops] == [None]


def test_copies_count_inside_loops_only():
    assert copies(PROGRAM, [(4, 8)]) == 1
    assert copies(PROGRAM, [(4, 9)]) == 0


def test_what_xla_writes_can_be_read():
    def f(x):
        def body(_, x):
            return lax.fori_loop(0, 7, lambda _, x: jnp.sin(x @ x), x)

        return lax.fori_loop(0, x[0, 0].astype(jnp.int32), body, x)

    text = quick(f).lower(jax.ShapeDtypeStruct((40, 40), jnp.float32)).compile().as_text() or ""
    trips = {tuple(loop.trips for loop in found.loops) for found in instructions(text)}
    assert {(), (None,), (None, 7)} <= trips
    assert collectives(text) == []


def test_other_text_is_refused():
    with pytest.raises(ValueError, match=re.escape("no ENTRY computation; expected a compiled program")):
        collectives("module @jit_f {}")
