"""The two programs of a batch generator, compiled for devices that need not be here: put prompts in, and decode."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from .._typing import PyTree
from ..batch import programs as batch_programs
from ..batch.prompts import bucket, pack, rows_at_once
from ..control import Controller, Costs, adaptive
from ..drafters import Drafter, draft_model
from ..lm import LanguageModel
from ..models import model_from_config, param_shapes, param_shardings
from ..models.config import DecoderConfig
from ..sharding import DATA, AnyMesh, check_rows
from ..state import GenerateConfig

_LAYERS = "stacked"
"""One array for all layers: the program stays small, and one sharding serves all."""
_CONTROLLER = adaptive("throughput")
"""That of a job of `specdec generate` under the greedy and the coupled rule. Under others a job makes all guesses, in a
program that has less to choose."""


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
    """Of the longest prompts, which share the bucket that the batch generator has for them."""
    config: GenerateConfig
    controller: Controller = _CONTROLLER

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

    insert: Callable[[], Any]
    """Prompts are read and put into slots: on each group of devices as many as fill one prefill chunk."""
    decode: Callable[[], Any]
    """Rounds until enough rows have ended."""
    state: PyTree
    """Shapes with shardings."""


def programs(plan: Plan) -> Programs:
    """Those of `specdec_jax.batch`, for the plan's devices."""
    check_rows(plan.rows, plan.mesh)
    groups = plan.mesh.shape[DATA]
    own = plan.rows // groups

    def on_all(shape: tuple[int, ...], dtype: Any) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(plan.mesh, P()))

    def by_groups(tree: PyTree) -> PyTree:
        where = NamedSharding(plan.mesh, P(DATA))
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), tree)

    draft_params = None if plan.draft is None else plan.draft.params
    models = (plan.target.model, plan.target.params, plan.drafter, draft_params)
    ends = np.zeros(1, np.int32)
    shapes = batch_programs.shapes(*models, ends, batch=plan.rows, config=plan.config, mesh=plan.mesh)
    state = shapes.tree.unflatten(shapes.leaves)
    static = {"config": plan.config, "placement": shapes.placement}

    width = bucket(plan.prompt_slots, plan.config)
    rows = rows_at_once(width, plan.config, own)
    number = jax.ShapeDtypeStruct((groups, rows), jnp.int32)
    insert = batch_programs.insert.lower(
        *models,
        state,
        by_groups(pack([], groups * rows, width, 0)),
        by_groups(number),
        by_groups(jax.ShapeDtypeStruct((groups,), jnp.int32)),
        on_all((), jnp.bool_),
        on_all(ends.shape, ends.dtype),
        **static,
    )
    control = jax.eval_shape(lambda: batch_programs.begin(plan.controller, plan.drafter, plan.rows, **static))
    costs = Costs(on_all((), jnp.float32), on_all((len(plan.config.widths),), jnp.float32))
    decode = batch_programs.decode.lower(
        *models,
        plan.controller,
        costs,
        state,
        by_groups(control),
        on_all((), jnp.int32),
        on_all((), jnp.int32),
        **static,
    )
    return Programs(insert=insert.compile, decode=decode.compile, state=state)


def _placed(shapes: PyTree, where: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf, at: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=at), shapes, where)
