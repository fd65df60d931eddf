"""Training drafters: so far the losses that a student is distilled by."""

from .losses import LOSSES, acceptance, cross_entropy, masked_mean

__all__ = ["LOSSES", "acceptance", "cross_entropy", "masked_mean"]
