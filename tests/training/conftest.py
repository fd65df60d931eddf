"""A tiny target that can write, learn and teach."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers
from programs import quick, quick_generate

from specdec_jax.models import LlamaConfig, Tokenizer, init_params, model_from_config
from specdec_jax.models.load import Loaded

V = 29


@pytest.fixture(scope="module", autouse=True)
def quick_jit():
    """What is compiled here runs for moments: the options of `programs` make that quick."""
    with pytest.MonkeyPatch.context() as patch:
        quick_generate(patch)
        patch.setattr(jax, "jit", quick)
        yield


TEMPLATE = "{% for m in messages %}u {{ m['content'] }} e {% endfor %}{% if add_generation_prompt %}a {% endif %}"


def tiny_config(**changes) -> LlamaConfig:
    shape = {
        "vocab_size": V,
        "width": 16,
        "mlp_width": 32,
        "num_layers": 3,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_size": 4,
        "max_positions": 64,
        "tied_head": True,
    }
    return LlamaConfig(**(shape | changes))


@pytest.fixture(scope="session")
def tiny_target() -> Loaded:
    """Words are single letters or w5 .. w28; e ends a turn."""
    words = {"e": 0, "u": 1, "a": 2, "[UNK]": 3, "b": 4} | {f"w{i}": i for i in range(5, V)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = Tokenizer(backend, eos_ids=[0], chat_template=TEMPLATE)
    config = tiny_config()
    params = init_params(config, jax.random.key(3), dtype=jnp.float32, layers="unrolled")
    # Large weights make peaked distributions, which there is something to learn from.
    params = jax.tree.map(lambda leaf: 8 * leaf if leaf.ndim > 1 else leaf, params)

    def variant(**options):
        return model_from_config(config, dtype=jnp.float32, layers="unrolled", num_tokens=V, **options)

    return Loaded(variant(), params, tokenizer, config, variant, "tiny")


@pytest.fixture(scope="session")
def samples():
    """Texts of many lengths that follow a simple law."""
    from specdec_jax.training.samples import Sample

    rng = np.random.default_rng(0)
    found = []
    for _ in range(60):
        start, step, length = rng.integers(5, V), rng.integers(1, 3), rng.integers(3, 15)
        ids = [int(5 + (start + step * i) % (V - 5)) for i in range(length)]
        found.append(Sample(ids[:2], [*ids[2:], 0], 1.0))
    return found
