"""Measuring: contestants in turns, a round against its own passes, traces, memory."""

from .contest import Contestant, Entry, contest, speculative
from .memory import Memory, memory
from .rounds import Pass, RoundCost, round_cost
from .suite import Draft, measure
from .timing import in_turns
from .traces import count_traces

__all__ = [
    "Contestant",
    "Draft",
    "Entry",
    "Memory",
    "Pass",
    "RoundCost",
    "contest",
    "count_traces",
    "in_turns",
    "measure",
    "memory",
    "round_cost",
    "speculative",
]
