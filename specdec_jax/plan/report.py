"""A plan, compiled, and what its programs say of themselves."""

import time
from typing import Any, NamedTuple

import jax

from ..cache import KVCache
from ..sharding import DATA
from .hlo import Collective, collectives, copies
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

    prefill: Program
    decode: Program
    traffic: Traffic
    cache_copies: int
    """Copies as large as a cache's array inside the loop of rounds."""
    exchanged: list[Collective]
    """In the loop of rounds."""

    def fits(self, chip: Chip) -> bool:
        """Whether a chip's memory holds either program."""
        return max(self.prefill.memory.total, self.decode.memory.total) <= chip.memory


class TooLargeError(Exception):
    """The compiler found no room for a program."""


def compiled(plan: Plan) -> Report:
    """Compile both programs and read them.

    Raises:
        TooLargeError: a program does not fit a chip.
    """
    made = programs(plan)
    prefill, _ = _compile("prefill", made.prefill, plan, made.state)
    decode, text = _compile("decode", made.decode, plan, made.state)
    inside = [one for one in collectives(text) if one.loops]
    return Report(
        prefill=prefill,
        decode=decode,
        traffic=traffic(plan, inside),
        cache_copies=copies(text, [shard_shape(leaf) for leaf in cache_arrays(made.state)]),
        exchanged=inside,
    )


def traffic(plan: Plan, inside: list[Collective]) -> Traffic:
    """Of one round: loops whose trips are traced are the round itself and the drafter's passes, in their order."""
    rows = plan.rows // plan.mesh.shape[DATA]
    K = plan.config.draft_length
    drafting = list(dict.fromkeys(loop for one in inside for loop in one.loops[1:] if loop.trips is None))
    expected = [] if plan.draft is None else [1, K - 1]
    if drafting and len(drafting) != len(expected):
        raise ValueError(f"the round has {len(drafting)} loops of unknown length; expected {len(expected)}")
    passes = dict(zip(drafting, expected, strict=False))

    def times(one: Collective) -> int:
        count = 1
        for loop in one.loops[1:]:
            count *= passes[loop] if loop.trips is None else loop.trips
        return count

    least = message_bytes(plan.target, plan, tokens=1 if plan.draft is None else K + 1)
    if plan.draft is not None:
        least += sum(message_bytes(plan.draft, plan, tokens=n) * t for n, t in ((2, 1), (1, K - 1)))
    widths = {side.config.width for side in (plan.target, plan.draft) if side is not None}
    others = [one.bytes for one in inside if not any(widths & set(shape) for shape in one.shapes)]
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
