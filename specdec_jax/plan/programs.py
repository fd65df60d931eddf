"""The two programs of a batch generator, compiled for devices that need not be here: put prompts in, and decode."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jax.stages import Lowered

from .._typing import PyTree
from ..batch import programs as batch_programs
from ..batch.prompts import bucket, pack, rows_at_once
from ..control import Controller, Costs
from ..drafters import Drafter, draft_model
from ..lm import LanguageModel
from ..models import Weights, model_from_config, param_shapes, param_shardings
from ..models.attention_kernels import of_backend
from ..models.config import DecoderConfig
from ..models.pairs import fit
from ..sharding import DATA, AnyMesh, check_rows
from ..state import GenerateConfig

_LAYERS = "stacked"
"""One array for all layers, as on accelerators: the program stays small, and one sharding serves all."""


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
    """Of the longest prompts."""
    config: GenerateConfig
    controller: Controller
    """How many guesses a round has is part of the program."""

    @property
    def drafter(self) -> Drafter | None:
        """A draft model, where there is one; its logits as wide as the target's, as a job has it."""
        return None if self.draft is None else draft_model(fit(self.draft.model, self.target.model.vocab_size))

    @property
    def group_rows(self) -> int:
        """Rows of a group of devices, all of which are on each of its chips."""
        return self.rows // self.mesh.shape[DATA]


def side(config: DecoderConfig, mesh: AnyMesh, *, whole: bool = False, weights: Weights = "float") -> Side:
    """A model as it is loaded on TPUs, in bfloat16, its parameters cut over the mesh or ``whole`` on every device.

    Its matrices may be ``weights`` of int8.
    """
    model = model_from_config(config, dtype=jnp.bfloat16, layers=_LAYERS, attention=of_backend("tpu"))
    shapes = param_shapes(config, dtype=jnp.bfloat16, layers=_LAYERS, weights=weights)
    shardings = param_shardings(config, mesh, layers=_LAYERS, whole=whole, weights=weights)
    return Side(config, model, _placed(shapes, shardings))


class Programs(NamedTuple):
    """Lowered, to be compiled, and the state that goes from one to the other."""

    inserts: dict[int, Lowered]
    """Prompts are read and put into slots, on each group of devices as many as fill one prefill chunk: by the bucket of
    slots that they share, the shortest, of which most are read at once, and the longest. Those between need less."""
    decode: Lowered
    """Rounds until enough rows have ended."""
    state: PyTree
    """Shapes with shardings."""


def programs(plan: Plan) -> Programs:
    """Those of `specdec_jax.batch`, for the plan's devices.

    What a job keeps on its devices comes with shardings here, and what it hands over from the host without.
    """
    check_rows(plan.rows, plan.mesh)
    groups = plan.mesh.shape[DATA]
    draft_params = None if plan.draft is None else plan.draft.params
    models = (plan.target.model, plan.target.params, plan.drafter, draft_params)
    ends = np.zeros(1, np.int32)
    shapes = batch_programs.shapes(*models, ends, batch=plan.rows, config=plan.config, mesh=plan.mesh)
    state = shapes.tree.unflatten(shapes.leaves)
    static = {"config": plan.config, "placement": shapes.placement}

    def insert(width: int) -> Lowered:
        rows = rows_at_once(width, plan.config, plan.group_rows)
        places, counts = np.zeros((groups, rows), np.int32), np.zeros(groups, np.int32)
        prompts = pack([], groups * rows, width, 0)
        return batch_programs.insert.lower(*models, state, prompts, places, counts, np.bool_(False), ends, **static)

    inserts = {width: insert(width) for width in (bucket(1, plan.config), bucket(plan.prompt_slots, plan.config))}

    def lying(tree: PyTree, spec: P) -> PyTree:
        where = NamedSharding(plan.mesh, spec)
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), tree)

    control = jax.eval_shape(lambda: batch_programs.begin(plan.controller, plan.drafter, plan.rows, **static))
    costs = jax.eval_shape(lambda: Costs(0.0, [1.0] * len(plan.config.widths)).checked(plan.config.widths))
    decode = batch_programs.decode.lower(
        *models,
        plan.controller,
        lying(costs, P()),
        state,
        lying(control, P(DATA)),
        np.int32(1),
        np.int32(1),
        **static,
    )
    return Programs(inserts, decode, state)


def _placed(shapes: PyTree, where: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf, at: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=at), shapes, where)
