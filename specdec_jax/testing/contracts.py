"""What the checks of models and drafters share: the error that they raise, and how they compare."""

from typing import NoReturn

import jax
import numpy as np
from jax.typing import ArrayLike

from .._typing import PyTree


class BrokenContractError(AssertionError):
    """A contract that does not hold: which one, what was seen, and what it leads to."""


def broken(contract: str, seen: str) -> NoReturn:
    raise BrokenContractError(f"{contract}, but {seen}")


def same_form(contract: str, before: PyTree, after: PyTree) -> None:
    """A carry of a compiled loop keeps its structure, shapes and dtypes."""
    trees = [jax.tree.structure(tree) for tree in (before, after)]
    if trees[0] != trees[1]:
        broken(contract, f"it was {trees[0]} and became {trees[1]}")
    for (path, old), new in zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            name = jax.tree_util.keystr(path) or "it"
            broken(contract, f"{name} was {old.dtype}{list(old.shape)} and became {new.dtype}{list(new.shape)}")


def close(contract: str, got: ArrayLike, wanted: ArrayLike, tolerance: float) -> None:
    """Equal to ``tolerance``, infinities at the same places."""
    a, b = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    same = np.where(finite, True, (a == b) | (np.isnan(a) & np.isnan(b)))
    error = np.abs(np.where(finite, a, 0) - np.where(finite, b, 0)).max(initial=0.0)
    if not same.all() or error > tolerance:
        how = f"they differ by {error:.2e}" if same.all() else "one is finite where the other is not"
        broken(contract, f"{how} (tolerance {tolerance:.0e})")
