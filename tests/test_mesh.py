"""Where arrays lie on a mesh, and that generation on one says what it says on one device."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from scripts import ON_EIGHT_DEVICES, printed_by
from specdec_jax import models, sharding

HERE = Path(__file__).parent


def mesh_of(**axes: int) -> AbstractMesh:
    return AbstractMesh(tuple(axes.values()), tuple(axes))


def spec_of(shape: tuple[int, ...], axes=(), **mesh: int) -> P:
    return sharding.array_spec(shape, mesh_of(**mesh), axes)


def test_named_axes_are_cut_over_tensor():
    assert spec_of((6, 256, 5), (None, "vocab", None), data=2, tensor=4) == P(None, "tensor", None)
    assert spec_of((6, 8), (None, "inner"), data=2, tensor=4) == P(None, "tensor")


def test_what_the_devices_do_not_divide_stays_whole():
    assert spec_of((255,), ("vocab",), tensor=4) == P(None)
    assert spec_of((256,), ("vocab",), tensor=1) == P(None)


def test_the_longest_axis_that_is_left_is_cut_over_fsdp():
    assert spec_of((6, 4, 12), data=1, fsdp=2) == P(None, None, "fsdp")
    assert spec_of((6, 4, 12), ("groups",), tensor=2, fsdp=4) == P("tensor", None, "fsdp")
    assert spec_of((5, 7), fsdp=2) == P(None, None)


@pytest.mark.parametrize(("tensor", "heads"), [(2, "tensor"), (8, None)])
def test_a_name_is_cut_everywhere_or_nowhere(tensor, heads):
    """With more devices than kv heads, the projection behind them must stay whole too, though its inputs divide."""
    config = models.LlamaConfig(64, 16, 32, 2, 8, 4, 8, 64)
    found = models.param_shardings(config, mesh_of(data=1, tensor=tensor), layers="stacked")
    layer = found["layers"]
    assert layer["attention"]["qkv"]["weight"].spec == P(None, heads, None, None, None)
    assert layer["attention"]["out"]["weight"].spec == P(None, None, heads)
    assert layer["mlp"]["down"]["weight"].spec == P(None, None, "tensor")
    assert layer["mlp_norm"]["weight"].spec == P(None, None)
    assert found["head"]["weight"].spec == P("tensor", None)


@pytest.mark.parametrize(
    "config",
    [
        models.GPT2Config(64, 16, 32, 2, 4, 32),
        models.Gemma3Config(64, 16, 32, 2, 4, 2, 8, 64),
        models.Qwen2Config(64, 16, 32, 2, 4, 2, 8, 64),
        models.Qwen3Config(64, 16, 32, 2, 4, 2, 8, 64),
        models.Phi3Config(64, 16, 32, 2, 4, 2, 8, 64),
    ],
    ids=lambda config: type(config).__name__,
)
@pytest.mark.parametrize("layers", ["stacked", "unrolled"])
def test_every_family_is_cut(config, layers):
    """All matrices and all biases of what is cut; norms, and biases that are added after a sum, stay whole."""
    found = models.param_shardings(config, mesh_of(data=1, tensor=2), layers=layers)
    for path, leaf in jax.tree_util.tree_leaves_with_path(found):
        name = jax.tree_util.keystr(path)
        whole = "norm" in name or "positions" in name or ("bias" in name and ("out" in name or "down" in name))
        assert ("tensor" in leaf.spec) != whole, name


def test_whole_is_whole():
    config = models.LlamaConfig(64, 16, 32, 2, 8, 4, 8, 64)
    found = models.param_shardings(config, mesh_of(data=1, tensor=2), whole=True)
    assert all(leaf.is_fully_replicated for leaf in jax.tree.leaves(found))


def test_rows_are_found_in_any_state():
    def state(rows):
        return {"cache": jnp.zeros((3, rows, 2)), "lengths": jnp.zeros(rows), "one": jnp.zeros(1)}

    specs = sharding.row_specs(state)
    assert specs == {"cache": P(None, "data", None), "lengths": P("data"), "one": P()}
    mesh = mesh_of(data=2, tensor=2)
    found = sharding.state_shardings(jax.eval_shape(lambda: state(4)), specs, mesh)
    assert found["cache"] == NamedSharding(mesh, P(None, "data", None))


def test_errors_say_what_to_change():
    with pytest.raises(
        ValueError, match=r"data is 3, tensor 2 and fsdp 1, for 6 devices, but there are \d+; expected numbers"
    ):
        sharding.make_mesh(data=3, tensor=2)
    with pytest.raises(ValueError, match=r"6 rows for 4 groups of devices along 'data'; expected a multiple of 4"):
        sharding.check_rows(6, mesh_of(data=4, tensor=2))


@pytest.mark.heavy
def test_every_mesh_gives_the_tokens_of_one_device(tmp_path):
    """In float32, greedy and sampled rows in one batch; devices exchange nothing but what a row's own group must."""
    cases = [("llama", 8, 1), ("llama", 4, 2), ("llama", 2, 4), ("llama", 1, 8), ("gemma3", 2, 4), ("gpt2", 4, 2)]
    lines = printed_by(HERE / "on_eight_devices.py", tmp_path, json.dumps(cases), **ON_EIGHT_DEVICES)
    for line, (family, data, tensor) in zip(lines, cases, strict=True):
        assert line["case"] == [family, data, tensor]
        assert line["same"], line
        assert 20 < line["accepted"] < line["tokens"]
        assert line["kinds"] == ["all-reduce"] * (tensor > 1), line
        assert line["groups"] in ([], [f"[{data},{tensor}]<=[8]"], [""]), line  # "" is a single group
        assert line["largest_a_row"] <= 4 * 4 * 32, line  # four tokens, of which one is padding, of width 32
        assert line["shard"][1] == 8 // tensor
