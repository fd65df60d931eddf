"""Passes over a cache on a mesh of eight CPU devices, for test_attention_on_devices to run in a process with them.

For each kernel and number of kv heads it prints one line of JSON: how far the logits are from those of one device, and
what the devices exchange.
"""

import json
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from programs import QUICK
from small import fresh_params

from specdec_jax import models
from specdec_jax.models.attention_kernels import Kernel, find
from specdec_jax.models.paged_attention import PAGE, paged
from specdec_jax.plan.hlo import collectives
from specdec_jax.sharding import DATA, TENSOR, by_rows, make_mesh

KERNELS = {
    "blocks": (find("blocks"), 8, jnp.float32),
    "xla": (find("xla"), 8, jnp.float32),
    "paged": (Kernel(partial(paged, interpret=True), PAGE), 128, jnp.bfloat16),
    "blocks-bf16": (find("blocks"), 128, jnp.bfloat16),
}
B, T, V = 4, 3, 32


def twice(model, params, cache, tokens, lengths):
    """T tokens and T more, so that the second time there is something to look back to; the last logits."""

    def one(_, carry):
        tokens, cache, lengths, _ = carry
        logits, _, cache = model.apply(params, tokens, cache, lengths)
        return tokens[:, ::-1], cache, lengths + T, logits

    carry = (tokens, cache, lengths, jnp.zeros((tokens.shape[0], T, V), jnp.float32))
    return jax.lax.fori_loop(0, 2, one, carry)[3]


def main(cases: list[tuple[str, int]]) -> None:
    mesh = make_mesh(data=2, tensor=4)
    for name, heads in cases:
        kernel, head, dtype = KERNELS[name]
        config = models.LlamaConfig(V, 16, 32, 2, 2 * heads, heads, head, 64)
        model = models.model_from_config(config, dtype=dtype, layers="stacked", attention=kernel)
        params = jax.tree.map(lambda leaf, dtype=dtype: (8 * leaf).astype(dtype), fresh_params(config, "stacked"))
        placed = jax.device_put(params, models.param_shardings(config, mesh, layers="stacked"))

        passes = partial(twice, model)
        tokens = np.random.default_rng(0).integers(0, V, (B, T), np.int32)
        lengths = np.array([0, 7, 1, 4], np.int32)
        cache = model.init_cache(B, 20)
        one = jax.jit(passes, compiler_options=QUICK)(params, cache, tokens, lengths)

        cut = TENSOR if heads % 4 == 0 else None
        cache = jax.device_put(cache, NamedSharding(mesh, P(None, DATA, cut)))
        where = (P(), P(None, DATA), P(DATA), P(DATA))
        program = jax.jit(by_rows(passes, mesh, where, P(DATA)), compiler_options=QUICK)
        done = program.lower(placed, cache, tokens, lengths).compile()
        got = done(placed, cache, *jax.device_put((tokens, lengths), NamedSharding(mesh, P(DATA))))
        exchanged = [[found.kind, *found.shapes[0]] for found in collectives(done.as_text() or "") if found.loops]
        print(
            json.dumps(
                {
                    "difference": float(abs(np.asarray(got) - np.asarray(one)).max()),
                    "spread": float(np.asarray(one).std()),
                    "exchanged": sorted(exchanged),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
