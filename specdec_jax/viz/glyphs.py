"""Tokens as text that is safe to look at: what cannot be seen, or would move what stands around it, is spelt out."""

import codecs
import itertools
import unicodedata
from collections.abc import Iterable

_JOINERS = "\u200c\u200d"  # of Persian words and of emoji
_HIDDEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}
_BYTES = range(0xDC80, 0xDD00)  # what the handler surrogateescape makes of bytes that are no character


class Speller:
    """Spells the tokens of a text one by one.

    The bytes of a character that is not whole yet are shown as such, and the token that completes it shows it whole.
    """

    def __init__(self):
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def push(self, token: bytes) -> str:
        """What the token adds to the text."""
        before = len(self._decoder.getstate()[0])
        text = self._decoder.decode(token)
        waiting = self._decoder.getstate()[0]
        own = waiting if text else waiting[before:]
        # Bytes that turn out to begin no character were shown with the tokens that brought them.
        while before and text and ord(text[0]) in _BYTES:
            text, before = text[1:], before - 1
        return visible(text) + visible(own.decode("utf-8", "surrogateescape"))


def label(token: bytes) -> str:
    """A token by itself, its outer spaces shown too."""
    text = visible(token.decode("utf-8", "surrogateescape")).replace("\n", "")
    inner = text.strip(" ")
    left = len(text) - len(text.lstrip(" "))
    return "␣" * left + inner + "␣" * (len(text) - left - len(inner)) if inner else "␣" * len(text)


def visible(text: str) -> str:
    """The text with control characters, format characters and stray bytes spelt out; a line break stays one as well."""
    if text.isascii() and text.isprintable():  # as most tokens are, of tens of thousands in a page
        return text
    shown = []
    for is_byte, run in itertools.groupby(_marked(text), lambda pair: ord(pair[0]) in _BYTES):
        if is_byte:
            shown.append("⟨" + " ".join(f"{ord(character) - 0xDC00:02X}" for character, _ in run) + "⟩")
        else:
            shown.extend(mark for _, mark in run)
    return "".join(shown)


def _marked(text: str) -> Iterable[tuple[str, str]]:
    for place, character in enumerate(text):
        yield character, _mark(character, text[place - 1 : place], text[place + 1 : place + 2])


def _mark(character: str, before: str, after: str) -> str:
    if character == "\n":
        return "↵\n"
    if character == "\t":
        return "⇥"
    if character < "\x20":
        return chr(0x2400 + ord(character))  # the control pictures
    if character == "\x7f":
        return "␡"
    if character in _JOINERS and before > "\x7f" and after > "\x7f":
        return character
    category = unicodedata.category(character)
    if character != " " and category in _HIDDEN:
        return f"⟨U+{ord(character):04X}⟩"
    if category.startswith("M") and not before:
        return "◌" + character  # an accent would land on what stands before
    return character
