"""The story of one token in numbers: what of a draft distribution is kept, and what is drawn in the place of the rest.

All of it is what the token rule says; for a single guess the block rule says the same.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Float
from ..verify import Proposal, token


class Word(NamedTuple):
    """A token, or all the others together, with its part of each distribution."""

    label: str
    p: float
    q: float
    accept: float | None
    """min(1, p / q), None where nothing is drafted."""
    kept: float
    """Drafted and accepted: min(p, q)."""
    redraw: float
    """Of the distribution drawn from after a refusal."""

    @property
    def over(self) -> float:
        """Drafted in vain: max(0, q - p)."""
        return max(0.0, self.q - self.kept)

    @property
    def under(self) -> float:
        """Not drafted enough: max(0, p - q)."""
        return max(0.0, self.p - self.kept)


class Story(NamedTuple):
    """One guess from q for a token of p."""

    words: tuple[Word, ...]
    """By p, and last the others together where there are any."""
    alpha: float
    """The chance that the guess is kept."""
    refused: float
    """1 - alpha."""
    over: float
    """What the draft has too much of in all, the sum of max(0, q - p)."""
    under: float
    """What it has too little of in all, the sum of max(0, p - q); equal to ``over``, for p and q both sum to one."""
    error: float
    """The largest difference, over the vocabulary, between p and what comes out."""


def tell(p: Float[np.ndarray, "V"], q: Float[np.ndarray, "V"], label: Callable[[int], str], *, most: int = 8) -> Story:
    """The story of target p and draft q, word for word for the ``most`` that are likeliest under either."""
    p, q = np.asarray(p, np.float32), np.asarray(q, np.float32)
    accept, redraw = (np.asarray(values, np.float64) for values in _judged(p, q))
    redraw /= redraw.sum()
    # A softmax in float32 sums to one but for rounding, which would show where sums of it are compared.
    p64, q64 = (values / values.sum() for values in (p.astype(np.float64), q.astype(np.float64)))
    kept = q64 * accept
    alpha = min(1.0, kept.sum().item())
    came_out = kept + (1 - alpha) * redraw

    shown = np.argsort(-np.maximum(p, q), kind="stable")[:most]
    shown = shown[(p[shown] > 0) | (q[shown] > 0)]
    shown = shown[np.argsort(-p[shown], kind="stable")]
    others = np.setdiff1d(np.flatnonzero((p > 0) | (q > 0)), shown)

    def word(name: str, tokens: np.ndarray) -> Word:
        of_p, of_q, passed, drawn = (part[tokens].sum().item() for part in (p64, q64, kept, redraw))
        return Word(name, of_p, of_q, passed / of_q if of_q > 0 else None, passed, drawn)

    words = [word(label(int(x)), shown[i : i + 1]) for i, x in enumerate(shown)]
    if len(others):
        words.append(word(f"{len(others):,} others", others))
    return Story(
        words=tuple(words),
        alpha=alpha,
        refused=1 - alpha,
        over=np.maximum(0, q64 - kept).sum().item(),
        under=np.maximum(0, p64 - kept).sum().item(),
        error=float(np.abs(came_out - p64).max()),
    )


@jax.jit
def _judged(p, q):
    """What the rule does with a guess of each token [V], and the weights [V] drawn from where it refuses."""
    one = jnp.ones(1, jnp.int32)
    targets = jnp.stack([p, p])[None]  # a guess is judged by the first; the second would follow it

    def guess(x):
        return Proposal(x[None, None], q[None, None], one)

    tokens = jnp.arange(p.shape[0], dtype=jnp.int32)
    accept = jax.vmap(lambda x: token.thresholds(guess(x), targets)[0, 0])(tokens)
    return accept, token.next_weights(guess(tokens[0]), targets, one - 1)[0]
