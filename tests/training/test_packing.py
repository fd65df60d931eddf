"""Packed rows hold every text whole, once, and say what is learned."""

import numpy as np
import pytest

from specdec_jax.training.packing import draft_vocabulary, pack, rows_at
from specdec_jax.training.samples import Sample


def unpacked(packed) -> list[tuple[list[int], list[int]]]:
    """Texts, and the tokens that are learned: those that follow a place marked so."""
    found = []
    for row in range(len(packed.tokens)):
        for segment in range(1, packed.segments[row].max() + 1):
            place = np.flatnonzero(packed.segments[row] == segment)
            assert (np.diff(place) == 1).all(), "texts lie side by side"
            np.testing.assert_array_equal(packed.positions[row, place], np.arange(len(place)))
            learned = packed.learned[row, place]
            assert not learned[-1], "what follows a text is unknown"
            tokens = packed.tokens[row, place]
            found.append((tokens.tolist(), tokens[1:][learned[:-1]].tolist()))
    assert not packed.learned[packed.segments == 0].any()
    return found


def test_every_text_is_there_once(samples):
    packed = pack(samples, 20)
    found = sorted(unpacked(packed))
    assert found == sorted(([*s.prompt_ids, *s.answer_ids], s.answer_ids) for s in samples)
    filled = (packed.segments > 0).mean()
    assert filled > 0.85, f"{filled:.2f} of the rows are filled"


def test_a_text_without_a_prompt_is_learned_but_for_its_first_token():
    assert unpacked(pack([Sample([], [7, 8, 9])], 8)) == [([7, 8, 9], [8, 9])]


def test_long_texts_are_cut():
    """A piece of nothing but prompt is left out; one that begins within the answer is learned but for its first."""
    found = unpacked(pack([Sample([1, 2, 3, 4, 5], list(range(10, 22)))], 4))
    assert found == [
        ([5, 10, 11, 12], [10, 11, 12]),
        ([13, 14, 15, 16], [14, 15, 16]),
        ([17, 18, 19, 20], [18, 19, 20]),
    ]


def test_rows_of_a_step():
    """Every epoch has all rows once in another order; a step's rows do not depend on what was asked before."""
    steps = [rows_at(step, 7, 3, seed=1) for step in range(14)]
    epochs = np.concatenate(steps).reshape(6, 7)
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    np.testing.assert_array_equal(rows_at(9, 7, 3, seed=1), steps[9])
    assert not np.array_equal(rows_at(9, 7, 3, seed=2), steps[9])
    with pytest.raises(ValueError, match="a batch has 8 rows, but there are 7; expected 1 to 7"):
        rows_at(0, 7, 8, seed=0)


def test_the_draft_vocabulary_is_what_is_said_most():
    texts = [Sample([9, 9, 9], [4, 4, 2]), Sample([9], [4, 7, 2])]
    np.testing.assert_array_equal(draft_vocabulary(texts, np.arange(10), 2), [2, 4])
    np.testing.assert_array_equal(draft_vocabulary(texts, np.arange(10), 4), [0, 2, 4, 7])
    with pytest.raises(ValueError, match="the draft vocabulary has 11 ids; expected 1 to 10"):
        draft_vocabulary(texts, np.arange(10), 11)


def test_the_draft_vocabulary_has_no_holes():
    texts = [Sample([9], [4, 4, 2])]
    known = np.array([1, 2, 5, 6, 7, 8, 9])
    np.testing.assert_array_equal(draft_vocabulary(texts, known, 4), [1, 2, 5, 6])
    with pytest.raises(ValueError, match="the draft vocabulary has 8 ids; expected 1 to 7"):
        draft_vocabulary(texts, known, 8)


def test_rows_that_are_too_short():
    with pytest.raises(ValueError, match="length is 1; expected at least 2"):
        pack([], 1)
