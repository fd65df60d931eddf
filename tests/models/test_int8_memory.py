"""What a compiled generation holds of weights in int8: never a converted copy of them all."""

import jax
import jax.numpy as jnp
import pytest

from specdec_jax import GenerateConfig, generate, models

CONFIG = models.LlamaConfig(2048, 256, 512, 3, 4, 2, 64, 64, tied_head=True)


def bytes_of(tree) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def temporaries(weights: models.Weights, layers) -> int:
    model = models.model_from_config(CONFIG, dtype=jnp.float32, layers=layers)
    shapes = models.param_shapes(CONFIG, dtype=jnp.float32, layers=layers, weights=weights)

    def run(params, prompts, lengths, key):
        config = GenerateConfig(capacity=16, draft_length=1, prefill_chunk=8)
        return generate(model, params, None, None, prompts, lengths, key=key, config=config, max_new_tokens=8).tokens

    prompts, lengths = jax.ShapeDtypeStruct((1, 8), jnp.int32), jax.ShapeDtypeStruct((1,), jnp.int32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    memory = jax.jit(run).lower(shapes, prompts, lengths, key).compile().memory_analysis()
    assert memory is not None
    return memory.temp_size_in_bytes


@pytest.mark.heavy
@pytest.mark.parametrize("layers", ["stacked", "unrolled"])
def test_no_converted_copy_lives_beside_them(layers):
    """Neither in front of the loop of rounds, nor of all layers at once inside: no more than a block or two."""
    floats = bytes_of(models.param_shapes(CONFIG, dtype=jnp.float32, layers=layers))
    more = temporaries("int8", layers) - temporaries("float", layers)
    assert floats > 8e6
    assert more < 2**21
