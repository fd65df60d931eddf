"""What the early checks of arguments share: they look at values that are known and let traced ones pass."""

import numpy as np
from jax.core import Tracer


def concrete(value) -> np.ndarray | None:
    """The value as a NumPy array, or None while it is traced (inside someone's jit, vmap or scan)."""
    return None if isinstance(value, Tracer) else np.asarray(value)
