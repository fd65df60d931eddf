"""Drafter: what the generation loop needs of anything that guesses tokens."""

from collections.abc import Callable
from typing import NamedTuple

from .._typing import Array, Int, PyTree
from ..sampling import SamplingParams
from ..verify import Proposal


class Context(NamedTuple):
    """What every drafter may read."""

    tokens: Int[Array, "B W"]
    """Each row's prompt and committed tokens from slot 0; what lies past its length is of no meaning."""
    lengths: Int[Array, "B"]
    """Tokens a row holds, prompt included."""
    sampling: SamplingParams
    """Arrays [B]: q must be the draft distribution after these transforms."""


Draw = Callable[[Array | int, Array], Array]
"""``draw(index, q [B, V]) -> tokens [B]``: guess number ``index`` of the round, drawn as the rule asks for."""


def _ignore(params: PyTree, state: PyTree, context: Context, start: Array, hidden: PyTree | None) -> PyTree:
    del params, context, start, hidden
    return state


class Drafter(NamedTuple):
    """Pure functions over a state of the drafter's own, which may hold a cache.

    ``init(params, context, slots, chunk) -> state``
        The state for a batch of prompts. A cache needs ``slots`` slots; prompts are read ``chunk`` tokens at a time.
    ``propose(params, state, context, K, limit [B], draw) -> (Proposal, state)``
        Up to ``limit[b] <= K`` guesses for row b; K is static, limit is traced, and a row of limit 0 gets none. Each
        guess that is not deterministic comes from ``draw``, called once for it, and its q is returned unchanged. A row
        may get fewer guesses, but neither q of guess i nor whether it is made may depend on what is drawn for it or for
        a later one.
    ``commit(params, state, context, hidden) -> state``
        After the round: ``context`` holds the tokens as committed, which may be fewer than were guessed, or others.
        ``hidden`` holds the target's states [B, T, ...] from the verify pass, T the width that it took, at most K + 1,
        or None: entry i belongs to the slot ``lengths - 1 + i`` of a row's length before the round, and counts as far
        as the tokens there were committed.
    ``read(params, state, context, start, hidden) -> state``
        For a drafter that learns from the target's states, called after ``init`` for each chunk of the prompts that
        the target reads: ``hidden`` [B, T, ...] belongs to the slots ``start .. start + T - 1`` of every row, all but
        the last token of a prompt are read, and some may be read twice. By default it does nothing.
    ``shares_cache``
        Whether ``propose`` works on the target's cache: it is then given that in the place of ``state``, may write past
        the committed tokens (the slots ``lengths - 1 ..`` of a row, which the target writes anew), and returns it.
    ``reads``
        The share of its params that a draft step reads, for an estimate of what it costs.
    ``vocab_size``
        V, to be checked against the target's; None for a drafter that only copies tokens.
    """

    init: Callable[[PyTree, Context, int, int], PyTree]
    propose: Callable[[PyTree, PyTree, Context, int, Array, Draw], tuple[Proposal, PyTree]]
    commit: Callable[[PyTree, PyTree, Context, PyTree | None], PyTree]
    vocab_size: int | None = None
    read: Callable[[PyTree, PyTree, Context, Array, PyTree | None], PyTree] = _ignore
    shares_cache: bool = False
    reads: float = 1.0
