"""The text of a run: the target's own, or from a file, written down batch by batch so that nothing is made twice."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specdec_jax._typing import PRNGKeyArray
from specdec_jax.batch.fingerprint import digest_of
from specdec_jax.batch.manifest import differences
from specdec_jax.models import Loaded

from .samples import DataError, Sample, prompts, read_samples, texts, write_samples
from .self_prompt import CAPACITY, answers, config_of, self_prompted
from .teacher import weights_digest
from .whole_files import whole_file

Progress = Callable[[int, int], None]
"""Called with the answer tokens there are and those wanted."""


def begun(folder: Path) -> datetime:
    """When the text in a folder was begun, or else now. Chat templates may write the date, and a text has one alone."""
    made = _read_made(folder)
    return datetime.fromisoformat(made[_BEGUN]) if _BEGUN in made else datetime.now().replace(microsecond=0)


def gather(
    folder: Path,
    target: Loaded,
    *,
    tokens: int,
    key: PRNGKeyArray,
    temperatures: Sequence[float] = (0.0, 1.0),
    rows: int = 64,
    max_tokens: int | None = None,
    capacity: int = CAPACITY,
    asked: Sequence[Sequence[int]] | None = None,
    now: datetime | None = None,
    tell: Callable[[str], None] = lambda line: None,
    progress: Progress = lambda have, want: None,
) -> list[Sample]:
    """What the target says, at least ``tokens`` tokens of it or as much as there are prompts for.

    Every batch is a file of its own, and a function of the key and its number: an interrupted call goes on where it
    was, and one that wants more adds to what is there.

    Args:
        folder: of the files.
        target: who answers.
        tokens: to be learned from, in answers.
        key: of everything drawn.
        temperatures: of the answers in turn; 0 is the likeliest token at each step.
        rows: of a batch.
        max_tokens: most tokens of an answer.
        capacity: most tokens of a prompt and its answer.
        asked: token ids of prompts to answer; by default the target asks itself.
        now: that `begun` said, which ``asked`` was made with too; by default what it says.
        tell: told what cannot be known of text that is there.

    Raises:
        DataError: the folder holds text that was made otherwise or by other weights, or nothing comes out.
        OSError: the disk is full; what was written stays and is gone on from.
    """
    folder.mkdir(parents=True, exist_ok=True)
    now = begun(folder) if now is None else now
    _check_made(
        folder,
        now,
        {
            "target": [target.name, repr(target.config)],
            # As stored, for what is computed with differs between devices: text written on one serves another.
            _WEIGHTS: weights_digest(target.params),
            "key": np.asarray(jax.random.key_data(key)).tolist(),
            "temperatures": list(temperatures),
            "rows": rows,
            "max_tokens": max_tokens,
            "capacity": capacity,
            "asked": None if asked is None else digest_of(json.dumps(ids).encode() for ids in map(list, asked)),
        },
        tell,
    )
    config = config_of(capacity)
    samples: list[Sample] = []
    have, index = 0, 0
    while have < tokens and (asked is None or index * rows < len(asked)):
        path = folder / f"{index:06}.jsonl"
        if path.exists():
            batch = read_samples(path, target.model.vocab_size)
        else:
            batch = _batch(
                target, jax.random.fold_in(key, index), index, asked, temperatures, rows, max_tokens, config, now
            )
            with whole_file(path, "the text") as part:
                part.touch()
                write_samples(part, batch)
        samples += batch
        have += sum(len(sample.answer_ids) for sample in batch)
        index += 1
        if index == _PATIENCE and have == 0:
            why = (
                "its questions do not come to an end. Give a file of prompts or texts instead"
                if asked is None
                else f"its answers are empty, or the prompts leave no room within {capacity} tokens. Give others"
            )
            raise DataError(f"{target.name} wrote nothing to learn from in {index} batches: {why}")
        progress(have, tokens)
    return samples


_PATIENCE = 4
_MADE = "made.json"
_WEIGHTS = "weights"
_BEGUN = "begun"


def _read_made(folder: Path) -> dict[str, Any]:
    """What is written down about the text there; nothing if there is none."""
    path = folder / _MADE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it holds no object")
        datetime.fromisoformat(found.get(_BEGUN, "0001-01-01"))
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(
            f"{path} is damaged ({error}); expected what a run wrote there, so name another directory, or delete that "
            "folder to have its text written anew"
        ) from error
    return found


def _check_made(folder: Path, now: datetime, made: dict[str, Any], tell: Callable[[str], None]) -> None:
    """Text that lies there is used again only where it would be written again."""
    path = folder / _MADE
    if not path.exists():
        if any(folder.glob("*.jsonl")):
            raise DataError(f"{folder} holds text, but no {_MADE} that says how it was made; expected an empty folder")
        with whole_file(path, "the text") as part:
            part.write_text(json.dumps({**made, _BEGUN: now.isoformat()}, indent=2) + "\n", encoding="utf-8")
        return
    found, wanted = _read_made(folder), json.loads(json.dumps(made))
    found.pop(_BEGUN, None)
    weights, ours = found.pop(_WEIGHTS, None), wanted.pop(_WEIGHTS)
    other = differences(found, wanted)
    if other:
        raise DataError(
            f"{folder} holds text that was made otherwise: {'; '.join(other)}. Expected the same settings to use it "
            "again, so name another directory, or delete that folder"
        )
    name = made["target"][0]
    if weights is None:
        tell(f"{path} does not say which weights of {name} wrote the text there; it is taken as written by these")
    elif weights != ours:
        raise DataError(
            f"{folder} holds text that other weights of {name} wrote; expected the target's own words, so name another "
            "directory, or delete that folder to have them written anew"
        )


def _batch(target, key, index, asked, temperatures, rows, max_tokens, config, now) -> list[Sample]:
    options = {"temperatures": temperatures, "config": config, "max_tokens": max_tokens, "rows": rows}
    if asked is None:
        return self_prompted(target, key=key, now=now, **options)
    return answers(target, asked[index * rows : (index + 1) * rows], key=key, **options)


def from_file(path: Path, target: Loaded, *, now: datetime | None = None) -> tuple[list[Sample], list[list[int]]]:
    """Samples of a file of texts, or prompts for the target to answer, whichever its first line has.

    ``now`` is the date for chat templates that write it, by default that of the clock.

    Raises:
        DataError: the file is empty, or mixes them, or the target has no tokenizer.
    """
    if target.tokenizer is None:
        raise DataError(f"{target.name} brings no tokenizer, so it cannot read {path}; expected a model with one")
    try:
        with path.open("rb") as file:
            first = next((line for line in file if line.strip()), b"")
        kinds = json.loads(first.decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read {path} ({error}); expected JSON lines with text, prompt or messages") from error
    if isinstance(kinds, dict) and "text" in kinds:
        return list(texts(path, target.tokenizer)), []
    return [], list(prompts(path, target.tokenizer, now=now))
