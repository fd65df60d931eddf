"""Collectives of a round, counted by the loops that they stand in."""

import pytest
from small_plans import ROWS, plan_of

from specdec_jax.plan.hlo import Collective, Loop
from specdec_jax.plan.traffic import exchanges, traffic

ROUNDS, FIRST, LATER, NARROW, WIDE = (Loop(name, None) for name in ("rounds", "first", "later", "narrow", "wide"))
LAYERS = Loop("layers", 3)
PARTS = [FIRST, LATER, NARROW, WIDE]


def reduced(*shape: int, loops: tuple[Loop, ...], size: int = 2) -> Collective:
    count = size
    for axis in shape:
        count *= axis
    return Collective("all-reduce", (shape,), count, "[2,4]<=[8]", (ROUNDS, *loops))


INSIDE = [
    reduced(ROWS, 2, 16, loops=(FIRST,)),
    reduced(ROWS, 16, loops=(LATER,)),
    reduced(ROWS, 1, 16, loops=(NARROW, LAYERS)),
    reduced(ROWS, 4, 16, loops=(WIDE, LAYERS)),
    reduced(ROWS, 4, 16, loops=(WIDE, LAYERS)),
    reduced(ROWS, 4, 16, loops=(WIDE,)),
    reduced(ROWS, 24, loops=(), size=4),
]


def test_each_counts_as_often_as_a_round_of_all_guesses_has_it():
    found = exchanges(plan_of(), INSIDE, PARTS)
    assert [(one.shapes[0], one.times) for one in found] == [
        ((ROWS, 4, 16), 2 * 3 + 1),
        ((ROWS, 24), 1),  # 4 bytes a number
        ((ROWS, 2, 16), 1),
        ((ROWS, 16), 2),
        ((ROWS, 1, 16), 0),
    ]
    assert found[0].bytes == ROWS * 4 * 16 * 2


def test_traffic_is_their_sum():
    found = traffic(plan_of(), exchanges(plan_of(), INSIDE, PARTS))
    states = 7 * 4 + 2 + 2  # rows of 16 numbers
    assert found.bytes == ROWS * (states * 16 * 2 + 24 * 4)
    assert found.least_bytes == 2 * ROWS * 16 * 2 * (3 * 4 + 2 + 2)  # twice a layer: of the target, of the drafter
    assert found.largest_other == 24 * 4
    assert found.messages == 7 + 1 + 1 + 2


def test_plain_decoding_has_one_pass_and_no_loops_of_unknown_length():
    plain = plan_of(draft=False)
    found = traffic(plain, exchanges(plain, [reduced(ROWS, 1, 16, loops=(LAYERS,))], []))
    assert (found.bytes, found.least_bytes) == (3 * ROWS * 16 * 2, 2 * 3 * ROWS * 16 * 2)


def test_another_round_than_ours_is_refused():
    with pytest.raises(ValueError, match="the round has 3 loops of unknown length; expected 4"):
        exchanges(plan_of(), INSIDE, PARTS[:3])
