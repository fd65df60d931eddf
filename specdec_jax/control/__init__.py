"""Controllers of the draft length, by name. One added to CONTROLLERS is swept by the exactness suite at once."""

from collections.abc import Callable
from functools import partial

from .adaptive import adaptive
from .constant import constant
from .controller import Controller, Outcome
from .costs import Costs, estimate

CONTROLLERS: dict[str, Callable[[], Controller]] = {
    "constant": constant,
    "adaptive": adaptive,
    "throughput": partial(adaptive, "throughput"),
}
"""Builders, of nothing. Equal arguments give the same controller, so that nothing compiles anew."""

__all__ = ["CONTROLLERS", "Controller", "Costs", "Outcome", "adaptive", "constant", "estimate"]
