"""The compiled programs of the batch generator: put prompts into slots, decode, take an answer out.

A slot is a row of one `GenerateState` that lives as long as the job. Its buffers are donated from program to program,
so that they are updated where they lie. On a mesh each group of devices has slots of its own and works on them alone.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from .. import loop
from .._typing import Array, Int, PyTree
from ..control import Controller
from ..drafters import Drafter
from ..generate import init
from ..lm import LanguageModel
from ..sharding import DATA, AnyMesh
from ..state import FinishReason, GenerateConfig, GenerateState, Generation
from ..verify import RULES
from .placement import LaidOut, Placement, laid_out
from .prompts import UNFOLDED, Prompts, bucket, pack

_ROWS, _ALL = P(DATA), P()


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


def shapes(
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter | None,
    drafter_params: PyTree,
    eos_tokens,
    *,
    batch: int,
    config: GenerateConfig,
    mesh: AnyMesh | None = None,
) -> LaidOut:
    """The shapes of a state of ``batch`` rows, and where they lie; `placement.zeros` makes it."""

    def start(params, rows: int) -> GenerateState:
        prompts = pack([], rows, bucket(1, config), 0)
        return _start(target, params[0], drafter, params[1], prompts, eos_tokens, config)

    return laid_out(start, (target_params, drafter_params), batch=batch, mesh=mesh)


@partial(jax.jit, static_argnames=("controller", "drafter", "batch", "config", "placement"))
def begin(
    controller: Controller, drafter: Drafter | None, batch: int, config: GenerateConfig, placement: Placement
) -> list[Array]:
    """The leaves of the controller's state before the first round, [groups, ...]: each group learns of its own rows."""
    groups = placement.groups
    control = loop.begin(controller, drafter, batch // groups, config)
    leaves = [jnp.broadcast_to(leaf, (groups, *leaf.shape)) for leaf in jax.tree.leaves(control)]
    return placement.spread(leaves, _ROWS)


@partial(jax.jit, static_argnames=("target", "drafter", "config", "placement"), donate_argnames="state")
def insert(
    target, target_params, drafter, drafter_params, state, prompts, slots, counts, fresh, eos_tokens, config, placement
) -> GenerateState:
    """Read prompts, and put the first of them into slots; the others stay as they are.

    Every group of devices reads as many rows and writes into its own slots alone: of group g the first ``counts[g]``
    prompts go into the slots ``slots[g, :counts[g]]``, which are counted from its first. ``fresh`` (traced) also sets
    what all rows share, as is needed once.

    While it reads, a state of R whole rows a group lies beside that of the slots. R is ``prefill_chunk`` over the
    bucket, four rows of the default chunk at most, so a smaller chunk bounds it. It cannot be made in the slots
    themselves, for `init` begins with an empty state, and the rows are any R of the batch: a cache would have to gather
    and scatter them. Nor can it be as short as the bucket, for a cache or a drafter's state may be any pytree, and
    whether an axis of it counts slots, from the first on, its owner alone knows.

    Args:
        prompts: `Prompts` of [groups * R] rows, those of a group side by side.
        slots: int32 [groups, R]
        counts: int32 [groups]
    """
    axes = placement.axes

    def read(target_params, drafter_params, old, prompts, slots, counts, fresh, eos_tokens):
        new = jax.tree.leaves(_start(target, target_params, drafter, drafter_params, prompts, eos_tokens, config))
        old = [
            jnp.where(fresh, theirs, ours) if axis is None else ours
            for ours, theirs, axis in zip(old, new, axes, strict=True)
        ]

        def put(row, leaves):
            def write(leaf, source, axis):
                if axis is None:
                    return leaf
                part = lax.dynamic_slice_in_dim(source, row, 1, axis)
                return lax.dynamic_update_slice_in_dim(leaf, part, slots[0, row], axis)

            return [write(*each) for each in zip(leaves, new, axes, strict=True)]

        # A loop over rows that updates slices leaves the buffers where they are, as a scatter would not.
        return lax.fori_loop(0, counts[0], put, old)

    specs = placement.specs
    read = placement.by_rows(read, (_ALL, _ALL, specs, _ROWS, _ROWS, _ROWS, _ALL, _ALL), specs)
    leaves, tree = jax.tree.flatten(state)
    leaves = read(target_params, drafter_params, leaves, prompts, slots, counts, fresh, eos_tokens)
    return tree.unflatten(placement.kept(leaves))


@partial(
    jax.jit,
    static_argnames=("target", "drafter", "controller", "config", "placement"),
    donate_argnames=("state", "control"),
)
def decode(
    target, target_params, drafter, drafter_params, controller, costs, state, control, wanted, rounds, config, placement
) -> tuple[GenerateState, list[Array], Int[Array, "B"]]:
    """Rounds until ``wanted`` more rows have ended, none is left, or there were as many as ``rounds``.

    Every group of devices goes by its own rows, and waits for the others only when it has done. The last of what is
    returned are the `FinishReason` values, for every process to read.
    """

    def running(state: GenerateState):
        return (state.finish_reason == FinishReason.RUNNING).sum(dtype=jnp.int32)

    def run(target_params, drafter_params, costs, leaves, control, wanted, rounds):
        state = tree.unflatten(leaves)
        learned = jax.tree.structure(loop.begin(controller, drafter, state.lengths.shape[0], config))
        control = learned.unflatten([leaf[0] for leaf in control])
        before = running(state)

        def more(carry):
            done, state, _ = carry
            left = running(state)
            return (left > 0) & (before - left < wanted) & (done < rounds)

        def body(carry):
            done, state, control = carry
            drafting = (target, target_params, drafter, drafter_params)
            return done + 1, *loop.controlled(RULES[config.rule], *drafting, controller, costs, state, control, config)

        _, state, control = lax.while_loop(more, body, (jnp.int32(0), state, control))
        return jax.tree.leaves(state), [leaf[None] for leaf in jax.tree.leaves(control)]

    specs = placement.specs
    run = placement.by_rows(run, (_ALL, _ALL, _ALL, specs, _ROWS, _ALL, _ALL), (specs, _ROWS))
    leaves, tree = jax.tree.flatten(state)
    leaves, control = run(target_params, drafter_params, costs, leaves, control, wanted, rounds)
    state = tree.unflatten(placement.kept(leaves))
    return state, placement.spread(control, _ROWS), placement.spread(state.finish_reason, _ALL)


@partial(jax.jit, static_argnames=("config", "placement"))
def take(state, slots, config, placement) -> Generation:
    """The answers so far in a slot of each group, as a generation of [groups] rows that every process can read.

    The caches are not read. ``slots``, int32 [groups], are counted from each group's first.
    """

    def row(leaves, slots) -> Generation:
        own = [
            leaf if axis is None else lax.dynamic_slice_in_dim(leaf, slots[0], 1, axis)
            for leaf, axis in zip(leaves, placement.axes, strict=True)
        ]
        return tree.unflatten(own).generation(config.capacity)

    leaves, tree = jax.tree.flatten(state)
    return placement.spread(placement.by_rows(row, (placement.specs, _ROWS), _ROWS)(leaves, slots), _ALL)
