"""Passes over a cache, compiled for a TPU slice that is not here, for test_attention_on_devices to run in a process.

For each kernel, head size and number of tokens it prints one line of JSON. The chips are two groups of eight, each with
rows of its own, and a chip has one kv head of eight.
"""

import json
import math
import sys

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from specdec_jax import plan
from specdec_jax.models import LlamaConfig, model_from_config, param_shapes, param_shardings
from specdec_jax.models.attention_kernels import KernelName
from specdec_jax.plan.copies import copies
from specdec_jax.plan.hlo import collectives, instructions, parsed
from specdec_jax.sharding import DATA, TENSOR, by_rows, make_mesh

ROWS, SLOTS = 16, 1100
"""Slots that are not whole pages: the model makes them so."""


def main() -> None:
    mesh = make_mesh(data=2, tensor=8, devices=plan.devices_of("v5e:4x4"))
    for name, head, T in json.loads(sys.argv[1]):
        config = LlamaConfig(512, 256, 512, 4, 32, 8, head, 4096)
        print(json.dumps(compiled(mesh, config, name, T)), flush=True)


def compiled(mesh, config, name: KernelName, T: int):
    model = model_from_config(config, dtype=jnp.bfloat16, layers="stacked", attention=name)

    def rounds(params, tokens, cache, lengths):
        def more(carry):
            return carry[2].max() < SLOTS - T

        def one(carry):
            tokens, cache, lengths = carry
            logits, _, cache = model.apply(params, tokens, cache, lengths)
            return logits.argmax(-1).astype(jnp.int32), cache, lengths + 1 + tokens[:, 0] % T

        return lax.while_loop(more, one, (tokens, cache, lengths))

    def placed(shapes, where):
        return jax.tree.map(lambda leaf, at: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=at), shapes, where)

    params = param_shapes(config, dtype=jnp.bfloat16, layers="stacked")
    params = placed(params, param_shardings(config, mesh, layers="stacked"))
    rows = NamedSharding(mesh, P(DATA))
    shapes = jax.eval_shape(lambda: model.init_cache(ROWS, SLOTS))
    cache = placed(shapes, jax.tree.map(lambda _: NamedSharding(mesh, P(None, DATA, TENSOR)), shapes))
    tokens, lengths = (jax.ShapeDtypeStruct(shape, jnp.int32, sharding=rows) for shape in ((ROWS, T), (ROWS,)))
    by = (P(DATA), P(None, DATA), P(DATA))
    program = jax.jit(by_rows(rounds, mesh, (P(), *by), by), donate_argnames="cache")
    done = program.lower(params, tokens, cache, lengths).compile()
    text, memory = done.as_text(), done.memory_analysis()
    assert text is not None
    assert memory is not None
    layer = math.prod(cache.k.sharding.shard_shape(cache.k.shape)[1:])
    inside = [placed for placed in instructions(parsed(text)) if placed.loops]
    return {
        "slots": cache.k.shape[3],
        "kernels": sum("tpu_custom_call" in placed.instruction.line for placed in inside),
        "copies": [[copy.operation, *copy.shape] for copy in copies(text, at_least=layer // 8)],
        "exchanges": [[found.kind, *found.shapes[0]] for found in collectives(text) if found.loops],
        "temporary": memory.temp_size_in_bytes,
        "cache": 2 * 2 * config.num_layers * layer,
    }


if __name__ == "__main__":
    main()
