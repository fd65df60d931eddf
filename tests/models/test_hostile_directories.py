"""A Hugging Face directory may claim anything: it is refused at once, no memory is taken, and no other file is read."""

import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from specdec_jax import models
from specdec_jax.models import LoadError

HUGE = 2**60
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SOUND = '{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}'


def edit(path: Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def safetensors(header: object, *, size: int | None = None, data: bytes = bytes(64)) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if size is None else size) + raw + data


def entry(shape: list[int], start: int, end: int, kind: str = "F32") -> dict:
    return {"dtype": kind, "shape": shape, "data_offsets": [start, end]}


FILES = {
    "a header of a gigabyte": safetensors({}, size=2**30),
    "a header without end": safetensors({}, size=2**64 - 1),
    "a truncated header": safetensors(b'{"a": {"dtype": "F32", "sha', data=b""),
    "a header cut off": safetensors({"a": entry([4], 0, 16)})[:20],
    "less than a length": b"\x08\0\0",
    "a shape": safetensors({"a": entry([HUGE, HUGE], 0, 64)}),
    "a shape of another size": safetensors({"a": entry([17], 0, 64)}),
    "a negative size": safetensors({"a": entry([-4, -4], 0, 64)}),
    "an offset past the end": safetensors({"a": entry([HUGE], 0, 4 * HUGE)}),
    "an end past the end": safetensors({"a": entry([17], 0, 68)}),
    "a backward place": safetensors({"a": entry([4], 16, 0)}),
    "an overlap": safetensors({"a": entry([12], 0, 48), "b": entry([8], 32, 64)}),
    "a hole": safetensors({"a": entry([4], 0, 16), "b": entry([4], 48, 64)}),
    "a type": safetensors({"a": entry([16], 0, 64, "F99")}),
    "a nest": safetensors(b'{"a":' * 100_000),
    "no text": safetensors(b"\xff" * 64),
}


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_safetensors(data, folder):
    (folder / WEIGHTS).write_bytes(data)
    with pytest.raises(LoadError, match=r"cannot read .* as safetensors .* download it again"):
        models.load(folder)


@pytest.mark.parametrize(
    "name",
    [
        "../../secret.safetensors",
        "/etc/passwd",
        "/tmp/secret.safetensors",
        "sub/model.safetensors",
        "..\\secret.safetensors",
        "C:secret.safetensors",
        "model\0.safetensors",
        "..",
        "",
        INDEX,
        "config.json",
        7,
        None,
        ["model.safetensors"],
    ],
)
def test_an_index_names_only_shards_beside_it(name, folder, tmp_path):
    save_file({"a": np.zeros(3, np.float32)}, tmp_path / "secret.safetensors")
    (folder / WEIGHTS).unlink()
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(LoadError, match=r"lists the shard .*; expected the plain name of a .safetensors file"):
        models.load(folder)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("value", [None, [], "model.safetensors", 3])
def test_an_index_without_a_map(value, folder):
    (folder / WEIGHTS).unlink()
    (folder / INDEX).write_text(json.dumps({"weight_map": value}))
    with pytest.raises(LoadError, match=r"has no weight_map; expected the shard of each tensor"):
        models.load(folder)


def test_an_index_of_nothing(folder):
    (folder / WEIGHTS).unlink()
    (folder / INDEX).write_text('{"weight_map": {}}')
    with pytest.raises(LoadError, match=r"num_hidden_layers of .* is 3, but it has only 0 tensors"):
        models.load(folder)


def test_a_tensor_in_two_shards(folder):
    (folder / WEIGHTS).unlink()
    for name in ("x.safetensors", "y.safetensors"):
        save_file({"a": np.zeros(3, np.float32)}, folder / name)
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}))
    with pytest.raises(LoadError, match=r"tensor a is in .*x.safetensors and in .*y.safetensors; expected it once"):
        models.load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers of .* is 1000000000, but it has only 30 tensors"),
        ({"vocab_size": 10**12}, "vocab_size of .* is 1000000000000, but no side of its tensors is longer than 97"),
        ({"hidden_size": 10**12}, "hidden_size of .* but no side of its tensors is longer"),
        ({"intermediate_size": 10**30}, "intermediate_size of .* but no side of its tensors is longer"),
        ({"head_dim": 2**40}, "head_dim of .* but no side of its tensors is longer"),
        ({"num_attention_heads": 2**40}, "num_attention_heads of .* but no side of its tensors is longer"),
        ({"max_position_embeddings": 10**18}, "max_position_embeddings of .* but positions go up to 2147483647"),
        ({"text_config": {"vocab_size": 10**12}}, "vocab_size of .* but no side"),
        ({"architectures": 7}, "architectures of .* is 7; expected a list of names"),
        ({"architectures": {"a": "b"}}, "architectures of .* is {'a': 'b'}; expected a list of names"),
        ({"architectures": [["LlamaForCausalLM"]]}, r"is \[\['LlamaForCausalLM'\]\]; expected a list of names"),
        ({"architectures": "LlamaForCausalLM"}, "is 'LlamaForCausalLM'; expected a list of names"),
        ({"rope_parameters": "llama3"}, "makes no sense .AttributeError"),
        ({"quantization_config": [1]}, r"quantised with \[1\], which is not supported"),
        ({"rms_norm_eps": "small"}, "expected a number"),
        ({"num_attention_heads": 4.0}, "num_attention_heads is 4.0"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings in config.json is 'false'; expected true or false"),
    ],
)
def test_configs(changes, message, folder):
    edit(folder / "config.json", **changes)
    with pytest.raises(LoadError, match=message):
        models.load(folder)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"a": 1' + "0" * 5000 + "}", "\xff", '"x"'])
def test_json_that_is_none(text, folder):
    (folder / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(LoadError, match=r"config.json"):
        models.load(folder)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("config.json", 2**26),
        ("tokenizer.json", 2**26),
        ("tokenizer_config.json", 2**26),
        ("generation_config.json", 2**26),
        ("chat_template.jinja", 2**20),
    ],
)
def test_a_file_larger_than_any(name, most, folder):
    (folder / "tokenizer.json").write_text(SOUND)
    with (folder / name).open("wb") as file:
        file.truncate(2**34)  # takes no room on the disk
    with pytest.raises(LoadError, match=rf"cannot read .*{name} .*it has 17179869184 bytes, more than {most}"):
        models.load(folder)


EMPTY = {"x": entry([10**12, 0], 0, 0)} | {f"y{i}": entry([0], 0, 0) for i in range(99)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head_dim": 10**10}, "head_dim of .* is 10000000000, but no side of its tensors is longer than 0"),
        ({"num_hidden_layers": 50}, "num_hidden_layers of .* is 50, but it has only 0 tensors"),
    ],
)
def test_tensors_without_elements_are_no_evidence(changes, message, folder):
    """They take no bytes, whatever their shape claims."""
    (folder / WEIGHTS).write_bytes(safetensors(EMPTY, data=b""))
    edit(folder / "config.json", **changes)
    with pytest.raises(LoadError, match=message):
        models.load(folder)


@pytest.mark.parametrize("shape", [[], [5, 0], [96, 32]])
def test_a_second_copy_of_an_embedding_of_another_shape(shape, folder):
    """Copies of a tied embedding are compared, but not of what is none."""
    edit(folder / "config.json", tie_word_embeddings=True)
    tensors = load_file(folder / WEIGHTS)
    tensors |= dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), np.zeros(shape, np.float32))
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(LoadError, match=rf"1 of another shape: model.embed_tokens.weight is {re.escape(str(shape))} "):
        models.load(folder)


def test_a_wide_head_where_there_are_no_tensors(folder):
    edit(folder / "config.json", head_dim=10**10, rope_parameters={"rope_type": "linear", "factor": 2.0})
    with pytest.raises(LoadError, match=r"heads of config.json are 10000000000 wide; expected at most 65536"):
        models.config_from_json(folder / "config.json")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tokenizer.json", json.dumps({"model": "a" * 10**6})),
        ("config.json", json.dumps({"architectures": ["a" * 10**6]})),
        ("config.json", json.dumps({"a" * 10**6: 1, "model_type": "llama", "vocab_size": "b" * 10**6})),
    ],
)
def test_a_message_quotes_little_of_a_file(file, text, folder):
    (folder / file).write_text(text)
    with pytest.raises(LoadError) as caught:
        models.load(folder)
    assert len(str(caught.value)) < 5000
