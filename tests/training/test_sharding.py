"""A run over several devices is the run on one."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPT = """
    import dataclasses, sys
    import jax
    jax.config.update("jax_num_cpu_devices", 4)
    import jax.numpy as jnp
    import numpy as np
    sys.path[:0] = sys.argv[2:3]
    from pathlib import Path
    from test_loop import CONFIG, run, train
    from specdec_jax.sharding import make_mesh
    from specdec_jax.training.samples import read_samples
    from specdec_jax.training.loop import new_state
    from specdec_jax.training.sharding import place_batch, place_state
    out = Path(sys.argv[1])
    samples = read_samples(out / "samples.jsonl", 29)
    params = {"w": jnp.zeros((6, 6)), "b": jnp.zeros(6), "large": jnp.zeros((3, 8))}
    one = train(run(samples), params, CONFIG, out / "one")
    for shape in ((4, 1), (2, 2), (1, 4)):
        mesh = make_mesh(data=shape[0], fsdp=shape[1])
        many = train(run(samples), params, CONFIG, out / f"{shape}", mesh=mesh)
        again = train(run(samples), params, CONFIG, out / f"{shape}", mesh=mesh)
        for a, b, c in zip(*map(jax.tree.leaves, (one.params, many.params, again.params))):
            np.testing.assert_allclose(a, b, atol=1e-5)
            np.testing.assert_array_equal(b, c)
            assert len(b.sharding.device_set) == 4
        moments = jax.tree.leaves(many.optimiser)
        held = [leaf.addressable_shards[0].data.size for leaf in moments if leaf.shape == (3, 8)]
        assert held == [24 // shape[1]] * 2, held
    mesh = make_mesh(data=2, fsdp=2)
    for leaf in jax.tree.leaves(new_state(params, CONFIG, mesh)):
        assert len(leaf.sharding.device_set) == 4
        assert leaf.shape != (3, 8) or leaf.addressable_shards[0].data.size == 12
    batch = place_batch({"x": np.zeros((8, 3))}, mesh)
    assert batch["x"].addressable_shards[0].data.shape == (2, 3)
    try:
        place_batch({"x": np.zeros((6, 3))}, mesh)
    except ValueError as error:
        print(error)
"""


@pytest.mark.heavy
def test_devices_change_nothing(samples, tmp_path):
    """Data-parallel, fully sharded and both give the parameters of one device; each device holds its share."""
    from specdec_jax.training.samples import write_samples

    write_samples(tmp_path / "samples.jsonl", samples)
    arguments = [str(tmp_path), str(Path(__file__).parent)]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "a batch has 6 rows for 4 devices; expected a multiple of that" in done.stdout
