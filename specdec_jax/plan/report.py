"""A plan, compiled, and what its programs say of themselves."""

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
from jax.experimental.compilation_cache import compilation_cache
from jax.stages import Lowered

from ..cache import KVCache
from .copies import CacheCopies, cache_copies
from .hlo import collectives, loops_of_rounds
from .programs import Plan, programs
from .topology import Chip
from .traffic import Exchange, Traffic, exchanges, traffic


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


class Program(NamedTuple):
    """Compiled."""

    seconds: float
    """That compiling took."""
    memory: Memory


class Report(NamedTuple):
    """What a plan's programs hold and exchange, as the compiler has it."""

    inserts: dict[int, Program]
    """By the slots of the prompts that are put in."""
    decode: Program
    traffic: Traffic
    exchanged: list[Exchange]
    """In the loop of rounds."""
    copied: CacheCopies
    """In the loop of rounds too."""

    def fits(self, chip: Chip) -> bool:
        """Whether a chip's memory holds each of the programs."""
        return all(one.memory.total <= chip.memory for one in (*self.inserts.values(), self.decode))


class TooLargeError(Exception):
    """The compiler found no room for a program."""

    def __init__(self, message: str, params: int, caches: int):
        super().__init__(message)
        self.params, self.caches = params, caches
        """Bytes on a chip of what has to be there at any time."""


def compiled(plan: Plan) -> Report:
    """Compile all programs and read them.

    Raises:
        TooLargeError: a program does not fit a chip.
    """
    made = programs(plan)
    inserts = {width: _compile(f"insert {width}", one, plan, made.state)[0] for width, one in made.inserts.items()}
    decode, text = _compile("decode", made.decode, plan, made.state)
    inside = [one for one in collectives(text) if one.loops]
    exchanged = exchanges(plan, inside, loops_of_rounds(text))
    return Report(
        inserts=inserts,
        decode=decode,
        traffic=traffic(plan, exchanged),
        exchanged=exchanged,
        copied=cache_copies(text, [shard_shape(leaf) for leaf in cache_arrays(made.state)]),
    )


def held(plan: Plan, state: Any) -> tuple[int, int]:
    """Bytes on a chip of parameters, and of keys and values."""
    params = shard_bytes([side.params for side in (plan.target, plan.draft) if side is not None])
    return params, shard_bytes(cache_arrays(state))


def shard_shape(leaf: Any) -> tuple[int, ...]:
    """Of an array on one device, where its place is known."""
    return tuple(getattr(leaf.sharding, "sharding", leaf.sharding).shard_shape(leaf.shape))


def shard_bytes(tree: Any) -> int:
    """Of all arrays of a tree on one device."""
    return sum(math.prod(shard_shape(leaf)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def cache_arrays(state: Any) -> list[Any]:
    """The keys and values of all caches, which are shapes here."""
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, KVCache))
    return [leaf for node in nodes if isinstance(node, KVCache) for leaf in jax.tree.leaves(node)]


def _compile(name: str, lowered: Lowered, plan: Plan, state: Any) -> tuple[Program, str]:
    params, caches = held(plan, state)
    start = time.perf_counter()
    try:
        with _anew():
            program = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise TooLargeError(f"{name}: {str(error).splitlines()[0]}", params, caches) from error
    seconds = time.perf_counter() - start
    used: Any = program.memory_analysis()
    kept = used.argument_size_in_bytes + used.output_size_in_bytes - used.alias_size_in_bytes
    rest = kept - params - caches
    memory = Memory(params, caches, rest, used.temp_size_in_bytes, used.generated_code_size_in_bytes)
    return Program(seconds, memory), program.as_text() or ""


@contextlib.contextmanager
def _anew() -> Iterator[None]:
    """Compile what is in the cache of compiled programs too: how long that takes is to be found out."""
    before = jax.config.values["jax_enable_compilation_cache"]
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # or it would go by what it knew before
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)
        compilation_cache.reset_cache()
