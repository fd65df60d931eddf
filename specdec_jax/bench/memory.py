"""What XLA says of the memory of a compiled generation."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._typing import PyTree
from ..drafters import Drafter
from ..generate import generate
from ..lm import LanguageModel
from ..state import GenerateConfig


class Memory(NamedTuple):
    """Bytes, and copies of the cache."""

    peak_bytes: int
    """What the running program holds: parameters, prompts, results and temporaries."""
    argument_bytes: int
    """Parameters and prompts."""
    temporary_bytes: int
    """Everything that lives only while the program runs, the caches themselves included."""
    cache_bytes: int
    """One cache of the target for this batch and capacity."""
    cache_copies: int
    """Instructions that copy a buffer of the shape of a whole cache array."""


def memory(
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter | None,
    drafter_params: PyTree,
    *,
    batch: int,
    prompt_slots: int,
    config: GenerateConfig,
) -> Memory:
    """Compile `generate` for these shapes, run nothing, and read off what it needs."""

    def run(target_params, drafter_params, prompts, lengths, key):
        return generate(
            target, target_params, drafter, drafter_params, prompts, lengths, key=key, config=config, max_new_tokens=1
        )

    shapes = jax.eval_shape(
        lambda: (
            jnp.zeros((batch, prompt_slots), jnp.int32),
            jnp.zeros((batch,), jnp.int32),
            jax.random.split(jax.random.key(0), batch),
        )
    )
    compiled = jax.jit(run).lower(_shapes(target_params), _shapes(drafter_params), *shapes).compile()
    slots = config.slots(drafting=drafter is not None)
    cache = jax.eval_shape(lambda: jax.tree.leaves(target.init_cache(batch, slots)))
    analysis: Any = compiled.memory_analysis()
    return Memory(
        peak_bytes=int(
            analysis.argument_size_in_bytes
            + analysis.output_size_in_bytes
            + analysis.temp_size_in_bytes
            - analysis.alias_size_in_bytes
        ),
        argument_bytes=int(analysis.argument_size_in_bytes),
        temporary_bytes=int(analysis.temp_size_in_bytes),
        cache_bytes=sum(leaf.size * leaf.dtype.itemsize for leaf in cache),
        cache_copies=_copies(compiled.as_text() or "", cache),
    )


def _shapes(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def _copies(program: str, cache: Sequence[jax.ShapeDtypeStruct]) -> int:
    """Copies among the instructions of a program that are as large as an array of the cache."""
    shapes = {",".join(map(str, leaf.shape)) for leaf in cache}
    found = re.findall(r"= \(?\w+\[([\d,]+)\]\S* copy(?:-start)?\(", program)
    return sum(shape in shapes for shape in found)
