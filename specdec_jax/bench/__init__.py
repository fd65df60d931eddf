"""Measuring: contestants in turns, a round against its own passes, the roofline, traces, memory."""

from .at_batch import Draft, at_batch
from .contest import Answered, Contestant, Entry, contest, in_batches, speculative
from .costs import measure_costs
from .lengths import Forecast, Lengths, Measured, by_length
from .memory import Memory, memory
from .roofline import bandwidth, bytes_read, weight_bytes
from .rounds import Pass, RoundCost, round_cost
from .simulated import Simulated, SimulatedCost, simulate, simulated_costs
from .suite import measure
from .timing import in_turns
from .traces import count_traces
from .useless import useless

__all__ = [
    "Answered",
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
    "at_batch",
    "bandwidth",
    "by_length",
    "bytes_read",
    "contest",
    "count_traces",
    "in_batches",
    "in_turns",
    "measure",
    "measure_costs",
    "memory",
    "round_cost",
    "simulate",
    "simulated_costs",
    "speculative",
    "useless",
    "weight_bytes",
]
