"""The training loop: one jitted step, and phases that each end in a measurement and a checkpoint."""

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from specdec_jax._typing import Array, Int, PyTree

from .checkpoints import Checkpoints
from .errors import TrainingError
from .sharding import place_batch, place_state, state_shardings
from .students import Batch, Measured, Student, total

LOG = "log.jsonl"
_LOG_EVERY = 10
_ADVICE = (
    "expected finite numbers. The last checkpoint stands, if there is one: begin another run from what it reached, "
    "with a lower learning rate or clip, or look at"
)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How long and how fast to learn."""

    steps: int = 2000
    """Updates of the parameters."""
    batch: int = 8
    """Rows of an update."""
    accumulate: int = 1
    """Parts that a batch is cut into, whose gradients are added: less memory for the same update."""
    learning_rate: float = 1e-3
    """The highest; it falls to a tenth of it along a cosine."""
    warmup: int = 50
    """Updates over which the learning rate rises from nothing."""
    weight_decay: float = 0.01
    """Of AdamW; norms and biases have none."""
    clip: float = 1.0
    """Largest norm of a gradient; a larger one is scaled down."""
    seed: int = 0
    """Of the parameters that start at random, of the text that is written for the run, and of the order of the data."""
    evaluate_every: int = 200
    """Updates of a phase, which ends in a measurement on held-out text and a checkpoint."""

    def __post_init__(self):
        whole = (("steps", 1), ("batch", 1), ("accumulate", 1), ("warmup", 0), ("seed", 0), ("evaluate_every", 1))
        for name, least in whole:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} is {value!r}; expected an integer >= {least}")
        if self.seed >= 2**32:  # of which JAX would drop the rest
            raise ValueError(f"seed is {self.seed}; expected less than 2**32")
        for name in ("learning_rate", "clip"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}; expected a number > 0")
        if not 0 <= self.weight_decay < float("inf"):
            raise ValueError(f"weight_decay is {self.weight_decay}; expected a number >= 0")
        if self.batch % self.accumulate:
            raise ValueError(
                f"batch is {self.batch}, accumulate {self.accumulate}; expected the one to divide the other"
            )


class TrainState(NamedTuple):
    """All that a run goes on from."""

    step: Int[Array, ""]
    """Updates made."""
    params: PyTree
    optimiser: PyTree


class Run(NamedTuple):
    """What is trained on what."""

    student: Student
    frozen: PyTree
    """What the student reads and does not change."""
    batches: Callable[[int, PyTree], Callable[[int], Batch]]
    """``batches(first step, params)`` gives, at the start of each phase, the phase's batch of every step. It is called
    again with the same arguments when a run goes on, and has to give the same."""
    held_out: Callable[[], Iterator[Batch]]
    """The batches to measure on, the same every time."""
    identity: Mapping[str, Any]
    """What a checkpoint has to agree with, as JSON: teacher, student, data, loss."""


def optimiser(config: TrainConfig) -> optax.GradientTransformation:
    """AdamW with clipping, warm-up and cosine decay."""
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, config.learning_rate, config.warmup, max(config.steps, config.warmup + 1), config.learning_rate / 10
    )

    def decayed(params: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: leaf.ndim > 1, params)

    return optax.chain(
        optax.clip_by_global_norm(config.clip),
        optax.adamw(schedule, b1=0.9, b2=0.95, weight_decay=config.weight_decay, mask=decayed),
    )


def new_state(params: PyTree, config: TrainConfig, mesh: Mesh | None = None) -> TrainState:
    """Before the first step: float32 copies, for a step gives its arguments away; on a mesh, made in its shards."""

    def start(params: PyTree) -> TrainState:
        params = jax.tree.map(lambda leaf: jnp.array(leaf, jnp.float32, copy=True), params)
        return TrainState(jnp.int32(0), params, optimiser(config).init(params))

    if mesh is None:
        return start(params)
    where = state_shardings(jax.eval_shape(start, params), mesh)
    return jax.jit(start, out_shardings=where)(place_state(params, mesh))


def make_step(
    student: Student, config: TrainConfig, shardings: PyTree | None = None
) -> Callable[[TrainState, PyTree, Batch], tuple[TrainState, dict[str, Array]]]:
    """``step(state, frozen, batch) -> (state, metrics)``, jitted; the state is donated.

    A batch whose loss or gradient is not finite changes nothing, and ``metrics["sound"]`` says so.

    Args:
        student, config: what is trained, and how.
        shardings: of the state, which stays in them; by default wherever it is.
    """
    transform = optimiser(config)

    def gradient_of(params: PyTree, frozen: PyTree, batch: Batch, count: Array | None = None):
        return jax.value_and_grad(student.loss, has_aux=True)(params, frozen, batch, count)

    def averaged(params: PyTree, frozen: PyTree, batch: Batch):
        parts = jax.tree.map(
            lambda x: x.reshape(config.accumulate, x.shape[0] // config.accumulate, *x.shape[1:]), batch
        )
        # Parts have unequal numbers of positions. Of this pass the compiler leaves nothing but the counting.
        count = jax.lax.map(lambda part: student.measure(params, frozen, part).count, parts).sum(0)
        shapes = jax.eval_shape(gradient_of, params, frozen, jax.tree.map(lambda x: x[0], parts), count)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        def add(sums, part):
            return jax.tree.map(jnp.add, sums, gradient_of(params, frozen, part, count)), None

        return jax.lax.scan(add, nothing, parts)[0]

    def step(state: TrainState, frozen: PyTree, batch: Batch):
        take = gradient_of if config.accumulate == 1 else averaged
        (loss, found), gradient = take(state.params, frozen, batch)
        norm = optax.tree.norm(gradient)
        sound = jnp.isfinite(loss) & jnp.isfinite(norm)
        with jax.numpy_dtype_promotion("standard"):  # optax raises numbers to the power of a step count
            updates, moments = transform.update(gradient, state.optimiser, state.params)
        new = TrainState(state.step + 1, optax.apply_updates(state.params, updates), moments)
        kept = jax.tree.map(lambda a, b: jnp.where(sound, a, b), new, state)
        alpha = found.alpha / jnp.maximum(found.count, 1)
        return kept, {"loss": loss, "alpha": alpha, "norm": norm, "tokens": found.count[0], "sound": sound}

    return jax.jit(step, donate_argnums=0, out_shardings=None if shardings is None else (shardings, None))


def train(
    run: Run,
    params: PyTree,
    config: TrainConfig,
    directory: Path,
    *,
    mesh: Mesh | None = None,
    progress: Callable[[dict[str, Any]], None] = lambda line: None,
) -> TrainState:
    """Train until ``config.steps``, or go on where the directory's last checkpoint stopped.

    A run that was killed and started again ends with the parameters of one that was not, bit for bit, on as many
    devices of the same kind.

    Args:
        run, params: what is trained, from these parameters if there is no checkpoint yet.
        config: how; the same for a run that goes on.
        directory: of checkpoints and the log.
        mesh: with an axis ``data``, ``fsdp`` or both, see `sharding.make_mesh`: batches are divided over both, and
            parameters over ``fsdp``.
        progress: called with every line of the log.

    Raises:
        TrainingError: the checkpoints are of another run, a loss is not finite, or the disk is full. The last
            checkpoint stays.
    """
    state = new_state(params, config, mesh)
    frozen = run.frozen if mesh is None else place_state(run.frozen, mesh)
    step = make_step(run.student, config, None if mesh is None else state_shardings(state, mesh))
    measure = jax.jit(run.student.measure)
    put = (lambda batch: batch) if mesh is None else (lambda batch: place_batch(batch, mesh))

    with Checkpoints(directory, {**run.identity, "training": dataclasses.asdict(config)}) as checkpoints:
        state = checkpoints.restore(state)
        at = int(state.step)
        log = Log(directory / LOG, at, progress)

        def measured() -> dict[str, Any]:
            parts: list[Measured] = [measure(state.params, frozen, put(batch)) for batch in run.held_out()]
            found = total(parts)
            if not math.isfinite(found["block_efficiency"] + sum(found["loss"])):  # it must be no one's best
                raise TrainingError(
                    f"held out, after {at} updates: loss {found['loss']}, alpha {found['alpha']}; {_ADVICE} that text"
                )
            log.write({"step": at, "held_out": found})
            return found

        if at == 0:  # so that a start which training makes no better is what is kept
            checkpoints.save(at, state, measured()["block_efficiency"])
        while at < config.steps:
            batch_at = run.batches(at, state.params)
            end = min(config.steps, at - at % config.evaluate_every + config.evaluate_every)
            state = _phase(step, state, frozen, lambda i, batch_at=batch_at: put(batch_at(i)), at, end, log)
            at = end
            checkpoints.save(at, state, measured()["block_efficiency"])
    return state


def _phase(step, state: TrainState, frozen: PyTree, batch_at, start: int, end: int, log: "Log") -> TrainState:
    waiting: list[dict[str, Array]] = []
    for at in range(start, end):
        state, metrics = step(state, frozen, batch_at(at))
        waiting.append(metrics)
        # Looked at now and then, for it makes the host wait for the device.
        if len(waiting) == _LOG_EVERY or at == end - 1:
            log.write({"step": at + 1, **_means(waiting, at + 1)})
            waiting = []
    return state


def _means(waiting: list[dict[str, Array]], step: int) -> dict[str, Any]:
    values = jax.device_get(waiting)
    for place, one in enumerate(values):
        if not one["sound"]:
            at = step - len(values) + place
            raise TrainingError(
                f"the loss of step {at} is {one['loss']} and its gradient's norm {one['norm']}; {_ADVICE} the data of "
                "that step"
            )
    count = len(values)
    return {
        "loss": float(sum(one["loss"] for one in values) / count),
        "alpha": [float(x) for x in sum(one["alpha"] for one in values) / count],
        "norm": float(sum(one["norm"] for one in values) / count),
        "tokens": int(sum(one["tokens"] for one in values)),
    }


class Log:
    """JSON lines beside the checkpoints; what lies past the step that a run goes on from is written again."""

    def __init__(self, path: Path, step: int, progress: Callable[[dict[str, Any]], None]):
        self._path = path
        self._progress = progress
        self._started = time.perf_counter()
        kept = [line for line in read_log(path) if line["step"] <= step] if step else []
        self._before = kept[-1].get("seconds", 0.0) if kept else 0.0
        part = path.with_suffix(".part")  # the lines there are stay until these are whole
        with self._may_fail():
            part.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
            part.replace(path)

    def write(self, line: dict[str, Any]) -> None:
        line = line | {"seconds": round(self._before + time.perf_counter() - self._started, 1)}
        with self._may_fail(), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._progress(line)

    @contextlib.contextmanager
    def _may_fail(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TrainingError(
                f"cannot write {self._path} ({error}); the last checkpoint is whole. Make room on the disk and start "
                "the same command again"
            ) from error


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; one that was cut off is left out, and NaN, which JSON has no number for, is None."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        try:
            found.append(json.loads(line, parse_constant=lambda _: None))
        except ValueError:
            continue
    return found
