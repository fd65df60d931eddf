"""What a compiled program does in its loops, read from its text: collectives, and copies of whole arrays."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\(")
_CALLED = re.compile(
    r"(?:calls|to_apply|branch_computations|true_computation|false_computation)=\{?((?:%[\w.\-]+(?:, )?)+)"
)
_ARRAY = re.compile(r"(\w+?)\[([\d,]*)\]")
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_COPIES = ("copy", "copy-start", "transpose", "convert")
_BITS = {"pred": 8, "bf16": 16}


class Instruction(NamedTuple):
    name: str
    result: str
    """Its type, such as bf16[8,128]{1,0}."""
    operation: str
    line: str

    def arrays(self) -> list[tuple[int, tuple[int, ...]]]:
        """Bytes of an element, and shape, of every array that it results in."""
        return [(_bits(kind) // 8, _sizes(shape)) for kind, shape in _ARRAY.findall(self.result)]


class Placed(NamedTuple):
    """An instruction, and the loops around it from outside in: their trips, None where these are traced."""

    instruction: Instruction
    loops: tuple["Loop", ...]


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
    for instruction, loops in instructions(program):
        kind = instruction.operation.removesuffix("-start")
        if kind in _COLLECTIVES:
            arrays = instruction.arrays()
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


def loops_of_rounds(program: str) -> list[Loop]:
    """The loops of traced trips right inside a loop of traced trips, which is that of the rounds, in their order."""
    inner = (placed.loops[:2] for placed in instructions(program) if len(placed.loops) > 1)
    return list(dict.fromkeys(pair[1] for pair in inner if all(loop.trips is None for loop in pair)))


def copies(program: str, shapes: Sequence[tuple[int, ...]]) -> int:
    """Copies, inside of loops, of arrays of these shapes on one device."""
    wanted = set(shapes)
    return sum(
        instruction.operation in _COPIES and any(shape in wanted for _, shape in instruction.arrays()[:1])
        for instruction, loops in instructions(program)
        if loops
    )


def instructions(program: str) -> Iterator[Placed]:
    """All that may run, with what it calls in its place and every branch of a conditional."""
    bodies, entry = _computations(program)

    def walk(name: str, loops: tuple[Loop, ...]) -> Iterator[Placed]:
        for instruction in bodies[name]:
            yield Placed(instruction, loops)
            if instruction.operation == "while":
                condition, body = re.findall(r"(?:condition|body)=%([\w.\-]+)", instruction.line)
                yield from walk(body, (*loops, Loop(instruction.name, _trips(bodies[condition]))))
                continue
            for called in _CALLED.findall(instruction.line):
                for callee in re.findall(r"%([\w.\-]+)", called):
                    yield from walk(callee, loops)

    yield from walk(entry, ())


def _computations(program: str) -> tuple[dict[str, list[Instruction]], str]:
    bodies: dict[str, list[Instruction]] = {}
    entry, current = "", None
    for line in program.splitlines():
        start = _COMPUTATION.match(line)
        if start:
            current = bodies.setdefault(start.group(2), [])
            entry = start.group(2) if start.group(1) else entry
            continue
        found = _INSTRUCTION.match(line)
        if found and current is not None:
            name, result, operation = found.groups()
            current.append(Instruction(name, result, operation, line))
    if entry not in bodies:
        raise ValueError("the text has no ENTRY computation; expected a compiled program, as compiled.as_text() gives")
    return bodies, entry


def _trips(condition: Sequence[Instruction]) -> int | None:
    """Of a loop that counts to a constant from 0, None for one that ends otherwise."""
    constants = {
        one.name: int(value.group(1))
        for one in condition
        if one.operation == "constant" and (value := re.search(r"constant\((\d+)\)", one.line))
    }
    for one in condition:
        if one.operation == "compare" and "direction=LT" in one.line:
            compared = re.search(r"compare\(%[\w.\-]+, %([\w.\-]+)\)", one.line)
            if compared and compared.group(1) in constants:
                return constants[compared.group(1)]
    return None


def _bits(kind: str) -> int:
    digits = re.search(r"\d+", kind)
    return _BITS.get(kind) or (int(digits.group()) if digits else 8)


def _sizes(shape: str) -> tuple[int, ...]:
    return tuple(int(size) for size in shape.split(",") if size)
