"""GPT-2: learned positions, norms with a mean and a bias, biases everywhere, a plain feed-forward layer."""

import dataclasses
from collections.abc import Callable
from typing import Any

from flax import nnx

from . import hf_config
from .blocks import MLP, Attention, PreNormLayer, gelu_tanh
from .decoder import Decoder, Kind
from .family import Build, Family
from .gguf_file import GGUFFile
from .gguf_weights import Metadata
from .gguf_weights import tensors_from_gguf as renamed_tensors
from .layers import LayerNorm, PositionedEmbedding, head
from .leaves import Heads, Leaf, Spec, joined, same, transposed
from .stack import make_layers
from .weights import Tensors, renamed

_GGUF_TOP = {
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
    "lm_head": "output",
}
_GGUF_LAYER = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
# Causal masks that old checkpoints store.
_BUFFERS = (".attn.bias", ".attn.masked_bias")


@dataclasses.dataclass(frozen=True)
class GPT2Config:
    """The shape of a model of the family."""

    vocab_size: int
    """V, the width of the logits."""
    width: int
    """D."""
    mlp_width: int
    num_layers: int
    num_heads: int
    """N, a divisor of D; each has its own key and value."""
    max_positions: int
    """Rows of the table of positions."""
    norm_eps: float = 1e-5
    tied_head: bool = True
    """The logits use the embedding as their weight."""

    def __post_init__(self):
        if self.num_heads < 1 or self.width % self.num_heads:
            raise ValueError(f"width is {self.width} and num_heads {self.num_heads}; expected a multiple of it")

    @property
    def num_kv_heads(self) -> int:
        """As many as query heads."""
        return self.num_heads

    @property
    def head_size(self) -> int:
        """H."""
        return self.width // self.num_heads


def build(config: GPT2Config, build: Build) -> Decoder:
    dtype, rngs, D = build.dtype, build.rngs, config.width

    def layer(stack: tuple[int, ...]) -> nnx.Module:
        common = {"stack": stack, "dtype": dtype}
        return PreNormLayer(
            attention_norm=LayerNorm(D, eps=config.norm_eps, **common),
            attention=Attention(
                D,
                config.num_heads,
                config.num_heads,
                config.head_size,
                qkv_bias=True,
                out_bias=True,
                rngs=rngs,
                **common,
            ),
            mlp_norm=LayerNorm(D, eps=config.norm_eps, **common),
            mlp=MLP(D, config.mlp_width, activation=gelu_tanh, rngs=rngs, **common),
        )

    return Decoder(
        embedding=PositionedEmbedding(config.vocab_size, config.max_positions, D, dtype=dtype, rngs=rngs),
        layers=make_layers(layer, config.num_layers, build.layers),
        kinds=[Kind()] * config.num_layers,
        norm=LayerNorm(D, eps=config.norm_eps, dtype=dtype),
        head=None if config.tied_head else head(D, config.vocab_size, dtype=dtype, rngs=rngs),
    )


def spec(config: GPT2Config) -> Spec:
    """Of Hugging Face's files, where this family alone stores the weights of layers [in, out]."""
    D, N, H = config.width, config.num_heads, config.head_size
    qkv = Leaf(
        ("attention", "qkv", "weight"),
        (N, 3, H, D),
        {"attn.c_attn.weight": (D, 3 * D)},
        lambda array: [[array.transpose(3, 1, 0, 2)]],
    )
    return _spec(config, qkv, transposed)


def spec_of_gguf(config: GPT2Config) -> Spec:
    """Of GGUF files, where they are [out, in]."""
    return _spec(
        config, _qkv(config, "weight", (config.width,)), lambda path, name, shape: same(path, name, shape[::-1])
    )


def _qkv(config: GPT2Config, kind: str, rest: tuple[int, ...]) -> Leaf:
    heads = Heads(config.num_heads, config.num_heads, config.head_size)
    return joined(heads.leaf(f"attention.qkv.{kind}", "qkv", rest), f"attn.c_attn.{kind}")


def _spec(config: GPT2Config, qkv: Leaf, weight: Callable[[str, str, tuple[int, int]], Leaf]) -> Spec:
    """``weight(path, name, [in, out])`` is a weight as the files store it."""
    D, F, V = config.width, config.mlp_width, config.vocab_size
    top = [
        same("embedding.weight", "transformer.wte.weight", (V, D)),
        same("embedding.positions", "transformer.wpe.weight", (config.max_positions, D)),
        *_pair("norm", "transformer.ln_f", D),
    ]
    if not config.tied_head:
        top.append(same("head.weight", "lm_head.weight", (V, D)))
    layer = [
        *_pair("attention_norm", "ln_1", D),
        qkv,
        _qkv(config, "bias", ()),
        weight("attention.out.weight", "attn.c_proj.weight", (D, D)),
        same("attention.out.bias", "attn.c_proj.bias", (D,)),
        *_pair("mlp_norm", "ln_2", D),
        weight("mlp.up.weight", "mlp.c_fc.weight", (D, F)),
        same("mlp.up.bias", "mlp.c_fc.bias", (F,)),
        weight("mlp.down.weight", "mlp.c_proj.weight", (F, D)),
        same("mlp.down.bias", "mlp.c_proj.bias", (D,)),
    ]
    return Spec(top, layer, "transformer.h.{}.", config.num_layers)


def _pair(path: str, name: str, size: int) -> list[Leaf]:
    return [same(f"{path}.{kind}", f"{name}.{kind}", (size,)) for kind in ("weight", "bias")]


def config_from_hf(raw: hf_config.Raw) -> GPT2Config:
    hf_config.refuse_quantised(raw)
    hf_config.check_activation(raw, "activation_function", "gelu_new", ("gelu_new", "gelu_pytorch_tanh"))
    hf_config.refuse(raw, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    width = hf_config.integer(raw, "n_embd", 768)
    return GPT2Config(
        vocab_size=hf_config.integer(raw, "vocab_size"),
        width=width,
        mlp_width=hf_config.integer(raw, "n_inner", 4 * width),
        num_layers=hf_config.integer(raw, "n_layer", 12),
        num_heads=hf_config.integer(raw, "n_head", 12),
        max_positions=hf_config.integer(raw, "n_positions", 1024),
        norm_eps=hf_config.number(raw, "layer_norm_epsilon", 1e-5),
        tied_head=hf_config.boolean(raw, "tie_word_embeddings", True),
    )


def config_to_hf(config: GPT2Config) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_embd": config.width,
        "n_inner": config.mlp_width,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_positions": config.max_positions,
        "n_ctx": config.max_positions,
        "layer_norm_epsilon": config.norm_eps,
        "activation_function": "gelu_new",
        "tie_word_embeddings": config.tied_head,
    }


def tensors_from_hf(tensors: Tensors) -> Tensors:
    """The first checkpoints were saved without the prefix, and with their masks."""

    def rename(name: str) -> str | None:
        if name.endswith(_BUFFERS):
            return None
        return name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}"

    return renamed(tensors, rename)


def config_from_gguf(file: GGUFFile) -> GPT2Config:
    data = Metadata(file, "gpt2")
    shape = data.shape()
    return GPT2Config(
        **{key: shape[key] for key in ("vocab_size", "width", "mlp_width", "num_layers", "num_heads", "max_positions")},
        norm_eps=data.get("attention.layer_norm_epsilon"),
        tied_head=data.tied_head(),
    )


def tensors_from_gguf(file: GGUFFile, config: GPT2Config) -> Tensors:
    return renamed_tensors(file, spec_of_gguf(config), top=_GGUF_TOP, layer=_GGUF_LAYER)


GPT2 = Family(
    config=GPT2Config,
    build=build,
    config_from_hf=config_from_hf,
    config_to_hf=config_to_hf,
    config_from_gguf=config_from_gguf,
    tensors_from_gguf=tensors_from_gguf,
    spec=spec,
    spec_of_gguf=spec_of_gguf,
    tensors_from_hf=tensors_from_hf,
)
