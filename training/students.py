"""What is trained: a feature head or a draft model, and how each is measured against its teacher."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike

from specdec_jax._typing import Array, Bool, Float, Int, PyTree
from specdec_jax.models import TextModel
from specdec_jax.models.feature_head import FeatureHeadConfig, draft_places, head_graph
from specdec_jax.models.layers import linear

from .chunks import sums_in_chunks
from .losses import CROSS_ENTROPY, LOSS_NAMES, LOSSES, OF_ACCEPTANCE, acceptance, cross_entropy
from .teacher import head_rows
from .unrolled import in_step, unrolled_features


class Batch(NamedTuple):
    """Packed rows, see `packing.Packed`, with what the teacher says about them."""

    tokens: Int[Array, "B T"]
    positions: Int[Array, "B T"]
    segments: Int[Array, "B T"]
    learned: Bool[Array, "B T"]
    features: Float[Array, "B T D"]
    hidden: Float[Array, "B T n E"]
    log_total: Float[Array, "B T"]


class Measured(NamedTuple):
    """Sums over the positions that count, for each guess in a row that the student is trained to make, [S]."""

    loss: Float[Array, "S"]
    alpha: Float[Array, "S"]
    """Of sum_x min(p, q), at temperature 1."""
    count: Float[Array, "S"]


class Student(NamedTuple):
    """Pure functions over parameters, which are trained in float32."""

    measure: Callable[[PyTree, PyTree, Batch], Measured]
    """``(params, frozen, batch)``; ``frozen`` is what is read and not trained."""
    weights: tuple[float, ...]
    """Of the guesses in the loss."""

    def loss(
        self, params: PyTree, frozen: PyTree, batch: Batch, count: Float[Array, "S"] | None = None
    ) -> tuple[Float[Array, ""], Measured]:
        """The mean over positions for each guess, and the weighted mean of these.

        ``count`` is that of the whole batch, where this one is a part whose loss is to be added to the others'.
        """
        found = self.measure(params, frozen, batch)
        weights = jnp.asarray(self.weights, jnp.float32)
        means = found.loss / jnp.maximum(found.count if count is None else count, 1)
        return (weights * means).sum() / weights.sum(), found


def feature_head_student(
    config: FeatureHeadConfig,
    *,
    loss: str = "forward_kl",
    temperature: float = 1.0,
    steps: int = 3,
    decay: float = 0.8,
    chunk: int = 512,
    dtype: DTypeLike = jnp.float32,
    **options: float,
) -> Student:
    """A feature head, unrolled over ``steps`` guesses on its own output, guess j weighing ``decay ** j``.

    ``frozen`` comes from `frozen_for_head`. Alpha, and at temperature 1 the losses made of it, count what the teacher
    says of tokens outside of the draft vocabulary as refused. The divergences look at it through the draft vocabulary
    alone, as if it had no other tokens; so do all losses at another temperature, at which its total is not kept.

    Args:
        config: the head.
        loss, temperature, options: a name of `LOSS_NAMES`, and what the loss takes.
        steps, decay: see above.
        chunk: positions whose logits are held at a time.
        dtype: of the computation.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}; expected at least 1")
    graph = head_graph(config, jnp.dtype(dtype))
    distance = _distance(loss, temperature, options)

    def measure(params: PyTree, frozen: PyTree, batch: Batch) -> Measured:
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
        # Pair s: the states after token s, and token s + 1; it is to say what follows that.
        tokens, segments = batch.tokens[:, 1:], batch.segments[:, :-1]
        whole = (segments == batch.segments[:, 1:]) & batch.learned[:, 1:]
        outputs = unrolled_features(
            graph,
            params,
            batch.hidden[:, :-1].astype(dtype),
            frozen["embedding"][tokens].astype(dtype),
            batch.positions[:, :-1],
            segments,
            steps,
        )
        mask = jnp.stack([whole & in_step(segments, step) for step in range(steps)], axis=-1)
        following = frozen["draft_place"][_next(tokens)]

        def per_position(features, log_total, outs, following):
            teacher = linear(features[None], frozen["teacher_head"].astype(dtype))[0].astype(jnp.float32)
            student = nnx.merge(graph, params).draft_logits(outs)
            return _each(lambda q: distance(teacher, q, log_total, following), student), _each(
                lambda q: acceptance(teacher, q, log_total=log_total), student
            )

        features = batch.features[:, 1:].astype(dtype)
        given = features, batch.log_total[:, 1:], jnp.stack(outputs, axis=2), following
        return _measured(per_position, mask, given, chunk)

    return Student(measure, tuple(decay**step for step in range(steps)))


def draft_model_student(
    model: TextModel,
    *,
    draft_ids: Int[np.ndarray, "Vd"] | None = None,
    loss: str = "forward_kl",
    temperature: float = 1.0,
    chunk: int = 512,
    dtype: DTypeLike = jnp.float32,
    **options: float,
) -> Student:
    """A language model of its own; ``frozen`` comes from `frozen_for_model`.

    Args:
        model: the student, built for ``dtype``.
        draft_ids: the only tokens that it will guess, see `models.draft_vocabulary`; by default all.
        loss, temperature, options, chunk: as in `feature_head_student`.
        dtype: of the computation.
    """
    distance = _distance(loss, temperature, options)

    def measure(params: PyTree, frozen: PyTree, batch: Batch) -> Measured:
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
        features, _ = model.features(params, batch.tokens, batch.positions, batch.segments)
        following = frozen["draft_place"][_next(batch.tokens)]
        mask = batch.learned[..., None]
        rows = head_rows(params)
        rows = rows if draft_ids is None else rows[jnp.asarray(draft_ids)]

        def per_position(features, log_total, outs, following):
            teacher = linear(features[None], frozen["teacher_head"].astype(dtype))[0].astype(jnp.float32)
            student = linear(outs, rows).astype(jnp.float32)
            return _each(lambda q: distance(teacher, q, log_total, following), student), _each(
                lambda q: acceptance(teacher, q, log_total=log_total), student
            )

        given = batch.features.astype(dtype), batch.log_total, features[:, :, None], following
        return _measured(per_position, mask, given, chunk)

    return Student(measure, (1.0,))


def frozen_for_head(teacher_params: PyTree, draft_ids, draft_place: Int[Array, "V"]) -> dict[str, Array]:
    """What `feature_head_student` reads: the teacher's embedding, and its head's rows for the draft vocabulary."""
    return {
        "embedding": teacher_params["embedding"]["weight"],
        "teacher_head": head_rows(teacher_params)[jnp.asarray(draft_ids)],
        "draft_place": draft_place,
    }


def frozen_for_model(teacher_params: PyTree, draft_ids: Int[np.ndarray, "Vd"] | None = None) -> dict[str, Array]:
    """What `draft_model_student` reads: the teacher's head, or its rows for the tokens that the student will guess."""
    rows = head_rows(teacher_params)
    ids = np.arange(rows.shape[0], dtype=np.int32) if draft_ids is None else draft_ids
    teacher_head = rows if draft_ids is None else rows[jnp.asarray(ids)]
    return {"teacher_head": teacher_head, "draft_place": draft_places(ids, rows.shape[0])}


def _next(tokens: Int[Array, "B T"]) -> Int[Array, "B T"]:
    """The token after each; the last one's is not looked at, for nothing is learned there."""
    return jnp.pad(tokens[:, 1:], ((0, 0), (0, 1)))


def _distance(loss: str, temperature: float, options: dict[str, float]) -> Callable[..., Array]:
    """``(teacher [n, V], student [n, V], log_total [n], following [n]) -> [n]``"""
    if loss == CROSS_ENTROPY:

        def of_known_tokens(teacher, student, log_total, following):
            # A token that the student does not know teaches it nothing. Its place counts for alpha like any other.
            most = student.shape[-1] - 1
            found = cross_entropy(jnp.minimum(following, most), student, temperature=temperature)
            return jnp.where(following <= most, found, 0)

        return of_known_tokens
    if loss not in LOSSES:
        raise ValueError(f"loss is {loss!r}; expected one of {', '.join(LOSS_NAMES)}")
    chosen = LOSSES[loss]
    if loss in OF_ACCEPTANCE and temperature == 1:
        return lambda teacher, student, log_total, following: chosen(teacher, student, log_total=log_total, **options)
    return lambda teacher, student, log_total, following: chosen(teacher, student, temperature=temperature, **options)


def _each(measure: Callable[[Array], Array], student: Float[Array, "n S V"]) -> Float[Array, "n S"]:
    return jnp.stack([measure(student[:, step]) for step in range(student.shape[1])], axis=1)


def _measured(per_position, mask: Bool[Array, "B T S"], given: tuple[Array, ...], chunk: int) -> Measured:
    loss, alpha = sums_in_chunks(per_position, mask, *given, chunk=chunk)
    return Measured(loss, alpha, mask.sum((0, 1)).astype(jnp.float32))


def total(parts: Sequence[Measured]) -> dict[str, Any]:
    """Means over several batches: loss and alpha of each guess, and an estimate of the tokens of a round.

    With alpha_j the chance that guess j is kept where all before it were, a round of S guesses gives 1 + alpha_1 +
    alpha_1 alpha_2 + ... tokens. The alphas are means over all places instead, so that is what guesses give that are
    kept independently of each other.
    """
    loss, alpha, count = (sum(jnp.asarray(getattr(part, name)) for part in parts) for name in Measured._fields)
    count = jnp.maximum(count, 1)
    alphas = alpha / count
    return {
        "loss": [float(x) for x in loss / count],
        "alpha": [float(x) for x in alphas],
        "block_efficiency": float(1 + jnp.cumprod(alphas).sum()),
    }
