"""What a TPU slice would do with a pair of models, found out without one: compiled for its chips, and read."""

from .copies import Copy
from .programs import Plan, Side, programs, side
from .report import Memory, Report, TooLargeError, compiled
from .roofline import Estimate, estimate
from .topology import CHIPS, Chip, chip_of, devices_of
from .traffic import Exchange, Traffic

__all__ = [
    "CHIPS",
    "Chip",
    "Copy",
    "Estimate",
    "Exchange",
    "Memory",
    "Plan",
    "Report",
    "Side",
    "TooLargeError",
    "Traffic",
    "chip_of",
    "compiled",
    "devices_of",
    "estimate",
    "programs",
    "side",
]
