"""Early checks of what `generate` is called with: everything that can be known before compiling."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ._checks import as_array, concrete
from ._typing import Array, Int, Key
from .drafters import Drafter
from .lm import LanguageModel
from .sampling import SamplingParams, row_keys
from .sampling.params import LEAST
from .state import GenerateConfig, GenerateState

_UNLIMITED = np.iinfo(np.int32).max


class Inputs(NamedTuple):
    """What is traced, in one form: the same shapes and dtypes however it was written, so that nothing recompiles."""

    prompts: Int[Array, "B P"]
    prompt_lengths: Int[Array, "B"]
    keys: Key[Array, "B"]
    sampling: SamplingParams  # arrays [B]
    max_new_tokens: Int[Array, "B"]
    eos_tokens: Int[Array, "E"]


def prepare(
    target: LanguageModel,
    drafter: Drafter | None,
    prompts,
    prompt_lengths,
    key,
    sampling: SamplingParams,
    config: GenerateConfig,
    max_new_tokens,
    eos_tokens,
) -> Inputs:
    """The inputs, or a ValueError that says what to change."""
    prompts, prompt_lengths = _integers("prompts", prompts), _integers("prompt_lengths", prompt_lengths)
    if prompts.ndim != 2 or prompts.shape[0] == 0 or prompts.shape[1] == 0:
        raise ValueError(
            f"prompts has shape {prompts.shape}; expected token ids [rows, slots], padded on the right, at least [1, 1]"
        )
    if prompt_lengths.shape != prompts.shape[:1]:
        raise ValueError(
            f"prompt_lengths has shape {prompt_lengths.shape}; expected one length for each of the {prompts.shape[0]} "
            "rows of prompts"
        )
    if drafter is not None and drafter.vocab_size not in (None, target.vocab_size):
        raise ValueError(
            f"the drafter has a vocabulary of {drafter.vocab_size} tokens and the target one of {target.vocab_size}; "
            "expected the same: draft with a model that shares the target's tokenizer, or with n-grams"
        )
    _check_prompts(target, config, prompts, prompt_lengths)
    sampling.check()
    check_rule(config, sampling)

    limit = _integers("max_new_tokens", _UNLIMITED if max_new_tokens is None else max_new_tokens)
    if limit.shape not in ((), prompt_lengths.shape):
        raise ValueError(
            f"max_new_tokens has shape {limit.shape}; expected one number or one a row, {prompt_lengths.shape}"
        )
    known = concrete(limit)
    if known is not None and (known < 0).any():
        raise ValueError(f"max_new_tokens is {int(known.min())}; expected >= 0")
    batch = prompts.shape[0]
    if config.rule == "greedy":  # the rule takes the likeliest token, so that is the distribution it samples from
        sampling = sampling._replace(temperature=0.0)
    return Inputs(
        prompts=jnp.asarray(prompts),
        prompt_lengths=jnp.asarray(prompt_lengths),
        keys=_keys(key, batch),
        sampling=sampling.broadcast(batch),
        max_new_tokens=jnp.broadcast_to(jnp.asarray(limit), (batch,)),
        eos_tokens=_eos_array(eos_tokens, target.vocab_size),
    )


def check_step(state: GenerateState, drafter: Drafter | None, config: GenerateConfig) -> None:
    """Raise a ValueError for a round of a state that was made for something else."""
    made, K = state.stats.drafted_at.shape[1], 0 if drafter is None else config.draft_length
    if made != K:
        raise ValueError(
            f"the state was made for rounds of {made} guesses, and this one has {K}; expected the config and the "
            "drafter that init was given, and draft_length to make fewer guesses"
        )
    check_rule(config, state.sampling)


def _keys(key, batch: int) -> Key[Array, "B"]:
    """One key a row."""
    dtype = getattr(key, "dtype", None)
    if dtype is None or not (jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == jnp.uint32):
        raise ValueError(f"key is {key!r}; expected a key of JAX's, such as jax.random.key(0), or one a row")
    return row_keys(jnp.asarray(key), batch)


def _eos_array(eos_tokens, vocab_size: int) -> jnp.ndarray:
    """End tokens as an array whose size is a multiple of eight, so that one more of them compiles nothing new."""
    ids = _integers("eos_tokens", eos_tokens if np.size(eos_tokens) else np.zeros(0, np.int32))
    if ids.ndim > 1:
        raise ValueError(f"eos_tokens has shape {ids.shape}; expected a list of token ids, shared by all rows")
    known = concrete(ids)
    if known is not None and ((known < 0) | (known >= vocab_size)).any():
        worst = next(int(token) for token in known.reshape(-1) if not 0 <= token < vocab_size)
        raise ValueError(f"eos_tokens has {worst}, which the target never draws; expected ids in [0, {vocab_size})")
    flat = (ids if known is None else known).reshape(-1)
    pad = jnp.pad if known is None else np.pad  # which compiles nothing
    return jnp.asarray(pad(flat, (0, max(8, -(-flat.size // 8) * 8) - flat.size), constant_values=-1))  # no token is -1


def _integers(name: str, value):
    """As int32; a number that does not fit is refused before it could wrap around.

    What NumPy has stays there: inside of a caller's jit an array of JAX's would be traced, and no longer known.
    """
    array = as_array(name, value, "integers")
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise ValueError(f"{name} has dtype {array.dtype}; expected integers")
    known = concrete(array)
    if known is not None and known.size:
        worst = max(int(known.max()), int(known.min()), key=abs)
        if abs(worst) > _UNLIMITED:
            raise ValueError(f"{name} has {worst}; expected numbers of 32 bits, at most {_UNLIMITED}")
    return array.astype(jnp.int32) if isinstance(array, jax.Array) else np.asarray(array, np.int32)


def _check_prompts(target: LanguageModel, config: GenerateConfig, prompts, prompt_lengths) -> None:
    lengths = concrete(prompt_lengths)
    if lengths is None:
        return
    full = config.capacity if target.max_positions is None else min(config.capacity, target.max_positions)
    for row, length in enumerate(lengths):
        if length < 1:
            raise ValueError(f"the prompt of row {row} is empty (length {length}); expected at least one token")
        if length > prompts.shape[1]:
            raise ValueError(
                f"prompt_lengths[{row}] is {length}, but prompts has {prompts.shape[1]} slots; pad the prompts wider"
            )
        if length > full:
            raise ValueError(
                f"the prompt of row {row} has {length} tokens, but a row holds {full} (config.capacity "
                f"{config.capacity}, the model's max_positions {target.max_positions}); raise capacity or shorten it"
            )
    ids = concrete(prompts)
    if ids is None:
        return
    inside = np.arange(ids.shape[1])[None, :] < lengths[:, None]
    bad = inside & ((ids < 0) | (ids >= target.vocab_size))
    if bad.any():
        row, slot = np.argwhere(bad)[0]
        raise ValueError(f"prompts[{row}, {slot}] is {ids[row, slot]}; expected a token id in [0, {target.vocab_size})")


def check_rule(config: GenerateConfig, sampling: SamplingParams) -> None:
    """Raise a ValueError where the greedy rule, which samples nothing, is given a temperature."""
    temperature = concrete(sampling.temperature)
    if config.rule == "greedy" and temperature is not None and (temperature >= LEAST).any():
        raise ValueError(
            f"rule is greedy, but temperature is {float(np.max(temperature))}; expected temperature 0, or the rule "
            "block, token or coupled to sample"
        )
