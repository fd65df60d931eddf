"""Pictures: a matplotlib figure with its words and its numbers, as SVG in a page and as files for slides."""

import functools
import io
import re
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from .labels import mark_of

# After Okabe and Ito: told apart by all kinds of sight, and hatched as well where two of them touch.
PAPER, INK, MUTED, GRID = "#fffffe", "#1d1d23", "#5c5c66", "#dcdce3"
TARGET, DRAFT, KEPT, REDRAW = "#1f6fb4", "#d5811c", "#12866a", "#a8518c"
_NAMES = {
    PAPER: "card",
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    TARGET: "target",
    DRAFT: "draft",
    KEPT: "kept",
    REDRAW: "redraw",
}
"""The colours of the files, and the CSS variables that take their place in a page."""
_COLOUR = re.compile("|".join(_NAMES))

__all__ = ["KINDS", "Picture", "save", "write"]

WIDTH = 4.5
"""Inches, 324 points: on a telephone a point is about a pixel."""

_STYLE: Any = {
    "font.size": 10,
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.9,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "specdec_jax",
    "text.parse_math": False,
}
style = functools.partial(matplotlib.rc_context, _STYLE)
"""A context in which pictures are drawn."""

KINDS = (".svg", ".png")
"""Endings of the files."""

_SVG = "http://www.w3.org/2000/svg"


class Picture(NamedTuple):
    """A figure that explains itself."""

    name: str
    """Of its files, and in the page."""
    title: str
    description: str
    """What is to be seen, for those who do not see it."""
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """The numbers drawn, as a table."""
    figure: Figure
    labels: tuple[str, ...] = ()
    """What a page writes at the drawing's marked labels, in which a file spells out what its font lacks."""


def inline(picture: Picture) -> Markup:
    """SVG to stand in a page; its colours are the page's."""
    root = _svg(picture)
    for element in root.iter():
        for name, value in element.items():
            element.set(name, _COLOUR.sub(lambda found: f"var(--{_NAMES[found[0]]})", value))
    groups = {element.get("id"): element for element in root.iter(f"{{{_SVG}}}g")}
    for place, label in enumerate(picture.labels):
        *_, text = groups[f"{picture.name}-{mark_of(place)}"].iter(f"{{{_SVG}}}text")  # the last of its lines
        text.text = label
    return Markup(_written(root))


def save(picture: Picture, folder: Path) -> None:
    """NAME.svg and NAME.png in a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        write(picture, folder / f"{picture.name}{kind}")


def write(picture: Picture, path: Path) -> None:
    """A file of the kind that its name ends in, one of `KINDS`: .svg, or .png of 300 dots an inch."""
    if path.suffix not in KINDS:
        raise ValueError(f"a picture's file is {path}; expected a name that ends in {' or '.join(KINDS)}")
    if path.suffix == ".svg":
        path.write_text(_written(_svg(picture)), encoding="utf-8")
        return
    with style():
        _settle(picture.figure)
        picture.figure.savefig(path, dpi=300)


def _settle(figure: Figure) -> None:
    """Lay a figure out once: the engine would move things a little with every drawing."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine(None)


def _svg(picture: Picture) -> ElementTree.Element:
    """What matplotlib writes, with title and description, ids that no other picture has, and the reader's own font."""
    buffer = io.StringIO()
    with style():
        _settle(picture.figure)
        picture.figure.savefig(buffer, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for element in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(element)
    for parent in root.iter():
        for sheet in parent.findall(f"{{{_SVG}}}style"):  # its one rule would hold for the whole page
            parent.remove(sheet)
    for element in root.iter():
        _adapt(element, picture.name)
    for name in ("width", "height"):
        del root.attrib[name]
    root.attrib |= {"role": "img", "aria-labelledby": f"{picture.name}-title {picture.name}-desc"}
    words = (("title", picture.title), ("desc", picture.description))
    for place, (tag, text) in enumerate(words):
        element = ElementTree.Element(f"{{{_SVG}}}{tag}", id=f"{picture.name}-{tag}")
        element.text = text
        root.insert(place, element)
    return root


def _written(root: ElementTree.Element) -> str:
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    return ElementTree.tostring(root, encoding="unicode")


def _adapt(element: ElementTree.Element, prefix: str) -> None:
    for name, value in element.attrib.items():
        if name == "id":
            element.set(name, f"{prefix}-{value}")
        elif name.endswith("href"):
            element.set(name, value.replace("#", f"#{prefix}-", 1))
        elif "url(#" in value:
            element.set(name, value.replace("url(#", f"url(#{prefix}-"))
    if element.tag == f"{{{_SVG}}}text":
        words = element.get("style", "")
        element.set("style", re.sub(r"font(-family)?: ([\d.]+px)?[^;]*", _only_size, words))


def _only_size(font: re.Match) -> str:
    return f"font-size: {font[2]}" if font[2] else ""
