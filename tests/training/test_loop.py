"""The loop learns, goes on exactly where it was stopped, and ends with a clear error where it cannot."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import at_once

from specdec_jax.training import batches
from specdec_jax.training.checkpoints import Checkpoints, check_same_run
from specdec_jax.training.errors import TrainingError
from specdec_jax.training.loop import Run, TrainConfig, make_step, new_state, read_log, train
from specdec_jax.training.packing import pack
from specdec_jax.training.students import Batch, Measured, Student
from specdec_jax.training.teacher import Outputs

WIDTH = 6
CONFIG = TrainConfig(steps=24, batch=4, learning_rate=0.2, warmup=2, evaluate_every=5, seed=3)


def linear_student() -> Student:
    """It is to give back the teacher's features; alpha is how close it comes."""

    def measure(params, frozen, batch: Batch) -> Measured:
        guess = jax.nn.one_hot(batch.tokens % WIDTH, WIDTH) @ params["w"] + params["b"][None, None]
        error = jnp.square(guess - batch.features).sum(-1)
        count = batch.learned.sum().astype(jnp.float32)[None]
        loss = jnp.where(batch.learned, error, 0).sum()[None]
        alpha = jnp.where(batch.learned, jnp.exp(-error), 0).sum()[None]
        return Measured(loss, alpha, count)

    return Student(measure, (1.0,))


def run(samples, **changes) -> Run:
    packed = pack(samples, 20)
    secret = np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32)
    shape = packed.tokens.shape
    outputs = Outputs(secret[packed.tokens % WIDTH], np.zeros((*shape, 0, 1), np.float32), np.zeros(shape, np.float32))
    corpus = batches.Corpus(packed, outputs)
    return Run(
        linear_student(),
        {},
        batches.fixed(corpus, CONFIG.batch, CONFIG.seed),
        batches.in_order(corpus, CONFIG.batch),
        {"data": "these"},
    )._replace(**changes)


def params():
    return {"w": jnp.zeros((WIDTH, WIDTH)), "b": jnp.zeros(WIDTH)}


def same(one, other) -> bool:
    return all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), one, other)))


def test_it_learns(samples, tmp_path):
    train(run(samples), params(), CONFIG, tmp_path)
    log = read_log(tmp_path / "log.jsonl")
    measured = [line["held_out"] for line in log if "held_out" in line]
    assert [line["step"] for line in log if "held_out" in line] == [0, 5, 10, 15, 20, 24]
    assert measured[-1]["loss"][0] < 0.2 * measured[0]["loss"][0]
    assert measured[-1]["block_efficiency"] == pytest.approx(1 + measured[-1]["alpha"][0])


class Killed(BaseException):
    pass


@pytest.mark.parametrize("at", at_once([0, 3, 10, 17], [10]))
def test_a_run_that_was_stopped_ends_the_same(at, samples, tmp_path):
    whole = train(run(samples), params(), CONFIG, tmp_path / "whole")

    def dying(phase):
        def at_step(step):
            if step == at:
                raise Killed
            return phase(step)

        return at_step

    good = run(samples)
    bad = good._replace(batches=lambda first, params: dying(good.batches(first, params)))
    with pytest.raises(Killed):
        train(bad, params(), CONFIG, tmp_path / "stopped")
    again = train(good, params(), CONFIG, tmp_path / "stopped")
    assert same(again, whole)
    logs = [read_log(tmp_path / name / "log.jsonl") for name in ("stopped", "whole")]
    one, other = ([{**line, "seconds": 0} for line in log] for log in logs)
    assert one == other
    assert same(train(good, params(), CONFIG, tmp_path / "stopped"), whole), "there is nothing left to do"


def test_the_best_is_kept(samples, tmp_path):
    """A run that gets worse keeps its best checkpoint beside the last ones."""
    config = dataclasses.replace(CONFIG, steps=30)
    scores = iter([1.0, 3.0, 2.0, 1.9, 1.8, 1.7])
    kept = []
    with Checkpoints(tmp_path, {}) as checkpoints:
        for step in range(5, 35, 5):
            state = new_state({"w": jnp.full((2, 2), float(step))}, config)
            kept.append(state)
            checkpoints.save(step, state, next(scores))
    with Checkpoints(tmp_path, {}) as checkpoints:
        assert float(checkpoints.restore(kept[0]).params["w"][0, 0]) == 30
        assert float(checkpoints.restore_best(kept[0]).params["w"][0, 0]) == 10


def test_of_equals_the_last_is_the_best(tmp_path):
    scores = [1.0, 3.0, 2.0, 3.0, 1.8, 1.7]
    states = [new_state({"w": jnp.full((2, 2), float(step))}, CONFIG) for step in range(len(scores))]
    with Checkpoints(tmp_path, {}) as checkpoints:
        for step, score in enumerate(scores):
            checkpoints.save(step, states[step], score)
        assert float(checkpoints.restore_best(states[0]).params["w"][0, 0]) == 3


def test_until_a_run_has_begun_another_may_take_its_place(tmp_path):
    """Such as the same with a setting corrected; its start is not the other's."""
    for identity, width in (({"loss": "a"}, 2), ({"loss": "b"}, 3)):
        check_same_run(tmp_path, identity)
        state = new_state({"w": jnp.ones((width, width))}, CONFIG)
        with Checkpoints(tmp_path, identity) as checkpoints:
            assert checkpoints.restore(state) is state
            checkpoints.save(0, state, 1.0)
    with Checkpoints(tmp_path, {"loss": "b"}) as checkpoints:
        assert same(checkpoints.restore(state), state)
        checkpoints.save(5, state, 1.0)
    for check in (check_same_run, Checkpoints):
        with pytest.raises(TrainingError, match="holds another run: loss was 'b' and is now 'a'"):
            check(tmp_path, {"loss": "a"})


def test_accumulated_gradients_are_those_of_the_whole_batch(samples):
    good = run(samples)
    batch = good.batches(0, None)(0)
    assert len({*batch.learned.sum(1).tolist()}) > 1, "rows do not weigh the same"
    states = []
    for accumulate in (1, 2, 4):
        config = dataclasses.replace(CONFIG, accumulate=accumulate)
        state, metrics = make_step(good.student, config)(new_state(params(), config), {}, batch)
        assert int(metrics["tokens"]) == batch.learned.sum()
        states.append(state.params)
    for other in states[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), states[0], other)


# ---- what stops a run ----


def test_a_loss_that_is_no_number(samples, tmp_path):
    good = run(samples)

    def poisoned(first, params):
        phase = good.batches(first, params)

        def at(step):
            batch = phase(step)
            return batch._replace(features=batch.features + (np.nan if step == 12 else 0))

        return at

    with pytest.raises(TrainingError, match=r"the loss of step 12 is nan .* The last checkpoint stands"):
        train(good._replace(batches=poisoned), params(), CONFIG, tmp_path)
    whole = train(run(samples), params(), CONFIG, tmp_path / "whole")
    assert same(train(good, params(), CONFIG, tmp_path), whole), "the checkpoint before it is good"


def test_held_out_text_on_which_the_loss_is_no_number(samples, tmp_path):
    """It is an error, and the best checkpoint before it stays."""
    good, measured = run(samples), []

    def held_out():
        measured.append(1)
        for batch in good.held_out():
            yield batch._replace(features=batch.features * (np.nan if len(measured) == 4 else 1))

    with pytest.raises(
        TrainingError,
        match=r"held out, after 15 updates: loss \[nan\], alpha \[nan\]; expected finite .* look at that text",
    ):
        train(good._replace(held_out=held_out), params(), CONFIG, tmp_path)
    log = read_log(tmp_path / "log.jsonl")
    assert [line["step"] for line in log if "held_out" in line] == [0, 5, 10]
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"5", "10"}
    whole = train(run(samples), params(), CONFIG, tmp_path / "whole")
    assert same(train(good, params(), CONFIG, tmp_path), whole), "measured rightly, it goes on"


def test_a_step_that_is_no_number_changes_nothing(samples):
    good = run(samples)
    batch = good.batches(0, None)(0)
    state = new_state(params(), CONFIG)
    kept = jax.tree.map(np.asarray, state)
    state, metrics = make_step(good.student, CONFIG)(state, {}, batch._replace(features=batch.features * np.inf))
    assert not metrics["sound"]
    assert same(state, kept)


def test_another_run_is_refused(samples, tmp_path):
    train(run(samples), params(), CONFIG, tmp_path)
    with pytest.raises(TrainingError, match="holds another run: data was 'these' and is now 'those'"):
        train(run(samples, identity={"data": "those"}), params(), CONFIG, tmp_path)
    faster = dataclasses.replace(CONFIG, learning_rate=0.5)
    with pytest.raises(TrainingError, match=r"training.learning_rate was 0.2 and is now 0.5"):
        train(run(samples), params(), faster, tmp_path)


def test_a_damaged_checkpoint_is_named(samples, tmp_path):
    whole = train(run(samples), params(), CONFIG, tmp_path)
    last = tmp_path / "checkpoints" / "24"
    for part, message in (("default", "cannot read checkpoint 24 of"), ("metrics", "cannot read the checkpoints of")):
        for path in (last / part).rglob("*"):
            if path.is_file():
                path.write_bytes(b"")
        with pytest.raises(TrainingError, match=rf"{message} .* to go on from the one before it"):
            train(run(samples), params(), CONFIG, tmp_path)
    shutil.rmtree(last)
    assert same(train(run(samples), params(), CONFIG, tmp_path), whole), "as the message says"


CHILD = """
    import dataclasses, resource, signal, sys
    import jax
    sys.path[:0] = sys.argv[3:]
    from test_loop import CONFIG, params, run, train
    from specdec_jax.training.errors import TrainingError
    from specdec_jax.training.samples import read_samples
    from pathlib import Path
    out = Path(sys.argv[1])
    samples = read_samples(out / "samples.jsonl", 29)
    config = dataclasses.replace(CONFIG, steps=40)
    full_from = None
    {before}
    def tell(line):
        print(line["step"], flush=True)
        if full_from is not None and line["step"] >= full_from:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    try:
        state = train(run(samples), params(), config, out / sys.argv[2], progress=tell)
        print("sum", [float(leaf.sum()).hex() for leaf in jax.tree.leaves(state.params)])
    except TrainingError as error:
        print("refused", error)
"""


def start(folder: Path, name: str, before: str = "pass") -> subprocess.Popen:
    script = textwrap.dedent(CHILD).replace("{before}", before)
    tests = Path(__file__).parent
    arguments = [str(folder), name, str(tests), str(tests.parent)]
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.heavy
def test_a_process_that_is_killed_ends_the_same(samples, tmp_path):
    from specdec_jax.training.samples import write_samples

    write_samples(tmp_path / "samples.jsonl", samples)
    whole = start(tmp_path, "whole")
    killed = start(tmp_path, "killed")
    assert killed.stdout is not None
    for line in killed.stdout:
        if int(line) >= 15:
            os.kill(killed.pid, signal.SIGKILL)
            break
    killed.wait()
    out, error = whole.communicate()
    assert whole.returncode == 0, error
    again, error = start(tmp_path, "killed").communicate()
    assert int(again.split()[0]) > 0, error
    assert again.splitlines()[-1] == out.splitlines()[-1]
    assert again.splitlines()[-1].startswith("sum")


@pytest.mark.heavy
def test_a_full_disk(samples, tmp_path):
    """From some step on no file may grow: the run ends with an error that says so, and goes on once there is room."""
    from specdec_jax.training.samples import write_samples

    write_samples(tmp_path / "samples.jsonl", samples)
    whole, error = start(tmp_path, "whole").communicate()
    limit = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); full_from = 15"
    out, error = start(tmp_path, "full", limit).communicate()
    assert "refused cannot write" in out, (out, error[-3000:])
    assert "Make room on the disk and start the same command again" in out, out
    assert (tmp_path / "full" / "checkpoints" / "5").is_dir(), "the last one that was whole"
    out, error = start(tmp_path, "full").communicate()
    assert out.splitlines()[-1] == whole.splitlines()[-1], (out, error)
    assert out.split()[0] != "0", "it goes on"


def test_settings():
    for changes, message in (
        ({"steps": 0}, "steps is 0; expected an integer >= 1"),
        ({"learning_rate": float("nan")}, "learning_rate is nan; expected a number > 0"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0; expected a number >= 0"),
        ({"batch": 6, "accumulate": 4}, "batch is 6, accumulate 4; expected the one to divide the other"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(CONFIG, **changes)
