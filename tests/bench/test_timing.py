"""Timing in turns, with a clock of its own."""

import pytest

from specdec_jax.bench import in_turns


def test_turns_begin_with_another_each_time_and_times_land_with_their_names():
    called, now = [], [0.0]

    def make(name: str, cost: float):
        def run():
            called.append(name)
            now[0] += cost

        return run

    runs = {"a": make("a", 1.0), "b": make("b", 2.0), "c": make("c", 4.0)}
    seconds = in_turns(runs, 4, clock=lambda: now[0])
    assert seconds == {"a": [1.0] * 4, "b": [2.0] * 4, "c": [4.0] * 4}
    assert "".join(called) == "abcbcacababc"


def test_repeats_must_be_positive():
    with pytest.raises(ValueError, match="repeats is 0; expected >= 1"):
        in_turns({"a": lambda: None}, 0)
