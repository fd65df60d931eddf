"""What a draft model starts from: layers of its target, a configuration at random, or another model."""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specdec_jax._typing import PyTree
from specdec_jax.models import Loaded, check_pair, config_from_json, init_params, load
from specdec_jax.models.config import DecoderConfig
from specdec_jax.models.stack import Layout

from .from_layers import check_layers, evenly_spaced, from_layers
from .settings import ModelConfig
from .teacher import digest


class Start(NamedTuple):
    """A draft model before training."""

    config: DecoderConfig
    params: PyTree
    layers: Layout
    origin: str
    """In words, for the record."""
    digest: str | None = None
    """Of a model that was trained before: its path or name may hold another tomorrow."""


def check_length(name: str, config: DecoderConfig, length: int) -> None:
    """Raise a ValueError for rows of text that a model has no positions for: what it says of them means nothing."""
    if length > config.max_positions:
        raise ValueError(
            f"length is {length}, but {name} has {config.max_positions} positions; expected at most that many tokens "
            "in a row of text"
        )


def check_start(target: Loaded, settings: ModelConfig, length: int) -> None:
    """Raise a ValueError where the settings contradict each other or the target, or rows of ``length`` are too long.

    A model to start from is read, for what is wrong with it is better known now than after hours of writing text.
    """
    ways = [name for name in ("layers", "config", "start") if getattr(settings, name)]
    if len(ways) > 1:
        raise ValueError(f"got {' and '.join(ways)} for the draft model; expected one of them")
    if settings.config is not None:
        check_length(str(settings.config), _config_of(target, settings.config), length)
    elif settings.start is not None:
        check_length(settings.start, _other(target, settings.start).config, length)
    else:
        check_layers(_layers_of(target, settings), target.config.num_layers)


def starting_model(target: Loaded, settings: ModelConfig, *, seed: int) -> Start:
    """The student that the settings ask for, in float32.

    Raises:
        ValueError: it has another vocabulary than the target.
        LoadError: a file cannot be read.
    """
    held = _held(target)
    if settings.config is not None:
        config = _config_of(target, settings.config)
        params = init_params(config, jax.random.key(seed), dtype=jnp.float32, layers=held)
        return Start(config, params, held, f"random, in the shape of {settings.config.name}")
    if settings.start is not None:
        other = _other(target, settings.start)
        return Start(other.config, other.params, held, other.name, digest(other.config, other.params))
    layers = _layers_of(target, settings)
    config, params = from_layers(target, layers)
    return Start(config, params, held, f"layers {', '.join(map(str, layers))} of {target.name}")


def _config_of(target: Loaded, path: Path) -> DecoderConfig:
    config = config_from_json(path)
    if config.vocab_size != target.config.vocab_size:
        raise ValueError(
            f"vocab_size of {path} is {config.vocab_size}; expected the target's, {target.config.vocab_size}"
        )
    return config


def _other(target: Loaded, name: str) -> Loaded:
    def check(other: Loaded) -> None:
        check_pair(target, other)
        if other.config.vocab_size != target.config.vocab_size:
            raise ValueError(
                f"the logits of {other.name} are {other.config.vocab_size} wide and those of {target.name} "
                f"{target.config.vocab_size}; expected one width, so start from another model"
            )

    return load(name, dtype=jnp.float32, layers=_held(target), check=check)


def _layers_of(target: Loaded, settings: ModelConfig) -> tuple[int, ...]:
    return settings.layers or evenly_spaced(settings.count, target.config.num_layers)


def _held(target: Loaded) -> Layout:
    return "stacked" if 0 not in target.params["layers"] else "unrolled"
