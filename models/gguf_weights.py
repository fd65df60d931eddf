"""What the GGUF files of several families say in the same way."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from .config import every
from .errors import LoadError
from .gguf_file import GGUFFile
from .leaves import Spec
from .weights import Tensors, row_blocks

ROPE_FACTORS = "rope_freqs.weight"

TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Names of most families, below the layer's index."""


class Metadata:
    """The keys of one architecture."""

    def __init__(self, file: GGUFFile, architecture: str):
        self.file = file
        self.architecture = architecture

    def get(self, key: str, *default: Any) -> Any:
        """The value; without a default, a LoadError where there is none."""
        return self.file.get(f"{self.architecture}.{key}", *default)

    def shape(self) -> dict[str, Any]:
        """The fields that every configuration has."""
        if self.get("expert_count", 0):
            raise LoadError(
                f"{self.file.path} is a mixture of {self.get('expert_count')} experts, which is not supported"
            )
        width, heads = self.get("embedding_length"), self.get("attention.head_count")
        groups, inner = self.get("attention.head_count_kv", heads), self.get("feed_forward_length")
        if not all(isinstance(value, int) for value in (heads, groups, inner)):
            raise LoadError(
                f"{self.file.path} has a number of heads or a width for each layer, which is not supported; expected "
                "one for all"
            )
        return {
            "vocab_size": self.vocab_size(),
            "width": width,
            "mlp_width": inner,
            "num_layers": self.get("block_count"),
            "num_heads": heads,
            "num_kv_heads": groups,
            "head_size": self.get("attention.key_length", width // heads),
            "max_positions": self.get("context_length"),
        }

    def vocab_size(self) -> int:
        """The rows of the embedding, for few files have a key for it."""
        if "token_embd.weight" not in self.file.tensors:
            raise LoadError(f"{self.file.path} has no tensor token_embd.weight; expected a whole language model")
        return self.file.shape("token_embd.weight")[0]

    def check_head_size(self, head_size: int, keys: tuple[str, ...]) -> None:
        """Keys that could say something else than the head size, and must not."""
        for key in keys:
            if self.get(key, head_size) != head_size:
                name, got = f"{self.architecture}.{key}", self.get(key)
                raise LoadError(f"{name} of {self.file.path} is {got}; expected the head size, {head_size}")

    def rope_factors(self, size: int) -> tuple[float, ...] | None:
        """What each frequency is divided by: a tensor, or one number for all."""
        kind = self.get("rope.scaling.type", "linear")  # as llama.cpp takes it where only the factor stands
        factor = float(self.get("rope.scaling.factor", self.get("rope.scale_linear", 1.0)) or 1.0)
        tensor = ROPE_FACTORS in self.file.tensors
        if kind not in ("none", "linear") or (tensor and kind == "linear" and factor != 1):
            beside = f" beside {ROPE_FACTORS}" if tensor else ""
            raise LoadError(
                f"{self.file.path} has the rope scaling {kind!r}{beside}, which is not supported; expected none, "
                f"linear, or the factors of Llama 3 in {ROPE_FACTORS}"
            )
        if tensor:
            found = self.file.shape(ROPE_FACTORS)
            if found != (size // 2,):  # before it is read, however large it is
                raise LoadError(
                    f"{ROPE_FACTORS} of {self.file.path} is {list(found)}; expected {[size // 2]}, one for each rotary "
                    "frequency"
                )
            return tuple(self.file.read(ROPE_FACTORS).astype(float).tolist())
        return None if kind == "none" or factor == 1 else (factor,) * (size // 2)

    def window(self) -> int | None:
        """Tokens that a token sees in layers with a window; few converters say it for others than Gemma and Phi."""
        return self.get("attention.sliding_window", 0) or None

    def windowed(self, num_layers: int) -> tuple[bool, ...] | None:
        """Which layers have the window, one by one or as a period; None where the file does not say."""
        pattern = self.get("attention.sliding_window_pattern", None)
        if pattern is None:
            return None
        return tuple(map(bool, pattern)) if isinstance(pattern, list) else every(pattern, num_layers)

    def norm_eps(self) -> float:
        return self.get("attention.layer_norm_rms_epsilon")

    def rope_theta(self) -> float:
        return float(self.get("rope.freq_base", 10000.0))

    def tied_head(self) -> bool:
        return "output.weight" not in self.file.tensors


class Mend(NamedTuple):
    """What has to be done to the values of a tensor."""

    values: Callable[[np.ndarray], np.ndarray]
    """From some rows as the file has them to the same rows as Hugging Face's files have them."""
    rows: int = 1
    """They come so many at a time, or a multiple of it."""


AS_IT_IS = Mend(lambda rows: rows)


def tensors_from_gguf(
    file: GGUFFile,
    spec: Spec,
    *,
    top: Mapping[str, str] = TOP,
    layer: Mapping[str, str] = LAYER,
    mend: Callable[[str], Mend] = lambda name: AS_IT_IS,
) -> Tensors:
    """A file's tensors under Hugging Face's names.

    Args:
        file: where they are.
        spec: what the model needs.
        top: names in the file by Hugging Face's, without their kind.
        layer: the same for the names below a layer's index.
        mend: for a tensor by Hugging Face's name, what makes its values those of Hugging Face's files.
    """
    to_gguf: dict[str, str] = {}
    for leaf in spec.top:
        to_gguf |= {name: _moved(name, top) for name in leaf.parts}
    for leaf in spec.layer:
        for part in leaf.parts:
            there = _moved(part, layer)
            to_gguf |= {spec.name(part, index): f"blk.{index}.{there}" for index in range(spec.num_layers)}
    known = {*to_gguf.values(), ROPE_FACTORS}

    shapes = {name: file.shape(there) for name, there in to_gguf.items() if there in file.tensors}
    shapes |= {name: file.shape(name) for name in file.tensors if name not in known}

    def blocks(name: str) -> Iterator[np.ndarray]:
        mended = mend(name)
        for rows in row_blocks(shapes[name], mended.rows):
            yield mended.values(file.read(to_gguf[name], rows))

    return Tensors(str(file.path), shapes, blocks)


def _moved(name: str, names: Mapping[str, str]) -> str:
    stem, _, kind = name.rpartition(".")
    return f"{names[stem]}.{kind}"


def half_split(size: int) -> Mend:
    """llama.cpp turns neighbouring rows of a head of ``size`` rows as a pair; here, as in Hugging Face's files, row i
    pairs with i + size / 2."""

    def split(rows: np.ndarray) -> np.ndarray:
        pairs = rows.reshape(-1, size // 2, 2, *rows.shape[1:])
        return pairs.swapaxes(1, 2).reshape(rows.shape)

    return Mend(split, rows=size)
