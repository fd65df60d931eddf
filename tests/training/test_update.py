"""Updates of the parameters against AdamW written out in NumPy: clipping, warm-up, cosine, and what decays."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_loop import CONFIG, WIDTH, run

from specdec_jax.training.loop import make_step, new_state
from specdec_jax.training.students import Batch

TRAINING = dataclasses.replace(CONFIG, steps=9, learning_rate=0.1, warmup=3, weight_decay=0.3, clip=6.0)


def start() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {"w": rng.normal(size=(WIDTH, WIDTH)), "b": rng.normal(size=WIDTH)}


def gradient_of(params: dict[str, np.ndarray], batch: Batch) -> dict[str, np.ndarray]:
    """Of the mean squared error over the tokens that are learned from."""
    fed = np.eye(WIDTH)[batch.tokens % WIDTH][batch.learned]
    error = fed @ params["w"] + params["b"] - np.asarray(batch.features, np.float64)[batch.learned]
    return {"w": 2 * fed.T @ error / len(fed), "b": 2 * error.sum(0) / len(fed)}


def learning_rate(update: int) -> float:
    """Of the update of that number, from 0: up to the highest in a line, and down to a tenth of it along a cosine."""
    if update < TRAINING.warmup:
        return TRAINING.learning_rate * update / TRAINING.warmup
    done = (update - TRAINING.warmup) / (TRAINING.steps - TRAINING.warmup)
    return TRAINING.learning_rate * (0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2)


def test_updates_are_those_of_adamw(samples):
    good = run(samples)
    batches = good.batches(0, None)
    want = start()
    first, second = ({name: np.zeros_like(leaf) for name, leaf in want.items()} for _ in range(2))
    state = new_state(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), want), TRAINING)
    step, norms = make_step(good.student, TRAINING), []
    for update in range(TRAINING.steps):
        batch = batches(update)
        # The batches are small steps and large ones: only some gradients are longer than the clip.
        batch = batch._replace(features=batch.features * np.float32(1 + 4 * (update % 3 == 1)))
        state, metrics = step(state, {}, batch)
        gradient = gradient_of(want, batch)
        norms.append(math.sqrt(sum((leaf**2).sum() for leaf in gradient.values())))
        assert float(metrics["norm"]) == pytest.approx(norms[-1], rel=1e-4), "as it was before it was clipped"
        scale = min(1.0, TRAINING.clip / norms[-1])
        for name in want:
            first[name] = 0.9 * first[name] + 0.1 * scale * gradient[name]
            second[name] = 0.95 * second[name] + 0.05 * (scale * gradient[name]) ** 2
            mean, square = first[name] / (1 - 0.9 ** (update + 1)), second[name] / (1 - 0.95 ** (update + 1))
            decay = TRAINING.weight_decay * want[name] if name == "w" else 0.0  # a bias has none
            want[name] = want[name] - learning_rate(update) * (mean / (np.sqrt(square) + 1e-8) + decay)
            np.testing.assert_allclose(state.params[name], want[name], rtol=2e-4, atol=2e-4, err_msg=f"{name} {update}")
    assert min(norms) < TRAINING.clip < max(norms), "some are clipped and some are not"
