"""A round seen on the device, where whole distributions are, and told on the host."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .._typing import Array, Float, Int
from ..round import Evidence
from ..state import Round
from ..verify import block, token
from ..verify.proposal import q_of, uniforms
from .records import Choice, Follow, Guess, RoundRecord

SAMPLED = {"token": token, "block": block}
"""The rules that decide by uniform draws, as modules with their parts; the others compare tokens."""


class Seen(NamedTuple):
    """What is kept of a round, of every place of every row; None: the rule draws nothing."""

    guesses: Int[Array, "B K"]
    drafted: Int[Array, "B"]
    accepted: Int[Array, "B"]
    committed: Int[Array, "B"]
    follow: Int[Array, "B"]
    p: Float[Array, "B K"]
    q: Float[Array, "B K"]
    accept: Float[Array, "B K"] | None
    draw: Float[Array, "B K"] | None
    follow_p: Float[Array, "B"]
    follow_chance: Float[Array, "B"] | None
    likeliest: Int[Array, "B T n"]
    likeliest_p: Float[Array, "B T n"]
    likeliest_q: Float[Array, "B T n"]


@partial(jax.jit, static_argnums=(0, 1))
def look(rule: str, n: int, info: Round, evidence: Evidence) -> Seen:
    """What is kept of a round, with the ``n`` likeliest tokens of each place."""
    keys, proposal, p, verdict = evidence
    q = q_of(proposal, p.shape[-1])
    K, accepted = q.shape[1], verdict.num_accepted
    parts = SAMPLED.get(rule)

    def of(values, tokens):
        return jnp.take_along_axis(values, tokens[..., None], axis=-1)[..., 0]

    p_next = jnp.take_along_axis(p, accepted[:, None, None], axis=1)[:, 0]
    weights = None if parts is None else parts.next_weights(proposal, p, accepted)
    top_p, top = lax.top_k(p, n)
    return Seen(
        guesses=info.guesses,
        drafted=jnp.minimum(info.num_drafted, proposal.length),  # past broken logits nothing was judged
        accepted=info.num_accepted,
        committed=info.num_committed,
        follow=info.next_token,
        p=of(p[:, :-1], proposal.tokens),
        q=of(q, proposal.tokens),
        accept=None if parts is None else parts.thresholds(proposal, p),
        draw=None if parts is None else uniforms(keys, K),
        follow_p=of(p_next, verdict.next_token),
        follow_chance=None if weights is None else of(weights, verdict.next_token) / weights.sum(-1),
        likeliest=top,
        likeliest_p=top_p,
        likeliest_q=jnp.take_along_axis(jnp.pad(q, ((0, 0), (0, 1), (0, 0))), top, axis=2),
    )


def told(seen: Seen, row: int) -> RoundRecord:
    """A row's record, from what was seen, on the host."""
    drafted, accepted, committed = (int(n[row]) for n in (seen.drafted, seen.accepted, seen.committed))

    def column(values):
        return [None] * drafted if values is None else values[row, :drafted].tolist()

    follow = None
    if committed > accepted:
        chance = None if seen.follow_chance is None else seen.follow_chance[row].item()
        follow = Follow(seen.follow[row].item(), seen.follow_p[row].item(), chance)
    top = seen.likeliest, seen.likeliest_p, seen.likeliest_q

    def choices(place):
        found = map(Choice, *(of[row, place].tolist() for of in top))
        return tuple(one if place < drafted else one._replace(q=None) for one in found if one.p > 0)

    return RoundRecord(
        guesses=tuple(map(Guess, *map(column, (seen.guesses, seen.p, seen.q, seen.accept, seen.draw)))),
        num_accepted=accepted,
        follow=follow,
        likeliest=tuple(map(choices, range(committed))),
    )
