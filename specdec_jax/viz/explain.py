"""The page of ``specdec explain``: one token step by step, then three edge cases and whole blocks."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .._typing import Float
from . import bars, rounds
from .duel import Duel
from .page import render
from .picture import Picture
from .story import Story, tell

__all__ = ["Told", "page", "told"]

_SURE = 0.95
_FEW = 4


class Told(NamedTuple):
    """What there is to tell, in numbers and pictures; the words are the template's."""

    story: Story
    edges: dict[str, Story]
    duel: Duel
    pictures: dict[str, Picture]
    """By their names, in the order of the page."""


def told(p: Float[np.ndarray, "V"], q: Float[np.ndarray, "V"], duel: Duel, label: Callable[[int], str]) -> Told:
    """The story of a guess from q for a token of p, of other drafts for it, and of the blocks that ``duel`` holds."""
    story = tell(p, q, label)
    edges = {name: tell(p, other, label, most=_FEW) for name, other in edge_drafts(p).items()}
    row = duel.telling()
    guesses = [label(int(token)) for token in duel.tokens[row, : duel.length[row]]]
    pictures = (
        *(draw(story) for draw in (bars.distributions, bars.areas, bars.accepted, bars.redrawn, bars.stacked)),
        *(bars.edge_case(f"edge-{name}", _EDGES[name], edges[name]) for name in edges),
        rounds.same_draws(duel, row, guesses),
        rounds.at_least(duel),
    )
    return Told(story, edges, duel, {picture.name: picture for picture in pictures})


def page(told: Told, *, prompt: str | None, target: str, draft: str) -> str:
    """The whole page as HTML that needs nothing else. ``prompt``: what the token follows, if anything."""
    return render("explain.html", prompt=prompt, target=target, draft=draft, **told._asdict())


_EDGES = {
    "same": "The draft is the target: q = p",
    "lacking": "The draft never proposes the likeliest word",
    "sure": "The draft is sure of another word",
}


def edge_drafts(p: Float[np.ndarray, "V"]) -> dict[str, Float[np.ndarray, "V"]]:
    """Three drafts for the target p, by name."""
    token = np.arange(len(p))
    likeliest = np.argsort(-p, kind="stable")[:_FEW]
    possible = likeliest[p[likeliest] > 0]
    another = likeliest[max(1, len(possible) - 1)]  # for a target that is certain, a word that it never says
    others = np.where(token == likeliest[0], 0, p)
    if not others.any():  # a target that is certain leaves nothing to propose but a word that it never says
        others = np.where(token == likeliest[1], 1.0, 0.0)
    sure = (1 - _SURE) * p + _SURE * (token == another)
    return {"same": p, "lacking": others / others.sum(), "sure": sure}
