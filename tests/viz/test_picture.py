"""Pictures in a page and in files: the same drawing, with its words, whatever the labels hold."""

import re
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest

from specdec_jax.viz import bars, rounds
from specdec_jax.viz.duel import Duel, Side
from specdec_jax.viz.labels import drawable, readable
from specdec_jax.viz.picture import DRAFT, INK, TARGET, inline, save
from specdec_jax.viz.story import tell

HOSTILE = ["</svg><script>alert(1)</script>", "$x^2$", "\u202eabc", "_under", "漢字 & <b>"]
STORY = tell(np.array([0.4, 0.3, 0.1, 0.1, 0.1]), np.array([0.1, 0.2, 0.3, 0.2, 0.2]), HOSTILE.__getitem__)


@pytest.fixture(scope="module")
def picture():
    return bars.areas(STORY)


def test_a_picture_says_what_is_to_be_seen(picture):
    root = ElementTree.fromstring(inline(picture))
    title, description = root[0], root[1]
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert title.text == "Overshoot and undershoot"
    assert description.text is not None
    assert f"In all {STORY.over:.4f} too much and {STORY.under:.4f} too little." in description.text
    assert all(label in description.text for label in HOSTILE)


def test_words_stay_words(picture):
    root = ElementTree.fromstring(inline(picture))
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"$x^2$", "_under", "漢字 & <…"} <= texts
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))


def test_the_page_chooses_the_colours(picture):
    text = inline(picture)
    assert set(re.findall(r"var\(--(\w+)\)", text)) >= {"card", "ink", "muted", "grid", "target", "draft"}
    assert not re.findall(r"#[0-9a-f]{6}\b", text)
    assert "font-family" not in text


def test_a_word_that_is_a_colour_stays_a_word():
    words = [INK, TARGET, f"url({DRAFT})"]
    drawn = bars.areas(tell(np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3]), words.__getitem__))
    root = ElementTree.fromstring(inline(drawn))
    assert set(words) <= {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert root[1].text == drawn.description


def test_no_two_pictures_share_an_id(picture):
    ids = re.findall(r' id="([^"]+)"', inline(picture) + inline(bars.stacked(STORY)))
    assert len(ids) == len(set(ids)) > 10


def test_the_files_hold_the_same_drawing(picture, tmp_path):
    save(picture, tmp_path / "new")
    text = (tmp_path / "new" / "areas.svg").read_text(encoding="utf-8")
    shapes = [re.findall(r' d="([^"]+)"', drawing) for drawing in (text, inline(picture))]
    assert shapes[0] == shapes[1] != []
    assert "var(" not in text
    assert (tmp_path / "new" / "areas.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


WIDE = ["中华人民共和国", "\N{BOMB}" * 6, "我们", "a"]
"""Words that the figures' font lacks, and one that it has."""


@pytest.fixture(scope="module")
def wide():
    return bars.distributions(tell(np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4]), WIDE.__getitem__))


def texts(svg: str) -> set[str | None]:
    return {element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")}


def test_a_page_shows_words_in_its_readers_fonts(wide):
    assert {"中华人民…", "\N{BOMB}" * 4 + "…", "我们", "a"} <= texts(inline(wide))


def test_files_keep_to_what_their_font_has(wide, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of glyphs that it lacks
        save(wide, tmp_path)
    assert {"⟨U+4E2D⟩…", "⟨U+1F4A3⟩…", "⟨U+6211⟩⟨U+4EEC⟩", "a"} <= texts(
        (tmp_path / "distributions.svg").read_text(encoding="utf-8")
    )


def test_labels_leave_room_for_the_drawing(wide):
    inline(wide)  # which lays it out
    (axes,) = wide.figure.axes
    assert axes.get_position().width > 0.55


def test_guesses_below_their_bars_are_shown_too():
    one = Side(np.array([[0.5, 0.5]]), np.array([1]), np.array([[0.5, 0.25]]))
    picture = rounds.same_draws(Duel(np.array([[0, 1]]), np.array([2]), np.array([[0.1, 0.9]]), one, one), 0, WIDE[:2])
    assert {"1", "2", "中华人民…", "\N{BOMB}…"} <= texts(inline(picture))


@pytest.mark.parametrize(
    ("word", "drawn", "shown"),
    [
        ("a" * 30, "a" * 15 + "…", "a" * 15 + "…"),
        ("né", "né", "né"),
        ("語", "⟨U+8A9E⟩", "語"),
        ("語" * 20, "⟨U+8A9E⟩…", "語" * 4 + "…"),
        ("of 語語", "of ⟨U+8A9E⟩…", "of 語語"),
    ],
)
def test_labels_are_cut_and_spelt_as_the_font_needs(word, drawn, shown):
    assert drawable(word) == drawn
    assert readable(word) == shown
