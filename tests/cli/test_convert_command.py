"""``specdec convert``: what it writes loads again, bit for bit, with its tokenizer, and it destroys nothing."""

import importlib
import json
import os
import shutil
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from specdec_jax import models
from specdec_jax.cli import main
from specdec_jax.models.new_directory import new_directory


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_directory_becomes_another(dtype, tiny, tmp_path):
    (tmp_path / "empty").mkdir()
    assert main(["convert", str(tiny), str(tmp_path / "empty"), "--dtype", dtype]) == 0
    want = models.load(tiny, dtype=dtype)
    got = models.load(tmp_path / "empty", dtype=dtype)
    assert got.config == want.config
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), got.params, want.params)))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "empty" / name).read_bytes() == (tiny / name).read_bytes()
    assert json.loads((tmp_path / "empty" / "config.json").read_text())["dtype"] == dtype


def test_a_directory_becomes_a_checkpoint_and_a_directory_again(tiny, tmp_path, capsys):
    """Bit for bit, with its tokenizer."""
    assert main(["convert", str(tiny), str(tmp_path / "checkpoint"), "--format", "orbax"]) == 0
    assert f"{tmp_path / 'checkpoint'}: {tiny} in float32, as orbax" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "checkpoint"), str(tmp_path / "again")]) == 0
    want = models.load(tiny, dtype=jnp.float32)
    for place in ("checkpoint", "again"):
        got = models.load(tmp_path / place, dtype=jnp.float32)
        assert got.config == want.config
        assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), got.params, want.params)))
        assert got.tokenizer is not None
        assert want.tokenizer is not None
        assert got.tokenizer.encode_chat([{"role": "user", "content": "the cat"}]) == want.tokenizer.encode_chat(
            [{"role": "user", "content": "the cat"}]
        )
        assert got.tokenizer.eos_ids == want.tokenizer.eos_ids
    assert main(["convert", str(tiny), str(tmp_path / "again"), "--format", "orbax"]) == 2


@pytest.mark.parametrize("form", ["huggingface", "orbax"])
def test_what_belongs_to_a_drafter_comes_along(form, tiny, tmp_path):
    """Its draft vocabulary; and -1 for no padding, which early conversions of Llama have, is none."""
    source = tmp_path / "source"
    shutil.copytree(tiny, source)
    (source / "draft_vocabulary.json").write_text('{"ids": [4, 5]}')
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"pad_token_id": -1}))
    assert main(["convert", str(source), str(tmp_path / "out"), "--format", form]) == 0
    assert (tmp_path / "out" / "draft_vocabulary.json").read_text() == '{"ids": [4, 5]}'
    if form == "huggingface":
        assert json.loads((tmp_path / "out" / "config.json").read_text())["pad_token_id"] is None


@pytest.mark.parametrize("layers", ["stacked", "unrolled"])
def test_a_checkpoint_becomes_a_directory(layers, tiny, tmp_path):
    want = models.load(tiny, dtype=jnp.float32, layers=layers)
    models.save_checkpoint(tmp_path / "checkpoint", want.config, want.params)
    assert main(["convert", str(tmp_path / "checkpoint"), str(tmp_path / "out")]) == 0
    got = models.load(tmp_path / "out", dtype=jnp.float32, layers=layers)
    assert got.config == want.config
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), got.params, want.params)))


@pytest.mark.heavy
def test_a_gguf_file_becomes_a_directory(tmp_path, smollm2):
    assert main(["convert", "smollm2-135m", str(tmp_path / "out"), "--dtype", "bfloat16"]) == 0
    got = models.load(tmp_path / "out", dtype=jnp.bfloat16, layers="unrolled")
    same = jax.tree.map(lambda a, b: bool((a == b.astype(a.dtype)).all()), got.params, smollm2.params)
    assert all(jax.tree.leaves(same))
    assert got.tokenizer is not None
    assert got.tokenizer.eos_ids == smollm2.tokenizer.eos_ids
    messages = [{"role": "user", "content": "Naïve café, 12 of them?"}]
    ids = smollm2.tokenizer.encode_chat(messages)
    assert got.tokenizer.encode_chat(messages) == ids
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert theirs.apply_chat_template(messages, add_generation_prompt=True)["input_ids"] == ids
    network = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert network.generation_config is not None
    ends = network.generation_config.eos_token_id
    assert tuple(ends if isinstance(ends, list) else [ends]) == smollm2.tokenizer.eos_ids
    weight = network.model.layers[3].self_attn.q_proj.weight.detach().float().numpy()
    mine = np.asarray(got.params["layers"][3]["attention"]["qkv"]["weight"][:, :-2].astype(jnp.float32))
    np.testing.assert_array_equal(weight, mine.reshape(weight.shape))


def test_special_tokens_without_a_tokenizer(tiny, tmp_path):
    """config.json is then the only one that knows them."""
    config = json.loads((tiny / "config.json").read_text()) | {"eos_token_id": [2, 5], "bos_token_id": 1}
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(config))
    (tmp_path / "theirs" / "model.safetensors").write_bytes((tiny / "model.safetensors").read_bytes())
    assert main(["convert", str(tmp_path / "theirs"), str(tmp_path / "ours")]) == 0
    got = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert (got["eos_token_id"], got["bos_token_id"], got["pad_token_id"]) == ([2, 5], 1, config.get("pad_token_id"))


def test_a_directory_of_the_same_name_lends_nothing(tiny, tmp_path, monkeypatch):
    """A short name is what `load` takes it for, wherever the command runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models.names, "_packaged", lambda name: tiny)
    (tmp_path / "smollm2-135m").mkdir()
    (tmp_path / "smollm2-135m" / "tokenizer.json").write_text('{"junk": 1}')
    assert main(["convert", "smollm2-135m", "out"]) == 0
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (tiny / "tokenizer.json").read_bytes()


def test_a_padding_token_stays(tiny, tmp_path):
    shutil.copytree(tiny, tmp_path / "theirs")
    config = json.loads((tiny / "config.json").read_text()) | {"pad_token_id": 5}
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(config))
    assert main(["convert", str(tmp_path / "theirs"), str(tmp_path / "ours")]) == 0
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["pad_token_id"] == 5


def test_a_link_to_an_empty_directory(tiny, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    assert main(["convert", str(tiny), str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink()
    assert models.load(tmp_path / "disk").config == models.load(tiny).config


def test_a_command_that_is_terminated_leaves_nothing(tiny, tmp_path, monkeypatch):
    def writing(*_):
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    module = importlib.import_module("specdec_jax.models.save")  # the package has a function of that name
    monkeypatch.setattr(module, "write_tokenizer", writing)
    with pytest.raises(SystemExit, match="143"):
        main(["convert", str(tiny), str(tmp_path / "out")])
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_a_killed_command_left_is_cleared_away(tiny, tmp_path):
    with new_directory(tmp_path / "out") as beside:
        (beside / "folder").mkdir()
        (beside / "shard-7.safetensors").write_bytes(b"half")
        shutil.copytree(beside.parent, tmp_path / "left")
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "left").rename(tmp_path / ".out.partial")
    assert main(["convert", str(tiny), str(tmp_path / "out")]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert not {"shard-7.safetensors", "folder"} & {path.name for path in (tmp_path / "out").iterdir()}


@pytest.mark.parametrize("format", ["huggingface", "orbax"])
@pytest.mark.parametrize("kind", ["link", "broken link", "directory", "file", "link to a marked directory"])
def test_nothing_else_is_cleared_away(kind, format, tiny, tmp_path, capsys):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "kept").write_text("mine")
    partial = tmp_path / "here" / ".out.partial"
    partial.parent.mkdir()
    match kind:
        case "link":
            partial.symlink_to(precious)
        case "broken link":
            partial.symlink_to(tmp_path / "nothing")
        case "directory":
            shutil.copytree(precious, partial)
        case "file":
            partial.write_text("mine")
        case _:
            with new_directory(tmp_path / "other") as beside:
                shutil.copytree(beside.parent, precious, dirs_exist_ok=True)
            shutil.rmtree(tmp_path / "other")
            partial.symlink_to(precious)
    before = sorted(tmp_path.rglob("*"))
    assert main(["convert", str(tiny), str(tmp_path / "here" / "out"), "--format", format]) == 2
    assert ".out.partial is in the way and was not made by specdec; expected no such" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_two_commands_write_one_directory(tiny, tmp_path, capsys):
    with new_directory(tmp_path / "out") as beside:
        (beside / "mine").write_text("kept")
        assert main(["convert", str(tiny), str(tmp_path / "out")]) == 2
    assert "another process is writing" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_an_occupied_directory(tiny, tmp_path, capsys):
    (tmp_path / "mine").write_text("kept")
    assert main(["convert", str(tiny), str(tmp_path)]) == 2
    assert "exists and is not an empty directory; expected a new one" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_source_that_is_none(tmp_path, capsys):
    assert main(["convert", str(tmp_path / "nothing"), str(tmp_path / "out")]) == 2
    assert "does not exist and is none of the known names" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
