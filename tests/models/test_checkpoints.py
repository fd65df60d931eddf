"""Checkpoints of this project, and what loading holds in memory."""

import gc
import json
import math
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorstore
from families import CASES, GPT, Case, bits_equal, logits, make, of
from gguf_files import write_family
from transformers import GPT2Config, GPT2LMHeadModel

from specdec_jax import models
from specdec_jax.models import LoadError
from specdec_jax.models.stack import Layout
from specdec_jax.models.stored import chunk_of, open_arrays

SMALL = models.LlamaConfig(
    vocab_size=7, width=8, mlp_width=8, num_layers=2, num_heads=2, num_kv_heads=1, head_size=4, max_positions=8
)


def altered(place: Path, **fields: int) -> Path:
    path = place / "specdec.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {"fields": settings["fields"] | fields}))
    return place


# ---- checkpoints of this project ----


@pytest.mark.parametrize(("name", "layers"), [("gemma3", "stacked"), ("gpt2", "unrolled")])
def test_checkpoints(name, layers, tmp_path):
    make(CASES[name]).save_pretrained(tmp_path / "theirs")
    loaded = models.load(tmp_path / "theirs", dtype=jnp.float32, layers=layers)
    models.save_checkpoint(tmp_path / "ours", loaded.config, loaded.params)
    again = models.load_checkpoint(tmp_path / "ours")
    assert again.config == loaded.config
    assert again.layers == layers
    bits_equal(again.params, loaded.params)
    tokens = np.arange(12).reshape(1, 12)
    np.testing.assert_array_equal(
        logits(models.load(tmp_path / "ours", dtype=jnp.float32), tokens), logits(loaded, tokens)
    )
    other = "unrolled" if layers == "stacked" else "stacked"
    with pytest.raises(LoadError, match=f"holds its layers {layers}; expected layers to be 'auto' or '{layers}'"):
        models.load(tmp_path / "ours", layers=other)
    narrow = models.load_checkpoint(tmp_path / "ours", dtype=jnp.bfloat16)
    assert {leaf.dtype for leaf in jax.tree.leaves(narrow.params)} == {jnp.dtype(jnp.bfloat16)}


@pytest.mark.heavy
def test_a_checkpoint_that_claims_many_layers(tmp_path):
    """Refused at once: modules for so many layers take minutes to make."""
    for layers in ("stacked", "unrolled"):
        path = tmp_path / layers
        models.save_checkpoint(path, SMALL, models.init_params(SMALL, jax.random.key(0), layers=layers))
        altered(path, num_layers=10**7)
        with pytest.raises(LoadError, match="says num_layers 10000000, but 2 layers are stored; write the checkpoint"):
            models.load_checkpoint(path)


def test_all_wrong_parameters_are_named_at_once(tmp_path):
    models.save_checkpoint(tmp_path / "ours", SMALL, models.init_params(SMALL, jax.random.key(0), layers="unrolled"))
    altered(tmp_path / "ours", tied_head=True, vocab_size=9)
    with pytest.raises(LoadError) as caught:
        models.load_checkpoint(tmp_path / "ours")
    assert "1 of another shape: embedding.weight is [7, 8] instead of [9, 8]" in str(caught.value)
    assert "1 unexpected: head.weight" in str(caught.value)


def test_damaged_checkpoints(tmp_path, capfd):
    """One after the other in a process, each with an error, and nothing else is said."""
    models.save_checkpoint(tmp_path / "ours", SMALL, models.init_params(SMALL, jax.random.key(0), layers="unrolled"))
    for number, damage in enumerate((b"", b"half", None, b"half")):
        place = tmp_path / f"damaged{number}"
        shutil.copytree(tmp_path / "ours", place)
        for path in [*(place / "params").rglob("d/*")]:
            path.unlink() if damage is None else path.write_bytes(damage)
        with pytest.raises(LoadError, match=r"cannot read .*; write the checkpoint again"):
            models.load_checkpoint(place)
    gc.collect()
    assert capfd.readouterr().err == ""


def test_a_chunk_that_is_lost_is_no_zeros(tmp_path):
    models.save_checkpoint(tmp_path / "ours", SMALL, models.init_params(SMALL, jax.random.key(0), layers="unrolled"))
    store = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{tmp_path / 'ours' / 'params'}/"}}
    chunks = tensorstore.KvStore.KeyRange("head.weight/0", "head.weight/1")
    tensorstore.KvStore.open(store).result().delete_range(chunks).result()
    with pytest.raises(LoadError, match=r"cannot read head.weight of .*; write the checkpoint again"):
        models.load_checkpoint(tmp_path / "ours")


def test_a_chunk_that_is_larger_than_its_array(tmp_path):
    """Packed it is small, but it would be read as a whole."""
    models.save_checkpoint(tmp_path / "ours", SMALL, models.init_params(SMALL, jax.random.key(0), layers="unrolled"))
    store = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{tmp_path / 'ours' / 'params'}/"}}
    tensorstore.KvStore.open(store).result().delete_range(tensorstore.KvStore.KeyRange("head.weight/", "head.weight0"))
    metadata = {"shape": [7, 8], "chunks": [7, 1 << 40], "dtype": "<f4"}
    array = {"driver": "zarr", "kvstore": {**store, "path": "head.weight/"}, "metadata": metadata}
    tensorstore.open(array, create=True, delete_existing=True).result()
    with pytest.raises(LoadError, match=r"head.weight of .* has the shape \(7, 8\), but is stored in chunks of \(7,"):
        models.load_checkpoint(tmp_path / "ours")


@pytest.mark.heavy
def test_parameters_of_many_chunks(tmp_path, monkeypatch):
    """Cut along several axes."""
    monkeypatch.setattr(models.checkpoint, "CHUNK_BYTES", 48)
    params = models.init_params(SMALL, jax.random.key(0), dtype=jnp.float32, layers="stacked")
    models.save_checkpoint(tmp_path / "ours", SMALL, params)
    chunk = chunk_of(open_arrays(tmp_path / "ours" / "params")["layers.mlp.gate_up.weight"])
    assert 4 * math.prod(chunk) <= 48
    bits_equal(models.load_checkpoint(tmp_path / "ours").params, params)
    narrow = models.load_checkpoint(tmp_path / "ours", dtype=jnp.bfloat16).params
    bits_equal(narrow, jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params))


def test_no_checkpoint(tmp_path):
    with pytest.raises(LoadError, match=r"cannot read .*specdec\.json .*No such file"):
        models.load_checkpoint(tmp_path)


def test_a_sharding_that_does_not_fit(tmp_path):
    models.save_checkpoint(tmp_path / "ours", SMALL, models.init_params(SMALL, jax.random.key(0)))
    with pytest.raises(ValueError, match="pytree structure error"):
        models.load_checkpoint(tmp_path / "ours", shardings={"a": 0})


def run(script: str, *arguments: object) -> str:
    """A Python process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.heavy
def test_a_checkpoint_is_restored_into_its_shards(tmp_path, monkeypatch):
    """Each of four devices gets its quarter, and nothing whole, even where shards are not cut as chunks are."""
    monkeypatch.setattr(models.checkpoint, "CHUNK_BYTES", 200)
    config = models.LlamaConfig(
        vocab_size=64, width=32, mlp_width=64, num_layers=2, num_heads=4, num_kv_heads=4, head_size=8, max_positions=8
    )
    params = models.init_params(config, jax.random.key(0), dtype=jnp.float32, layers="stacked")
    models.save_checkpoint(tmp_path / "ours", config, params)
    script = """
        import sys, jax
        jax.config.update("jax_num_cpu_devices", 4)
        from jax.sharding import NamedSharding, PartitionSpec as P
        from specdec_jax import models
        mesh = jax.make_mesh((4,), ("model",))
        config = models.load_checkpoint(sys.argv[1]).config
        shapes = jax.eval_shape(lambda: models.init_params(config, jax.random.key(0), layers="stacked"))
        split = jax.tree.map(lambda leaf: NamedSharding(mesh, P(*[None] * (leaf.ndim - 1), "model")), shapes)
        params = models.load_checkpoint(sys.argv[1], shardings=split).params
        for leaf, want in zip(jax.tree.leaves(params), jax.tree.leaves(split), strict=True):
            assert leaf.sharding == want, (leaf.sharding, want)
            assert leaf.addressable_shards[0].data.size * 4 == leaf.size
        print(sum(float(abs(leaf).sum()) for leaf in jax.tree.leaves(params)))
    """
    total = sum(float(jnp.abs(leaf).sum()) for leaf in jax.tree.leaves(params))
    assert float(run(script, tmp_path / "ours")) == pytest.approx(total, rel=1e-5)


# ---- memory ----


@pytest.mark.heavy
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux's /proc")
@pytest.mark.parametrize(
    ("source", "layers", "dtype"),
    [
        ("layers/hf", "stacked", "float32"),
        ("layers/model.gguf", "unrolled", "float32"),
        # One tensor is most of it, and changes its type.
        ("vocabulary/hf", "unrolled", "bfloat16"),
        ("inner/hf", "stacked", "bfloat16"),
        ("vocabulary/narrow", "stacked", "float32"),
        ("vocabulary/model.gguf", "unrolled", "bfloat16"),
        # One parameter made of several tensors is most of it; in the other its tensors lie the other way round.
        ("heads/model.gguf", "unrolled", "float32"),
        ("columns/hf", "stacked", "float32"),
        # What this project writes, where the largest parameter changes its type.
        ("layers/stacked", "stacked", "float32"),
        ("vocabulary/unrolled", "unrolled", "float32"),
        ("vocabulary/unrolled", "unrolled", "bfloat16"),
    ],
)
def test_loading_holds_no_second_copy(source, layers, dtype, wide):
    """The most memory that a process had, less what it has without a model, is at most 1.3 times the parameters."""
    script = """
        import sys
        from pathlib import Path
        import jax, jax.numpy as jnp
        from specdec_jax import models
        jnp.zeros(8).block_until_ready()
        # ru_maxrss would begin with what the parent had when it forked.
        Path("/proc/self/clear_refs").write_text("5")
        peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
        before = peak()
        loaded = models.load(sys.argv[1], layers=sys.argv[2], dtype=sys.argv[3])
        jax.block_until_ready(loaded.params)
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(loaded.params))
        print(size, peak() - before)
    """
    size, grown = map(int, run(script, wide / source, layers, dtype).split())
    assert size > 150e6
    assert grown <= 1.3 * size, f"{grown / size:.2f} times the parameters"


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    narrow = {"hidden_size": 512, "num_attention_heads": 8}
    many = {"num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 512}
    cases = {
        "layers": of("qwen2", **narrow, num_hidden_layers=12, vocab_size=4000, intermediate_size=2048),
        "inner": of("qwen2", **narrow, num_hidden_layers=2, vocab_size=300, intermediate_size=26_000),
        "heads": of("llama", **narrow | many, num_hidden_layers=1, vocab_size=300, intermediate_size=64),
        "columns": Case(GPT2Config, GPT2LMHeadModel, GPT | {"n_layer": 1, "n_embd": 3200, "n_head": 8, "n_inner": 64}),
        "vocabulary": of("gemma3", **narrow, num_hidden_layers=2, vocab_size=160_000, intermediate_size=1024),
    }
    for name, case in cases.items():
        network = case.model(case.config(**case.settings))
        network.save_pretrained(folder / name / "hf")
        if name in ("layers", "heads", "vocabulary"):
            write_family(folder / name / "model.gguf", network, case.config.model_type.removesuffix("_text"))
        layouts: dict[str, Layout] = {"layers": "stacked", "vocabulary": "unrolled"}
        layers = layouts.get(name)
        if layers is not None:
            loaded = models.load(folder / name / "hf", dtype=jnp.float32, layers=layers)
            models.save_checkpoint(folder / name / layers, loaded.config, loaded.params)
            del loaded
        if name == "vocabulary":
            network.bfloat16().save_pretrained(folder / name / "narrow")
    return folder
