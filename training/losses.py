"""Distillation losses by name: how far a student's next-token distribution is from its teacher's.

Each is a pure function of teacher and student logits [..., V] and returns one number a position [...], in nats where it
is an entropy. Gradients flow to the student alone.

What a drafter is worth is alpha = sum_x min(p(x), q(x)), the chance that a guess is kept (Leviathan et al., ICML 2023,
theorem 3.5; p is the teacher, q the student). Total variation is 1 - alpha itself; the divergences bound it and have
better gradients far from the teacher; the hybrid goes from the one to the other as alpha grows.

A student may know some of the tokens only; the logits are then those of these tokens, on both sides. Its q is 0
elsewhere, so a divergence from the whole p would be infinite, and is that from p divided anew over the tokens that the
student knows. Not so alpha: of ``OF_ACCEPTANCE`` each takes ``log_total``, the log of the sum of exp over all of the
teacher's logits divided by the temperature, and has p as it is.
"""

from collections.abc import Callable
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax._typing import Array, Bool, Float, Int

Loss = Callable[..., Array]
"""``loss(teacher [..., V], student [..., V], *, temperature=1.0) -> [...]``"""

_LEAST_LOG = float(np.log(np.finfo(np.float32).tiny))
"""What stands for the log of 0 where a finite number is needed: that of the smallest normal number, about -87.3."""


def _log_distributions(teacher, student, temperature):
    """log p and log q in float32, the teacher's cut off from the gradient."""
    teacher = jax.lax.stop_gradient(teacher).astype(jnp.float32) / temperature
    student = student.astype(jnp.float32) / temperature
    return jax.nn.log_softmax(teacher), jax.nn.log_softmax(student)


def _cross(p, log_ratio):
    """sum p * log_ratio, where a token of p = 0 counts nothing even if its ratio is infinite or undefined."""
    return jnp.where(p > 0, p * jnp.where(p > 0, log_ratio, 0), 0).sum(-1)


def _known_share(teacher, log_p, log_total, temperature):
    """log p of all tokens, and the share that p has in tokens which the student does not know."""
    if log_total is None:
        return log_p, jnp.float32(0)
    total, teacher = (jax.lax.stop_gradient(x).astype(jnp.float32) for x in (log_total, teacher))
    log_known = jax.nn.logsumexp(teacher / temperature, axis=-1) - total
    return log_p + log_known[..., None], jnp.maximum(-jnp.expm1(log_known), 0)


def acceptance(
    teacher: Float[Array, "*b V"], student: Float[Array, "*b V"], *, log_total: Float[Array, "*b"] | None = None
) -> Float[Array, "*b"]:
    """alpha = sum_x min(p(x), q(x)): the chance that the target keeps one guess of the drafter's. Not a loss.

    Where the logits are those of the tokens that the drafter knows, ``log_total`` is the log of the sum of exp over all
    of the teacher's: what the teacher says of other tokens is never guessed.
    """
    log_p, log_q = _log_distributions(teacher, student, 1.0)
    if log_total is not None:
        log_p = jax.lax.stop_gradient(teacher).astype(jnp.float32) - log_total[..., None]
    return jnp.minimum(jnp.exp(log_p), jnp.exp(log_q)).sum(-1)


def forward_kl(
    teacher: Float[Array, "*b V"], student: Float[Array, "*b V"], *, temperature: float = 1.0
) -> Float[Array, "*b"]:
    """KL(p || q) = sum p log(p / q): the student must cover all that the teacher may say."""
    log_p, log_q = _log_distributions(teacher, student, temperature)
    return _cross(jnp.exp(log_p), log_p - log_q)


def reverse_kl(
    teacher: Float[Array, "*b V"], student: Float[Array, "*b V"], *, temperature: float = 1.0
) -> Float[Array, "*b"]:
    """KL(q || p) = sum q log(q / p): the student must say only what the teacher might.

    It is infinite where p is 0 and q is not, as for a teacher's logit of -inf. There, and below the smallest normal
    number, that number stands for p, so that the loss is finite and its gradient leads away from such tokens.
    """
    log_p, log_q = _log_distributions(teacher, student, temperature)
    return _cross(jnp.exp(log_q), log_q - jnp.maximum(log_p, _LEAST_LOG))


def jensen_shannon(
    teacher: Float[Array, "*b V"], student: Float[Array, "*b V"], *, temperature: float = 1.0, beta: float = 0.5
) -> Float[Array, "*b"]:
    """beta KL(p || m) + (1 - beta) KL(q || m) with m = beta p + (1 - beta) q, for 0 < beta < 1.

    The generalised divergence of Agarwal et al., "On-Policy Distillation of Language Models" (ICLR 2024), equation 1.
    """
    check_beta(beta)
    log_p, log_q = _log_distributions(teacher, student, temperature)
    # Of a token that neither says the sum of two zeros would have a gradient of NaN.
    said = jnp.maximum(log_q, _LEAST_LOG)
    log_m = jnp.logaddexp(log_p + jnp.log(jnp.float32(beta)), said + jnp.log(jnp.float32(1 - beta)))
    return beta * _cross(jnp.exp(log_p), log_p - log_m) + (1 - beta) * _cross(jnp.exp(log_q), log_q - log_m)


def check_beta(beta: float) -> None:
    """Raise a ValueError for a weight that `jensen_shannon` does not take."""
    if not 0 < beta < 1:
        raise ValueError(f"beta is {beta}; expected 0 < beta < 1 (the ends are forward_kl and reverse_kl)")


def total_variation(
    teacher: Float[Array, "*b V"],
    student: Float[Array, "*b V"],
    *,
    temperature: float = 1.0,
    log_total: Float[Array, "*b"] | None = None,
) -> Float[Array, "*b"]:
    """1 - alpha = sum max(0, p - q): the chance that a guess is refused."""
    log_p, log_q = _log_distributions(teacher, student, temperature)
    log_p, unknown = _known_share(teacher, log_p, log_total, temperature)
    return unknown + jnp.maximum(jnp.exp(log_p) - jnp.exp(log_q), 0).sum(-1)


def negative_log_acceptance(
    teacher: Float[Array, "*b V"],
    student: Float[Array, "*b V"],
    *,
    temperature: float = 1.0,
    log_total: Float[Array, "*b"] | None = None,
) -> Float[Array, "*b"]:
    """-log alpha: total variation's optimum, with a gradient that grows as alpha falls."""
    log_p, log_q = _log_distributions(teacher, student, temperature)
    log_p, _ = _known_share(teacher, log_p, log_total, temperature)
    return -jax.nn.logsumexp(jnp.minimum(log_p, log_q), axis=-1)


def hybrid(
    teacher: Float[Array, "*b V"],
    student: Float[Array, "*b V"],
    *,
    temperature: float = 1.0,
    eta: float = 3.0,
    log_total: Float[Array, "*b"] | None = None,
) -> Float[Array, "*b"]:
    """w KL(p || q) + (1 - w) (1 - alpha) with w = exp(-eta alpha), alpha's gradient stopped in w.

    Far from the teacher it is mostly forward KL, close to it mostly what acceptance really is.
    """
    log_p, log_q = _log_distributions(teacher, student, temperature)
    divergence = _cross(jnp.exp(log_p), log_p - log_q)
    log_p, unknown = _known_share(teacher, log_p, log_total, temperature)
    refused = unknown + jnp.maximum(jnp.exp(log_p) - jnp.exp(log_q), 0).sum(-1)
    weight = jnp.exp(-eta * (1 - jax.lax.stop_gradient(refused)))
    return weight * divergence + (1 - weight) * refused


LOSSES: dict[str, Loss] = {
    "forward_kl": forward_kl,
    "reverse_kl": reverse_kl,
    "jensen_shannon": jensen_shannon,
    "total_variation": total_variation,
    "negative_log_acceptance": negative_log_acceptance,
    "hybrid": hybrid,
}
"""By the names that a configuration takes: a teacher's logits, a student's and settings give a loss a position. The
baseline, `cross_entropy`, is not among them: it takes the text's tokens in the place of a teacher's logits."""

LossName = Literal[
    "forward_kl",
    "reverse_kl",
    "jensen_shannon",
    "total_variation",
    "negative_log_acceptance",
    "hybrid",
    "cross_entropy",
]
LOSS_NAMES: tuple[LossName, ...] = get_args(LossName)
"""Of all that a drafter can be trained with: those of ``LOSSES``, and the baseline."""

CROSS_ENTROPY: LossName = "cross_entropy"

OF_ACCEPTANCE = ("total_variation", "negative_log_acceptance", "hybrid")
"""Those made of alpha, which take ``log_total``."""


def cross_entropy(
    tokens: Int[Array, "*b"], student: Float[Array, "*b V"], *, temperature: float = 1.0
) -> Float[Array, "*b"]:
    """-log q of the token that the text has there: training without a teacher, the baseline of the others."""
    log_q = jax.nn.log_softmax(student.astype(jnp.float32) / temperature)
    return -jnp.take_along_axis(log_q, tokens[..., None], axis=-1)[..., 0]


def masked_mean(values: Float[Array, "*b"], mask: Bool[Array, "*b"]) -> Float[Array, ""]:
    """The mean over the positions that count; 0 where none does."""
    return jnp.where(mask, values, 0).sum() / jnp.maximum(mask.sum(), 1).astype(values.dtype)
