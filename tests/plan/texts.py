"""A compiled program's text, small enough to know by heart."""

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
  ROOT %c.5 = f32[2]{0} conditional(%b.5, %p.5, %p.5), branch_computations={%usual, %rare}
}

%running (p.6: (bf16[4,8], f32[2])) -> pred[] {
  %n.6 = s32[] get-tuple-element(%p.6), index=1
  ROOT %lt.6 = pred[] compare(%m.6, %n.6), direction=LT
}

ENTRY %main (a: bf16[4,8]) -> bf16[4,8] {
  %a = bf16[4,8]{1,0} parameter(0)
  ROOT %w.7 = (bf16[4,8]{1,0}, f32[2]{0}) while(%a), condition=%running, body=%round
}
"""


def looping(body: str, before: str = "", computations: str = "") -> str:
    """A program with these lines in a loop, and before it; ``computations`` are what they call."""
    return f"""\
HloModule jit_f

{computations}
%body (p: (bf16[4,8,16])) -> (bf16[4,8,16]) {{
  %p = (bf16[4,8,16]{{2,1,0}}, pred[4,8,16]{{2,1,0}}) parameter(0)
  %c = bf16[4,8,16]{{2,1,0}} get-tuple-element(%p), index=0
  %m = pred[4,8,16]{{2,1,0}} get-tuple-element(%p), index=1
  %i = s32[] constant(1)
{body}
  ROOT %t = (bf16[4,8,16]{{2,1,0}}) tuple(%c)
}}

%running (q: (bf16[4,8,16])) -> pred[] {{
  %q = (bf16[4,8,16]{{2,1,0}}) parameter(0)
  ROOT %more = pred[] custom-call(%q)
}}

ENTRY %main (a: bf16[4,8,16]) -> bf16[4,8,16] {{
  %a = bf16[4,8,16]{{2,1,0}} parameter(0)
{before}
  ROOT %w = (bf16[4,8,16]{{2,1,0}}) while(%a), condition=%running, body=%body
}}
"""
