"""Timing in turns, so that a slow moment of the machine does not fall on one contestant alone."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax


def in_turns(
    runs: Mapping[str, Callable[[], Any]], repeats: int, *, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of every run, ``repeats`` times each.

    Every turn calls all runs once, beginning with another one each time, and waits for what they return. Call each of
    them once before, so that nothing is compiled here.
    """
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; expected >= 1")
    names = list(runs)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(repeats):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            started = clock()
            jax.block_until_ready(runs[name]())
            seconds[name].append(clock() - started)
    return seconds
