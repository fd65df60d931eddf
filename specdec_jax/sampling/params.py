"""SamplingParams: the values that shape each row's distribution, all of them traced."""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from .._checks import as_array, concrete
from .._typing import Array, Bool, Float, Int


class SamplingParams(NamedTuple):
    """How the next token is drawn from the logits. Every field is a scalar or an array [B]; none is static.

    The transforms apply in this order, and each acts on what the one before left:

    ``temperature``  logits are divided by it; 0 means the likeliest token, lowest id on ties (greedy),
                     and so does what is too small for a normal float32
    ``top_k``        keep the k likeliest tokens, and those as likely as the k-th; 0 keeps all
    ``top_p``        keep the likeliest tokens until their mass reaches top_p, and those as likely as the last
                     one kept; 1 keeps all
    ``min_p``        keep tokens at least min_p times as likely as the likeliest; 0 keeps all
    """

    temperature: Float[Array, "*b"] | float = 1.0
    top_k: Int[Array, "*b"] | int = 0
    top_p: Float[Array, "*b"] | float = 1.0
    min_p: Float[Array, "*b"] | float = 0.0

    def broadcast(self, batch: int) -> "SamplingParams":
        """The same values as arrays [B]: float32, and int32 for ``top_k``."""

        def row(value, dtype, name):
            value = jnp.asarray(value, dtype)
            if value.ndim > 1 or (value.ndim == 1 and value.shape[0] != batch):
                raise ValueError(
                    f"SamplingParams.{name} has shape {value.shape}; expected a scalar or one value a row, ({batch},)"
                )
            return jnp.broadcast_to(value, (batch,))

        return SamplingParams(
            temperature=row(self.temperature, jnp.float32, "temperature"),
            top_k=row(self.top_k, jnp.int32, "top_k"),
            top_p=row(self.top_p, jnp.float32, "top_p"),
            min_p=row(self.min_p, jnp.float32, "min_p"),
        )

    def check(self) -> None:
        """Raise ValueError for values outside their range. Values that are still traced cannot be looked at."""
        for (name, value), inside, expected in zip(self._asdict().items(), _INSIDE, _EXPECTED, strict=True):
            _check_range(name, value, inside, expected, whole=name == "top_k")

    def allowed(self) -> Bool[Array, "B"]:
        """Of values that have been broadcast, the rows of which all are within their range; NaN is in none."""
        return functools.reduce(jnp.logical_and, (inside(value) for inside, value in zip(_INSIDE, self, strict=True)))


_HOTTEST = float(np.finfo(np.float32).max)
LEAST = float(np.finfo(np.float32).tiny)
"""The least number that every device tells from 0: some flush smaller ones, so a temperature below it counts as 0."""
_MOST = int(np.iinfo(np.int32).max)

_INSIDE = (
    lambda v: (v >= 0) & (v <= _HOTTEST),
    lambda v: (v >= 0) & (v <= _MOST),
    lambda v: (v >= LEAST) & (v <= 1),
    lambda v: (v >= 0) & (v <= 1),
)
"""Of each field, in their order."""
_EXPECTED = (
    f"from 0 to {_HOTTEST:.3g}",
    f"from 0 (all) to {_MOST}",
    f"in (0, 1], no less than {LEAST:.3g} (1 keeps every token)",
    "in [0, 1] (0 keeps every token)",
)


def _check_range(name: str, value, inside, expected: str, *, whole: bool = False) -> None:
    known = concrete(as_array(name, value, "a number or one a row"))
    if known is None:
        return
    if not (jnp.issubdtype(known.dtype, jnp.integer) or (jnp.issubdtype(known.dtype, jnp.floating) and not whole)):
        kind = "an integer" if whole else "a number"
        raise ValueError(f"{name} is {value!r}; expected {kind} {expected}")
    wide = known if whole else known.astype(np.float64)  # in a narrow dtype the bounds themselves would be rounded
    bad = np.atleast_1d(~inside(wide))
    if bad.any():
        row = int(np.argmax(bad))
        got = np.atleast_1d(known)[row]
        where = f" in row {row}" if known.ndim else ""
        raise ValueError(f"{name} is {got}{where}; expected {name} {expected}")
