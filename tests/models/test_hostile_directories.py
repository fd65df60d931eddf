"""A Hugging Face directory may claim anything: it is refused at once, no memory is taken, and no other file is read."""

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from specdec_jax import models
from specdec_jax.models import LoadError

HUGE = 2**60
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


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


SOUND = '{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}'


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


TOKENIZERS = {
    "garbage": "not JSON at all",
    "a nest": "[" * 100_000,
    "a nest of objects": '{"model":' * 100_000,
    "a list": "[]",
    "an unknown model": '{"model": {"type": "Magic"}}',
    "an id": '{"model": {"type": "WordLevel", "vocab": {"a": 4294967296}, "unk_token": "a"}}',
    "a negative id": '{"model": {"type": "WordLevel", "vocab": {"a": -1}, "unk_token": "a"}}',
    "a merge that makes no token": '{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}}',
    "a map of characters": '{"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}, "model": '
    '{"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}',
    "a merge of nothing": '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["x y"]}}',
}


@pytest.mark.parametrize("text", TOKENIZERS.values(), ids=TOKENIZERS)
def test_tokenizers(text, folder):
    (folder / "tokenizer.json").write_text(text)
    with pytest.raises(LoadError, match=r"cannot read .*tokenizer.json as a tokenizer .*; download it again"):
        models.load(folder)


@pytest.mark.parametrize(
    "tokenizer",
    [
        {"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": None}},
        {
            "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {},
            },
        },
    ],
    ids=["no unknown token", "a special token that is none"],
)
def test_a_tokenizer_that_fails_at_a_text(tokenizer, folder):
    """Even where the library behind it panics: that is no Exception."""
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(LoadError, match=r"(fails at a text|cannot read) .*download it again"):
        models.load(folder)


@pytest.mark.parametrize("kind", ["WordPiece", "WordLevel"])
def test_a_vocabulary_without_its_unknown_token(kind, folder):
    model = {"type": kind, "vocab": {"a": 0}, "unk_token": "[UNK]"}
    more = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100} if kind == "WordPiece" else {}
    (folder / "tokenizer.json").write_text(json.dumps({"model": model | more}))
    with pytest.raises(LoadError, match=r"lacks its unknown token, '\[UNK\]', without which"):
        models.load(folder)


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("config.json", {"eos_token_id": "2"}, "eos_token_id of .*config.json has '2'; expected a token id or a list"),
        ("config.json", {"bos_token_id": -1}, "bos_token_id of .*config.json has -1; expected a token id or a list"),
        ("generation_config.json", {"eos_token_id": [2, 2**40]}, "generation_config.json has 1099511627776; expected"),
        ("tokenizer_config.json", {"eos_token": 7}, "eos_token in .*tokenizer_config.json is 7; expected a text"),
        (
            "special_tokens_map.json",
            {"eos_token": [7]},
            r"eos_token in .*special_tokens_map.json is \[7\]; expected a t",
        ),
        ("tokenizer_config.json", {"chat_template": 7}, "chat_template in .* is a int; expected a text, or a list"),
        ("tokenizer_config.json", {"chat_template": [7]}, "makes no sense .TypeError"),
        ("tokenizer_config.json", {"chat_template": [{"name": "default"}]}, "makes no sense .KeyError"),
        ("tokenizer_config.json", {"chat_template": "{% for %}"}, "the chat template does not parse, at its line 1"),
        ("tokenizer_config.json", {"chat_template": "{{" + "(" * 9999}, "makes no sense"),
    ],
)
def test_what_lies_beside_a_tokenizer(file, changes, message, folder):
    (folder / "tokenizer.json").write_text(SOUND)
    if not (folder / file).exists():
        (folder / file).write_text("{}")
    edit(folder / file, **changes)
    with pytest.raises(LoadError, match=message):
        models.load(folder)


def test_an_id_that_would_fill_the_memory(folder):
    """A list of all ids is as long as the largest, so the largest is held against the logits first."""
    vocabulary = '{"model": {"type": "WordLevel", "vocab": {"a": 4294967295}, "unk_token": "a"}}'
    (folder / "tokenizer.json").write_text(vocabulary)
    with pytest.raises(LoadError, match=r"has 4294967296 tokens, but its logits are 97 wide"):
        models.load(folder)


CHILD = """
import resource, sys
from specdec_jax import models
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
models.load(sys.argv[1])
before = peak()
for path in sys.argv[2:]:
    try:
        models.load(path)
    except models.LoadError:
        continue
    sys.exit(f"{path} was loaded")
print((peak() - before) / 1024)
"""


def test_no_large_allocation(saved, tmp_path):
    """Over all the memory of a process, for much of the reading is not Python's."""
    folders = []
    for number, data in enumerate(FILES.values()):
        folders.append(shutil.copytree(saved, tmp_path / f"weights{number}"))
        (folders[-1] / WEIGHTS).write_bytes(data)
    sizes = ({"num_hidden_layers": 10**9}, {"head_dim": 2**40}, {"vocab_size": 10**12}, {"hidden_size": 2**31})
    wide = {"head_dim": 2 * 10**8, "num_hidden_layers": 1, "rope_parameters": {"rope_type": "linear", "factor": 2.0}}
    for number, changes in enumerate((*sizes, wide)):
        folders.append(shutil.copytree(saved, tmp_path / f"sizes{number}"))
        edit(folders[-1] / "config.json", **changes)
    (folders[-1] / WEIGHTS).write_bytes(safetensors(EMPTY, data=b""))
    template = '{{ "a" * 1000000000 }}{{ "a" | center(1000000000) }}{{ 10 ** 100000000 }}{% for %}'
    for number, (tokenizer, chat) in enumerate([(TOKENIZERS["a nest"], ""), (TOKENIZERS["an id"], ""), ("", template)]):
        folders.append(shutil.copytree(saved, tmp_path / f"tokenizer{number}"))
        (folders[-1] / "tokenizer.json").write_text(tokenizer or SOUND)
        (folders[-1] / "chat_template.jinja").write_text(chat)
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r}){CHILD}", str(saved), *map(str, folders)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 64, "mebibytes"
