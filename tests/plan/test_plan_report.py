"""A plan fits where all of its programs do."""

import pytest

from specdec_jax.plan import CHIPS, Memory, Report, Traffic
from specdec_jax.plan.copies import CacheCopies
from specdec_jax.plan.report import Program

CHIP = CHIPS["v5e"]
KINDS = Memory._fields
SMALL = Memory(*[int(1e9)] * len(KINDS))


def report(**memory: Memory) -> Report:
    short, long, decode = (Program(1.0, memory.get(name, SMALL)) for name in ("short", "long", "decode"))
    return Report({64: short, 2048: long}, decode, Traffic(0, 0, 0, 0), [], CacheCopies([], [], [], []))


def test_exactly_full_is_not_too_full():
    full = SMALL._replace(params=int(CHIP.memory) - SMALL.total + SMALL.params)
    assert report(short=full, long=full, decode=full).fits(CHIP)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("large", ["short", "long", "decode"])
def test_one_program_with_a_byte_too_many_of_any_kind_does_not_fit(large, kind):
    over = SMALL._replace(**{kind: int(CHIP.memory) - SMALL.total + getattr(SMALL, kind) + 1})
    assert report().fits(CHIP)
    assert not report(**{large: over}).fits(CHIP)
