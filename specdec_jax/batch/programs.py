"""The compiled programs of the batch generator: put prompts into slots, decode, take an answer out.

A slot is a row of one `GenerateState` that lives as long as the job. Its buffers are donated from program to program,
so that they are updated where they lie.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from .._typing import Array, PyTree
from ..drafters import Drafter
from ..generate import init
from ..lm import LanguageModel
from ..loop import controlled
from ..state import FinishReason, GenerateConfig, GenerateState, Generation
from ..verify import RULES
from .prompts import UNFOLDED, Prompts, bucket, pack

Axes = tuple[int | None, ...]
"""Of each leaf of a state the axis that counts rows; None for a leaf that all rows share."""


def _start(target, target_params, drafter, drafter_params, prompts: Prompts, eos_tokens, config) -> GenerateState:
    """The prompts in a state of their own, read and ready for a first round."""

    def key(seed, fold):
        own = jax.random.key(seed)
        return jnp.where(fold == UNFOLDED, own, jax.random.fold_in(own, fold))

    return init(
        target,
        target_params,
        drafter,
        drafter_params,
        prompts.tokens,
        prompts.lengths,
        key=jax.vmap(key)(prompts.seeds, prompts.folds),
        sampling=prompts.sampling,
        config=config,
        max_new_tokens=prompts.max_new_tokens,
        eos_tokens=eos_tokens,
    )


def blank(
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter | None,
    drafter_params: PyTree,
    eos_tokens,
    *,
    batch: int,
    config: GenerateConfig,
) -> tuple[GenerateState, Axes]:
    """Zeros in the shape of a state of ``batch`` rows, and where its leaves count their rows.

    Caches may be any pytree, so the axes are found by asking for the shapes at two batch sizes.
    """

    def shapes(rows: int) -> list[jax.ShapeDtypeStruct]:
        prompts = pack([], rows, bucket(1, config), 0)

        def start(target_params, drafter_params):
            state = _start(target, target_params, drafter, drafter_params, prompts, eos_tokens, config)
            leaves, trees[rows] = jax.tree.flatten(state)
            return leaves

        return jax.eval_shape(start, target_params, drafter_params)

    trees = {}
    # Two and three, for a model may treat one row as a case of its own.
    leaves = shapes(2)
    axes = tuple(_row_axis(*pair) for pair in zip(leaves, shapes(3), strict=True))

    def zeros(leaf: jax.ShapeDtypeStruct, axis: int | None) -> Array:
        shape = tuple(batch if place == axis else size for place, size in enumerate(leaf.shape))
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jnp.broadcast_to(jax.random.key(0), shape)
        return jnp.zeros(shape, leaf.dtype)

    return trees[2].unflatten([zeros(leaf, axis) for leaf, axis in zip(leaves, axes, strict=True)]), axes


def _row_axis(two: jax.ShapeDtypeStruct, three: jax.ShapeDtypeStruct) -> int | None:
    differ = [axis for axis, (a, b) in enumerate(zip(two.shape, three.shape, strict=True)) if a != b]
    if len(differ) > 1 or any((two.shape[axis], three.shape[axis]) != (2, 3) for axis in differ):
        raise ValueError(
            f"an array of the state has shape {two.shape} for 2 rows and {three.shape} for 3; expected one axis that "
            "counts rows, or none, so give each array of a cache an axis [rows]"
        )
    return differ[0] if differ else None


@partial(jax.jit, static_argnames=("target", "drafter", "config", "axes"), donate_argnames="state")
def insert(
    target, target_params, drafter, drafter_params, state, prompts, slots, count, fresh, eos_tokens, config, axes
) -> GenerateState:
    """Read prompts, and put the first ``count`` of them into the slots ``slots[:count]``; the others stay as they are.

    ``fresh`` (traced) also sets what all rows share, as is needed once.
    """
    new = jax.tree.leaves(_start(target, target_params, drafter, drafter_params, prompts, eos_tokens, config))
    old, tree = jax.tree.flatten(state)
    old = [
        jnp.where(fresh, theirs, ours) if axis is None else ours
        for ours, theirs, axis in zip(old, new, axes, strict=True)
    ]

    def put(row, leaves):
        def write(leaf, source, axis):
            if axis is None:
                return leaf
            part = lax.dynamic_slice_in_dim(source, row, 1, axis)
            return lax.dynamic_update_slice_in_dim(leaf, part, slots[row], axis)

        return [write(*each) for each in zip(leaves, new, axes, strict=True)]

    # A loop over rows that updates slices leaves the buffers where they are, as a scatter would not.
    return tree.unflatten(lax.fori_loop(0, count, put, old))


@partial(
    jax.jit,
    static_argnames=("target", "drafter", "controller", "config"),
    donate_argnames=("state", "control"),
)
def decode(
    target, target_params, drafter, drafter_params, controller, costs, state, control, wanted, rounds, config
) -> tuple[GenerateState, PyTree]:
    """Rounds until ``wanted`` more rows have ended, none is left, or there were as many as ``rounds``."""

    def running(state: GenerateState):
        return (state.finish_reason == FinishReason.RUNNING).sum(dtype=jnp.int32)

    before = running(state)

    def more(carry):
        done, state, _ = carry
        left = running(state)
        return (left > 0) & (before - left < wanted) & (done < rounds)

    def body(carry):
        done, state, control = carry
        drafting = (target, target_params, drafter, drafter_params)
        return done + 1, *controlled(RULES[config.rule], *drafting, controller, costs, state, control, config)

    return lax.while_loop(more, body, (jnp.int32(0), state, control))[1:]


@partial(jax.jit, static_argnames=("config", "axes"))
def take(state, slot, config, axes) -> Generation:
    """The answer in a slot so far, as a generation of one row. The caches are not read."""
    leaves, tree = jax.tree.flatten(state)
    row = [
        leaf if axis is None else lax.dynamic_slice_in_dim(leaf, slot, 1, axis)
        for leaf, axis in zip(leaves, axes, strict=True)
    ]
    return tree.unflatten(row).generation(config.capacity)
