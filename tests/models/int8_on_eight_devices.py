"""Models in int8 on meshes of eight CPU devices, for test_int8_mesh to run in a process that has them.

Given an empty folder and a list of meshes, it prints one line of JSON a mesh. The parameters come from files, straight
into their shards.
"""

import json
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from programs import QUICK
from small import fresh_params

import specdec_jax as sd
from specdec_jax import models
from specdec_jax.plan.hlo import collectives
from specdec_jax.sharding import make_mesh

V, B = 256, 8
CONFIG = models.LlamaConfig(V, 32, 64, 1, 16, 8, 8, 64, attention_bias=True)


def main(folder: Path, shapes: list[list[int]]) -> None:
    model = models.model_from_config(CONFIG, dtype=jnp.float32, layers="stacked")
    drafter = sd.draft_model(model)
    params = jax.tree.map(lambda leaf: 4 * leaf, fresh_params(CONFIG, "stacked"))
    models.save(folder / "files", CONFIG, params)
    models.save_checkpoint(folder / "checkpoint", CONFIG, params)
    held = models.quantised(CONFIG, params)

    def run(target_params, draft_params, mesh=None):
        return sd.generate(
            model,
            target_params,
            drafter,
            draft_params,
            np.random.default_rng(0).integers(0, V, (B, 8)),
            np.array([1, 4, 7, 2, 8, 3, 5, 6]),
            key=jax.random.key(3),
            sampling=sd.SamplingParams(temperature=jnp.array([0.0, 1.0] * 4)),
            config=sd.GenerateConfig(capacity=40, draft_length=2, rule="coupled", prefill_chunk=4),
            max_new_tokens=12,
            mesh=mesh,
            controller=sd.constant(),
        )

    def compiled(*params, mesh=None):
        return jax.jit(partial(run, mesh=mesh), compiler_options=QUICK).lower(*params).compile()

    def exchanged(program):
        """Kind and bytes of each exchange inside the loops."""
        return sorted((found.kind, found.bytes) for found in collectives(program.as_text() or "") if found.loops)

    one = compiled(held, held)(held, held)
    for data, tensor in shapes:
        mesh = make_mesh(data=data, tensor=tensor)
        load = partial(models.load, dtype=jnp.float32, layers="stacked", mesh=mesh)
        floats, placed = load(folder / "files").params, load(folder / "files", weights="int8").params
        stored = load(folder / "checkpoint", weights="int8").params
        program = compiled(placed, placed, mesh=mesh)
        got = program(placed, placed)
        qkv, down = placed["layers"]["attention"]["qkv"]["weight"], placed["layers"]["mlp"]["down"]["weight"]
        print(
            json.dumps(
                {
                    "same": bool(np.array_equal(got.tokens, one.tokens)),
                    "accepted": int(one.stats.accepted.sum()),
                    "stored": all(
                        a.sharding == b.sharding and np.array_equal(a, b)
                        for a, b in zip(jax.tree.leaves(stored), jax.tree.leaves(held_on(held, placed)), strict=True)
                    ),
                    "exchanged": exchanged(program),
                    "of_floats": exchanged(compiled(floats, floats, mesh=mesh)),
                    "cut": [list(part.addressable_shards[0].data.shape) for part in (*qkv, *down)],
                }
            )
        )


def held_on(held, places):
    """What was rounded on one device, where ``places`` lies."""
    return jax.tree.map(lambda leaf, place: jax.device_put(leaf, place.sharding), held, places)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
