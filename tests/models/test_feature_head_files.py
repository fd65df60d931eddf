"""Feature heads on disk: what is damaged, foreign or made for another target is refused by name."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from specdec_jax import models
from specdec_jax.models import LlamaConfig, LoadError
from specdec_jax.models.feature_head import FeatureHeadConfig, init_head_params

V = 13
LAYER = LlamaConfig(
    vocab_size=V, width=8, mlp_width=12, num_layers=1, num_heads=2, num_kv_heads=1, head_size=4, max_positions=64
)
CONFIG = FeatureHeadConfig(LAYER, hidden_layers=(0, 2), hidden_width=8, draft_vocab_size=5)
IDS = np.array([0, 3, 5, 7, 12])


@pytest.fixture
def folder(tmp_path):
    params = init_head_params(CONFIG, jax.random.key(0), IDS, jnp.ones((V, 8)))
    models.save_head(tmp_path / "head", CONFIG, params, IDS, storage="int8", record={"target": "x"})
    return tmp_path / "head"


def edit(folder, change):
    settings = json.loads((folder / "drafter.json").read_text())
    change(settings)
    (folder / "drafter.json").write_text(json.dumps(settings))


def tensors(folder, change):
    found = load_file(folder / "drafter.safetensors")
    change(found)
    save_file(found, folder / "drafter.safetensors")


def test_it_is_found_by_its_settings(folder, tmp_path):
    assert models.find_head(folder) == folder
    assert models.find_head(tmp_path) is None
    assert models.find_head("no-such-head") is None
    assert models.find_head("../heads/x") is None


def test_an_older_one_is_replaced(folder):
    params = init_head_params(CONFIG, jax.random.key(1), IDS, jnp.ones((V, 8)))
    models.save_head(folder, CONFIG, params, IDS, storage="float32")
    got = models.load_head(folder).params
    jax.tree.map(np.testing.assert_array_equal, got, params)
    assert sorted(path.name for path in folder.iterdir()) == ["drafter.json", "drafter.safetensors"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(kind="tree"), "its kind is 'tree'"),
        (lambda s: s.pop("config"), "KeyError: 'config'"),
        (lambda s: s["config"]["layer"].update(num_layers=10**7), "says 10000000 layers, but .* has only"),
        (lambda s: s["config"]["layer"].update(width="8"), "width"),
        (lambda s: s["config"]["layer"].update(depth=3), "TypeError"),
        (lambda s: s["config"].update(hidden_layers=[]), "hidden_layers is empty"),
        (lambda s: s["config"].update(draft_vocab_size=14), "draft_vocab_size is 14; expected 1 to 13"),
        (lambda s: s["config"]["layer"].update(width=16), "do not fit its configuration"),
    ],
)
def test_settings(change, message, folder):
    edit(folder, change)
    with pytest.raises(LoadError, match=message):
        models.load_head(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("norm.weight"), "1 missing: norm.weight"),
        (lambda t: t.update(more=np.ones(2)), "1 unexpected: more"),
        (lambda t: t.pop("fusion.weight.scale"), "fusion.weight in int8 without a scale for each row"),
        (lambda t: t.update({"norm.weight": np.full(8, np.nan, np.float32)}), "norm.weight of .* is not finite"),
        (lambda t: t.update(draft_ids=np.array([0, 3, 5, 7, 13], np.int32)), "no ascending token ids below 13"),
        (lambda t: t.update(draft_ids=np.array([3, 0, 5, 7, 12], np.int32)), "no ascending token ids below 13"),
        (lambda t: t.update(draft_ids=np.array([0.0, 3, 5, 7, 12], np.float32)), "no ascending token ids below 13"),
    ],
)
def test_tensors(change, message, folder):
    tensors(folder, change)
    with pytest.raises(LoadError, match=message):
        models.load_head(folder)


def test_a_file_that_was_cut_off(folder):
    path = folder / "drafter.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(LoadError, match=r"cannot read .*drafter.safetensors as safetensors"):
        models.load_head(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 14}, "made for a target of vocab_size 13, but other has 14"),
        ({"width": 16}, "made for a target of width 8, but other has 16"),
        ({"num_layers": 2}, "reads layer 2, but other has 2 layers"),
    ],
)
def test_another_target(changes, message, folder):
    shape = {**vars(LAYER), "num_layers": 3, **changes}
    config = LlamaConfig(**shape)
    params = models.init_params(config, jax.random.key(0), dtype=jnp.float32)
    model = models.model_from_config(config, dtype=jnp.float32)
    target = models.Loaded(model, params, None, config, lambda **_: model, "other")
    with pytest.raises(ValueError, match=message):
        models.head_for(models.load_head(folder), target)
