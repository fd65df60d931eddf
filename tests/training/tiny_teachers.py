"""A tiny target that can write, learn and teach, for tests and for the processes that they start."""

import jax
import jax.numpy as jnp
import tokenizers

from specdec_jax.models import LlamaConfig, Tokenizer, init_params, model_from_config
from specdec_jax.models.load import Loaded

V = 29
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


def tiny_teacher(embedding: float = 1.0, **changes) -> Loaded:
    """Words are single letters or w5 .. w28; e ends a turn. ``embedding`` scales that, ``changes`` are to its shape."""
    words = {"e": 0, "u": 1, "a": 2, "[UNK]": 3, "b": 4} | {f"w{i}": i for i in range(5, V)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = Tokenizer(backend, eos_ids=[0], chat_template=TEMPLATE)
    config = tiny_config(**changes)
    params = init_params(config, jax.random.key(3), dtype=jnp.float32, layers="unrolled")
    # Large weights make peaked distributions, which there is something to learn from.
    params = jax.tree.map(lambda leaf: 8 * leaf if leaf.ndim > 1 else leaf, params)
    params["embedding"] = {"weight": embedding * params["embedding"]["weight"]}

    def variant(**options):
        return model_from_config(config, dtype=jnp.float32, layers="unrolled", num_tokens=V, **options)

    return Loaded(variant(), params, tokenizer, config, variant, "tiny")
