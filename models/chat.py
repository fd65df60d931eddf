"""Chat templates: from a list of messages to the text a model was trained on.

A template comes with the weights, from anyone, so it runs in a sandbox, with the few names that templates are written
for.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser

from .chat_sandbox import BoundedEnvironment, joined, narrow

Message = Mapping[str, Any]
"""At least ``role`` (system, user, assistant) and ``content``, or ``tool_calls`` instead of the latter."""

_SAID = {"content", "tool_calls"}
_NOT_GIVEN = {"tools": None, "documents": None}  # defined, as in transformers: templates ask whether they are none


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _tojson(value: Any, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
    """Plain JSON; jinja2's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class _Generation(jinja2.ext.Extension):
    """Templates mark what an assistant said, for training on that alone; the mark itself leaves no text."""

    tags = {"generation"}  # noqa: RUF012  (as jinja2 declares it)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled template.

    Raises:
        ValueError: here for a template that does not parse, in `render` for one that fails on these messages.
    """

    def __init__(self, source: str):
        # Not optimised: that would run a template's constant parts here already, and some of those fill the memory.
        environment = BoundedEnvironment(
            trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[_Generation, jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = narrow(_tojson)
        environment.globals |= {"raise_exception": _raise_exception}
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ValueError(f"the chat template does not parse, at its line {error.lineno}: {error}") from error
        self.source = source

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        now: datetime | None = None,
        **names: Any,
    ) -> str:
        """The text of a conversation.

        Some templates write the date: ``now``, by default that of the clock. ``names`` are what else a template may
        use, such as ``bos_token``.
        """
        for index, message in enumerate(messages):
            if not isinstance(message, Mapping) or "role" not in message or not message.keys() & _SAID:
                raise ValueError(f"message {index} is {message!r}; expected a mapping with 'role' and 'content'")
        names = _NOT_GIVEN | {"strftime_now": (datetime.now() if now is None else now).strftime} | names
        try:
            pieces = self._template.generate(messages=messages, add_generation_prompt=add_generation_prompt, **names)
            return joined(pieces)
        # Template code may raise what any code may: a wrong type, a missing key, its own refusal, a sandbox breach.
        except Exception as error:
            raise ValueError(
                f"the chat template refuses these messages ({type(error).__name__}: {error}); check their roles, order "
                "and content"
            ) from error
