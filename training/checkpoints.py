"""Checkpoints of a training run: the last ones and the best one, written while training goes on."""

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy

from specdec_jax._typing import PyTree
from specdec_jax.batch.manifest import differences

from .errors import TrainingError

IDENTITY = "run.json"
_SCORE = "block_efficiency"
_FOLDER = "checkpoints"
_KEPT = 2


_OPTIONS = ocp.CheckpointManagerOptions(
    preservation_policy=preservation_policy.AnyPreservationPolicy(
        [
            preservation_policy.LatestN(_KEPT),
            preservation_policy.BestN(get_metric_fn=lambda metrics: metrics[_SCORE], n=1),
        ]
    ),
    best_fn=lambda metrics: metrics[_SCORE],
)


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Keep other processes out of a run's directory; a TrainingError where one is there already.

    Within it, it may be asked for again.
    """
    directory.mkdir(parents=True, exist_ok=True)
    held, this = _HELD.get(), directory.resolve()
    if this in held:
        yield
        return
    with (directory / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TrainingError(f"another process trains in {directory}; wait for it or name another") from error
        before = _HELD.set(held | {this})
        try:
            yield
        finally:
            _HELD.reset(before)


_HELD: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())
"""Of a thread alone: another has to wait as another process has."""


def begun(directory: Path) -> bool:
    """Whether a run there has a checkpoint past its start. Until then nothing is lost if another takes its place."""
    places = directory / _FOLDER
    return places.is_dir() and any(place.name.isdigit() and int(place.name) > 0 for place in places.iterdir())


def check_same_run(directory: Path, known: Mapping[str, Any]) -> None:
    """Raise a TrainingError where the directory holds a run of which something that is ``known`` is otherwise."""
    if begun(directory):
        known = json.loads(json.dumps(known))
        _refuse_another(directory, part_of(_recorded(directory), known), known)


def part_of(found: Any, known: Any) -> Any:
    """Of what was ``found`` that which has the names of what is ``known``, at any depth."""
    if isinstance(found, dict) and isinstance(known, dict):
        return {key: part_of(found.get(key), known[key]) for key in known}
    return found


def _recorded(directory: Path) -> dict[str, Any] | None:
    """Of what run the directory says it is; None where there is nothing of a run."""
    path = directory / IDENTITY
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it holds no object")
    except FileNotFoundError as error:
        if begun(directory):
            raise TrainingError(
                f"{directory} holds checkpoints, but {path} is missing, which says of what run; put it back, or name "
                "another directory"
            ) from error
        return None
    except ValueError as error:
        raise TrainingError(f"cannot use {path} ({error}); expected a directory of its own for each run") from error
    except OSError as error:
        raise _unusable(path, error) from error
    return found


def _unusable(path: Path, error: OSError) -> TrainingError:
    return TrainingError(
        f"cannot use {path} ({error}); expected a directory that can be written, with room on its disk"
    )


def _refuse_another(directory: Path, found: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    other = differences(found, identity)
    if other:
        raise TrainingError(
            f"{directory} holds another run: {'; '.join(other)}. Expected the same settings to go on with it, so name "
            "another directory, or the settings that it began with"
        )


class Checkpoints:
    """Of one run in one directory; a context, at whose end everything is on the disk.

    Raises:
        TrainingError: the directory holds another run, or cannot be written.
    """

    def __init__(self, directory: Path, identity: Mapping[str, Any]):
        self.directory = directory.resolve()
        self._check(json.loads(json.dumps(identity)))
        try:
            self._manager = ocp.CheckpointManager(self.directory / _FOLDER, options=_OPTIONS)
        except Exception as error:  # what is damaged makes orbax raise just that
            raise TrainingError(
                f"cannot read the checkpoints of {self.directory} ({error}); delete the folder of the damaged one to "
                "go on from the one before it"
            ) from error

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind, error, trace) -> None:
        failures = []
        for end in (self._manager.wait_until_finished, self._manager.close):  # a save that failed may fail in either
            try:
                end()
            except Exception as failure:
                failures.append(failure)
        if failures and error is None:
            raise self._failed(failures[0]) from failures[0]

    def restore(self, state: PyTree) -> PyTree:
        """The last checkpoint, in the shape and the shards of ``state``; ``state`` itself where there is none."""
        step = self._manager.latest_step()
        return state if step is None else self._restore(step, state)

    def restore_best(self, state: PyTree) -> PyTree:
        """The checkpoint that did best on held-out text; of equals the last."""
        step = self._manager.best_step()
        return state if step is None else self._restore(step, state)

    def _restore(self, step: int, state: PyTree) -> PyTree:
        def like(leaf: jax.Array) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)

        try:
            return self._manager.restore(step, args=ocp.args.StandardRestore(jax.tree.map(like, state)))
        except Exception as error:  # what is damaged makes orbax and the store behind it raise just that
            raise TrainingError(
                f"cannot read checkpoint {step} of {self.directory} ({error}); delete its folder to go on from the one "
                "before it"
            ) from error

    def save(self, step: int, state: PyTree, score: float) -> None:
        """Begin to write; the next call, or the end, waits for it. One of that step stays as it is."""
        if step in self._manager.all_steps():
            return
        try:
            self._manager.save(step, args=ocp.args.StandardSave(state), metrics={_SCORE: score})
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> TrainingError:
        return TrainingError(
            f"cannot write a checkpoint into {self.directory} ({error}); the checkpoints before it are whole. Make "
            "room on the disk and start the same command again"
        )

    def _check(self, identity: dict[str, Any]) -> None:
        path = self.directory / IDENTITY
        found = _recorded(self.directory)
        if found is not None and (found == identity or begun(self.directory)):
            _refuse_another(self.directory, found, identity)
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(self.directory / _FOLDER, ignore_errors=True)  # the start of another run
            part = path.with_suffix(".part")  # whole or not there, even on a full disk
            part.write_text(json.dumps(identity, indent=2) + "\n", encoding="utf-8")
            part.rename(path)
        except OSError as error:
            raise _unusable(path, error) from error
