"""A target whose states are too large for float16 is learned from as any other."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest
from tiny_teachers import tiny_teacher

from specdec_jax.training.distill import distil
from specdec_jax.training.fresh import fresh_texts
from specdec_jax.training.loop import TrainConfig
from specdec_jax.training.settings import HeadConfig, LossConfig, TextConfig
from specdec_jax.training.teacher import Teacher, as_teacher

TEXT = TextConfig(tokens=200, rows=8, length=32, max_tokens=16, held_out=0.2)
TRAINING = TrainConfig(steps=4, batch=2, learning_rate=1e-3, warmup=1, evaluate_every=2)
HEAD = HeadConfig(draft_vocab_size=20, steps=2, reads=(0, 2), storage="float32")


@pytest.fixture(scope="module")
def loud():
    """Its embeddings are large, and its states with them; its head is another matrix, so what it says is not."""
    return tiny_teacher(embedding=3e5, tied_head=False)


@pytest.mark.heavy
def test_it_is_trained_for(loud, tmp_path, monkeypatch):
    told: list[str] = []

    def run():
        return distil(
            loud,
            tmp_path,
            HEAD,
            text=TEXT,
            loss=LossConfig(),
            training=TRAINING,
            tell=lambda what, _: told.append(what),
        )

    made = run()
    assert "some of the target's states are too large for float16: kept in float32, in twice the room" in told
    assert made.log[-1]["step"] == TRAINING.steps
    assert np.isfinite(made.best["loss"]).all()
    hidden = [np.load(path, mmap_mode="r") for path in (tmp_path / "work" / "outputs").glob("*/hidden.npy")]
    assert [array.dtype for array in hidden] == [np.float32] * 2, "of text and held-out text, and nothing else"
    assert max(np.abs(array).max() for array in hidden) > np.finfo(np.float16).max
    monkeypatch.setattr(Teacher, "read", lambda *_: pytest.fail("read again what is on the disk"))
    again = run()
    assert again.record == made.record


def test_nan_is_the_targets_own_fault(loud, tmp_path):
    """No format helps, and the error does not blame one."""
    params = {**loud.params, "norm": {"weight": jnp.full_like(loud.params["norm"]["weight"], jnp.nan)}}
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": f"w{5 + i % 20} w{6 + i % 9} w7"}) + "\n" for i in range(20)))
    text = dataclasses.replace(TEXT, file=file)
    with pytest.raises(FloatingPointError, match=r"rows 0 to \d+ are not finite in float32; .* the teacher's weights"):
        distil(loud._replace(params=params), tmp_path, HEAD, text=text, loss=LossConfig(), training=TRAINING)


def test_fresh_text_that_float16_cannot_hold(loud, samples, monkeypatch):
    """It is said by the text, and not by a loss that is no number."""
    fresh = fresh_texts(lambda params: loud, as_teacher(loud, (0, 2)), samples, TEXT, seed=0)
    outputs = fresh(0, {}).outputs
    assert outputs.hidden.dtype == np.float32
    assert all(np.isfinite(array).all() for array in outputs)
    whole = Teacher.read

    def broken(*how):
        return whole(*how)._replace(features=np.full((1, 1, 1), np.nan, np.float32))

    monkeypatch.setattr(Teacher, "read", broken)
    with pytest.raises(FloatingPointError, match="states of fresh texts are not finite in float32"):
        fresh(2, {})
