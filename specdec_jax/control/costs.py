"""What a round's parts cost: measured on the device, or estimated from the bytes that each pass reads."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._checks import as_array, concrete
from .._typing import Array, Float, PyTree
from ..drafters import Drafter

_TOKENS_PER_READ = {"cpu": 12}
"""Tokens whose arithmetic takes as long as reading the weights once."""
_TOKENS_PER_READ_ELSEWHERE = 200
"""Of accelerators in bfloat16, by their data sheets: peak operations a byte of bandwidth (H200 206, TPU v5e 240)."""
_READS_OF_A_PRODUCT = {"cpu": 1.3}
"""Reads of the weights that a product with several tokens takes, in those of one with a single token, which is a
product of another kind. On two cores, SmolLM2-135M in float32, passes over 1, 2, 5, 8, 16 and 40 tokens took 30, 43,
64, 65, 84 and 154 ms, and in another run's 1, 4, 8 and 16 tokens 46, 55, 69 and 91 ms: 1.3 reads and 1/12 a token lie
between."""
_BYTES_OF_INT8 = {"cpu": 4}
"""That take as long as a weight in int8, which is no faster than float32 where it is converted before it is used."""


class Costs(NamedTuple):
    """Traced, in seconds or any other unit: only ratios count."""

    draft_step: Float[Array, ""] | float
    """One more guess for each row of the batch."""
    verify: Float[Array, "W"] | Sequence[float]
    """The rest of a round, by the width of its verify pass."""

    def of_round(self, guesses: int, widths: tuple[int, ...]) -> float:
        """Of a round of so many guesses, in their own unit."""
        return guesses * float(self.draft_step) + float(self.verify[int(np.searchsorted(widths, guesses + 1))])

    def checked(self, widths: tuple[int, ...]) -> "Costs":
        """As float32 arrays, one cost for each of ``widths``; ValueError where they are none."""
        checks = (
            ("draft_step", self.draft_step, np.greater_equal, "at least 0"),
            ("verify", self.verify, np.greater, "above 0"),
        )
        for name, value, compared, least in checks:
            known = concrete(as_array(name, value, "numbers"))
            if known is not None and not (np.isfinite(known) & compared(known, 0)).all():
                raise ValueError(f"costs.{name} is {known}; expected finite numbers {least}")
        draft_step, verify = jnp.asarray(self.draft_step, jnp.float32), jnp.asarray(self.verify, jnp.float32)
        if draft_step.shape != () or verify.shape != (len(widths),):
            raise ValueError(
                f"costs.draft_step has shape {draft_step.shape} and costs.verify {verify.shape}; expected one number, "
                f"and one for each of the {len(widths)} verify widths {widths}"
            )
        return Costs(draft_step, verify)


def estimate(
    target_params: PyTree, drafter: Drafter | None, drafter_params: PyTree, batch: int, widths: tuple[int, ...]
) -> Costs:
    """Costs where none were measured, in reads of the target's weights.

    A pass reads its weights once, whatever its width, and computes with them for each token of each row: n tokens take
    ``r + n / R`` reads, with r (1 for a single token) and R as known for the kind of device. A draft step feeds one
    token a row.
    """
    R = _TOKENS_PER_READ.get(jax.default_backend(), _TOKENS_PER_READ_ELSEWHERE)
    several = _READS_OF_A_PRODUCT.get(jax.default_backend(), 1.0)

    def reads(tokens: int) -> float:
        return (1.0 if tokens == 1 else several) + tokens / R

    target_bytes = _bytes(target_params)
    share = drafter.reads * _bytes(drafter_params) / target_bytes if drafter is not None and target_bytes else 0.0
    return Costs(share * reads(batch), [reads(batch * width) for width in widths])


def _bytes(params: PyTree) -> int:
    """That all arrays are worth, traced ones too."""
    leaves = (as_array("a parameter", leaf, "an array") for leaf in jax.tree.leaves(params))
    of_int8 = _BYTES_OF_INT8.get(jax.default_backend(), 1)
    return sum(leaf.size * (of_int8 if leaf.dtype == jnp.int8 else leaf.dtype.itemsize) for leaf in leaves)
