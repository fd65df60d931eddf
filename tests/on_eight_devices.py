"""Generation on meshes of eight CPU devices, for test_mesh to run in a process that has them.

Given an empty folder and a list of meshes, it prints one line of JSON a mesh: whether the tokens are those of one
device, and what the program exchanges. The parameters come from files, straight into their shards.
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

V, B, K = 256, 8, 2
MODEL = models.LlamaConfig(V, 32, 64, 1, 16, 8, 8, 64)
CONFIG = sd.GenerateConfig(capacity=40, draft_length=K, prefill_chunk=4)
# Greedy and sampled rows of uneven prompts and limits, so that device groups run different numbers of rounds.
SAMPLING = sd.SamplingParams(
    temperature=jnp.array([0, 1, 1, 0.5] * 2), top_k=jnp.array([0, 0, 20, 0] * 2), top_p=jnp.array([1, 1, 1, 0.9] * 2)
)
LENGTHS = np.array([1, 4, 7, 2, 8, 3, 5, 6])
PROMPTS = np.random.default_rng(0).integers(0, V, (B, 8))


def parameters():
    """Of a target whose law has few likely tokens, as models' have, and of a draft that is often right."""
    target = jax.tree.map(np.asarray, fresh_params(MODEL, "stacked"))
    target["head"]["weight"] = 40 * target["head"]["weight"]
    rng = np.random.default_rng(1)
    draft = jax.tree.map(lambda leaf: leaf * rng.normal(1, 0.1, leaf.shape).astype(leaf.dtype), target)
    return target, draft


def main(folder: Path, shapes: list[list[int]]) -> None:
    model = models.model_from_config(MODEL, dtype=jnp.float32, layers="stacked")
    drafter, params = sd.draft_model(model), parameters()
    paths = [folder / name for name in ("target", "draft")]
    for path, tree in zip(paths, params, strict=True):
        models.save(path, MODEL, tree)

    def run(target_params, draft_params, mesh=None):
        return sd.generate(
            model,
            target_params,
            drafter,
            draft_params,
            PROMPTS,
            LENGTHS,
            key=jax.random.key(3),
            sampling=SAMPLING,
            config=CONFIG,
            max_new_tokens=np.arange(B) + 8,
            mesh=mesh,
            controller=sd.constant(),
        )

    def compiled(*args, mesh=None):
        return jax.jit(partial(run, mesh=mesh), compiler_options=QUICK).lower(*args).compile()

    one = compiled(*params)(*params)
    for data, tensor in shapes:
        mesh = make_mesh(data=data, tensor=tensor)
        placed = [models.load(path, layers="stacked", mesh=mesh).params for path in paths]
        program = compiled(*placed, mesh=mesh)
        got = program(*placed)
        inside = [found for found in collectives(program.as_text() or "") if found.loops]
        rows = B // data
        print(
            json.dumps(
                {
                    "mesh": [data, tensor],
                    "same": all(map(np.array_equal, jax.tree.leaves(got.tokens), jax.tree.leaves(one.tokens))),
                    "tokens": int(one.lengths.sum()),
                    "accepted": int(one.stats.accepted.sum()),
                    "kinds": sorted({found.kind for found in inside}),
                    "groups": sorted({found.groups for found in inside}),
                    "largest_a_row": max((found.bytes // rows for found in inside), default=0),
                    "shard": list(placed[0]["layers"]["attention"]["qkv"]["weight"].addressable_shards[0].data.shape),
                }
            )
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
