"""Training text: token ids, and from where on they are what a drafter will have to guess."""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specdec_jax.models import Tokenizer


class Sample(NamedTuple):
    """A prompt and what follows it; a text without a prompt has none."""

    prompt_ids: list[int]
    answer_ids: list[int]
    """What is learned from; its end token included, if it came to one."""
    temperature: float | None = None
    """That the answer was drawn at by the target; None for a text from elsewhere."""

    def record(self) -> dict[str, Any]:
        """As one line of a file."""
        return {"prompt_ids": self.prompt_ids, "answer_ids": self.answer_ids, "temperature": self.temperature}


class DataError(ValueError):
    """A file of training data that cannot be used."""


def write_samples(path: str | os.PathLike[str], samples: Iterable[Sample]) -> None:
    """Append samples as JSON lines, each whole before the next begins."""
    with Path(path).open("a", encoding="utf-8") as file:
        for sample in samples:
            file.write(json.dumps(sample.record(), separators=(",", ":")) + "\n")
            file.flush()


def read_samples(path: str | os.PathLike[str], vocab_size: int) -> list[Sample]:
    """What `write_samples` wrote; a last line that was cut off by a crash is left out.

    Raises:
        DataError: another line is no sample, or has an id outside of the vocabulary.
    """
    path = Path(path)
    lines = path.read_bytes().split(b"\n")
    whole, cut_off = lines[:-1], lines[-1]
    found = [_sample(line, f"{path}:{number}", vocab_size) for number, line in enumerate(whole, start=1)]
    if cut_off:
        with contextlib.suppress(DataError):  # no newline came after it: it was never finished
            found.append(_sample(cut_off, f"{path}, at its end,", vocab_size))
    return found


def _sample(line: bytes, where: str, vocab_size: int) -> Sample:
    expected = "expected {prompt_ids, answer_ids, temperature} as write_samples writes them"
    try:
        record = json.loads(line)
        prompt, answer, temperature = (record[key] for key in ("prompt_ids", "answer_ids", "temperature"))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{where} is no sample ({type(error).__name__}: {error}); {expected}") from error
    check_ids(prompt, where, vocab_size)
    check_ids(answer, where, vocab_size)
    return Sample(prompt, answer, temperature)


def check_ids(ids: Any, where: str, vocab_size: int) -> None:
    """Raise a DataError for anything but a list of token ids."""
    wrong = [i for i in ids if type(i) is not int or not 0 <= i < vocab_size] if isinstance(ids, list) else [ids]
    if wrong:
        raise DataError(f"{where} has the token id {wrong[0]!r}; expected integers from 0 to {vocab_size - 1}")


def texts(path: str | os.PathLike[str], tokenizer: Tokenizer) -> Iterator[Sample]:
    """JSON lines with ``text``: all of it is learned from, and it ends with the tokenizer's first end token.

    Raises:
        DataError: a line is something else; nothing is skipped in silence.
    """
    for where, record in _records(path):
        text = record.get("text")
        if not isinstance(text, str) or not text:
            raise DataError(f"{where} has no text; expected an object with a text that is not empty")
        _check_text(text, where, "text")
        yield Sample([], [*tokenizer.encode(text), *tokenizer.eos_ids[:1]])


def _check_text(text: str, where: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where} has a lone surrogate at character {error.start} of its {what}; expected valid Unicode"
        ) from error


def prompts(path: str | os.PathLike[str], tokenizer: Tokenizer, *, now: datetime | None = None) -> Iterator[list[int]]:
    """Token ids of JSON lines with ``prompt`` (what a user says, where there is a chat template) or ``messages``.

    ``now`` is the date for templates that write it, by default that of the clock.

    Raises:
        DataError: a line is something else.
    """
    for where, record in _records(path):
        if "messages" in record:
            messages = record["messages"]
            _check_text(json.dumps(messages, ensure_ascii=False), where, "messages, as JSON")
        elif isinstance(record.get("prompt"), str) and record["prompt"]:
            _check_text(record["prompt"], where, "prompt")
            messages = [{"role": "user", "content": record["prompt"]}]
        else:
            raise DataError(f"{where} has neither a prompt nor messages; expected one of them")
        if tokenizer.chat_template is None and "messages" not in record:
            yield tokenizer.encode(record["prompt"])
            continue
        try:
            yield tokenizer.encode_chat(messages, now=now)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"{where} cannot be put into the chat template: {error}") from error


def _records(path: str | os.PathLike[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    with Path(path).open("rb") as file:  # in lines before it is text, so that a bad byte has its line's number
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where = f"{path}:{number}"
            try:
                record = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))  # some editors write a mark
            except UnicodeDecodeError as error:
                raise DataError(f"{where} is not UTF-8 ({error}); expected text in that encoding") from error
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where} is no JSON ({error}); expected one object a line") from error
            if not isinstance(record, dict):
                raise DataError(f"{where} holds a {type(record).__name__}; expected an object")
            yield where, record


def split(
    samples: Sequence[Sample], held_out: float, text_of: Callable[[Sequence[int]], str] | None = None
) -> tuple[list[Sample], list[Sample]]:
    """Samples to train on, and a share ``held_out`` of them to measure on, chosen by their content alone.

    So a sample stays on its side however the data grow, and a text that occurs twice is on one side only. Of samples so
    few that the share would be none, the one that comes first by its content is held out.

    ``text_of`` makes text of ids, for what people wrote: their copies of a text differ in blanks. Without it content is
    the ids.
    """
    places = [_fraction(sample, text_of) for sample in samples]
    if held_out > 0:
        held_out = max(held_out, math.nextafter(min(places, default=0.0), 1.0))
    sides: tuple[list[Sample], list[Sample]] = ([], [])
    for sample, place in zip(samples, places, strict=True):
        sides[place < held_out].append(sample)
    return sides


def _fraction(sample: Sample, text_of: Callable[[Sequence[int]], str] | None) -> float:
    """A number from 0 to 1, drawn from the prompt, or from the text where there is none: answers to one question stay
    together."""
    ids = sample.prompt_ids or sample.answer_ids
    content = np.asarray(ids, "<i4").tobytes() if text_of is None else "".join(text_of(ids).split()).encode()
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "little") / 2**64
