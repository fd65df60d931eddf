"""What a draft model starts from: layers of its target, a configuration at random, or another model."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from specdec_jax._typing import PyTree
from specdec_jax.models import Loaded, check_pair, config_from_json, init_params, load
from specdec_jax.models.config import DecoderConfig
from specdec_jax.models.stack import Layout

from .from_layers import check_layers, evenly_spaced, from_layers
from .settings import ModelConfig


class Start(NamedTuple):
    """A draft model before training."""

    config: DecoderConfig
    params: PyTree
    layers: Layout
    origin: str
    """In words, for the record."""


def check_start(target: Loaded, settings: ModelConfig) -> None:
    """Raise a ValueError where the settings contradict each other or the target, as far as that takes no weights."""
    ways = [name for name in ("layers", "config", "start") if getattr(settings, name)]
    if len(ways) > 1:
        raise ValueError(f"got {' and '.join(ways)} for the draft model; expected one of them")
    if settings.config is not None:
        config = config_from_json(settings.config)
        if config.vocab_size != target.config.vocab_size:
            raise ValueError(
                f"vocab_size of {settings.config} is {config.vocab_size}; expected the target's, "
                f"{target.config.vocab_size}"
            )
    elif settings.start is None:
        check_layers(_layers_of(target, settings), target.config.num_layers)


def _layers_of(target: Loaded, settings: ModelConfig) -> tuple[int, ...]:
    return settings.layers or evenly_spaced(settings.count, target.config.num_layers)


def starting_model(target: Loaded, settings: ModelConfig, *, seed: int) -> Start:
    """The student that the settings ask for, in float32.

    Raises:
        ValueError: it has another vocabulary than the target, or the settings contradict each other.
        LoadError: a file cannot be read.
    """
    check_start(target, settings)
    held: Layout = "stacked" if 0 not in target.params["layers"] else "unrolled"
    if settings.config is not None:
        config = config_from_json(settings.config)
        params = init_params(config, jax.random.key(seed), dtype=jnp.float32, layers=held)
        return Start(config, params, held, f"random, in the shape of {settings.config.name}")
    if settings.start is not None:
        other = load(settings.start, dtype=jnp.float32, layers=held)
        check_pair(target, other)
        if other.config.vocab_size != target.config.vocab_size:
            raise ValueError(
                f"the logits of {other.name} are {other.config.vocab_size} wide and those of {target.name} "
                f"{target.config.vocab_size}; expected one width, so start from another model"
            )
        return Start(other.config, other.params, held, other.name)
    layers = _layers_of(target, settings)
    config, params = from_layers(target, layers)
    return Start(config, params, held, f"layers {', '.join(map(str, layers))} of {target.name}")
