"""Copies of whole arrays in the loops of a compiled program.

A copy is an array that is written and holds nothing but what was in memory before: copied, turned, converted, cut out,
chosen or put together, by an instruction of its own or by a fusion that does nothing else. What a fusion makes on its
way is written nowhere, and an update in place writes what is new and no more.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..models.attention import BLOCK
from .hlo import Instruction, Loop, Placed, Text, instructions, parsed

_MOVES = {
    **dict.fromkeys(("copy", "transpose", "convert", "reshape", "reverse", "bitcast", "bitcast-convert"), slice(0, 1)),
    **dict.fromkeys(("slice", "dynamic-slice", "gather", "pad"), slice(0, 1)),
    "concatenate": slice(None),
    "select": slice(1, None),
    "dynamic-update-slice": slice(1, 2),
}
"""Operations that move what is there, and which of their operands that is."""
_GIVEN = ("parameter", "get-tuple-element", "constant", "broadcast", "iota")
"""What is neither moved nor computed."""


class Copy(NamedTuple):
    """An array that a loop copies."""

    operation: str
    """What is done to it last."""
    shape: tuple[int, ...]
    """On one device."""
    bytes: int
    near: bool
    """It is written to the fast memory of a TPU's chip, from where products read it: one reading of it, no writing."""
    loops: tuple[Loop, ...]


class CacheCopies(NamedTuple):
    """Copies in loops, by how much of a cache they are. What goes to fast memory alone is none of the first three."""

    whole: list[Copy]
    """As large as the keys, or the values, of all layers of a model,"""
    layers: list[Copy]
    """or of one layer at least, at once or block by block."""
    others: list[Copy]
    """As large as one layer's keys, but not of a cache: logits, say."""
    near: list[Copy]
    """Of any of these sizes, to fast memory."""


def cache_copies(program: str, caches: Sequence[tuple[int, ...]]) -> CacheCopies:
    """The copies in a program's loops that are as large as a part of the ``caches``.

    Args:
        program: its text.
        caches: the shapes [L, B, G, S, H] of keys and values on one device.
    """
    smallest = min(math.prod(shape[1:]) for shape in caches)
    found = CacheCopies([], [], [], [])
    for one in copies(program, at_least=min(_block(shape) for shape in caches)):
        parts = {_part(one, shape) for shape in caches} - {""}
        if math.prod(one.shape) < smallest and not parts:
            continue
        if one.near:
            found.near.append(one)
        elif "whole" in parts:
            found.whole.append(one)
        else:
            (found.layers if parts else found.others).append(one)
    return found


def _part(one: Copy, cache: tuple[int, ...]) -> str:
    """How much of this cache a copy may be, by its size: whole, layer, or nothing."""
    numbers, layer, slots = math.prod(one.shape), math.prod(cache[1:]), cache[3]
    # Inside of the rounds and of their passes, nothing but attention goes round for a time that is not known before.
    if any(loop.trips is None for loop in one.loops[2:]) and numbers % _block(cache) == 0:
        return "layer"
    # Slots stay an axis, whatever becomes of the others; keys and values may be copied as one.
    if numbers % layer or not layer <= numbers <= 2 * cache[0] * layer or all(size % slots for size in one.shape):
        return ""
    return "whole" if numbers >= cache[0] * layer else "layer"


def _block(cache: tuple[int, ...]) -> int:
    """Numbers of the slots that attention reads at once."""
    return math.prod(cache[1:]) // cache[3] * min(BLOCK, cache[3])


def copies(program: str, *, at_least: int) -> list[Copy]:
    """Those inside of loops, of arrays with so many numbers at least, in the order of the program."""
    text = parsed(program)
    found = []
    for placed in instructions(text):
        if not placed.loops or placed.fused:
            continue
        for one, body in _written(placed, text):
            operation = _operation(one)
            part = body[one.operands[1]] if operation == "dynamic-update-slice" else one
            size, shape = part.arrays()[0]
            if math.prod(shape) >= at_least:
                near = "S(1)" in placed.instruction.result
                found.append(Copy(operation, shape, size * math.prod(shape), near, placed.loops))
    return found


def _written(placed: Placed, text: Text) -> Iterator[tuple[Instruction, Mapping[str, Instruction]]]:
    """What an instruction writes that it has only moved, and the computation that this is part of."""
    instruction = placed.instruction
    if instruction.operation != "fusion":
        if _operation(instruction) in _MOVES and instruction.operation != "bitcast":
            yield instruction, placed.body
        return
    body = text.computations[instruction.called()[0]]
    (root,) = (one for one in body.values() if one.is_root)
    for name in root.operands if root.operation == "tuple" else (root.name,):
        one = body[name]
        while one.operation == "bitcast":
            one = body[one.operands[0]]
        if _operation(one) in _MOVES and _moved(one, body):
            yield one, body


def _moved(one: Instruction, body: Mapping[str, Instruction]) -> bool:
    operation = _operation(one)
    if operation not in _MOVES:
        return operation in _GIVEN
    return all(_moved(body[name], body) for name in one.operands[_MOVES[operation]])


def _operation(one: Instruction) -> str:
    """Of one that only begins there is nothing yet, so it counts where it is done."""
    return one.operation.removesuffix("-done")
