"""What the early checks of arguments share: they look at values that are known and let traced ones pass."""

import numpy as np
from jax.core import Tracer


def concrete(value) -> np.ndarray | None:
    """The value as a NumPy array, or None while it is traced (inside someone's jit, vmap or scan)."""
    return None if isinstance(value, Tracer) else np.asarray(value)


def as_array(name: str, value, expected: str):
    """The value as an array, or a ValueError where it is none; arrays pass, traced ones too."""
    if hasattr(value, "dtype"):
        return value
    try:
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:  # rows of different lengths, mostly
        raise ValueError(
            f"{name} is no array ({error}); expected {expected}, rows of one length; traced values as one array, by "
            "jnp.stack"
        ) from error
