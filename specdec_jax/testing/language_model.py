"""Whether a model keeps the contract of `LanguageModel`, all of which the generation loop relies on."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, PyTree
from ..lm import LanguageModel
from .contracts import broken, close, same_form

_SLACK = 4


def check_language_model(
    model: LanguageModel, params: PyTree, *, length: int = 144, seed: int = 0, tolerance: float = 1e-3
) -> None:
    """Feed random tokens in several ways that must come to the same, and name what does not.

    It takes a dozen passes over up to ``length`` tokens of two rows.

    Args:
        model, params: what is checked.
        length: of the rows, as far as ``max_positions`` allows; >= 2. What begins past it is not seen, such as a
            longer window or ring of slots; and ``max_positions`` is believed, for JAX reads the last entry of a table
            of positions for whatever lies past it.
        seed: of the tokens.
        tolerance: by which logits may differ between passes of different shapes; raise it for bfloat16.

    Raises:
        BrokenContractError: with the contract that is broken, and what was seen.
    """
    if length < 2:
        raise ValueError(f"length is {length}; expected >= 2, for something has to be rolled back")
    feed = jax.jit(model.apply)
    V, T = model.vocab_size, length
    if model.max_positions is not None:
        T = min(T, model.max_positions)
    rng = np.random.default_rng(seed)
    tokens, other = rng.integers(0, V, (2, 2, T), np.int32)
    empty, start = model.init_cache(2, T + _SLACK), jnp.zeros(2, jnp.int32)

    whole, hidden, full = feed(params, tokens, empty, start)
    if whole.shape != (2, T, V) or not jnp.issubdtype(whole.dtype, jnp.floating):
        broken(f"apply returns logits [B, T, V], here float[2, {T}, {V}]", f"they are {whole.dtype}{list(whole.shape)}")
    same_form("apply returns the cache in the form it was given", empty, full)
    for path, leaf in jax.tree.leaves_with_path(hidden):
        if leaf.shape[:2] != (2, T):
            name = "hidden" + jax.tree_util.keystr(path)
            broken(f"apply returns hidden [B, T, ...] or None, here [2, {T}, ...]", f"{name} is {list(leaf.shape)}")
    if np.isnan(whole).any() or not np.isfinite(np.max(whole, axis=-1)).all():
        broken("every place has a finite largest logit", "some are NaN, +inf or all -inf")

    again, _, _ = feed(params, tokens, empty, start)
    close("apply is a pure function: the same arguments give the same logits", again, whole, 0.0)

    def of(contract: str, got: Array, wanted: Array) -> None:
        close(contract, got, wanted, tolerance)

    later = np.concatenate([tokens[:, :-1], (tokens[:, -1:] + 1) % V], axis=1)
    of("logits depend on no later token", feed(params, later, empty, start)[0][:, :-1], whole[:, :-1])
    mixed = np.stack([tokens[0], other[1]])
    of("rows do not depend on each other", feed(params, mixed, empty, start)[0][0], whole[0])
    wide = model.init_cache(2, T + 20)
    of("logits do not depend on the capacity of the cache", feed(params, tokens, wide, start)[0], whole)

    cache, parts = empty, []
    for first, last in _pieces(T):
        logits, _, cache = feed(params, tokens[:, first:last], cache, start + first)
        parts.append(logits)
    of("tokens fed in pieces give the logits of one pass", jnp.concatenate(parts, axis=1), whole)

    half = T // 2
    _, _, cache = feed(params, np.concatenate([tokens[:, :half], other[:, half:]], axis=1), empty, start)
    few = tokens[:, half : half + 2]  # behind them lies more of what was rolled back
    redone, _, _ = feed(params, few, cache, start + half)
    of("what was rolled back leaves no trace: only slots below lengths count", redone, whole[:, half : half + 2])

    lengths = np.array([1, half], np.int32)
    width = T - half
    block = np.stack([row[length : length + width] for row, length in zip(tokens, lengths, strict=True)])
    logits, _, _ = feed(params, block, full, lengths)
    for row, length in enumerate(lengths):
        of("each row is written at its own length", logits[row], whole[row, length : length + width])


def _pieces(T: int) -> list[tuple[int, int]]:
    """One token, then three, then the rest."""
    bounds = sorted({0, 1, min(4, T), T})
    return list(pairwise(bounds))
