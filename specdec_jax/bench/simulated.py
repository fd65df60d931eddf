"""Simulated acceptance: what rounds cost at any alpha, with guesses kept by a coin instead of by a rule.

Nothing that comes out is the target's text, so no text comes out: only counts and times, marked as simulated. The
drafter, the target and a real rule do all of their work; then the coin decides.
"""

import math
import statistics
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float, Int, PyTree
from ..control import Costs
from ..control.constant import fixed
from ..drafters import Drafter
from ..generate import init
from ..lm import LanguageModel
from ..loop import decode
from ..sampling import RoundKeys, SamplingParams
from ..state import GenerateConfig, Stats
from ..theory import expected_tokens
from ..verify import RULES, Proposal, Rule, Verdict
from ..verify.proposal import longest_prefix, proposed, uniforms
from .timing import in_turns


@flax.struct.dataclass
class Simulated:
    """Counts of rounds whose guesses were kept at random. There is no text: it would not be the target's."""

    lengths: Int[Array, "B"]
    """Tokens that each row was given."""
    stats: Stats


class SimulatedCost(NamedTuple):
    """What rounds give and cost at one alpha; ``simulated`` says so wherever it is written."""

    alpha: float
    draft_length: int
    block_efficiency: float
    round_seconds: float
    """From whole generations: the time of a long one less that of an empty one, over its rounds."""
    simulated: bool = True


def simulated_rule(rule: Rule, alpha: Float[Array, ""] | float) -> Rule:
    """Keeps each guess with probability ``alpha`` while those before it were kept, whatever p and q are.

    Not a rule to decode with: it is registered nowhere. The verdict of ``rule`` is worked out all the same, and hung on
    to what is returned so that the compiler cannot leave it out.
    """

    def verify(keys: RoundKeys, proposal: Proposal, p: Float[Array, "B T V"]) -> Verdict:
        real = rule.verify(keys, proposal, p)
        u = uniforms(keys, proposal.tokens.shape[1])
        kept = longest_prefix((u < alpha) & proposed(proposal))
        kept, _ = jax.lax.optimization_barrier((kept, real.num_accepted))
        return Verdict(kept, real.next_token)

    return rule._replace(verify=verify)


def always_guessing(drafter: Drafter) -> Drafter:
    """The drafter, claiming as many guesses as it is allowed even where it found fewer, or none."""

    def propose(params, state, context, K, limit, draw):
        proposal, state = drafter.propose(params, state, context, K, limit, draw)
        return proposal._replace(length=limit), state

    return drafter._replace(propose=propose)


def simulate(
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter,
    drafter_params: PyTree,
    prompts: Int[Array, "B P"] | Int[np.ndarray, "B P"],
    prompt_lengths: Int[Array, "B"] | Int[np.ndarray, "B"],
    *,
    alpha: float,
    draft_length: int,
    config: GenerateConfig,
    max_new_tokens: int,
    key: Array,
) -> Simulated:
    """Rows of ``max_new_tokens`` tokens, ``draft_length`` guesses in each round and each kept with ``alpha``.

    Both are traced, so one program serves all; draft lengths are bounded by ``config.draft_length``.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha}; expected a probability, from 0 to 1")
    if not 0 <= draft_length <= config.draft_length:
        raise ValueError(f"draft_length is {draft_length}; expected 0 to config.draft_length, {config.draft_length}")
    chance, length, limit = jnp.float32(alpha), jnp.int32(draft_length), jnp.int32(max_new_tokens)
    return _simulate(
        target, target_params, drafter, drafter_params, prompts, prompt_lengths, chance, length, limit, key, config
    )


@partial(jax.jit, static_argnames=("target", "drafter", "config"))
def _simulate(
    target, target_params, drafter, drafter_params, prompts, prompt_lengths, alpha, length, limit, key, config
) -> Simulated:
    drafter = always_guessing(drafter)
    state = init(
        target,
        target_params,
        drafter,
        drafter_params,
        prompts,
        prompt_lengths,
        key=key,
        sampling=SamplingParams(temperature=0.0),
        config=config,
        max_new_tokens=limit,
    )
    rule = simulated_rule(RULES[config.rule], alpha)
    costs = Costs(jnp.float32(0), jnp.ones(len(config.widths)))  # which a fixed length does not weigh
    state = decode(rule, target, target_params, drafter, drafter_params, fixed(length), costs, state, config)
    return Simulated(state.lengths - state.prompt_lengths, state.stats)


def simulated_costs(
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter,
    drafter_params: PyTree,
    points: Sequence[tuple[float, int]],
    *,
    batch: int,
    config: GenerateConfig,
    rounds: int,
    repeats: int,
) -> list[SimulatedCost]:
    """Time some ``rounds`` rounds at each of these pairs of alpha and draft length, all in turns.

    Prompts are token 0, over and over: an eighth of the capacity. A batch's round is timed as long as any row runs.
    """
    slots = -(-config.capacity // 8)
    tokens = {point: math.ceil(rounds * expected_tokens(*point)) for point in points}
    most = max(tokens.values())
    if slots + most > config.capacity:
        raise ValueError(
            f"{rounds} rounds give up to {most} tokens; expected at most {config.capacity - slots}, what prompts of "
            f"{slots} tokens leave of the capacity, {config.capacity}: time fewer rounds"
        )
    prompts, lengths = np.zeros((batch, slots), np.int32), np.full(batch, slots, np.int32)

    def run(alpha: float, draft_length: int, limit: int) -> Simulated:
        return simulate(
            target,
            target_params,
            drafter,
            drafter_params,
            prompts,
            lengths,
            alpha=alpha,
            draft_length=draft_length,
            config=config,
            max_new_tokens=limit,
            key=jax.random.key(0),
        )

    long = {str(point): partial(run, *point, limit) for point, limit in tokens.items()}
    runs = {"empty": partial(run, *points[0], 0), **long}
    counts = {name: jax.block_until_ready(once()) for name, once in runs.items()}
    seconds = {name: statistics.median(times) for name, times in in_turns(runs, repeats).items()}
    found = []
    for point, name in zip(tokens, long, strict=True):
        taken = counts[name].stats.rounds
        found.append(
            SimulatedCost(
                *point,
                block_efficiency=float(counts[name].lengths.sum() / taken.sum()),
                round_seconds=(seconds[name] - seconds["empty"]) / int(taken.max()),
            )
        )
    return found
