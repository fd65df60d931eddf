"""The two programs of a pod, compiled for devices that need not be here: reading prompts, and rounds until all end."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.layout import Format, Layout
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from .._inputs import Inputs
from .._typing import PyTree
from ..drafters import Drafter, draft_model
from ..generate import ROWS_OF_INPUTS, init
from ..lm import LanguageModel
from ..models import model_from_config, param_shapes, param_shardings
from ..models.config import DecoderConfig
from ..round import step
from ..sampling import SamplingParams
from ..sharding import AnyMesh, by_rows, check_rows, row_specs, state_shardings
from ..state import FinishReason, GenerateConfig

_LAYERS = "stacked"
"""One array for all layers: the program stays small, and one sharding serves all."""


class Side(NamedTuple):
    """A model and where its parameters would lie."""

    config: DecoderConfig
    model: LanguageModel
    params: PyTree
    """Shapes with shardings."""


class Plan(NamedTuple):
    """What is to be compiled."""

    mesh: AnyMesh
    target: Side
    draft: Side | None
    rows: int
    """B, over all devices."""
    prompt_slots: int
    config: GenerateConfig

    @property
    def drafter(self) -> Drafter | None:
        """A draft model, where there is one."""
        return None if self.draft is None else draft_model(self.draft.model)


def side(config: DecoderConfig, mesh: AnyMesh, *, whole: bool = False) -> Side:
    """A model in bfloat16, its parameters cut over the mesh or ``whole`` on every device."""
    model = model_from_config(config, dtype=jnp.bfloat16, layers=_LAYERS)
    shapes = param_shapes(config, dtype=jnp.bfloat16, layers=_LAYERS)
    return Side(config, model, _placed(shapes, param_shardings(config, mesh, layers=_LAYERS, whole=whole)))


class Programs(NamedTuple):
    """Lowered, to be compiled by ``.compile()``, and the state that goes from one to the other."""

    prefill: Callable[[], Any]
    decode: Callable[[], Any]
    state: PyTree
    """Shapes with formats."""


def programs(plan: Plan) -> Programs:
    """The same code as `generate`, cut in two between prompts and rounds."""
    check_rows(plan.rows, plan.mesh)
    target, drafter, config = plan.target.model, plan.drafter, plan.config
    draft_params = None if plan.draft is None else plan.draft.params

    def prefill(target_params, draft_params, inputs: Inputs):
        return init(
            target,
            target_params,
            drafter,
            draft_params,
            inputs.prompts,
            inputs.prompt_lengths,
            key=inputs.keys,
            sampling=inputs.sampling,
            config=config,
            max_new_tokens=inputs.max_new_tokens,
            eos_tokens=inputs.eos_tokens,
        )

    def decode(target_params, draft_params, state):
        def running(state):
            return (state.finish_reason == FinishReason.RUNNING).any()

        def one(state):
            return step(target, target_params, drafter, draft_params, state, config=config)[0]

        return lax.while_loop(running, one, state)

    def state_of(rows: int) -> PyTree:
        return jax.eval_shape(prefill, plan.target.params, draft_params, _inputs(rows, plan.prompt_slots))

    shapes = state_of(plan.rows)
    specs = row_specs(state_of)
    formats = jax.tree.map(_row_major, shapes, state_shardings(shapes, specs, plan.mesh))
    inputs = _inputs(plan.rows, plan.prompt_slots)
    given = _placed(inputs, _spread(ROWS_OF_INPUTS, inputs, plan.mesh))
    params = (plan.target.params, draft_params)
    begun = by_rows(prefill, plan.mesh, (P(), P(), ROWS_OF_INPUTS), specs)
    ended = by_rows(decode, plan.mesh, (P(), P(), specs), specs)
    state = _placed(shapes, formats)
    return Programs(
        prefill=jax.jit(begun, out_shardings=formats).lower(*params, given).compile,
        decode=jax.jit(ended, donate_argnums=2, out_shardings=formats).lower(*params, state).compile,
        state=state,
    )


def _inputs(rows: int, slots: int) -> Inputs:
    def make() -> Inputs:
        row = jnp.zeros((rows,), jnp.int32)
        return Inputs(
            prompts=jnp.zeros((rows, slots), jnp.int32),
            prompt_lengths=row,
            keys=jax.random.split(jax.random.key(0), rows),
            sampling=SamplingParams().broadcast(rows),
            max_new_tokens=row,
            eos_tokens=jnp.zeros((8,), jnp.int32),
        )

    return jax.eval_shape(make)


def _row_major(leaf: jax.ShapeDtypeStruct, sharding: NamedSharding) -> Format | NamedSharding:
    """Left alone, a narrow cache would cross from program to program in a layout that neither computes with."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):  # keys have no layout of their own
        return sharding
    return Format(Layout(tuple(range(leaf.ndim))), sharding)


def _spread(specs: PyTree, tree: PyTree, mesh: AnyMesh) -> PyTree:
    """A sharding for every leaf, from a spec for every branch."""
    broadcast = jax.tree.map(
        lambda spec, branch: jax.tree.map(lambda _: NamedSharding(mesh, spec), branch),
        specs,
        tree,
        is_leaf=lambda node: isinstance(node, P),
    )
    return broadcast


def _placed(shapes: PyTree, where: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf, at: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=at), shapes, where)
