"""The page of a recorded generation, opened as people open it."""

import re

import jax
import jax.numpy as jnp
import pytest
from hostile import PROMPT, TOKENS, K

from specdec_jax.state import summary
from specdec_jax.viz import trace_page
from specdec_jax.viz.glyphs import Speller, label


@pytest.fixture(scope="module")
def text(moments):
    return trace_page.page(moments, PROMPT, TOKENS.__getitem__, target="toy", draft="<weak>", rule="block")


@pytest.fixture(scope="module")
def records(moments):
    return trace_page.row_of(moments, 0)


def cells(page, table):
    """The lines of a table, cell by cell."""
    rows = page.locator(f"#{table} tbody tr")
    return [rows.nth(i).locator("td").all_text_contents() for i in range(rows.count())]


@pytest.mark.heavy
def test_every_token_stands_in_the_text_once(records):
    found = trace_page.marks(records, PROMPT, TOKENS.__getitem__)
    emitted = [token for record in records for token in record.tokens]
    shown = [mark.text for mark in found if not mark.in_vain]
    assert shown == list(map(Speller().push, (TOKENS[token] for token in [*PROMPT, *emitted])))
    kinds = [mark.kind for mark in found]
    assert kinds.count("kept") == sum(record.num_accepted for record in records)
    vain = sum(len(record.guesses) - record.num_accepted for record in records)
    assert kinds.count("refused") + kinds.count("past the end") == vain
    assert kinds.count("bonus") == sum(record.is_bonus and record.follow is not None for record in records)
    assert kinds.count("corrected") == sum(not record.is_bonus and record.follow is not None for record in records)
    assert min(map(kinds.count, ("kept", "refused", "bonus", "corrected"))) > 0


def test_no_token_becomes_markup(look, text):
    page = look(text)
    assert page.locator("img:not([src^='data:']), #text script").count() == 0
    assert "<img src=x onerror=alert(1)>" in page.locator("#text").text_content()
    assert "{{ 7 * 7 }}" in page.locator("#text").text_content()
    assert "\u202e" not in page.locator("html").text_content()
    assert page.locator(".lead b").nth(1).text_content() == "<weak>"


def test_the_page_states_the_metrics(look, text, moments):
    page = look(text)
    stated = dict(zip(page.locator("dt").all_text_contents(), page.locator("dd").all_text_contents(), strict=True))
    counted = summary(moments[-1].stats, jnp.array([60]))
    assert stated["tokens"] == "60"
    for name in ("rounds", "drafted", "accepted"):
        assert stated[name] == str(counted[name])
    for name in ("acceptance_rate", "block_efficiency"):
        assert stated[name] == f"{counted[name]:.2f}"


def test_every_round_is_told_as_it_was_recorded(look, text, moments, records):
    page = look(text)
    page.keyboard.press("Home")
    for number, record in enumerate(records):
        assert page.locator("#round-heading").text_content() == (
            f"Round {number + 1}: {record.num_accepted} of {len(record.guesses)} kept"
        )
        halves = re.fullmatch(r"drafting ([\d.]+) ms, verifying ([\d.]+) ms", page.locator("#halves").text_content())
        assert halves is not None
        draft, verify = moments[number][1:3]
        assert list(map(float, halves.groups())) == pytest.approx([1e3 * draft, 1e3 * verify], abs=0.006)
        rows = cells(page, "guesses")
        for guess, (token, p, q, accept, draw, _) in zip(record.guesses, rows, strict=False):
            assert token == label(TOKENS[guess.token])
            found = [float(value) for value in (p, q, accept, draw)]
            assert found == pytest.approx([guess.p, guess.q, guess.accept, guess.draw], abs=0.00051)
        verdicts = [row[-1] for row in rows]
        assert verdicts.count("kept") == record.num_accepted
        if record.follow is not None:
            assert rows[-1][0] == label(TOKENS[record.follow.token])
            assert [float(rows[-1][i]) for i in (1, 3)] == pytest.approx(record.follow[1:], abs=0.00051)
            assert verdicts[-1] == ("bonus" if record.is_bonus else "correction")
        assert len(cells(page, "likeliest")) == len(record.tokens)
        page.keyboard.press("ArrowRight")


@pytest.mark.heavy
def test_rounds_without_a_guess_are_called_what_they_are(look, sparse_moments):
    records = trace_page.row_of(sparse_moments, 0)
    number = next(i for i, record in enumerate(records) if not record.guesses)
    (mark,) = [mark for mark in trace_page.marks(records, PROMPT, TOKENS.__getitem__) if mark.round == number]
    assert mark.kind == "plain"
    page = look(
        trace_page.page(sparse_moments, PROMPT, TOKENS.__getitem__, target="", draft="", rule="block"), width=390
    )
    plain, guesses = sum(not record.guesses for record in records), sum(len(record.guesses) for record in records)
    assert (
        page.locator("#few")
        .text_content()
        .startswith(
            f"{guesses} guesses were made, of at most {K} in each of {len(records)} rounds. {plain} rounds had none"
        )
    )
    page.locator("#slider").fill(str(number + 1))
    assert page.locator("#round-heading").text_content() == f"Round {number + 1}: no guess, a step of plain decoding"
    ((*_, verdict),) = cells(page, "guesses")
    assert verdict == "plain"
    page.locator(f"#text [data-r='{number}']").hover()
    assert "plain, p " in page.locator("#hint").text_content()


def test_places_and_rounds_without_guesses_have_no_acceptance(sparse_moments):
    acceptance = trace_page.pictures(sparse_moments, 0)[0]
    assert acceptance.name == "acceptance"
    assert [row[0] for row in acceptance.rows] == ["1"]
    (axes,) = acceptance.figure.axes
    assert len(axes.patches) == 1
    undrafted = [moment._replace(stats=jax.tree.map(jnp.zeros_like, moment.stats)) for moment in sparse_moments]
    assert "acceptance" not in {picture.name for picture in trace_page.pictures(undrafted, 0)}


def test_on_a_phone_the_buttons_stay_beside_what_they_change(look, text):
    page = look(text, width=390)
    for place in ("#text", "#guesses", "#likeliest"):
        page.locator(place).evaluate("element => element.scrollIntoView({block: 'center'})")
        assert page.evaluate(
            "document.getElementById('next').getBoundingClientRect().top >= 0"
            " && document.getElementById('next').getBoundingClientRect().bottom < 200"
        ), place
    page.evaluate("scrollTo(0, document.querySelector('.controls').offsetTop)")
    assert page.evaluate("document.getElementById('guesses').getBoundingClientRect().top") < 700


def test_rounds_to_come_are_hidden_and_the_present_one_is_marked(look, text, records):
    page = look(text)
    page.locator("#slider").fill("2")
    tokens = page.locator("#text [data-r='1']:visible")
    assert tokens.count() == len(records[1].guesses) + (records[1].follow is not None)
    assert page.locator("#text [data-r='2']:visible").count() == 0
    assert page.locator("#text s[data-r='0']:visible").count() == 0
    page.get_by_role("button", name="Show all refused").press("Enter")
    assert page.locator("#text s[data-r='0']:visible").count() == len(records[0].guesses) - records[0].num_accepted


def test_every_control_works_by_keyboard(look, text, records):
    page = look(text)
    number, last = page.locator("#number"), str(len(records))

    def press(name, key="Enter"):
        page.get_by_role("button", name=name, exact=True).press(key)

    press("First round")
    assert number.text_content() == "1"
    press("Next round", "Space")
    assert number.text_content() == "2"
    for _ in range(2):  # the second is one too many
        press("Round before")
        assert number.text_content() == "1"
    assert page.locator("#back:focus").get_attribute("aria-disabled") == "true"
    assert page.locator("#next").get_attribute("aria-disabled") == "false"
    press("Last round")
    assert number.text_content() == last
    page.locator("#slider").press("ArrowLeft")
    assert number.text_content() == str(len(records) - 1)
    page.locator("#speed").press("End")
    press("Play")
    page.locator(f"#number:text-is('{last}')").wait_for()
    press("Play")  # from the start again
    press("Pause")
    assert page.get_by_role("button", name="Play", exact=True).count() == 1
    assert int(number.text_content()) < len(records)
    reached = set()
    page.locator("body").press("Tab")
    for _ in range(30):
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.localName"))
        page.keyboard.press("Tab")
    assert {"theme", "play", "slider", "speed", "refused", "text", "summary"} <= reached


def test_a_token_under_the_pointer_tells_its_story(look, text, records):
    page = look(text)
    number = next(
        i
        for i, record in enumerate(records)
        if 0 < record.num_accepted < len(record.guesses) and record.follow.chance > record.follow.p + 0.01
    )
    guess, follow = records[number].guesses[0], records[number].follow
    page.locator(f"#text [data-r='{number}'][data-i='0']").hover()
    hint = page.locator("#hint").text_content()
    assert f"p {guess.p:.3f}, q {guess.q:.3f}" in hint
    assert f"accepts below {guess.accept:.3f}, draw {guess.draw:.3f}" in hint
    page.locator(f"#text span[data-r='{number}'][data-i='{records[number].num_accepted}']").hover()
    hint = page.locator("#hint").text_content()
    assert f"correction, p {follow.p:.3f}" in hint
    assert f"drawn with probability {follow.chance:.3f}" in hint
    page.locator(f"#text span[data-r='{number}'][data-i='0']").click()
    assert page.locator("#number").text_content() == str(number + 1)


def test_a_rule_that_draws_nothing_shows_no_draw(look, moments):
    def undrawn(moment):
        (record,) = moment.rows
        guesses = tuple(guess._replace(accept=None, draw=None) for guess in record.guesses)
        follow = None if record.follow is None else record.follow._replace(chance=None)
        return moment._replace(rows=(record._replace(guesses=guesses, follow=follow),))

    told = trace_page.page(list(map(undrawn, moments)), PROMPT, TOKENS.__getitem__, target="", draft="", rule="coupled")
    page = look(told)
    guesses = cells(page, "guesses")[: len(moments[-1].rows[0].guesses)]
    assert {value for row in guesses for value in row[3:5]} == {"\N{EN DASH}"}
    page.locator("#text .corrected, #text .bonus").last.hover()
    hint = page.locator("#hint").text_content()
    assert "p 0" in hint
    assert "drawn with probability" not in hint
    said = page.locator(".round").text_content()
    assert "A guess is kept where the target, with the same noise, draws it itself" in said


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_runs_over_the_side(look, text, width):
    page = look(text, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_scripts_the_whole_text_and_the_pictures_stand_there(look, text, records):
    page = look(text, script=False)
    assert page.locator("#text span:visible").count() == len(PROMPT) + sum(len(record.tokens) for record in records)
    assert page.locator("figure svg:visible").count() == 3


def test_a_table_that_is_scrolled_by_keys_keeps_them(look, text):
    page = look(text, width=390)
    number = page.locator("#number").text_content()
    page.evaluate(
        "for (const cell of document.querySelectorAll('#likeliest td')) cell.style.minWidth = '12rem';"
        "for (const box of document.querySelectorAll('.scroll')) box.tabIndex = 0;"
    )
    box = page.locator(".scroll:has(#likeliest)")
    box.press("ArrowRight")
    assert page.locator("#number").text_content() == number
    page.wait_for_function("document.querySelector('.scroll:has(#likeliest)').scrollLeft > 0")


def test_names_of_models_move_nothing(look, moments):
    """They are names of directories, and those may hold anything."""
    page = look(trace_page.page(moments, PROMPT, TOKENS.__getitem__, target="a\u202eb", draft="c\udcff", rule="block"))
    assert "Target a⟨U+202E⟩b, draft c⟨FF⟩, block rule" in page.locator(".lead").text_content()


def test_a_row_without_rounds_has_no_page(moments):
    with pytest.raises(ValueError, match="row 0 took part in no round; expected a row that was still to be continued"):
        trace_page.page([], PROMPT, TOKENS.__getitem__, target="", draft="", rule="block")


def test_guesses_past_the_end_are_not_called_refused(look, moments, records):
    """Where the text has all its tokens before the last guess that was kept."""
    record = records[0]._replace(num_accepted=1, follow=None)
    ended = moments[0]._replace(rows=(record,))
    kinds = [mark.kind for mark in trace_page.marks([record], [], TOKENS.__getitem__)]
    assert kinds == ["kept"] + ["past the end"] * (K - 1)
    page = look(trace_page.page([ended], PROMPT, TOKENS.__getitem__, target="", draft="", rule="block"))
    assert [row[-1] for row in cells(page, "guesses")] == kinds
    assert page.locator("#text s.past:visible").count() == K - 1
    struck = "getComputedStyle(document.querySelector('#text s')).textDecorationLine"
    assert page.evaluate(struck) == "none"


@pytest.mark.parametrize("key", ["Shift+ArrowLeft", "Shift+Home", "Control+ArrowLeft", "Alt+Home"])
def test_keys_that_mean_something_else_are_left_alone(look, text, records, key):
    page = look(text)
    page.locator("body").press(key)
    assert page.locator("#number").text_content() == str(len(records))
