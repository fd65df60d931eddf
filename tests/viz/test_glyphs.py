"""Tokens that could hide, break or reorder a page are spelt out."""

import unicodedata

import pytest

from specdec_jax.viz.glyphs import Speller, label, visible

HELLO = "\u05e9\u05dc\u05d5\u05dd"  # in Hebrew
BOMB = "💣"
FAMILY = "👩\u200d👧"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("<b>&amp;", "<b>&amp;"),  # the template's to escape
        ("a\nb\tc", "a↵\nb⇥c"),
        ("\x00\x1b[31m\x7f", "␀␛[31m␡"),
        ("\u202egnp.exe", "⟨U+202E⟩gnp.exe"),
        (f"\u2066{HELLO}\u2069", f"⟨U+2066⟩{HELLO}⟨U+2069⟩"),
        ("a\u200bb\ufeff", "a⟨U+200B⟩b⟨U+FEFF⟩"),
        ("\u2028\u00a0\ue000", "⟨U+2028⟩⟨U+00A0⟩⟨U+E000⟩"),
        (FAMILY, FAMILY),
        ("a\u200db", "a⟨U+200D⟩b"),
        ("\u0301", "◌\u0301"),
        ("e\u0301", "e\u0301"),
    ],
)
def test_what_cannot_be_seen_is_spelt_out(text, shown):
    assert visible(text) == shown


def test_no_control_or_format_character_is_left():
    everything = "".join(map(chr, [*range(0x3000), *range(0xFE00, 0xFFFF), *range(0xE0000, 0xE0100)]))
    for character in everything:
        kinds = {unicodedata.category(mark) for mark in visible(character) if mark not in " \n"}
        assert not kinds & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}, hex(ord(character))


def spelt(tokens: list[bytes]) -> list[str]:
    return list(map(Speller().push, tokens))


def test_a_character_in_parts_is_bytes_until_it_is_whole():
    first, second, third = BOMB.encode()[:1], BOMB.encode()[1:3], BOMB.encode()[3:] + b"!"
    assert spelt([b"a", first, second, third]) == ["a", "⟨F0⟩", "⟨9F 92⟩", f"{BOMB}!"]


def test_bytes_that_begin_no_character_are_shown_once():
    assert spelt([b"\xe2", b"a", b"\xf0\x9f", b"\xe2\x82", b"\xac", b"\xff."]) == [
        "⟨E2⟩",
        "a",
        "⟨F0 9F⟩",
        "⟨E2 82⟩",
        "€",
        "⟨FF⟩.",
    ]


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (b" the", "␣the"),
        (b"the ", "the␣"),
        (b"  ", "␣␣"),
        (b"\n", "↵"),
        (b"\n\n", "↵↵"),
        (b"\xf0\x9f", "⟨F0 9F⟩"),
        (b"", ""),
    ],
)
def test_a_label_shows_its_spaces(token, shown):
    assert label(token) == shown
