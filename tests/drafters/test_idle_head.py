"""What a round costs in which a feature head guesses nothing, seen in the compiled program."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax import SamplingParams, feature_head
from specdec_jax.cache import KVCache
from specdec_jax.drafters import Context
from specdec_jax.models.feature_head import FeatureHeadConfig, draft_places, feature_model, init_head_params
from specdec_jax.models.llama import LlamaConfig

V, WORDS, E, K = 67, 41, 16, 3
LAYER = LlamaConfig(
    vocab_size=V, width=E, mlp_width=24, num_layers=1, num_heads=2, num_kv_heads=1, head_size=8, max_positions=64
)
CONFIG = FeatureHeadConfig(LAYER, hidden_layers=(0, 1), hidden_width=E, draft_vocab_size=WORDS)


def test_the_product_over_the_draft_vocabulary_stays_in_the_loop_over_guesses():
    """The compiler takes what does not change in a loop out of it, even where the loop may run no trip at all."""
    words = np.arange(WORDS)
    embedding = jnp.ones((V, E), jnp.float32)
    params = {
        "head": init_head_params(CONFIG, jax.random.key(0), words, embedding),
        "embedding": embedding,
        "draft_place": draft_places(words, V),
    }
    drafter = feature_head(feature_model(CONFIG, jnp.dtype(jnp.float32)))
    context = Context(jnp.zeros((1, 20), jnp.int32), jnp.array([5]), SamplingParams().broadcast(1))
    state = drafter.init(params, context, 24, 4)

    def draw(index, q):
        del index
        return q.argmax(axis=-1).astype(jnp.int32)

    @jax.jit
    def propose(memory, limit):
        return drafter.propose(params, dataclasses.replace(state, cache=KVCache(*memory)), context, K, limit, draw)[0]

    text = propose.lower((state.cache.k, state.cache.v), jnp.zeros(1, jnp.int32)).compile().as_text() or ""
    made = re.compile(rf"= f32\[(1,|1,1,)?{WORDS}(,1)?\]\S* (dot|fusion|custom-call)\(")
    computations = re.split(r"\n(?=(?:ENTRY )?%\S+ \()", text)
    assert sum(bool(made.search(one)) for one in computations) > 0, "no such product was found anywhere"
    entry = next(one for one in computations if one.startswith("ENTRY"))
    assert not made.search(entry), "it is computed where nothing is to be guessed"
