"""Words in a drawing: a page shows them in its reader's fonts, a file spells out what the figures' font lacks."""

import functools
import unicodedata
from collections.abc import Iterable, Sequence

from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

MOST = 16
"""Columns of a label; characters of Chinese, Japanese and Korean and emoji take two."""


def drawable(word: str, most: int = MOST) -> str:
    """A word that the figures' font can draw: other characters by their numbers, and cut to ``most`` columns."""
    known = _characters()
    return _cut([character if ord(character) in known else f"⟨U+{ord(character):04X}⟩" for character in word], most)


def readable(word: str, most: int = MOST) -> str:
    """The same word as it is, in the room that `drawable` takes up in the layout."""
    return _cut(word, max(_columns(drawable(word, most)), most // 2))


def mark(texts: Iterable[Text]) -> None:
    """Let labels be found again in the SVG."""
    for place, text in enumerate(texts):
        text.set_gid(mark_of(place))


def mark_of(place: int) -> str:
    """The id by which a label is found."""
    return f"label-{place}"


def _cut(pieces: Sequence[str], most: int) -> str:
    """As many pieces as there is room for, and a sign where that is not all of them."""
    if sum(map(_columns, pieces)) <= most:
        return "".join(pieces)
    kept, left = "", most - 1
    for piece in pieces:
        left -= _columns(piece)
        if left < 0:
            break
        kept += piece
    return kept + "…"


def _columns(text: str) -> int:
    return sum(map(_columns_of, text))


def _columns_of(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):  # stands on the one before
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


@functools.cache
def _characters() -> frozenset[int]:
    return frozenset(FT2Font(findfont(FontProperties())).get_charmap())
