"""Measuring: contestants in turns, a round against its own passes, traces, memory."""

from .contest import Contestant, Entry, contest, speculative
from .costs import measure_costs
from .lengths import Forecast, Lengths, Measured, by_length
from .memory import Memory, memory
from .rounds import Pass, RoundCost, round_cost
from .simulated import Simulated, SimulatedCost, simulate, simulated_costs
from .suite import Draft, measure
from .timing import in_turns
from .traces import count_traces

__all__ = [
    "Contestant",
    "Draft",
    "Entry",
    "Forecast",
    "Lengths",
    "Measured",
    "Memory",
    "Pass",
    "RoundCost",
    "Simulated",
    "SimulatedCost",
    "by_length",
    "contest",
    "count_traces",
    "in_turns",
    "measure",
    "measure_costs",
    "memory",
    "round_cost",
    "simulate",
    "simulated_costs",
    "speculative",
]
