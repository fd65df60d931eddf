"""The page about one token, opened as people open it."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.testing import closed_forms
from specdec_jax.viz import explain
from specdec_jax.viz.duel import constant_rounds, duel

P, Q = np.array([0.5, 0.3, 0.2], np.float32), np.array([0.2, 0.5, 0.3], np.float32)
WORDS = ["<script>alert(1)</script>", "b & c", "\u05e9\u05dc"]


@pytest.fixture(scope="module")
def told():
    rounds = constant_rounds(jnp.asarray(P), jnp.asarray(Q), 3, 16, jax.random.key(0))
    return explain.told(P, Q, duel(*rounds), WORDS.__getitem__)


@pytest.fixture(scope="module")
def text(told):
    return explain.page(told, prompt="<b>So</b>\u202e", target="big", draft="small")


def test_the_page_states_what_the_library_computes(look, text, told):
    page = look(text)
    alpha = closed_forms.acceptance_probability(P, Q)
    assert page.locator("#alpha").text_content() == f"{alpha:.4f}"
    for area in ("#over", "#under"):
        assert page.locator(area).text_content() == f"{1 - alpha:.4f}"
    for figure, picture in zip(page.locator("figure").all(), told.pictures.values(), strict=True):
        assert figure.locator("figcaption").text_content() == picture.title
        rows = [row.locator("th, td").all_text_contents() for row in figure.locator("tbody tr").all()]
        assert rows == [list(row) for row in picture.rows]


def test_the_tables_hold_the_distributions(told):
    rows = told.pictures["distributions"].rows
    assert [row[1:] for row in rows] == [("0.500", "0.200"), ("0.300", "0.500"), ("0.200", "0.300")]
    assert told.pictures["stacked"].rows[0] == (WORDS[0], "0.200", "0.300", "0.500", "0.500")
    assert told.pictures["edge-same"].rows[0][1:4] == ("0.500", "0.500", "0.500")


def test_every_figure_has_words_for_those_who_do_not_see_it(look, text, told):
    page = look(text)
    page.get_by_role("button", name="All at once").press("Enter")
    for picture in told.pictures.values():
        image = page.get_by_role("img", name=picture.title)
        assert image.count() == 1
        assert image.locator("desc").text_content() == picture.description
    assert page.get_by_role("img").count() == len(told.pictures)


def test_no_word_becomes_markup(look, text):
    page = look(text)
    assert page.locator("main script").count() == 0
    assert "<b>So</b>⟨U+202E⟩" in page.locator(".lead").text_content()


def test_every_control_works_by_keyboard(look, text):
    page = look(text)
    steps = page.locator("section").count()
    heading, place = page.locator("section:visible h2"), page.locator("#place")

    def reached(number):
        assert heading.count() == 1
        assert place.text_content() == f"{number} of {steps}: {heading.text_content()}"
        assert page.locator("nav a[aria-current]").all_text_contents() == [str(number)]

    reached(1)
    page.get_by_role("button", name="Next").press("Enter")
    reached(2)
    page.keyboard.press("ArrowRight")
    reached(3)
    page.keyboard.press("ArrowLeft")
    reached(2)
    page.get_by_role("button", name="Back").press("Space")
    reached(1)
    page.keyboard.press("End")
    reached(steps)
    page.keyboard.press("ArrowLeft")
    for _ in range(2):  # the second is one too many
        page.get_by_role("button", name="Next").press("Enter")
        reached(steps)
    assert page.locator("#next:focus").get_attribute("aria-disabled") == "true"
    assert page.locator("#back").get_attribute("aria-disabled") == "false"
    page.keyboard.press("Home")
    reached(1)
    page.get_by_role("link", name="3: ").press("Enter")
    reached(3)
    everything = page.get_by_role("button", name="All at once")
    everything.press("Enter")
    assert heading.count() == steps
    everything.press("Enter")
    reached(3)
    page.locator("section:visible summary").first.press("Enter")
    assert page.locator("section:visible table").first.is_visible()


def test_the_theme_follows_the_system_and_its_switch(look, text):
    colour = "getComputedStyle(document.body).backgroundColor"
    light, dark = look(text), look(text, dark=True)
    day, night = light.evaluate(colour), dark.evaluate(colour)
    assert day != night
    light.locator("#theme").press("Enter")
    assert light.evaluate(colour) == night
    dark.locator("#theme").press("Enter")
    assert dark.evaluate(colour) == day
    dark.locator("#theme").press("Enter")
    assert dark.evaluate(colour) == night


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_runs_over_the_side(look, text, width):
    page = look(text, width=width)
    page.locator("#all").press("Enter")
    for summary in page.locator("summary").all():
        summary.press("Enter")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_scripts_all_steps_stand_there(look, text, told):
    page = look(text, script=False)
    assert page.locator("figure svg:visible").count() == len(told.pictures)


@pytest.mark.heavy
def test_no_page_prints_minus_zero():
    """Not where the draft is the target, either."""
    p = np.random.default_rng(0).dirichlet(np.full(50, 0.3)).astype(np.float32)
    rounds = constant_rounds(jnp.asarray(p), jnp.asarray(p), 1, 4, jax.random.key(0))
    told = explain.told(p, p, duel(*rounds), str)
    text = explain.page(told, prompt=None, target="", draft="")
    said = "".join(one.description for one in told.pictures.values())
    words = said + re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)
    assert re.findall(r"[-\N{MINUS SIGN}]0\.0+\b", words) == []
    assert "With probability 1 \N{MINUS SIGN} alpha = 0.0000" in words
    # The third draft at the edge is sure of another word than the likeliest, which may be as likely.
    assert "unlikely" not in words
    assert "wrong" not in words


@pytest.mark.parametrize("key", ["Shift+ArrowRight", "Shift+End", "Control+ArrowRight"])
def test_keys_that_mean_something_else_are_left_alone(look, text, key):
    page = look(text)
    page.locator("body").press(key)
    assert page.locator("nav a[aria-current]").all_text_contents() == ["1"]


@pytest.mark.parametrize("dark", [False, True])
def test_browsers_that_do_not_know_light_dark_have_light_colours(look, text, dark):
    page = look(text.replace("light-dark(", "unheard-of("), dark=dark)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(248, 247, 243)"
    assert page.evaluate("getComputedStyle(document.querySelector('h1')).color") == "rgb(29, 29, 35)"
