"""The numbers of the pictures are those of the closed forms, and add up."""

import numpy as np
import pytest

from specdec_jax.testing import closed_forms
from specdec_jax.viz.explain import edge_drafts
from specdec_jax.viz.story import tell

RNG = np.random.default_rng(3)
P, Q = RNG.dirichlet(np.full(40, 0.3), size=2).astype(np.float32)
GIVEN = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])


@pytest.mark.parametrize(("p", "q"), [(P, Q), (Q, P), GIVEN, (P, P), *((P, q) for q in edge_drafts(P).values())])
def test_the_parts_add_up(p, q):
    story = tell(p, q, str)
    assert story.alpha == pytest.approx(closed_forms.acceptance_probability(p, q), abs=1e-6)
    for part in ("over", "under"):
        assert sum(getattr(word, part) for word in story.words) == pytest.approx(story.refused, abs=1e-6)
    assert story.error < 1e-6
    for word in story.words:
        assert word.kept + (1 - story.alpha) * word.redraw == pytest.approx(word.p, abs=1e-6)
    for part in ("p", "q", "redraw"):
        assert sum(getattr(word, part) for word in story.words) == pytest.approx(1, abs=1e-6)


def test_each_word_is_told_as_the_rule_has_it():
    p, q = GIVEN
    words = {word.label: word for word in tell(p, q, "abc".__getitem__).words}
    assert list(words) == ["a", "b", "c"]
    assert [words[x].accept for x in "abc"] == pytest.approx([1, 0.6, 2 / 3])
    assert [words[x].kept for x in "abc"] == pytest.approx([0.2, 0.3, 0.2])
    assert [words[x].over for x in "abc"] == pytest.approx([0, 0.2, 0.1], abs=1e-7)
    assert [words[x].under for x in "abc"] == pytest.approx([0.3, 0, 0], abs=1e-7)
    assert [words[x].redraw for x in "abc"] == pytest.approx([1, 0, 0], abs=1e-7)


def test_the_likeliest_under_either_are_shown_and_the_others_summed():
    story = tell(P, Q, str, most=6)
    assert len(story.words) == 7
    assert {str(np.argmax(P)), str(np.argmax(Q))} < {word.label for word in story.words}
    assert story.words[-1].label == "34 others"
    shown = [int(word.label) for word in story.words[:-1]]
    assert story.words[-1].p == pytest.approx(1 - P[shown].sum(), abs=1e-6)
    assert story.words[-1].kept == pytest.approx(np.delete(np.minimum(P, Q), shown).sum(), abs=1e-6)


def test_a_word_that_is_never_drafted_has_no_accept_probability():
    story = tell(np.array([0.6, 0.4]), np.array([0.0, 1.0]), str)
    assert story.words[0].accept is None
    assert story.words[0].redraw == 1


def test_the_drafts_at_the_edge_are_what_they_are_called():
    drafts = edge_drafts(P)
    np.testing.assert_array_equal(drafts["same"], P)
    assert drafts["lacking"][np.argmax(P)] == 0
    assert drafts["sure"].max() > 0.95 > 3 * P[np.argmax(drafts["sure"])]
    assert np.argmax(drafts["sure"]) != np.argmax(P)
    for q in drafts.values():
        assert q.sum() == pytest.approx(1, abs=1e-6)


def test_a_target_that_is_certain_has_drafts_at_the_edge_too():
    p = np.array([0.0, 1.0, 0.0])
    drafts = edge_drafts(p)
    assert drafts["lacking"].tolist() == [1, 0, 0]
    assert drafts["sure"] == pytest.approx([0.95, 0.05, 0])
    assert tell(p, drafts["sure"], str).alpha == pytest.approx(0.05)


@pytest.mark.parametrize("p", [[0.5, 0.5], [0.9, 0.1, 0.0], [0.25] * 4 + [0.0]])
def test_the_sure_draft_is_sure_of_another_word_than_the_likeliest(p):
    sure = edge_drafts(np.array(p))["sure"]
    assert np.argmax(sure) != np.argmax(p)
    assert sure.max() > 0.95


def test_both_areas_are_one_number_where_the_distributions_are_rounded():
    """In float32 these sum to one but for 1e-4, by which the two areas would be apart."""
    p, q = P.copy(), Q * np.float32(1 + 1e-4)
    story = tell(p, q, str, most=40)
    assert story.refused == 1 - story.alpha
    for part in ("over", "under"):
        assert getattr(story, part) == pytest.approx(story.refused, abs=1e-9)
        assert sum(getattr(word, part) for word in story.words) == pytest.approx(getattr(story, part), abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_less_than_none(seed):
    """Where q is p nothing is refused, not a little less than nothing."""
    p = np.random.default_rng(seed).dirichlet(np.full(1000, 0.3)).astype(np.float32)
    for q in (p, np.roll(p, 1)):
        story = tell(p, q, str)
        values = [story.alpha, story.refused, *(v for word in story.words for v in (*word[1:], word.over, word.under))]
        assert not any(np.signbit(value) for value in values if value is not None)
    assert tell(p, p, str).alpha == pytest.approx(1)
