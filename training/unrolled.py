"""A feature head on whole texts, as it will run: first on the target's states, then on its own output.

When it drafts, the head has true features as far as the committed tokens go and its own output from there on. Trained
on true features alone it guesses one token well and the next ones badly, so it is unrolled (EAGLE-3's training-time
test): in step j each pair s reads the feature that step j - 1 gave for pair s - 1, sees true pairs up to s - j + 1, and
the pairs after these as the steps between made them. All positions of a text go through a step at once.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from specdec_jax._typing import Array, Bool, Float, Int, PyTree
from specdec_jax.models.feature_head import FeatureHead


def unrolled_features(
    graph: nnx.GraphDef,
    params: PyTree,
    hidden: Float[Array, "B T n E"],
    embeddings: Float[Array, "B T E"],
    positions: Int[Array, "B T"],
    segments: Int[Array, "B T"],
    steps: int,
) -> list[Float[Array, "B T D"]]:
    """What comes out for every pair in each of the steps.

    Args:
        graph, params: the head, see `models.feature_head`.
        hidden: the target's states after token s.
        embeddings: of token s + 1.
        positions: s, counted from the start of its text.
        segments: the text that a pair belongs to; pairs of a text lie side by side.
        steps: how many tokens in a row the head is trained to guess.
    """
    head: FeatureHead = nnx.merge(graph, params)
    memory: tuple[tuple[tuple[Array, Array], ...], ...] = ((),) * len(head.layers)
    features, outputs = head.fuse(hidden), []
    for step in range(steps):
        seen = _true_pairs(positions, segments, step)

        def attend_in_step(index, memory, q, k, v, scale, seen=seen):
            made = (*memory[index], (k, v))
            return _attend(q, made, seen, scale), (*memory[:index], made, *memory[index + 1 :])

        out, memory = head(features, embeddings, positions, attend_in_step, memory)
        outputs.append(out)
        features = _later(out, 1)
    return outputs


def in_step(segments: Int[Array, "B T"], step: int) -> Bool[Array, "B T"]:
    """Pairs that a draft can have reached in this step (from 0): ``step`` pairs of the same text lie before them."""
    if step == 0:
        return jnp.ones(segments.shape, bool)
    before = jnp.pad(segments, ((0, 0), (step, 0)), constant_values=-1)[:, : segments.shape[1]]
    return before == segments


def _later(x: Float[Array, "B T ..."], places: int) -> Float[Array, "B T ..."]:
    """Each value ``places`` places to the right, zeros in front."""
    if places == 0:
        return x
    return jnp.pad(x, ((0, 0), (places, 0), *[(0, 0)] * (x.ndim - 2)))[:, : x.shape[1]]


def _true_pairs(positions: Int[Array, "B T"], segments: Int[Array, "B T"], step: int) -> Bool[Array, "B T T"]:
    same = segments[:, :, None] == segments[:, None, :]
    return same & (positions[:, None, :] <= positions[:, :, None] - step)


def _attend(
    q: Float[Array, "B T G R H"], made: tuple[tuple[Array, Array], ...], seen: Bool[Array, "B T T"], scale: float
) -> Float[Array, "B T G R H"]:
    """Over the true pairs, and over the one pair that each later step made on the way to this place."""
    (keys, values), *others = made
    scores = jnp.einsum("btgrh,bsgh->bgrts", q, keys, preferred_element_type=jnp.float32) * scale
    scores = jnp.where(seen[:, None, None], scores, -jnp.inf)
    way = [(_later(k, len(others) - i), _later(v, len(others) - i)) for i, (k, v) in enumerate(others, start=1)]
    own = [jnp.einsum("btgrh,btgh->bgrt", q, k, preferred_element_type=jnp.float32) * scale for k, _ in way]
    weights = jax.nn.softmax(jnp.concatenate([scores, *(score[..., None] for score in own)], axis=-1), axis=-1)
    weights = weights.astype(values.dtype)
    T = keys.shape[1]
    mixed = jnp.einsum("bgrts,bsgh->btgrh", weights[..., :T], values)
    for i, (_, v) in enumerate(way):
        mixed += jnp.moveaxis(weights[..., T + i], 3, 1)[..., None] * v[:, :, :, None]
    return mixed
