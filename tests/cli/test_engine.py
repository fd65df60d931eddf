"""Generators as the commands make them: answers one at a time, as the demo compares them, and devices in groups."""

import jax
import pytest

from specdec_jax import GenerateConfig, SamplingParams
from specdec_jax.batch import Request
from specdec_jax.bench import count_traces
from specdec_jax.cli import UserError
from specdec_jax.cli.drafting import Drafting
from specdec_jax.cli.engine import generator, one_at_a_time
from specdec_jax.cli.meshes import mesh_of
from specdec_jax.control import constant
from specdec_jax.models import load

pytestmark = pytest.mark.usefixtures("quick_programs")


def test_each_runs_alone_and_nothing_ahead(tiny):
    target = load(tiny)
    model, traces = count_traces(target.model)
    built = []
    ask = generator(
        Drafting("none", target._replace(model=model), None, None),
        GenerateConfig(capacity=150, prefill_chunk=64),
        batch=1,
        seed=0,
        controller=constant(),
        compiling=built.append,
    )
    asked = [Request(index, [4] * length, SamplingParams(temperature=0.0), 2) for index, length in enumerate([3, 100])]
    timed = one_at_a_time(ask, asked)
    assert traces() == 0
    first = next(timed)
    assert (first.answer.request.index, built) == (0, [64])
    assert first.seconds > 0
    assert next(timed).answer.request.index == 1
    assert built == [64, 150]


def test_devices_in_groups():
    count = jax.local_device_count()
    assert mesh_of(None, 1, everywhere=False) is None
    mesh = mesh_of(1, 2 * count, everywhere=False)
    assert mesh is not None
    assert dict(mesh.shape) == {"data": count, "tensor": 1}
    with pytest.raises(UserError, match=rf"tensor is {count + 1}, but there are {count} devices; expected a number"):
        mesh_of(count + 1, 8, everywhere=True)
