"""A run over several devices is the run on one."""

import json
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
    sys.path[:0] = sys.argv[2:]
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
    folder = Path(__file__).parent
    arguments = [str(tmp_path), str(folder), str(folder.parent)]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "a batch has 6 rows for 4 devices; expected a multiple of that" in done.stdout


DISTILLED = """
    import json, sys
    import jax
    jax.config.update("jax_num_cpu_devices", 4)
    sys.path[:0] = sys.argv[2:]
    from pathlib import Path
    import numpy as np
    from programs import quick
    from safetensors.numpy import load_file
    from tiny_teachers import tiny_teacher
    from specdec_jax import models
    from specdec_jax.sharding import make_mesh
    from specdec_jax.training import HeadConfig, LossConfig, TextConfig, TrainConfig, distil
    jax.jit = quick  # now that optax is there, whose own inner ones take no options
    out, target = Path(sys.argv[1]), tiny_teacher()
    text = TextConfig(file=out / "texts.jsonl", length=24, held_out=0.2)
    training = TrainConfig(steps=3, batch=4, learning_rate=3e-3, warmup=1, evaluate_every=3)
    student = HeadConfig(draft_vocab_size=20, steps=2, reads=(0, 2), storage="float32")

    def made(name, mesh):
        return distil(target, out / name, student, text=text, loss=LossConfig(), training=training, mesh=mesh)

    one = made("one", None)
    before = load_file(one.before / "drafter.safetensors")
    for shape in ((1, 4), (2, 2)):
        many = made(f"{shape}", make_mesh(data=shape[0], fsdp=shape[1]))
        whole, cut = (load_file(run.directory / "drafter.safetensors") for run in (one, many))
        assert whole.keys() == cut.keys()
        moved = 0.0
        for name in whole:
            np.testing.assert_allclose(cut[name], whole[name], atol=2e-5, err_msg=name)
            moved = max(moved, float(np.abs(whole[name] - before[name]).max()))
        assert moved > 1e-3, moved
        np.testing.assert_allclose(many.best["alpha"], one.best["alpha"], atol=1e-5)
        assert many.best["step"] == one.best["step"] == 3
        head = models.load_head(many.directory)
        models.head_for(head, target)
        print("kept", shape)
"""


@pytest.mark.heavy
def test_a_head_that_is_trained_on_four_devices(tmp_path):
    """From the target's texts to the files that --draft takes, it is the one of a single device."""
    lines = [{"text": " ".join(f"w{5 + (i + j * (1 + i % 2)) % 24}" for j in range(9))} for i in range(40)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    folder = Path(__file__).parent
    arguments = [str(tmp_path), str(folder), str(folder.parent)]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DISTILLED), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["kept (1, 4)", "kept (2, 2)"]
