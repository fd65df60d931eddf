"""Sampling: the values, the transforms from logits to distributions, and the draws."""

from .draw import RoundKeys, draw, row_keys
from .params import SamplingParams
from .transforms import probabilities

__all__ = ["RoundKeys", "SamplingParams", "draw", "probabilities", "row_keys"]
