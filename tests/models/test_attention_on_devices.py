"""Kernels on meshes, and compiled or at least lowered for accelerators that are not here."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from scripts import ON_EIGHT_DEVICES, printed_by
from specdec_jax.cache import KVCache
from specdec_jax.models.attention import over_cache, visible
from specdec_jax.models.attention_kernels import find

HERE = Path(__file__).parent


def run(script, cases, **settings):
    """What a script prints for each case, in a process of its own."""
    lines = printed_by(HERE / script, json.dumps(cases), **settings)
    return {tuple(case): line for case, line in zip(cases, lines, strict=True)}


@pytest.fixture(scope="module")
def compiled():
    pytest.importorskip("libtpu", reason="compiling for a TPU needs the extra plan")
    return run("compile_for_v5e.py", [[name, 128, T] for name in ("paged", "blocks") for T in (1, 5)])


@pytest.mark.heavy
@pytest.mark.parametrize("T", [1, 5])
def test_a_tpu_reads_the_cache_where_it_lies(T, compiled):
    paged, blocks = compiled["paged", 128, T], compiled["blocks", 128, T]
    assert (paged["slots"], blocks["slots"]) == (1152, 1100)
    assert (paged["kernels"], blocks["kernels"]) == (1, 0), "the kernel is not in the loop over layers"
    assert paged["copies"] == []
    # Each chip reads its own heads; what is exchanged is the same.
    assert paged["exchanges"] == blocks["exchanges"]
    assert paged["temporary"] < paged["cache"] / 8


@pytest.mark.heavy
def test_each_device_attends_with_its_own_heads():
    """Eight and four kv heads are cut over four devices, six are on each of them."""
    cases = [["blocks", 8], ["xla", 8], ["xla", 6], ["blocks-bf16", 4], ["paged", 4]]
    found = run("attention_on_eight_devices.py", cases, **ON_EIGHT_DEVICES)
    for (name, _), line in found.items():
        assert line["difference"] < (1e-4 if name in ("blocks", "xla") else 0.6), line
        assert line["spread"] > 4
        assert {kind for kind, *_ in line["exchanged"]} == {"all-reduce"}
    assert found["xla", 8]["exchanged"] == found["blocks", 8]["exchanged"]
    assert found["paged", 4]["exchanged"] == found["blocks-bf16", 4]["exchanged"]


def lowered_for_cuda(monkeypatch, dtype=jnp.bfloat16, H=128, T=5, window=None):
    """What asks cuDNN for its version before it lowers to it is told one, since there is none here."""
    monkeypatch.setattr("jax._src.cudnn.fused_attention_stablehlo.check_cudnn_version", lambda: 91000)
    B, G, R, L, S = 2, 2, 4, 2, 1152

    def step(q, k, v, part, layer, lengths):
        seen = visible(lengths[:, None] + jnp.arange(T, dtype=jnp.int32)[None], S, window)
        return over_cache(find("cudnn").attend, q, k, v, KVCache(part, part), layer, seen, scale=0.1)

    q, new, part = (jax.ShapeDtypeStruct(shape, dtype) for shape in ((B, T, G, R, H), (B, T, G, H), (L, B, G, S, H)))
    layer, lengths = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((), (B,)))
    return jax.jit(step).trace(q, new, new, part, layer, lengths).lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize(
    ("T", "window", "call"), [(5, None, "ScaleBiasSoftmax"), (1, 9, "ScaleBiasSoftmax"), (1, None, "Softmax")]
)
def test_cudnn_is_called_for_each_bucket(T, window, call, monkeypatch):
    text = lowered_for_cuda(monkeypatch, T=T, window=window)
    calls = [line for line in text.splitlines() if f"@__cudnn$fmha{call}(" in line]
    assert len(calls) == 2
    for line, slots in zip(calls, (512, 1152), strict=True):
        assert all(shape in line for shape in (f"2x{T}x8x128", f"2x{slots}x2x128")), line
        assert r"mask_type\22: \22PADDING\22" in line, "each row ends at its own length"


@pytest.mark.parametrize(("dtype", "H"), [(jnp.float32, 128), (jnp.bfloat16, 256), (jnp.bfloat16, 36)])
def test_what_cudnn_does_not_take(dtype, H, monkeypatch):
    assert "cudnn" not in lowered_for_cuda(monkeypatch, dtype, H)


class Device:
    def __init__(self, capability):
        if capability:
            self.compute_capability = capability


@pytest.mark.parametrize(
    ("backend", "capability", "name"),
    [
        ("cpu", None, "blocks"),
        ("tpu", None, "paged"),
        ("gpu", "8.0", "cudnn"),
        ("gpu", "10.3", "cudnn"),
        ("gpu", "7.5", "blocks"),
        ("gpu", "gfx942", "blocks"),
    ],
)
def test_auto_goes_by_the_machine(backend, capability, name, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "local_devices", lambda: [Device(capability)])
    assert find("auto") == find(name)


def test_other_names_are_refused():
    with pytest.raises(ValueError, match=r"attention is 'flash'; expected one of 'auto', 'blocks', .*, or a Kernel"):
        find("flash")
