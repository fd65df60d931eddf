"""Pages that need nothing but themselves: style, script and pictures stand in the file."""

from pathlib import Path

import jinja2

from .glyphs import visible
from .picture import inline

_PAGES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,  # tokens may hold anything
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_PAGES.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
_PAGES.filters["inline"] = inline
_PAGES.filters["visible"] = visible


def render(template: str, **values: object) -> str:
    """A page from a template of this package."""
    return _PAGES.get_template(template).render(**values)
