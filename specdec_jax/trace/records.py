"""What is recorded of a round: a few numbers a token, whatever the vocabulary."""

from typing import NamedTuple

from ..state import FinishReason, Stats


class Choice(NamedTuple):
    """A token and what target and draft gave it."""

    token: int
    p: float
    q: float | None
    """None at a place for which nothing was drafted."""


class Guess(NamedTuple):
    """A drafted token and how it was judged."""

    token: int
    p: float
    q: float
    accept: float | None
    """The rule accepts where ``draw`` is below it; None for rules that draw nothing."""
    draw: float | None


class Follow(NamedTuple):
    """The token after the kept guesses."""

    token: int
    p: float
    chance: float | None
    """With which it was drawn: its part of what was left of p after a refusal, or p itself; None for rules that draw
    nothing there."""


class RoundRecord(NamedTuple):
    """One row's round."""

    guesses: tuple[Guess, ...]
    """Those that were judged: where the target's logits broke, the ones before that."""
    num_accepted: int
    """Guesses kept and emitted."""
    follow: Follow | None
    """None where the row ended before it."""
    likeliest: tuple[tuple[Choice, ...], ...]
    """The target's likeliest tokens, of those that it may draw, at the places of the kept guesses and of the token
    after them."""

    @property
    def is_plain(self) -> bool:
        """Whether its token follows no guess: a step of plain decoding."""
        return not self.guesses and self.follow is not None

    @property
    def is_bonus(self) -> bool:
        """Whether there were guesses, of which the token after them corrects none."""
        return bool(self.guesses) and self.num_accepted == len(self.guesses)

    @property
    def tokens(self) -> list[int]:
        """What the round emitted."""
        kept = [guess.token for guess in self.guesses[: self.num_accepted]]
        return kept if self.follow is None else [*kept, self.follow.token]


class Moment(NamedTuple):
    """A round of the whole batch."""

    rows: tuple[RoundRecord | None, ...]
    """None for a row that had ended before."""
    draft_seconds: float
    """Of the program that drafts."""
    verify_seconds: float
    """Of the program that scores, judges and commits, what the drafter learns from that included."""
    finish_reasons: tuple[FinishReason, ...]
    stats: Stats
    """So far."""
