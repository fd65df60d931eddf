"""Command lines from dataclasses: tyro reads names, defaults and help off the classes that the library itself uses."""

import os
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import tyro
from etils import epath
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from ..sampling import SamplingParams
from ..state import GenerateConfig
from . import UserError

T = TypeVar("T")

SAMPLING = SamplingParams()
CONFIG = GenerateConfig()
"""The library's defaults, which are the command line's."""

File = Annotated[Path | None, tyro.conf.arg(metavar="FILE")]
"""A file that need not be named."""
AnyFile = Annotated[epath.Path | None, tyro.conf.arg(metavar="FILE")]
"""The same, on this machine or in a store of objects."""

_REGISTRY = ConstructorRegistry()


@_REGISTRY.primitive_rule
def _scalar_or_array(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """A field that takes an array or a number, as those of SamplingParams do, takes a number here."""
    if get_origin(info.type) not in (Union, types.UnionType):
        return None
    members = get_args(info.type)
    numbers = [member for member in members if member in (int, float)]
    arrays = [member for member in members if getattr(member, "__module__", "").startswith("jaxtyping")]
    if len(numbers) != 1 or len(arrays) + 1 != len(members):
        return None
    number: Any = numbers[0]
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=number.__name__.upper(),
        instance_from_str=lambda words: number(words[0]),
        is_instance=lambda value: isinstance(value, int | float),
        str_from_instance=lambda value: [str(value)],
    )


def parse(options: type[T], command: str, args: Sequence[str]) -> T:
    """The options of ``specdec command`` as an instance of the dataclass; exits with 2 where they are wrong."""
    try:
        return tyro.cli(options, prog=f"specdec {command}", args=args, registry=_REGISTRY)
    except BrokenPipeError:
        if {"-h", "--help"} & {*args}:
            raise
        raise SystemExit(2) from None  # nobody reads what is wrong


def check_integers(options: object, **ranges: tuple[int, int]) -> None:
    """ValueError for a field whose value is not from the first to before the second number of its range."""
    for name, (least, end) in ranges.items():
        value = getattr(options, name)
        if not least <= value < end:
            raise ValueError(f"{name} is {value}; expected an integer from {least} to {end - 1}")


def check_text(**texts: str | None) -> None:
    """ValueError for what was typed in another encoding than the terminal's, and so is no text."""
    for name, text in texts.items():
        if text is not None and any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueError(f"{name} is {ascii(text)[:60]}, which holds bytes that are no text; expected UTF-8")


def changed(options: Any, names: Sequence[str]) -> list[str]:
    """The flags of those of these fields that are not as by default; SamplingParams stand for flags of their own."""
    found = []
    for name in names:
        value, usual = getattr(options, name), type(options).__dataclass_fields__[name].default
        if isinstance(value, SamplingParams):
            found += [field for field, one, other in zip(value._fields, value, usual, strict=True) if one != other]
        elif value != usual:
            found.append(name)
    return [f"--{name.replace('_', '-')}" for name in found]


def check_outputs(file: Path | None, folder: Path | None = None) -> None:
    """UserError for a file or a folder of files that could not be written, before the work that would be lost."""
    if file is not None:
        if file.is_dir() or not file.absolute().parent.is_dir():
            raise UserError(f"cannot write {file}; expected a file in a folder that exists")
        if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
            raise UserError(f"cannot write {file}; expected a file or folder that may be written to")
    if folder is not None:
        there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        if not there.is_dir():
            raise UserError(f"cannot write into {folder}: {there} is no folder; expected one, or a name for a new one")
        if not os.access(there, os.W_OK):
            raise UserError(f"cannot write into {folder}: {there} may not be written to; expected a folder that may")
