"""Controller: what the generation loop needs of anything that chooses how many tokens to guess."""

from collections.abc import Callable
from typing import NamedTuple

from .._typing import Array, Int, PyTree
from .costs import Costs


class Outcome(NamedTuple):
    """What came of a round."""

    limit: Int[Array, "B"]
    """Guesses that a row was allowed."""
    drafted: Int[Array, "B"]
    """Guesses that it was given: fewer, where the drafter had no more."""
    accepted: Int[Array, "B"]
    left: Int[Array, "B"]
    """Tokens that the row may still get, 0 if it has ended. One that ended may have had its block cut, which says
    nothing of guesses."""


class Controller(NamedTuple):
    """Pure functions over a state of the controller's own.

    It sees counts of what was committed and nothing else: neither tokens nor distributions. A round's choice is thus a
    function of finished rounds, whose noise is never used again, so no choice can change a probability.

    ``init(batch, K) -> state``
        Before the first round; K is the most guesses in a round.
    ``choose(costs, state, left [B], widths) -> limit [B]``
        Most guesses of each row in the coming round, from 0 to K. ``left`` are the tokens that a row may still get, 0
        for one that has ended. A verify pass feeds as many tokens as the smallest of the static ``widths`` that holds
        each row's guesses and one token more.
    ``update(state, outcome) -> state``
        After the round.
    """

    init: Callable[[int, int], PyTree]
    choose: Callable[[Costs, PyTree, Array, tuple[int, ...]], Array]
    update: Callable[[PyTree, Outcome], PyTree]
