"""Mistral: Llama with a sliding window. Its GGUF files call themselves llama, and few mention the window."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from . import llama
from .hf_config import integer


def config_from_hf(raw: Mapping[str, Any]) -> llama.LlamaConfig:
    # What transformers takes where nothing is said; a window of null is none at all.
    raw = {"num_key_value_heads": 8, "sliding_window": 4096, **raw}
    window = None if raw["sliding_window"] is None else integer(raw, "sliding_window")
    return dataclasses.replace(llama.config_from_hf(raw), sliding_window=window)


MISTRAL = llama.LLAMA._replace(config_from_hf=config_from_hf)
