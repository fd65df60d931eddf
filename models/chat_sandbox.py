"""jinja2's immutable sandbox for templates from anyone, with bounds on the memory that they take.

Products, sums, the usual widths and the whole text are bounded, which catches what is merely wrong. A template that
means harm finds other ways to take memory and time: loops, ``join``, ``replace``, formats within formats, bytes.
"""

import functools
import re
from collections.abc import Callable, Iterable, Sized
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.filters import do_format
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST = 1 << 24
"""Characters of a text, items of a list, and a width that something is filled up to."""
_MOST_BITS = 1 << 12
"""Of a number."""
_FILL = ("batch", "center", "indent", "slice")
"""Filters that fill up to a width."""
_WIDTH = re.compile(r"[%:.][^\w\s{}]*(\d+)")
"""A width in a format."""
_ELSEWHERE = re.compile(r"\*|{[^}]*{")
"""One that a format leaves to its values."""


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Raises SecurityError where a step would grow past its bound, before it is taken."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        self.filters |= {name: narrow(self.filters[name]) for name in _FILL} | {"format": _format_filter}

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            _check_format(left, right if isinstance(right, tuple) else (right,))
        elif operator == "**":
            _check(_bits(left) * right if isinstance(right, int) else 0, _MOST_BITS)
        elif operator == "+":
            _check(_size(left) + _size(right), MOST)
        elif operator == "*":
            _check(_bits(left) + _bits(right), _MOST_BITS)
            for sized, times in ((left, right), (right, left)):
                _check(_size(sized) * times if isinstance(times, int) else 0, MOST)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  (as jinja2 has it)
        if isinstance(getattr(__obj, "__self__", None), str):  # a method such as ljust
            _check_numbers([*args, *kwargs.values()])
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        return None if wrapped is None else _formatting(value.__self__, wrapped)


def joined(pieces: Iterable[str]) -> str:
    """A text in pieces, which may be no longer than `MOST`."""
    found, length = [], 0
    for piece in pieces:
        length += len(piece)
        _check(length, MOST)
        found.append(piece)
    return "".join(found)


def narrow(fill: Callable[..., Any]) -> Callable[..., Any]:
    """The same filter, for widths in bounds; the value that is filtered may be any number."""

    @functools.wraps(fill)
    def filled(value: Any, *args: Any, **kwargs: Any) -> Any:
        _check_numbers([*args, *kwargs.values()])
        return fill(value, *args, **kwargs)

    return filled


def _format_filter(text: str, *args: Any, **kwargs: Any) -> str:
    _check_format(str(text), [*args, *kwargs.values()])
    return do_format(text, *args, **kwargs)


def _formatting(text: str, wrapped: Callable[..., str]) -> Callable[..., str]:
    def formatted(*args: Any, **kwargs: Any) -> str:
        _check_format(text, [*args, *kwargs.values()])
        return wrapped(*args, **kwargs)

    return formatted


def _check_format(text: str, values: Iterable[Any]) -> None:
    _check_numbers(int(digits[:20]) for digits in _WIDTH.findall(text))
    if _ELSEWHERE.search(text):
        _check_numbers(values)


def _check_numbers(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, int):
            _check(value, MOST)


def _check(size: int, most: int) -> None:
    if size > most:
        raise SecurityError(f"it grows to {size}; expected at most {most}")


def _size(value: Any) -> int:
    return len(value) if isinstance(value, Sized) else 0


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0
