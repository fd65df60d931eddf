"""The page of ``specdec trace``: a generation that can be stepped through, token by token accounted for."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..state import Stats, summary
from ..trace import Moment, RoundRecord
from . import rounds
from .glyphs import Speller, label
from .page import render
from .picture import Picture

__all__ = ["BytesOf", "page", "pictures"]

_PARTS = 1000
"""Probabilities stand in the page as whole thousandths, which is what is shown of them."""

BytesOf = Callable[[int], bytes]
"""What a token adds to a text, in UTF-8; it may be a part of a character."""


class Mark(NamedTuple):
    """A token in the running text."""

    text: str
    kind: str
    """prompt, kept, refused, past the end, corrected, bonus or plain."""
    round: int | None = None
    place: int | None = None
    """In its round; the token after the guesses has the number of those that were kept."""

    @property
    def in_vain(self) -> bool:
        """Whether it was guessed and is no part of the text."""
        return self.kind in ("refused", "past the end")


def page(
    moments: Sequence[Moment],
    prompt: Sequence[int],
    bytes_of: BytesOf,
    *,
    target: str,
    draft: str,
    rule: str,
    row: int = 0,
) -> str:
    """One row's page as HTML that needs nothing else."""
    moments = [moment for moment in moments if moment.rows[row] is not None]
    if not moments:
        raise ValueError(f"row {row} took part in no round; expected a row that was still to be continued")
    records = row_of(moments, row)
    return render(
        "trace.html",
        target=target,
        draft=draft,
        rule=rule,
        K=moments[-1].stats.drafted_at.shape[1],
        metrics=[(name, _shown(value)) for name, value in _metrics(moments, row).items()],
        num_rounds=len(records),
        num_guesses=sum(len(record.guesses) for record in records),
        num_plain=sum(record.is_plain for record in records),
        # The script puts in the guesses made in vain: without it they are not seen.
        marks=[mark for mark in marks(records, prompt, bytes_of) if not mark.in_vain],
        finish_reason=moments[-1].finish_reasons[row].name,
        pictures=pictures(moments, row),
        data=_data(moments, records, bytes_of),
    )


def row_of(moments: Sequence[Moment], row: int) -> list[RoundRecord]:
    """The rounds in which a row took part."""
    return [record for moment in moments if (record := moment.rows[row]) is not None]


def marks(records: Sequence[RoundRecord], prompt: Sequence[int], bytes_of: BytesOf) -> list[Mark]:
    """The running text."""
    speller = Speller()
    found = prompt_marks(prompt, speller, bytes_of)
    for number, record in enumerate(records):
        found += round_marks(number, record, speller, bytes_of)
    return found


def prompt_marks(prompt: Sequence[int], speller: Speller, bytes_of: BytesOf) -> list[Mark]:
    """The text before the first round."""
    return [Mark(speller.push(bytes_of(token)), "prompt") for token in prompt]


def round_marks(number: int, record: RoundRecord, speller: Speller, bytes_of: BytesOf) -> list[Mark]:
    """A round: what was refused stands before what came in its place."""
    found = []
    vain = "past the end" if record.follow is None else "refused"
    for place, guess in enumerate(record.guesses):
        kept = place < record.num_accepted
        text = speller.push(bytes_of(guess.token)) if kept else label(bytes_of(guess.token))
        found.append(Mark(text, "kept" if kept else vain, number, place))
    if record.follow is not None:
        kind = "plain" if record.is_plain else "bonus" if record.is_bonus else "corrected"
        found.append(Mark(speller.push(bytes_of(record.follow.token)), kind, number, record.num_accepted))
    return found


def pictures(moments: Sequence[Moment], row: int) -> tuple[Picture, ...]:
    """What all rounds of a row amount to; where nothing was guessed there is no acceptance to show."""
    committed = [len(record.tokens) for record in row_of(moments, row)]
    stats = _stats(moments, row)
    K = stats.drafted_at.shape[1]
    times = rounds.time_line([m.draft_seconds for m in moments], [m.verify_seconds for m in moments])
    found = (rounds.tokens_a_round(committed, K), times)
    return (rounds.acceptance(stats), *found) if stats.drafted_at.any() else found


def _stats(moments: Sequence[Moment], row: int) -> Stats:
    """Of one row, [1] and [1, K]."""
    return jax.tree.map(lambda counts: counts[row : row + 1], moments[-1].stats)


def _metrics(moments: Sequence[Moment], row: int) -> dict[str, object]:
    tokens = sum(len(record.tokens) for record in row_of(moments, row))
    found = {"tokens": tokens, **summary(_stats(moments, row), jnp.asarray([tokens]))}
    del found["accepted_at"]  # a picture of its own
    return found


def _shown(value: object) -> str:
    if isinstance(value, float):
        return "-" if np.isnan(value) else f"{value:.2f}"
    return str(value)


def _data(moments: Sequence[Moment], records: Sequence[RoundRecord], bytes_of: BytesOf) -> dict:
    """What the script reads: labels by token, and rounds.

    A guess is [token, p, q, accept, draw], the token that follows [token, p, chance], a likeliest token [token, p, q],
    where all but tokens are thousandths; times are milliseconds.
    """
    told = [
        {
            "guesses": [_short(guess) for guess in record.guesses],
            "kept": record.num_accepted,
            "follow": None if record.follow is None else _short(record.follow),
            "likeliest": [[_short(choice) for choice in place] for place in record.likeliest],
            "draft": round(1e3 * moment.draft_seconds, 4),
            "verify": round(1e3 * moment.verify_seconds, 4),
        }
        for moment, record in zip(moments, records, strict=True)
    ]
    seen = {values[0] for told_round in told for values in _tokens_of(told_round)}
    return {"labels": {token: label(bytes_of(token)) for token in sorted(seen)}, "rounds": told}


def _tokens_of(told: dict) -> list[list]:
    follow = [] if told["follow"] is None else [told["follow"]]
    return [*told["guesses"], *follow, *(choice for place in told["likeliest"] for choice in place)]


def _short(values: Sequence[int | float | None]) -> list[int | float | None]:
    return [value if value is None or isinstance(value, int) else round(_PARTS * value) for value in values]
