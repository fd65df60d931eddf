"""Prompts from the command line, a text file (one a line) or JSON lines."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from etils import epath

from ..batch import PassingError
from ..batch.files import is_remote
from ..sampling import SamplingParams
from . import UserError

AnyPath = Path | epath.Path
"""On this machine, or in a store of objects."""
SHIPPED = Path(__file__).with_name("prompts.jsonl")
"""Prompts that come with the package."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SOURCES = ("prompt", "messages", "token_ids")
_LASTING = (FileNotFoundError, IsADirectoryError, PermissionError)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prompt:
    """One of ``prompt``, ``messages`` and ``token_ids``, and values of its own that go before the command's."""

    where: str
    """Where it stands, for messages: a file and line, or a place on the command line."""
    prompt: str | None = None
    messages: list[dict[str, str]] | None = None
    token_ids: list[int] | None = None
    id: str | int | None = None
    category: str | None = None
    sampling: dict[str, int | float] = dataclasses.field(default_factory=dict)
    max_new_tokens: int | None = None
    seed: int | None = None


@dataclasses.dataclass(frozen=True)
class Fault:
    """A prompt that cannot be answered, and why."""

    where: str
    why: str
    id: str | int | None = None
    """Its line's own, where that can be read."""


class PromptError(ValueError):
    """Why a prompt cannot be answered: what was got, what was expected and what to do."""

    def __init__(self, why: str, id: str | int | None = None):
        super().__init__(why)
        self.id = id


def from_arguments(texts: Sequence[str]) -> list[Prompt | Fault]:
    """Prompts given as arguments."""
    return [_attempt(_prompt, {"prompt": text}, f"prompt {place}") for place, text in enumerate(texts, 1)]


def from_file(path: AnyPath) -> list[Prompt | Fault]:
    """Prompts of a file: JSON lines where its name ends in .jsonl or .ndjson, else one prompt a line.

    Blank lines do not count.
    """
    prompts = list(each_of_file(path))
    if not prompts:
        raise UserError(f"{path} holds no prompts; expected one a line")
    return prompts


def each_of_file(path: AnyPath) -> Iterator[Prompt | Fault]:
    """The same one after the other, so that a file may be larger than the memory."""
    return each_of_lines(path, lines_of_file(path))


def each_of_lines(path: AnyPath, lines: Iterable[tuple[int, bytes]]) -> Iterator[Prompt | Fault]:
    """The prompts of a file's lines, given with their numbers."""
    read = _json_line if form_of(path) == "jsonl" else _text_line
    for number, line in lines:
        yield _attempt(read, line, f"{path}:{number}")


def form_of(path: AnyPath) -> Literal["jsonl", "text"]:
    """How the lines of a file are read, by its name."""
    suffix = path.suffix.lower()
    if suffix == ".json":
        raise UserError(f"{path} is one JSON document; expected JSON lines (.jsonl), one object a line, or a text file")
    return "jsonl" if suffix in (".jsonl", ".ndjson") else "text"


def label_of(prompt: Prompt | Fault, index: int) -> str | int | None:
    """The id under which it is answered: its own, else its place; None for a line that is too broken to tell."""
    return prompt.id if prompt.id is not None or isinstance(prompt, Fault) else index


def distinct(prompts: Iterable[Prompt | Fault]) -> Iterator[Prompt | Fault]:
    """The same, but for those whose id another has before them: answers could not be told apart."""
    seen: dict[str | int, str] = {}
    for index, prompt in enumerate(prompts):
        label = label_of(prompt, index)
        if label is not None and seen.setdefault(label, prompt.where) != prompt.where:
            yield Fault(
                prompt.where,
                f"the id {_name(label)} is that of {seen[label]} too; expected each once, where a prompt without an id "
                "has its place from 0, so change one of them",
            )
        else:
            yield prompt


def lines_of_file(path: AnyPath) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, and their numbers from 1.

    Raises:
        UserError: it cannot be read; a PassingError where it may be the next time.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                line = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
                if line.strip():
                    yield number, line.removesuffix(b"\n")
    except ImportError as error:
        raise UserError(
            f"cannot read the prompts in {path}: {error}; expected pip install 'specdec-jax[gcs]' for gs://"
        ) from error
    except Exception as error:  # stores of objects raise what their libraries do
        why = (isinstance(error, OSError) and error.strerror) or error
        if is_remote(path) and not isinstance(error, _LASTING):
            raise PassingError(f"cannot read the prompts in {path}: {why}; start the same command again") from error
        raise UserError(
            f"cannot read the prompts in {path}: {why}; expected a text file with one prompt a line, or a .jsonl file"
        ) from error


def _attempt(read: Callable[[Any, str], Prompt], value: Any, where: str) -> Prompt | Fault:
    try:
        return read(value, where)
    except PromptError as error:
        return Fault(where, str(error), error.id)


def _text_line(line: bytes, where: str) -> Prompt:
    return _prompt({"prompt": _decode(line).removesuffix("\r")}, where)


def _json_line(line: bytes, where: str) -> Prompt:
    try:
        fields = json.loads(_decode(line), object_pairs_hook=_once_each)
    except (ValueError, RecursionError) as error:
        if isinstance(error, PromptError):
            raise
        raise PromptError(f"the line is not JSON ({error}); expected one object such as {_EXAMPLE}") from error
    if not isinstance(fields, dict):
        raise PromptError(f"the line is {_name(fields)}; expected one object such as {_EXAMPLE}")
    try:
        return _prompt(fields, where)
    except PromptError as error:
        raise PromptError(str(error), _readable_id(fields)) from error


def _once_each(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Of a field that comes twice, JSON's readers keep the last and say nothing."""
    found = dict(fields)
    if len(found) < len(fields):
        names = [name for name, _ in fields]
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise PromptError(f"{_name(twice)} comes twice in one object; expected each field once")
    return found


def _readable_id(fields: dict[str, Any]) -> str | int | None:
    with contextlib.suppress(PromptError):
        return None if fields.get("id") is None else _label("id", fields["id"])
    return None


_EXAMPLE = '{"prompt": "Once upon a time"}'


def _decode(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise PromptError(f"the line is not UTF-8 ({error}); save the file as UTF-8") from error


def _prompt(fields: dict[str, Any], where: str) -> Prompt:
    unknown = [name for name in fields if name not in _CHECKS]
    if unknown:
        raise PromptError(f"unknown field {unknown[0]!r}; expected only {', '.join(_CHECKS)}")
    given = [name for name in _SOURCES if fields.get(name) is not None]
    if len(given) != 1:
        raise PromptError(f"got {' and '.join(given) or 'no prompt'}; expected exactly one of {', '.join(_SOURCES)}")
    checked = {name: _CHECKS[name](name, value) for name, value in fields.items() if value is not None}
    sampling = {name: checked.pop(name) for name in SamplingParams._fields if name in checked}
    return Prompt(where=where, sampling=sampling, **checked)


# ---- checks: each takes a field's name and value, and returns the value or raises PromptError ----


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(name, value, "a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise PromptError(f"{name} has a lone surrogate at character {error.start}; expected valid Unicode") from error
    return value


def _filled(name: str, value: Any) -> str:
    if not _text(name, value):
        raise PromptError(f"{name} is empty; expected at least one character")
    return value


def _conversation(name: str, value: Any) -> list[dict[str, str]]:
    expected = 'a list such as [{"role": "user", "content": "Hello"}]'
    if not isinstance(value, list) or not value:
        raise _wrong(name, value, expected)
    for place, message in enumerate(value):
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise _wrong(f"{name}[{place}]", message, "an object with role and content")
        for key in ("role", "content"):
            _text(f"{name}[{place}].{key}", message[key])
    return value


def _ids(name: str, value: Any) -> list[int]:
    if not isinstance(value, list) or not value:
        raise _wrong(name, value, "a list of token ids, at least one")
    for place, token in enumerate(value):
        _integer(0, 2**31 - 1)(f"{name}[{place}]", token)
    return value


def _label(name: str, value: Any) -> str | int:
    return _text(name, value) if isinstance(value, str) else _integer(-(2**63), 2**63 - 1)(name, value)


def _integer(least: int, most: int) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise _wrong(name, value, f"an integer from {least} to {most}")
        return value

    return check


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(name, value, "a number")
    try:
        return float(value)
    except OverflowError as error:  # JSON's integers have no end
        raise _wrong(name, value, "a number that a float can hold") from error


def _sampling_checks() -> Iterator[tuple[str, Callable[[str, Any], Any]]]:
    """The fields of SamplingParams by their defaults' types; their ranges are checked by the class itself."""
    for name, default in SamplingParams._field_defaults.items():
        yield name, _integer(0, 2**31 - 1) if isinstance(default, int) else _number


def _wrong(name: str, value: Any, expected: str) -> PromptError:
    return PromptError(f"{name} is {_name(value)}; expected {expected}")


def _name(value: Any) -> str:
    """A value as JSON, cut short."""
    try:
        text = json.dumps(value)
    except ValueError:  # Python writes no integer of more than some thousand digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "prompt": _filled,
    "messages": _conversation,
    "token_ids": _ids,
    "id": _label,
    "category": _text,
    **dict(_sampling_checks()),
    "max_new_tokens": _integer(1, 2**31 - 1),
    "seed": _integer(0, 2**32 - 1),
}
