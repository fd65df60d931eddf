"""Generation on meshes of eight CPU devices, for test_mesh to run in a process that has them.

Given an empty folder and a list of cases, each a family and the sizes of a mesh, it prints one line of JSON a case:
whether the tokens are those of one device, and what the program exchanges. The parameters come from files, straight
into their shards.
"""

import json
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from programs import QUICK
from small import fresh_params

import specdec_jax as sd
from specdec_jax import models
from specdec_jax.models.config import DecoderConfig
from specdec_jax.plan.hlo import collectives
from specdec_jax.sharding import make_mesh

V, B, K = 256, 8, 2
MODEL = models.LlamaConfig(V, 32, 64, 1, 16, 8, 8, 64)
FAMILIES = {
    "llama": MODEL,
    # Windows shorter than the prompts in one of two layers, with a RoPE of their own, and norms on both sides.
    "gemma3": models.Gemma3Config(
        V, 32, 64, 2, 16, 8, 8, 64, tied_head=False, sliding_window=3, windowed=(True, False), query_scalar=8.0
    ),
    # Biases everywhere, a table of positions, and a key and value for each head.
    "gpt2": models.GPT2Config(V, 32, 64, 1, 8, 64, tied_head=False),
}
"""Of width 32, with eight kv heads and a head of their own."""
CONFIG = sd.GenerateConfig(capacity=40, draft_length=K, prefill_chunk=4)
# Greedy and sampled rows of uneven prompts and limits, so that device groups run different numbers of rounds.
SAMPLING = sd.SamplingParams(
    temperature=jnp.array([0, 1, 1, 0.5] * 2), top_k=jnp.array([0, 0, 20, 0] * 2), top_p=jnp.array([1, 1, 1, 0.9] * 2)
)
LENGTHS = np.array([1, 4, 7, 2, 8, 3, 5, 6])
PROMPTS = np.random.default_rng(0).integers(0, V, (B, 8))


def parameters(config: DecoderConfig = MODEL):
    """Of a target whose law has few likely tokens, as models' have, and of a draft that is often right."""
    rng = np.random.default_rng(1)

    def of(path, leaf):
        biased = "bias" in jax.tree_util.keystr(path)  # fresh ones are all zero
        return rng.normal(0, 0.5, leaf.shape).astype(leaf.dtype) if biased else np.asarray(leaf)

    target = jax.tree_util.tree_map_with_path(of, fresh_params(config, "stacked"))
    target["head"]["weight"] = 40 * target["head"]["weight"]
    draft = jax.tree.map(lambda leaf: leaf * rng.normal(1, 0.1, leaf.shape).astype(leaf.dtype), target)
    return target, draft


class Case(NamedTuple):
    """A family on one device, to compare with."""

    model: sd.LanguageModel
    drafter: sd.Drafter
    paths: list[Path]
    one: sd.Generation


def main(folder: Path, cases: list[tuple[str, int, int]]) -> None:
    @cache
    def of(family: str) -> Case:
        config = FAMILIES[family]
        model = models.model_from_config(config, dtype=jnp.float32, layers="stacked")
        drafter, params = sd.draft_model(model), parameters(config)
        paths = [folder / f"{family}-{name}" for name in ("target", "draft")]
        for path, tree in zip(paths, params, strict=True):
            models.save(path, config, tree)
        return Case(model, drafter, paths, compiled(model, drafter, params)(*params))

    def compiled(model, drafter, params, mesh=None):
        def run(target_params, draft_params):
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

        return jax.jit(run, compiler_options=QUICK).lower(*params).compile()

    for family, data, tensor in cases:
        case, mesh = of(family), make_mesh(data=data, tensor=tensor)
        placed = [models.load(path, layers="stacked", mesh=mesh).params for path in case.paths]
        program = compiled(case.model, case.drafter, placed, mesh)
        got, one = program(*placed), case.one
        inside = [found for found in collectives(program.as_text() or "") if found.loops]
        rows = B // data
        print(
            json.dumps(
                {
                    "case": [family, data, tensor],
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
