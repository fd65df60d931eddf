"""What the config.json files of several families say in the same way."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from . import rope
from .config import RotaryConfig
from .errors import LoadError

Raw = Mapping[str, Any]

_WIDEST_HEAD = 1 << 16
_LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


def boolean(raw: Raw, key: str, default: bool) -> bool:
    """A LoadError for a text such as "false", which would count as true."""
    value = raw.get(key, default)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise LoadError(f"{key} in config.json is {value!r}; expected true or false")
    return value


def integer(raw: Raw, key: str, default: int | None = None) -> int:
    """A positive integer; a LoadError where it is neither there nor has a default."""
    value = raw.get(key)
    value = default if value is None else value
    if value is None:
        raise LoadError(f"config.json has no {key}, which a {raw.get('model_type')} model needs; add it")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise LoadError(f"{key} is {value!r} in config.json; expected a positive integer")
    return value


def number(raw: Raw, key: str, default: float) -> float:
    """A number, or its default."""
    value = raw.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LoadError(f"{key} is {value!r} in config.json; expected a number")
    return float(value)


def refuse_quantised(raw: Raw) -> None:
    """Packed weights of other libraries."""
    settings = raw.get("quantization_config")
    if settings:
        method = settings.get("quant_method") if isinstance(settings, dict) else settings
        raise LoadError(
            f"the weights are quantised with {method!r}, which is not supported; expected F32, F16 or BF16 "
            "safetensors, or a GGUF file"
        )


def check_activation(raw: Raw, key: str, default: str, accepted: tuple[str, ...]) -> None:
    """Only the family's own."""
    activation = raw.get(key) or default
    if activation not in accepted:
        raise LoadError(f"config.json asks for the activation {activation!r}; expected {accepted[0]!r}")


def refuse(raw: Raw, **usual: Any) -> None:
    """Settings that would change what the model computes and are not supported: all but the ``usual`` values."""
    for key, value in usual.items():
        if raw.get(key) not in (None, value):
            raise LoadError(f"{key} is {raw[key]!r} in config.json, which is not supported; expected {value!r}")


class RopeSettings(NamedTuple):
    """How config.json says that positions turn queries and keys."""

    theta: float
    factors: tuple[float, ...] | None
    turned: float
    """The part of each head that turns."""


def rope_settings(raw: Raw, head_size: int, *, theta: float = 10000.0) -> RopeSettings:
    """Of transformers 4 (``rope_theta``, ``rope_scaling``) or 5 (``rope_parameters``)."""
    scaling = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    theta = float(scaling.get("rope_theta") or raw.get("rope_theta") or theta)
    turned = scaling.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1
    return RopeSettings(theta, factors(scaling, int(head_size * turned), theta), turned)


def whole_head(raw: Raw, head_size: int, *, theta: float = 10000.0) -> RopeSettings:
    """The same for families whose heads turn as a whole."""
    found = rope_settings(raw, head_size, theta=theta)
    if found.turned != 1:
        raise LoadError(f"config.json rotates a part {found.turned} of each head; expected the whole head")
    return found


def factors(scaling: Raw, size: int, theta: float) -> tuple[float, ...] | None:
    """What each frequency is divided by."""
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind == "default":
        return None
    if kind not in ("linear", "llama3"):
        raise LoadError(
            f"config.json has the rope type {kind!r}, which is not supported; expected default, linear, llama3"
        )
    keys = _LLAMA3 if kind == "llama3" else _LLAMA3[:1]
    missing = [key for key in keys if key not in scaling]
    if missing:
        raise LoadError(f"config.json has no {', '.join(missing)} for its rope type {kind}; add them")
    if kind == "linear":
        return (float(scaling["factor"]),) * (size // 2)
    factor, low, high, original = (scaling[key] for key in keys)
    return rope.llama3_factors(
        size,
        theta,
        factor=factor,
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_positions=original,
    )


def rope_to_hf(size: int, theta: float, factors: tuple[float, ...] | None) -> dict[str, Any]:
    """What `rope_settings` reads as these, for transformers 5 and 4; a ValueError where no supported kind says it."""
    settings = rope_parameters(size, theta, factors)
    return {"rope_parameters": settings, **rope_of_transformers_4(settings)}


def rope_of_transformers_4(settings: Raw) -> dict[str, Any]:
    """The same beside ``rope_parameters``, which transformers 4 passes over without a word."""
    scaling = {key: value for key, value in settings.items() if key != "rope_theta"}
    scales = {} if scaling["rope_type"] == "default" else {"rope_scaling": scaling}
    return {"rope_theta": settings["rope_theta"], **scales}


def rope_parameters(size: int, theta: float, factors: tuple[float, ...] | None) -> dict[str, Any]:
    """One kind of layer's ``rope_parameters``."""
    if factors is None:
        return {"rope_type": "default", "rope_theta": theta}
    if len(set(factors)) == 1:
        return {"rope_type": "linear", "rope_theta": theta, "factor": factors[0]}
    factor = float(np.round(max(factors), 4))
    factor = factor if np.isclose(factor, max(factors), rtol=1e-7) else max(factors)
    for low, high, original in _llama3_bridges(size, theta, factors):
        got = rope.llama3_factors(
            size, theta, factor=factor, low_freq_factor=low, high_freq_factor=high, original_max_positions=original
        )
        if np.allclose(got, factors, rtol=1e-5):
            settings = dict(zip(_LLAMA3, (factor, low, high, original), strict=True))
            return {"rope_type": "llama3", "rope_theta": theta, **settings}
    raise ValueError(
        "rope_factors are neither all equal nor those of Llama 3; expected one of these, for config.json can say no "
        "others"
    )


_CONTEXT = 8192


def _llama3_bridges(size: int, theta: float, factors: tuple[float, ...]) -> Iterator[tuple[float, float, int]]:
    """``low_freq_factor``, ``high_freq_factor`` and original context that may be behind the factors.

    Between fast and slow pairs sharpness is a line over the pairs' speed. Of all that say the same line, those with
    Llama 3's own factors, 1 and 4, come first, and a context read off the bridge or one of the usual ones.
    """
    speeds = rope.frequencies(size, theta).astype(np.float64)
    least = 1 / max(factors)
    sharpness = (1 / np.asarray(factors) - least) / (1 - least)
    inside = np.flatnonzero((sharpness > 1e-3) & (sharpness < 1 - 1e-3))
    for place in inside:
        yield 1.0, 4.0, round((1 + 3 * sharpness[place]) * 2 * np.pi / speeds[place])
    for power in range(9, 18):
        yield 1.0, 4.0, 2**power
    # The line through what lies on it; of a single pair, or none, with what lies next to it on both sides.
    first, last = (inside[0], inside[-1]) if len(inside) else (int(np.argmax(sharpness < 0.5)),) * 2
    near = [place for place in (first - 1, last + 1) if 0 <= place < len(speeds) and first == last]
    slopes = [
        (sharpness[a] - sharpness[b]) / (speeds[a] - speeds[b])
        for a, b in ([(first, last)] if first != last else [(first, other) for other in near])
    ]
    slope = max(slopes, default=0.0)
    if slope <= 0:
        return
    start = speeds[first] - sharpness[first] / slope
    turns = _CONTEXT / (2 * np.pi)
    yield float(start * turns), float((start + 1 / slope) * turns), _CONTEXT


def rotary_shape(raw: Raw) -> dict[str, Any]:
    """The fields of `config.RotaryConfig` but for those of RoPE, by the names that most families give them."""
    heads = integer(raw, "num_attention_heads")
    size = integer(raw, "head_dim", integer(raw, "hidden_size") // heads)
    if size > _WIDEST_HEAD:  # its frequencies are worked out before any weight is looked at
        raise LoadError(
            f"the heads of config.json are {size} wide; expected at most {_WIDEST_HEAD}, so correct head_dim"
        )
    return {
        "vocab_size": integer(raw, "vocab_size"),
        "width": integer(raw, "hidden_size"),
        "mlp_width": integer(raw, "intermediate_size"),
        "num_layers": integer(raw, "num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": integer(raw, "num_key_value_heads", heads),
        "head_size": size,
        "max_positions": integer(raw, "max_position_embeddings"),
        "norm_eps": number(raw, "rms_norm_eps", 1e-6),
        "tied_head": boolean(raw, "tie_word_embeddings", False),
    }


def rotary_to_hf(config: RotaryConfig) -> dict[str, Any]:
    """The same as config.json has it."""
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.width,
        "intermediate_size": config.mlp_width,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_size,
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tied_head,
    }


def windowed_layers(raw: Raw, num_layers: int) -> tuple[int | None, tuple[bool, ...]]:
    """Qwen's window and which layers have it: by ``layer_types``, or all from ``max_window_layers`` on."""
    window = raw.get("sliding_window") if boolean(raw, "use_sliding_window", False) else None
    if window is None:
        return None, ()
    types = raw.get("layer_types")
    if types is None:
        first = raw.get("max_window_layers", 28)
        return integer(raw, "sliding_window"), tuple(index >= first for index in range(num_layers))
    return integer(raw, "sliding_window"), layer_types(types, num_layers)


def layer_types(types: Any, num_layers: int) -> tuple[bool, ...]:
    """Which layers have the window, by the names of their types."""
    known = {"sliding_attention": True, "full_attention": False}
    if not isinstance(types, list) or len(types) != num_layers or not set(types) <= known.keys():
        raise LoadError(
            f"layer_types is {types!r} in config.json; expected {num_layers} entries, each of {', '.join(known)}"
        )
    return tuple(known[kind] for kind in types)


def windowed_to_hf(windowed: tuple[bool, ...], num_layers: int) -> list[str]:
    """``layer_types``."""
    return ["sliding_attention" if has else "full_attention" for has in windowed or (False,) * num_layers]
