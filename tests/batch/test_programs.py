"""What XLA makes of the programs: a state that is updated where it lies."""

import inspect
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import quick

from specdec_jax import GenerateConfig, constant, draft_model
from specdec_jax.batch import programs
from specdec_jax.batch.placement import zeros
from specdec_jax.batch.prompts import pack
from specdec_jax.control import Costs
from specdec_jax.models import LlamaConfig, init_params, model_from_config

BATCH, ROWS = 8, 2


@cache
def compiled(name: str):
    """A program for a small transformer that drafts for itself, and the state that it takes."""
    shape: Any = {"width": 16, "mlp_width": 16, "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "head_size": 8}
    llama = LlamaConfig(vocab_size=32, max_positions=1024, tied_head=True, **shape)
    model = model_from_config(llama, dtype=jnp.float32, layers="stacked")
    params = init_params(llama, jax.random.key(0), dtype=jnp.float32, layers="stacked")
    models = (model, params, draft_model(model), params)
    config = GenerateConfig(capacity=600, draft_length=3, prefill_chunk=128)
    eos = np.asarray([1], np.int32)
    shapes = programs.shapes(*models, eos, batch=BATCH, config=config)
    state, placement = zeros(shapes), shapes.placement
    leaves, tree = jax.tree.flatten(state)
    if name == "decode":
        costs = Costs(0.1, [1.0] * len(config.widths)).checked(config.widths)
        whole = partial(inspect.unwrap(programs.decode), *models, constant(), costs, control=[])
        values = {"wanted": np.int32(1), "rounds": np.int32(9)}
    else:
        whole = partial(inspect.unwrap(programs.insert), *models)
        values = {
            "prompts": pack([], ROWS, 64, 0),
            "slots": np.zeros((1, ROWS), np.int32),
            "counts": np.asarray([ROWS], np.int32),
            "fresh": np.bool_(True),
            "eos_tokens": eos,
        }

    def run(leaves, values):  # a state's own arrays, for a checked dataclass takes no others
        return jax.tree.leaves(whole(state=tree.unflatten(leaves), **values, config=config, placement=placement))

    return quick(run, donate_argnums=0).lower(leaves, values).compile(), state


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["insert", "decode"])
def test_the_state_is_updated_where_it_lies(name):
    program, state = compiled(name)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    memory: Any = program.memory_analysis()
    assert memory.alias_size_in_bytes == size
    # Beside it lies, at most, a state of the rows that are read.
    extra = size * ROWS // BATCH if name == "insert" else 0
    assert memory.temp_size_in_bytes < 1.2 * extra + size // 4
    shape = ",".join(map(str, state.target_cache.k.shape))
    assert not [line for line in (program.as_text() or "").splitlines() if f"[{shape}]" in line and " copy(" in line]
