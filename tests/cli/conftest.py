"""A model of a few kilobytes in a Hugging Face directory, with a tokenizer of whole words and a chat template."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from jobs import SMALL, TEXTS, answers
from safetensors.numpy import save_file

from specdec_jax.cli import main

WORDS = [
    "<unk>",
    "<end>",
    "<user>",
    "<assistant>",
    "a",
    "b",
    "c",
    "d",
    "e",
    "f",
    "g",
    "h",
    "i",
    "j",
    "k",
    "l",
    "m",
    "n",
    "o",
    "p",
]
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": len(WORDS),
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def write_model(
    folder: Path,
    *,
    words: list[str] = WORDS,
    template: str | None = TEMPLATE,
    seed: int = 0,
    heads: int = 2,
    kv_heads: int = 1,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    changes = {"vocab_size": len(words), "num_attention_heads": heads, "num_key_value_heads": kv_heads}
    config = CONFIG | changes
    (folder / "config.json").write_text(json.dumps(config))
    draw = np.random.default_rng(seed)
    D, F, N, G, H = 16, 24, heads, kv_heads, 16 // heads
    shapes = {
        "self_attn.q_proj": (N * H, D),
        "self_attn.k_proj": (G * H, D),
        "self_attn.v_proj": (G * H, D),
        "self_attn.o_proj": (D, N * H),
        "mlp.gate_proj": (F, D),
        "mlp.up_proj": (F, D),
        "mlp.down_proj": (D, F),
    }
    weights = {f"model.layers.0.{name}.weight": draw.normal(size=shape) * 0.5 for name, shape in shapes.items()}
    for name in ("model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm", "model.norm"):
        weights[f"{name}.weight"] = np.ones(D)
    weights["model.embed_tokens.weight"] = draw.normal(size=(len(words), D))
    save_file({name: value.astype(np.float32) for name, value in weights.items()}, folder / "model.safetensors")

    vocabulary = {word: token for token, word in enumerate(words)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<end>"} | ({} if template is None else {"chat_template": template})
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """The directory of the model."""
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def other(tmp_path_factory) -> Callable[..., Path]:
    """Makes directories of other models."""

    def make(name: str, **changes) -> Path:
        return write_model(tmp_path_factory.mktemp("models") / name, **changes)

    return make


@pytest.fixture
def write_lines(tmp_path) -> Callable[..., Path]:
    """Writes a file of these lines; objects become JSON."""

    def write(*lines: str | dict, name: str = "prompts.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        return path

    return write


@pytest.fixture
def prompts(write_lines) -> Path:
    return write_lines(*({"prompt": text, "id": f"no {place}"} for place, text in enumerate(TEXTS)))


@pytest.fixture
def run(tiny, prompts, tmp_path, capsys):
    """Runs the job; returns its status and its messages."""

    def call(*args, output="out", prompt_file=prompts):
        command = ["generate", "--target", str(tiny), "--prompt-file", str(prompt_file), *SMALL]
        status = main([*command, "--output", str(tmp_path / output), *map(str, args)])
        out, err = capsys.readouterr()
        assert out == ""
        return status, err

    return call


@pytest.fixture
def undisturbed(run, tmp_path):
    assert run(output="undisturbed")[0] == 0
    return answers(tmp_path / "undisturbed" / "answers.jsonl")


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "out" / "answers.jsonl"
