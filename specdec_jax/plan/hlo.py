"""A compiled program, read from its text: what runs in which loops, and what devices exchange."""

import functools
import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\(")
_CALLED = re.compile(
    r"(?:calls|to_apply|branch_computations|true_computation|false_computation)=\{?((?:%[\w.\-]+(?:, )?)+)"
)
_ARRAY = re.compile(r"(\w+?)\[([\d,]*)\]")
_COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
_BITS = {"pred": 8, "bf16": 16}


class Instruction(NamedTuple):
    name: str
    result: str
    """Its type, such as bf16[8,128]{1,0}."""
    operation: str
    operands: tuple[str, ...]
    """Names of instructions of the same computation."""
    line: str
    is_root: bool
    """Its result is that of the computation."""

    def arrays(self) -> list[tuple[int, tuple[int, ...]]]:
        """Bytes of an element, and shape, of every array that it results in."""
        return [(_bits(kind) // 8, _sizes(shape)) for kind, shape in _ARRAY.findall(self.result)]

    def called(self) -> list[str]:
        """The computations that it calls, but for those of a loop."""
        return [name for found in _CALLED.findall(self.line) for name in re.findall(r"%([\w.\-]+)", found)]


class Text(NamedTuple):
    """A program, parsed."""

    computations: Mapping[str, Mapping[str, Instruction]]
    """Instructions by name, in their order, by the name of what they are part of."""
    entry: str


class Placed(NamedTuple):
    """An instruction, and the loops around it from outside in: their trips, None where these are traced."""

    instruction: Instruction
    loops: tuple["Loop", ...]
    body: Mapping[str, Instruction]
    """What it is part of, by name."""
    fused: bool
    """That is itself part of one instruction, so its own result is written nowhere."""


class Loop(NamedTuple):
    name: str
    trips: int | None


class Collective(NamedTuple):
    """Arrays that devices exchange."""

    kind: str
    shapes: tuple[tuple[int, ...], ...]
    """Of the results, on one device."""
    bytes: int
    """Of them together, each time."""
    groups: str
    """The devices that exchange, as the program has it."""
    loops: tuple[Loop, ...]


def collectives(program: str) -> list[Collective]:
    """All of them, in the order of the program."""
    found = []
    for instruction, loops, *_ in instructions(parsed(program)):
        kind = instruction.operation.removesuffix("-start")
        if kind in _COLLECTIVES:
            arrays = _exchanged(instruction)
            groups = re.search(r"(?:replica_groups|source_target_pairs)=(\S+?\}\}|\[\S+)", instruction.line)
            found.append(
                Collective(
                    kind,
                    tuple(shape for _, shape in arrays),
                    sum(size * math.prod(shape) for size, shape in arrays),
                    groups.group(1).rstrip(",") if groups else "",
                    loops,
                )
            )
    return found


def _exchanged(instruction: Instruction) -> list[tuple[int, tuple[int, ...]]]:
    """The arrays that a collective brings; one that only begins may give out what it is given in front of them."""
    arrays = instruction.arrays()
    if not instruction.operation.endswith("-start") or instruction.operation == "all-reduce-start":
        return arrays
    count = len(instruction.operands)
    return arrays[count : 2 * count]


def loops_of_rounds(program: str) -> list[Loop]:
    """The loops of traced trips right inside a loop of traced trips, which is that of the rounds, in their order."""
    inner = (placed.loops[:2] for placed in instructions(parsed(program)) if len(placed.loops) > 1)
    return list(dict.fromkeys(pair[1] for pair in inner if all(loop.trips is None for loop in pair)))


def instructions(text: Text) -> Iterator[Placed]:
    """All that may run, with what it calls in its place and every branch of a conditional."""

    def walk(name: str, loops: tuple[Loop, ...], fused: bool) -> Iterator[Placed]:
        body = text.computations[name]
        for instruction in body.values():
            yield Placed(instruction, loops, body, fused)
            if instruction.operation == "while":
                condition, inside = re.findall(r"(?:condition|body)=%([\w.\-]+)", instruction.line)
                trips = _trips(text.computations[condition])
                yield from walk(inside, (*loops, Loop(instruction.name, trips)), fused)
                continue
            for callee in instruction.called():
                yield from walk(callee, loops, fused or instruction.operation == "fusion")

    yield from walk(text.entry, (), False)


@functools.lru_cache(maxsize=1)  # of megabytes, and read for one thing after the other
def parsed(program: str) -> Text:
    """The computations of a program, as ``compiled.as_text()`` gives it.

    Raises:
        ValueError: it is another text.
    """
    computations: dict[str, dict[str, Instruction]] = {}
    entry, current = "", None
    for line in program.splitlines():
        start = _COMPUTATION.match(line)
        if start:
            current = computations.setdefault(start.group(2), {})
            entry = start.group(2) if start.group(1) else entry
            continue
        found = _INSTRUCTION.match(line)
        if found and current is not None:
            root, name, result, operation = found.groups()
            operands = tuple(re.findall(r"%([\w.\-]+)", _within_parentheses(line[found.end() :])))
            current[name] = Instruction(name, result, operation, operands, line, bool(root))
    if entry not in computations:
        raise ValueError("the text has no ENTRY computation; expected a compiled program, as compiled.as_text() gives")
    return Text(computations, entry)


def _within_parentheses(text: str) -> str:
    """Up to the one that closes what was opened before."""
    end = text.find(")")
    if "(" not in text[:end]:
        return text[:end]
    depth = 1
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth:
            return text[:place]
    return text


def _trips(condition: Mapping[str, Instruction]) -> int | None:
    """Of a loop that counts to a constant from 0, None for one that ends otherwise."""
    constants = {
        name: int(value.group(1))
        for name, one in condition.items()
        if one.operation == "constant" and (value := re.search(r"constant\((\d+)\)", one.line))
    }
    for one in condition.values():
        if one.operation == "compare" and "direction=LT" in one.line and one.operands[1] in constants:
            return constants[one.operands[1]]
    return None


def _bits(kind: str) -> int:
    digits = re.search(r"\d+", kind)
    return _BITS.get(kind) or (int(digits.group()) if digits else 8)


def _sizes(shape: str) -> tuple[int, ...]:
    return tuple(int(size) for size in shape.split(",") if size)
