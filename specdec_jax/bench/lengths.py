"""A pair of models by draft length: what closed forms make of its acceptance and costs, and what it does."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Int, PyTree
from ..control import Costs
from ..control.constant import fixed
from ..drafters import Drafter
from ..generate import init
from ..lm import LanguageModel
from ..loop import decode
from ..sampling import SamplingParams
from ..state import GenerateConfig, Generation, Stats
from ..theory import tokens_of
from ..verify import RULES
from .contest import Answered, Contestant, Entry, contest, in_batches, padded, speculative

PLAIN, ADAPTIVE = "no drafter", "adaptive"


class Forecast(NamedTuple):
    """What rounds of up to so many guesses should give."""

    draft_length: int
    tokens: float
    """Of a round."""
    cost: float
    """Of a round, in rounds without guesses."""
    speedup: float


class Measured(NamedTuple):
    """What a contestant did over all prompts."""

    tokens: int
    block_efficiency: float
    tokens_per_second: float
    """With the time that it took to read the prompts."""
    speedup: float | None
    """Of the rest: reading is taken off its time, and off that of plain decoding. None where the clock saw nothing
    left, for answers were too short."""


class Lengths(NamedTuple):
    """Prediction and measurement side by side, of different prompts."""

    counted: int
    """Prompts from whose answers the acceptance is that the forecasts rest on."""
    compared: int
    """The others, which were measured."""
    alpha_at: list[float]
    """By place of the guess: how often it was kept where those before it were. One not made counts as refused."""
    made_at: list[float]
    """By place: the share of rounds in which there was a guess."""
    forecasts: list[Forecast]
    """By draft length, from 0."""
    measured: dict[str, Measured]
    """By name: `PLAIN`, the draft lengths, `ADAPTIVE`."""


def by_length(
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter,
    drafter_params: PyTree,
    prompts: Sequence[Sequence[int]],
    costs: Costs,
    *,
    config: GenerateConfig,
    eos_tokens: Sequence[int],
    max_new_tokens: int,
    repeats: int,
    temperature: float = 0.0,
    progress: Callable[[str], None] = lambda what: None,
) -> Lengths:
    """Answer prompts one at a time with 1 .. K guesses in every round, adaptively and plainly, in turns.

    K is ``config.draft_length``. Acceptance is counted in rounds of K guesses on every other prompt, from the first on;
    what is measured, and compared with the forecasts from it, are the prompts between, which had no part in them.

    Raises:
        ValueError: for fewer than two prompts.
    """
    counted, compared = prompts[::2], prompts[1::2]
    if not compared:
        raise ValueError(f"got {len(prompts)} prompt; expected 2 or more: alpha is counted on others than are timed")
    drafting = (target, target_params, drafter, drafter_params)
    seen: dict[str, list[Generation]] = {}

    def watched(name: str) -> Callable[[Answered], None]:
        kept = seen.setdefault(name, [])
        return lambda answered: kept.append(answered.generation)

    how = {"config": config, "eos_tokens": eos_tokens, "temperature": temperature}
    plain = partial(speculative, target, target_params, None, None, **how)
    length = partial(_at_length, *drafting, **how)
    K = config.draft_length
    contestants = {
        PLAIN: plain(seen=watched(PLAIN)),
        **{str(k): length(k, seen=watched(str(k))) for k in range(1, K + 1)},
        ADAPTIVE: speculative(*drafting, **how, costs=costs, seen=watched(ADAPTIVE)),
    }
    reading = {f"{name}, reading": _only_reading(one) for name, one in ((PLAIN, plain()), (str(K), length(K)))}
    entries = contest(
        contestants | reading,
        in_batches(compared, 1),
        max_new_tokens=max_new_tokens,
        repeats=repeats,
        progress=progress,
    )
    progress(f"counting acceptance on {len(counted)} other prompts")
    others: list[Generation] = []
    count = length(K, seen=lambda answered: others.append(answered.generation))
    for prompt in counted:
        count([prompt], max_new_tokens)
    stats = _sum(others)
    read = {name: entries[f"{PLAIN if name == PLAIN else K}, reading"].seconds for name in contestants}
    before = _seconds_a_token(entries[PLAIN], read[PLAIN])
    return Lengths(
        counted=len(counted),
        compared=len(compared),
        alpha_at=_alphas(stats),
        made_at=_share(stats.drafted_at, stats).tolist(),
        forecasts=forecasts(stats, costs, config.widths),
        measured={
            name: Measured(
                tokens=entries[name].tokens,
                block_efficiency=_block_efficiency(seen[name]),
                tokens_per_second=entries[name].tokens_per_second,
                speedup=_ratio(before, _seconds_a_token(entries[name], read[name])),
            )
            for name in contestants
        },
    )


def forecasts(stats: Stats, costs: Costs, widths: tuple[int, ...]) -> list[Forecast]:
    """For 0 .. K guesses a round, from counts of rounds that were allowed K.

    A guess costs nothing where it was not made, for a drafter may find fewer than it is allowed.
    """
    made, alphas = _share(stats.drafted_at, stats), _alphas(stats)
    whole = np.array([costs.of_round(guesses, widths) for guesses in range(len(made) + 1)])
    cost = np.concatenate([[1.0], 1 + np.cumsum(made * np.diff(whole)) / whole[0]])
    tokens = [tokens_of(alphas[:K]) for K in range(len(whole))]
    gains = zip(tokens, cost.tolist(), strict=True)
    return [Forecast(K, given, taken, given / taken) for K, (given, taken) in enumerate(gains)]


def _alphas(stats: Stats) -> list[float]:
    kept = _share(stats.accepted_at, stats)
    before = np.concatenate([[1.0], kept[:-1]])
    return np.divide(kept, before, out=np.zeros(len(kept)), where=before > 0).tolist()


def _share(counts: Int[Array, "B K"], stats: Stats) -> np.ndarray:
    """Of all rounds [K]."""
    return np.asarray(counts).sum(axis=0) / np.asarray(stats.rounds).sum()


def _sum(generations: Sequence[Generation]) -> Stats:
    """Over all of them, as one row."""
    rows = (one.stats for one in generations)
    return jax.tree.map(lambda *counts: jnp.concatenate(counts).sum(axis=0, keepdims=True), *rows)


def _block_efficiency(generations: Sequence[Generation]) -> float:
    """Timed repeats and the warm-up count too, which changes the ratio little."""
    return sum(int(one.lengths.sum()) for one in generations) / sum(int(one.stats.rounds.sum()) for one in generations)


def _seconds_a_token(entry: Entry, reading: float) -> float | None:
    return (entry.seconds - reading) / entry.tokens if entry.seconds > reading else None


def _ratio(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else before / after


def _only_reading(one: Contestant) -> Contestant:
    return lambda prompts, limit: one(prompts, 0)


def _at_length(
    target: LanguageModel,
    target_params: PyTree,
    drafter: Drafter,
    drafter_params: PyTree,
    length: int,
    *,
    config: GenerateConfig,
    eos_tokens: Sequence[int],
    temperature: float,
    seen: Callable[[Answered], None] = lambda answered: None,
) -> Contestant:
    """As `speculative`, with always as many guesses; one program serves all lengths."""
    ends = jnp.asarray(eos_tokens, jnp.int32)

    def run(prompts: np.ndarray, lengths: np.ndarray, limit: int) -> Generation:
        traced = (jnp.int32(length), jnp.int32(limit), jnp.float32(temperature))
        return _with_length(target, target_params, drafter, drafter_params, prompts, lengths, ends, *traced, config)

    return padded(run, config.capacity, seen)


@partial(jax.jit, static_argnames=("target", "drafter", "config"))
def _with_length(
    target,
    target_params,
    drafter,
    drafter_params,
    prompts,
    lengths,
    eos_tokens,
    length,
    limit,
    temperature,
    config: GenerateConfig,
) -> Generation:
    state = init(
        target,
        target_params,
        drafter,
        drafter_params,
        prompts,
        lengths,
        key=jax.random.key(0),
        sampling=SamplingParams(temperature=temperature),
        config=config,
        max_new_tokens=limit,
        eos_tokens=eos_tokens,
    )
    costs = Costs(jnp.float32(0), jnp.ones(len(config.widths)))  # which a fixed length does not weigh
    drafting = (target, target_params, drafter, drafter_params)
    return decode(RULES[config.rule], *drafting, fixed(length), costs, state, config).generation(config.capacity)
