"""Host and device at work at once: in which order the host gives out work, does its own, and waits.

On the CPU a program that calls back runs while it is given out, so the device cannot tell; what it returns can.
"""

from itertools import takewhile
from typing import Any

import numpy as np
import pytest
from busy import make, requests

from specdec_jax.batch import generator, programs

DECODE, WAIT, DRAW, FETCH, HAND_OUT = "decode", "wait", "draw", "fetch", "hand out"


class Watched:
    """What a program gives back, of which anybody who waits for it is noted."""

    def __init__(self, value: Any, noted: list[str]):
        self.value, self._noted = value, noted

    def block_until_ready(self) -> None:
        self._noted.append(WAIT)

    def __array__(self, *_, **__) -> np.ndarray:
        self._noted.append(WAIT)
        return np.asarray(self.value)


def bare(args: tuple[Any, ...]) -> list[Any]:
    return [arg.value if isinstance(arg, Watched) else arg for arg in args]


@pytest.fixture
def noted(monkeypatch) -> list[str]:
    """What happens, as it happens."""
    noted: list[str] = []
    decode, insert, take, answer = programs.decode, programs.insert, programs.take, generator._answer

    def watched_decode(*args, **options):
        *_, rounds = args
        state, control, reasons = decode(*bare(args), **options)
        if not rounds:  # to build it, before anything runs
            return state, control, reasons
        noted.append(DECODE)
        return Watched(state, noted), control, Watched(reasons, noted)

    def noted_answer(*args):
        noted.append(FETCH)
        return answer(*args)

    monkeypatch.setattr(programs, "decode", watched_decode)
    monkeypatch.setattr(programs, "insert", lambda *args, **options: insert(*bare(args), **options))
    monkeypatch.setattr(programs, "take", lambda *args, **options: take(*bare(args), **options))
    monkeypatch.setattr(generator, "_answer", noted_answer)
    return noted


def test_the_host_does_its_part_while_the_device_decodes(noted):
    def drawn():
        for request in requests(12):
            noted.append(DRAW)
            yield request

    for _ in make("none", max_rounds=2).stretches(drawn()):
        noted.append(HAND_OUT)
    first = noted.index(DECODE)
    assert noted[:first] == [DRAW] * 3 + [HAND_OUT], "nothing is decoded before there are requests"
    last = max(place for place, what in enumerate(noted) if what == DECODE)
    after = noted[first : noted.index(WAIT, last)]
    stretches = [place for place, what in enumerate(after) if what == DECODE]
    assert len(stretches) > 12
    meanwhile = [[*takewhile(lambda what: what != WAIT, after[place + 1 :])] for place in stretches]
    assert all(HAND_OUT in each for each in meanwhile), "it waited for a stretch before it handed out those before"
    # Nothing of its own is left for the time between, when the device stands still.
    waits = [place for place, what in enumerate(after) if what == WAIT]
    between = [[*takewhile(lambda what: what != DECODE, after[place:])] for place in waits]
    assert all({*each} == {WAIT} for each in between)
    assert sum(FETCH in each for each in meanwhile) > 3
    assert sum(DRAW in each for each in meanwhile) > 1
