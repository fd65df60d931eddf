"""A plan, compiled, and what its programs say of themselves."""

import time
from typing import Any, NamedTuple

import jax

from ..cache import KVCache
from ..sharding import DATA, TENSOR
from .hlo import Collective, Loop, collectives, copies, loops_of_rounds
from .programs import Plan, programs
from .roofline import message_bytes
from .topology import Chip


class Memory(NamedTuple):
    """Bytes on one chip."""

    params: int
    caches: int
    """Keys and values of target and drafter."""
    rest: int
    """Tokens, log-probabilities, values of rows; and what a narrow cache is padded with."""
    temporary: int
    """What a program needs only while it runs."""
    code: int

    @property
    def total(self) -> int:
        """All of it, in bytes."""
        return sum(self)


class Traffic(NamedTuple):
    """What a chip exchanges in a round."""

    bytes: int
    least_bytes: int
    """Two all-reduces of [rows, tokens, D] a layer, for every pass of the round."""
    largest_other: int
    """Bytes a row of the largest exchange whose arrays are not of model width."""
    messages: int
    """Times that chips exchange anything, if rows use every transform of the logits."""


class Program(NamedTuple):
    """One of the two, compiled."""

    seconds: float
    """That compiling took."""
    memory: Memory


class Report(NamedTuple):
    """What a plan's two programs hold and exchange, as the compiler has it."""

    insert: Program
    decode: Program
    traffic: Traffic
    cache_copies: int
    """Copies as large as a cache's array inside the loop of rounds."""
    exchanged: list[Collective]
    """In the loop of rounds."""

    def fits(self, chip: Chip) -> bool:
        """Whether a chip's memory holds either program."""
        return max(self.insert.memory.total, self.decode.memory.total) <= chip.memory


class TooLargeError(Exception):
    """The compiler found no room for a program."""


def compiled(plan: Plan) -> Report:
    """Compile both programs and read them.

    Raises:
        TooLargeError: a program does not fit a chip.
    """
    made = programs(plan)
    insert, _ = _compile("insert", made.insert, plan, made.state)
    decode, text = _compile("decode", made.decode, plan, made.state)
    inside = [one for one in collectives(text) if one.loops]
    return Report(
        insert=insert,
        decode=decode,
        traffic=traffic(plan, inside, loops_of_rounds(text)),
        cache_copies=copies(text, [shard_shape(leaf) for leaf in cache_arrays(made.state)]),
        exchanged=inside,
    )


def traffic(plan: Plan, inside: list[Collective], loops: list[Loop]) -> Traffic:
    """Of one round of K guesses, by the collectives inside the rounds and the loops that these are made of.

    In their order: the drafter's first pass and its others, and the verify pass of each width, of which one runs.
    """
    rows = plan.rows // plan.mesh.shape[DATA]
    K = plan.config.draft_length
    widths = plan.config.widths
    drafting = [] if plan.draft is None else [1, K - 1]
    verifying = [] if plan.draft is None or len(widths) == 1 else [int(width == widths[-1]) for width in widths]
    expected = [*drafting, *verifying]
    if len(loops) != len(expected):
        raise ValueError(f"the round has {len(loops)} loops of unknown length; expected {len(expected)}")
    passes = dict(zip(loops, expected, strict=True))

    def times(one: Collective) -> int:
        count = 1
        for loop in one.loops[1:]:
            count *= passes[loop] if loop.trips is None else loop.trips
        return count

    least = message_bytes(plan.target, plan, tokens=1 if plan.draft is None else K + 1)
    if plan.draft is not None:
        least += sum(message_bytes(plan.draft, plan, tokens=n) * t for n, t in ((2, 1), (1, K - 1)))
    # Where a device's part of the vocabulary is as wide as a model, its arrays do not pass for states.
    states = {side.config.width for side in (plan.target, plan.draft) if side is not None}
    states -= {plan.target.config.vocab_size // plan.mesh.shape[TENSOR]}
    others = [one.bytes for one in inside if not any(states & set(shape) for shape in one.shapes)]
    return Traffic(
        bytes=sum(one.bytes * times(one) for one in inside),
        least_bytes=least,
        largest_other=max(others, default=0) // rows,
        messages=sum(map(times, inside)),
    )


def shard_shape(leaf: Any) -> tuple[int, ...]:
    """Of an array on one device, where its place is known."""
    return tuple(getattr(leaf.sharding, "sharding", leaf.sharding).shard_shape(leaf.shape))


def shard_bytes(tree: Any) -> int:
    """Of all arrays of a tree on one device."""
    return sum(_count(shard_shape(leaf)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def cache_arrays(state: Any) -> list[Any]:
    """The keys and values of all caches, which are shapes here."""
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, KVCache))
    return [leaf for node in nodes if isinstance(node, KVCache) for leaf in jax.tree.leaves(node)]


def _compile(name: str, compile: Any, plan: Plan, state: Any) -> tuple[Program, str]:
    start = time.perf_counter()
    try:
        program = compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise TooLargeError(f"{name}: {str(error).splitlines()[0]}") from error
    seconds = time.perf_counter() - start
    used = program.memory_analysis()
    params = shard_bytes([side.params for side in (plan.target, plan.draft) if side is not None])
    caches = shard_bytes(cache_arrays(state))
    held = used.argument_size_in_bytes + used.output_size_in_bytes - used.alias_size_in_bytes
    rest = held - params - caches
    memory = Memory(params, caches, rest, used.temp_size_in_bytes, used.generated_code_size_in_bytes)
    return Program(seconds, memory), program.as_text() or ""
