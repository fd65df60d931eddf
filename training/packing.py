"""Texts of many lengths in rows of one length, and the batches of a run."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from specdec_jax._typing import Int

from .samples import Sample


class Packed(NamedTuple):
    """Rows of T tokens that hold whole texts side by side, int32 [N, T] and bool [N, T]."""

    tokens: np.ndarray
    positions: np.ndarray
    """From the start of the token's own text."""
    segments: np.ndarray
    """The text a token belongs to, from 1 in each row; 0 is padding. Tokens see their own text only."""
    learned: np.ndarray
    """Whether what follows the token is learned from: it belongs to an answer."""

    def rows(self, index: np.ndarray | slice) -> "Packed":
        """Some of the rows."""
        return Packed(*(array[index] for array in self))


def pack(samples: Sequence[Sample], length: int) -> Packed:
    """First fit: each text goes to the first row that has room for it.

    A text longer than a row is cut into pieces, each of which is then a text of its own.
    """
    if length < 2:
        raise ValueError(f"length is {length}; expected at least 2 tokens a row")
    pieces = [piece for sample in samples for piece in _pieces(sample, length)]
    rows: list[list[tuple[list[int], int]]] = []
    room: list[int] = []
    first_open = 0
    for tokens, start in pieces:
        place = next((row for row in range(first_open, len(rows)) if room[row] >= len(tokens)), len(rows))
        if place == len(rows):
            rows.append([])
            room.append(length)
        rows[place].append((tokens, start))
        room[place] -= len(tokens)
        while first_open < len(rows) and (room[first_open] < _LEAST or len(rows) - first_open > _OPEN):
            first_open += 1
    packed = Packed(*(np.zeros((len(rows), length), np.int32) for _ in range(3)), np.zeros((len(rows), length), bool))
    for row, texts in enumerate(rows):
        at = 0
        for segment, (tokens, start) in enumerate(texts, start=1):
            place = slice(at, at + len(tokens))
            packed.tokens[row, place] = tokens
            packed.positions[row, place] = np.arange(len(tokens))
            packed.segments[row, place] = segment
            # What follows the last token is unknown, so nothing is learned there.
            packed.learned[row, place] = np.arange(1, len(tokens) + 1) >= start
            packed.learned[row, at + len(tokens) - 1] = False
            at += len(tokens)
    return packed


_LEAST = 2  # a row with less room than this takes no further text
_OPEN = 512  # rows among which one with room is looked for, the last ones


def _pieces(sample: Sample, length: int) -> Iterator[tuple[list[int], int]]:
    """Tokens, and the place of the first one that is learned; pieces without any are left out."""
    tokens, start = [*sample.prompt_ids, *sample.answer_ids], max(len(sample.prompt_ids), 1)
    for at in range(0, len(tokens), length):
        piece = tokens[at : at + length]
        if len(piece) >= _LEAST and start - at < len(piece):
            yield piece, max(start - at, 1)


def rows_at(step: int, rows: int, batch: int, seed: int) -> np.ndarray:
    """The rows [batch] of a step's batch: every epoch is a shuffle of its own, made of the seed and its number alone.

    So a run that was stopped goes on as if it had not been. An epoch's last rows, fewer than a batch, begin the next.
    """
    if not 0 < batch <= rows:
        raise ValueError(f"a batch has {batch} rows, but there are {rows}; expected 1 to {rows}")
    places = np.arange(step * batch, (step + 1) * batch)
    epochs = {epoch: np.random.default_rng((seed, epoch)).permutation(rows) for epoch in np.unique(places // rows)}
    return np.asarray([epochs[place // rows][place % rows] for place in places])


def token_counts(samples: Sequence[Sample], vocab_size: int) -> np.ndarray:
    """How often each id occurs in the answers [V]."""
    counts = np.zeros(vocab_size, np.int64)
    for sample in samples:
        counts += np.bincount(np.asarray(sample.answer_ids, np.int64), minlength=vocab_size)
    return counts


def draft_vocabulary(samples: Sequence[Sample], known: Int[np.ndarray, "n"], size: int) -> Int[np.ndarray, "Vd"]:
    """The ``size`` of the ``known`` ids most frequent in the answers, ascending; of equal ones the smaller first."""
    if not 0 < size <= len(known):
        raise ValueError(f"the draft vocabulary has {size} ids; expected 1 to {len(known)}, the target's tokens")
    order = np.argsort(-token_counts(samples, int(known.max()) + 1)[known], kind="stable")
    return np.sort(known[order[:size]]).astype(np.int32)
